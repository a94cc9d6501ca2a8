"""A controller on another host takes over, and nobody knows what has become of the one before: never two.

The shipped code of all three sides (tenure and fleet of the former controller, the agent's lease, the wait of the new one)
in every order of looks, renewals and answers, with clocks that are wrong by one percent. What must hold: when the new
controller starts ranks, those of the former one are gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ckpt.controller.hosts.fleet import Fleet
from ckpt.controller.hosts.lease import AgentLease
from ckpt.controller.hosts.tenure import Tenure, patience_ns, wait_ns
from ckpt.controller.supervision.history import dump, summarise
from ckpt.controller.supervision.plan import Node

S = 1_000_000_000
LEASE_NS = 5 * S
KILL_NS = S  # what an agent may need to kill its ranks
STEP_NS = S // 10
RATES = (0.99, 1.0, 1.01)
TAKEN_NS = 7 * S  # when the takeover is durable
LOOKS_NS = (0, 3 * S, 11 * S, 19 * S)  # how long the last look takes that has found no takeover
AFTER = ("finds it", "is cut off")  # the look after that
DELAYS_NS = (0, 2 * S, 4 * S)  # of a renewal and its answer together

Wait = Callable[[int, int], int]


class FromTheEnd(Tenure):
    """Taken out: a look counts from its beginning."""


class Always(Tenure):
    """Taken out: renewals are answered only for a time."""

    def may_answer(self, now_ns: int) -> bool:
        return True


def gone_and_started(
    look: int,
    after: str,
    delay: int,
    rates: tuple[float, float, float],
    make: Callable[[int, int], Tenure],
    wait: Wait,
) -> tuple[float | None, float]:
    """When the former ranks are gone, and when the new controller starts others, in true time. The last look that
    finds no takeover begins just before that is there; the looks before it take no time."""
    former_rate, agent_rate, new_rate = rates
    fleet, lease = Fleet([Node("a", 1)], lease_ns=LEASE_NS), AgentLease(LEASE_NS, 0)
    fleet.joined(1, 0)
    lease.answered(0)
    patience = patience_ns(LEASE_NS)
    tenure = make(patience, 0)
    started = TAKEN_NS + wait(LEASE_NS, patience) / new_rate
    answers: list[tuple[int, int]] = []
    for now in range(0, int(started) + 20 * S, STEP_NS):
        former, agent = int(now * former_rate), int(now * agent_rate)
        if now < TAKEN_NS:
            tenure.looked(former)
        elif now == TAKEN_NS + look:
            tenure.looked(former if make is FromTheEnd else int((TAKEN_NS - 1) * former_rate))
        superseded = after == "finds it" and now > TAKEN_NS + look
        if lease.is_over(agent):
            return now + KILL_NS, started
        for due, number in [each for each in answers if each[0] <= now]:
            answers.remove((due, number))
            lease.answered(number)
        number_due = lease.renewal(agent)
        if number_due is not None and not superseded and tenure.may_answer(former):
            fleet.renewed(1, number_due, former)
            answers.append((now + delay, number_due))
    return None, started


def violations(make: Callable[[int, int], Tenure] = Tenure, wait: Wait = wait_ns) -> list[object]:
    return [
        (look, after, delay, rates)
        for look, after, delay in itertools.product(LOOKS_NS, AFTER, DELAYS_NS)
        for rates in itertools.product(RATES, repeat=3)
        for gone, started in [gone_and_started(look, after, delay, rates, make, wait)]
        if gone is None or gone > started
    ]


def test_when_a_new_controller_starts_ranks_those_of_the_former_one_are_gone() -> None:
    assert not violations()


@pytest.mark.parametrize("make", [FromTheEnd, Always])
def test_with_a_tenure_that_is_too_long_there_would_be_two(make: Callable[[int, int], Tenure]) -> None:
    assert violations(make)


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda lease, patience: lease + patience, id="no margin"),
        pytest.param(lambda lease, patience: wait_ns(lease, 0), id="as if it were dead"),
        pytest.param(lambda lease, patience: wait_ns(0, patience), id="without the lease"),
    ],
)
def test_with_a_wait_that_is_too_short_there_would_be_two(wait: Wait) -> None:
    assert violations(wait=wait)


def test_a_controller_that_was_killed_while_it_waited_has_had_no_ranks() -> None:
    """The one after it waits for the same hosts: those of the last controller that has started some."""
    lines = [
        {"event": "controller", "generation": 1},
        {"event": "host-joined", "lease_s": 5.0},
        {"event": "engine", "generation": 1, "tenure_s": 20.0},
        {"event": "waiting-for-leases", "generation": 2, "s": 26.0},
    ]
    for history in (summarise(lines), summarise([{"event": "continued", **dump(summarise(lines))}])):
        assert history.engine is not None
        assert (history.engine["generation"], history.engine["tenure_s"], history.lease_s) == (2, 20.0, 5.0)
    assert summarise([*lines, {"event": "controller", "generation": 2}]).engine is None


def test_starts_are_counted_from_the_last_commit_on() -> None:
    start, commit = {"event": "controller"}, {"event": "committed", "epoch": 1}
    assert summarise([start, start]).starts == 2
    assert summarise([start, start, commit]).starts == 0
    assert summarise([start, commit, start, start, start]).starts == 3

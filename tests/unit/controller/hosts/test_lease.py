"""The lease of a host, on the shipped code of both sides, in every order of what can happen to a renewal.

Controller and agent have clocks of their own, right to one percent. A renewal and its answer arrive after any time, or
never. What must hold: when the controller says that a host is fenced, its ranks are gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.controller.hosts import fleet as fleet_module
from ckpt.controller.hosts.fleet import Answer, Fleet, Note, TellFence
from ckpt.controller.hosts.lease import AgentLease, margin_ns, over_ns
from ckpt.controller.supervision.events import Fenced
from ckpt.controller.supervision.history import dump, summarise
from ckpt.controller.supervision.plan import Node

S = 1_000_000_000
LEASE_NS = 10 * S
KILL_NS = S  # what an agent may need to kill its ranks
STEP_NS = S // 2
RATES = (0.99, 1.0, 1.01)
DELAYS_NS = (0, 3 * S, 9 * S, None)  # of a renewal and of its answer; None: lost


def fenced_at(
    delays: tuple[tuple[int | None, int | None], ...],
    rates: tuple[float, float],
    make_lease: Callable[[int, int], AgentLease],
) -> tuple[float | None, float | None]:
    """When the ranks are gone and when the controller says so, in true time. `delays`: of each renewal there and back; all
    later ones are lost."""
    agent_rate, controller_rate = rates
    fleet = Fleet([Node("a", 1)], lease_ns=LEASE_NS)
    lease = make_lease(LEASE_NS, 0)
    arriving = [(0, 0)]  # at the controller: true time, number
    answers: list[tuple[int, int]] = []
    gone = said = None
    for now in range(0, 60 * S, STEP_NS):
        at_controller, at_agent = int(now * controller_rate), int(now * agent_rate)
        for due, number in [each for each in arriving if each[0] <= now]:
            arriving.remove((due, number))
            effects = (
                fleet.joined(1, at_controller) if number == 0 else fleet.renewed(1, number, at_controller)
            )
            back = delays[number][1] if number < len(delays) else None
            if any(isinstance(effect, Answer) for effect in effects) and back is not None:
                answers.append((now + back, number))
        effects = fleet.tick(at_controller)
        if said is None and any(isinstance(e, Note) and e.event == "host-fenced" for e in effects):
            said = now
        if gone is None:
            if lease.is_over(at_agent):
                gone = now + KILL_NS
                continue
            for due, number in [each for each in answers if each[0] <= now]:
                answers.remove((due, number))
                lease.answered(number)
            number_due = lease.renewal(at_agent)
            there = delays[number_due][0] if number_due is not None and number_due < len(delays) else None
            if number_due is not None and there is not None:
                arriving.append((now + there, number_due))
    return gone, said


def violations(make_lease: Callable[[int, int], AgentLease] = AgentLease) -> list[object]:
    found: list[object] = []
    pairs = list(itertools.product(DELAYS_NS, repeat=2))
    for first, second in itertools.product(pairs, repeat=2):
        for rates in itertools.product(RATES, repeat=2):
            delays = ((0, 0), first, second)
            gone, said = fenced_at(delays, rates, make_lease)
            if said is None or gone is None or gone > said:
                found.append((delays, rates, gone, said))
    return found


def test_when_a_host_is_fenced_its_ranks_are_gone() -> None:
    assert not violations()


def test_no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken out: the margin of the controller."""
    monkeypatch.setattr(fleet_module, "over_ns", lambda came_ns, lease_ns: came_ns + lease_ns)
    assert violations()


class FromTheAnswer(AgentLease):
    """Taken out: the lease counts from when the renewal was sent."""

    def __init__(self, lease_ns: int, now_ns: int) -> None:
        super().__init__(lease_ns, now_ns)
        self.now_ns = now_ns

    def is_over(self, now_ns: int) -> bool:
        self.now_ns = now_ns
        return super().is_over(now_ns)

    def answered(self, number: int) -> None:
        super().answered(number)
        self._valid_from_ns = self.now_ns


def test_a_lease_that_counts_from_the_answer() -> None:
    assert violations(FromTheAnswer)


def test_an_agent_that_was_frozen_looks_at_its_lease_before_anything_else() -> None:
    """It runs no ranks again, even if an answer from before has come meanwhile."""
    lease = AgentLease(LEASE_NS, 0)
    lease.answered(0)
    assert lease.renewal(3 * S) == 1
    assert lease.is_over(15 * S)  # asked first; the answer to renewal 1 is in the socket
    lease.answered(1)
    assert not lease.is_over(12 * S)


def test_a_lease_begins_with_the_first_answer() -> None:
    lease = AgentLease(LEASE_NS, 5 * S)
    assert not lease.has_begun and not lease.is_over(100 * S)
    lease.answered(0)
    assert lease.has_begun and lease.is_over(15 * S) and not lease.is_over(15 * S - 1)


def test_renewals_are_sent_five_times_in_a_lease() -> None:
    lease = AgentLease(LEASE_NS, 0)
    sent = [now for now in range(0, 10 * S, S) if lease.renewal(now) is not None]
    assert sent == [2 * S, 4 * S, 6 * S, 8 * S]
    assert margin_ns(15 * S) < 3 * S
    assert over_ns(S, LEASE_NS) == S + LEASE_NS + margin_ns(LEASE_NS)


# ---- the fleet -------------------------------------------------------------------------------------------


def fleet_of(*names: str) -> Fleet:
    fleet = Fleet([Node(name, 2) for name in names], lease_ns=LEASE_NS)
    for index in range(1, len(names) + 1):
        fleet.joined(index, 0)
    return fleet


def fenced(effects: list[fleet_module.Effect]) -> bool:
    return any(isinstance(effect, Fenced) for effect in effects)


def test_all_is_fenced_when_the_joined_have_reaped_and_the_leases_of_the_lost_are_over() -> None:
    for order in itertools.permutations(("reaped 1", "reaped 2", "lease 3")):
        fleet = fleet_of("a", "b", "c")
        fleet.start({1: {0: 4}, 2: {1: 4}, 3: {2: 4}})
        fleet.engine_ended(3, "killed", S)
        for index in (1, 2):
            fleet.renewed(index, 1, 9 * S)
        assert not fenced(fleet.fence(4))
        for number, what in enumerate(order):
            if what == "lease 3":
                effects = fleet.tick(over_ns(0, LEASE_NS))
            else:
                effects = fleet.fenced(int(what[-1]), 4)
            assert fenced(effects) == (number == 2), order
        assert [node.name for node in fleet.nodes()] == ["a", "b"]


def test_a_host_that_is_lost_while_the_others_reap() -> None:
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 1}, 2: {1: 1}})
    fleet.fence(1)
    assert not fenced(fleet.fenced(1, 1))
    effects = fleet.engine_ended(2, "killed", S)
    assert any(isinstance(effect, fleet_module.Gone) for effect in effects) and not fenced(effects)
    assert fenced(fleet.tick(over_ns(0, LEASE_NS) + S))


def test_a_spare_that_is_lost_costs_nothing() -> None:
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 0}})
    assert [type(effect) for effect in fleet.engine_ended(2, "killed", S)] == [Note]


def test_a_spare_that_is_slow_or_lost_holds_no_restart_up() -> None:
    for is_lost in (False, True):
        fleet = fleet_of("a", "b")
        fleet.start({1: {0: 0}})
        if is_lost:
            fleet.engine_ended(2, "killed", S)
        told = [effect for effect in fleet.fence(0) if isinstance(effect, fleet_module.TellFence)]
        assert len(told) == (1 if is_lost else 2), "who is there is told in any case"
        assert fenced(fleet.fenced(1, 0))
        fleet.start({1: {0: 1}})


def test_a_host_whose_ranks_have_all_died_is_waited_for() -> None:
    """Children of theirs may live."""
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 0}, 2: {1: 0}})
    fleet.died(2, 1, 0)
    fleet.fence(0)
    assert not fenced(fleet.fenced(1, 0))
    assert fenced(fleet.fenced(2, 0))


def test_a_host_that_comes_back_is_a_spare_once_it_is_fenced() -> None:
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 0}, 2: {1: 0}})
    fleet.engine_ended(2, "killed", S)
    assert fleet.back(2, 7, 2 * S) == [], "its ranks may run"
    fleet.ended(2, "the lease is over", 12 * S)
    assert fleet.back(2, 7, 13 * S) == [
        Answer(2, 7),
        Note("host-back", {"host": "b", "slots": 2, "ms": 12000.0}),
    ]
    assert [node.name for node in fleet.nodes()] == ["a", "b"]
    assert fleet.back(2, 8, 14 * S) == [Answer(2, 8)], "it had not heard the answer yet"
    assert fleet.renewed(2, 9, 14 * S) == [Answer(2, 9)]
    assert [type(effect) for effect in fleet.engine_ended(2, "killed", S)] == [Note], "it has no ranks"


def all_lost() -> Fleet:
    """Two hosts with ranks fall silent at once, and the supervisor has asked for the fencing."""
    fleet = fleet_of("a", "b")
    fleet.returns = True
    fleet.start({1: {0: 0}, 2: {1: 0}})
    fleet.engine_ended(2, "killed", S)
    effects = fleet.tick(over_ns(0, LEASE_NS))
    assert [effect.event for effect in effects if isinstance(effect, Note)] == [
        "host-lost",
        "host-fenced",
        "host-fenced",
    ]
    assert [effect.event for effect in fleet.fence(0) if isinstance(effect, Note)] == ["waiting-for-hosts"]
    return fleet


def test_when_all_hosts_are_lost_those_that_may_come_back_are_waited_for() -> None:
    fleet = all_lost()
    assert fleet.tick(20 * S) == []
    assert [type(effect) for effect in fleet.back(1, 7, 30 * S)] == [Answer, Note]
    assert fleet.tick(31 * S) == [Fenced(0)]
    assert [node.name for node in fleet.nodes()] == ["a"]


@pytest.mark.parametrize("comes", [True, False])
def test_no_ranks_are_started_on_a_host_that_is_silent_when_the_others_are_lost(comes: bool) -> None:
    """All hosts were cut off, and given up half a second apart: ranks were started on the last one, which was lost an
    instant later, and the job ended (`no host is left`) instead of waiting."""
    fleet = fleet_of("a", "b")
    fleet.returns = True
    fleet.start({1: {0: 0}})
    fleet.renewed(2, 1, S // 2)
    over = over_ns(0, LEASE_NS)
    fleet.tick(over)
    assert fleet.fence(0) == [TellFence(2, 0)] and fleet.hosts[1].state == "fenced"
    if comes:
        fleet.renewed(2, 2, over)
        assert fleet.tick(over + 1) == [Fenced(0)]
        return
    said = fleet.tick(over + S // 2)
    assert [each.event for each in said if isinstance(each, Note)] == [
        "host-lost",
        "host-fenced",
        "waiting-for-hosts",
    ]
    assert not fenced(said)


def test_hosts_are_waited_for_as_long_as_their_agents_ask() -> None:
    fleet = all_lost()
    assert not fenced(fleet.tick(11 * LEASE_NS - 1))
    assert fenced(fleet.tick(11 * LEASE_NS))


def test_a_job_that_is_stopped_waits_for_no_host() -> None:
    assert fenced(all_lost().fence(0, final=True))


def test_that_another_host_is_said_to_be_lost_ends_no_wait() -> None:
    """The supervisor asks for the fencing at each loss."""
    assert all_lost().fence(0) == []


def test_hosts_that_do_not_come_back_are_not_waited_for() -> None:
    """The engine's command has ended, or the agents of a job of `ckpt submit` have the job queued again."""
    for engine, returns in ((True, True), (False, False)):
        fleet = fleet_of("a", "b")
        fleet.returns = returns
        fleet.start({1: {0: 0}, 2: {1: 0}})
        for index in (1, 2) if engine else ():
            fleet.engine_ended(index, "killed", S)
        fleet.tick(over_ns(0, LEASE_NS))
        assert fenced(fleet.fence(0))


def test_a_host_that_was_left_out_does_not_come_back() -> None:
    fleet = fleet_of("a", "b")
    fleet.leave_out("b", "cable", S)
    fleet.tick(over_ns(0, LEASE_NS))
    assert fleet.back(2, 7, 20 * S) == [fleet_module.TellEnd(2, "cable")]
    assert [host.state for host in fleet.hosts.values()] == ["fenced", "fenced"]


DELAYS_BACK_NS = (0, 4 * S, 12 * S)


def runs_while_fenced(delays: tuple[int, ...], again: Callable[[AgentLease, int], AgentLease]) -> bool:
    """A host is cut off, comes back, and is cut off again. `delays`: of its packets and of the answers, in turn; they arrive
    in their order. Does it ever hold a lease that is not over while the controller says that it is fenced?"""
    fleet = Fleet([Node("a", 1)], lease_ns=LEASE_NS)
    lease = AgentLease(LEASE_NS, 0)
    there: list[tuple[int, str, int]] = [(0, "join", 0)]
    back: list[tuple[int, int]] = []
    sent = 0

    def due(now: int, queue: list[Any]) -> int:
        nonlocal sent
        sent += 1
        delay = delays[sent % len(delays)]
        return max([now + delay, *(each[0] for each in queue[-1:])])

    for now in range(0, 50 * S, S):
        while there and there[0][0] <= now:
            _, what, number = there.pop(0)
            match what:
                case "join":
                    effects = fleet.joined(1, now)
                case "ended":
                    effects = fleet.ended(1, "said so", now)
                case "back":
                    effects = fleet.back(1, number, now)
                case _:
                    effects = fleet.renewed(1, number, now)
            answers = [effect for effect in effects if isinstance(effect, Answer)]
            back += [(due(now, back), answer.number) for answer in answers if now < 35 * S]
        fleet.tick(now)
        while back and back[0][0] <= now:
            lease.answered(back.pop(0)[1])
        if lease.is_over(now):
            lease = again(lease, now)
            when = due(now, there)
            there += [(when, "ended", 0), (when, "back", lease.first)]
        elif (number := lease.renewal(now)) is not None:
            there.append((due(now, there), "renew" if lease.has_begun else "back", number))
        if fleet.hosts[1].state == "fenced" and lease.has_begun and not lease.is_over(now):
            return True
    return False


def each_delays() -> list[tuple[int, ...]]:
    return list(itertools.product(DELAYS_BACK_NS, repeat=6))


def test_a_host_that_comes_back_has_no_lease_before_the_controller_has_given_it_a_new_one() -> None:
    assert not [each for each in each_delays() if runs_while_fenced(each, AgentLease.again)]


def test_a_new_lease_whose_renewals_are_numbered_from_the_start() -> None:
    """Taken out: answers to renewals of the lease before begin no new one."""

    def again(lease: AgentLease, now_ns: int) -> AgentLease:
        return AgentLease(lease.lease_ns, now_ns)

    assert any(runs_while_fenced(each, again) for each in each_delays())


def test_a_report_of_an_earlier_incarnation_proves_nothing() -> None:
    fleet = fleet_of("a")
    fleet.start({1: {0: 2}})
    fleet.fence(2)
    assert not fenced(fleet.fenced(1, 1))
    assert fenced(fleet.fenced(1, 2))


def test_the_end_of_the_engines_command_is_no_proof() -> None:
    fleet = fleet_of("a")
    fleet.start({1: {0: 0}})
    fleet.engine_ended(1, "killed", S)
    assert fleet.renewed(1, 1, 2 * S) == [], "not answered any more"
    assert not fenced(fleet.fence(0))
    assert not fleet.tick(over_ns(0, LEASE_NS) - 1)
    assert fenced(fleet.tick(over_ns(0, LEASE_NS)))


def test_another_agent_on_a_host_that_finds_nothing_of_the_one_before_is_a_proof() -> None:
    """Then the host is a spare, when its agent has asked for a lease."""
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 0}, 2: {1: 0}})
    assert not fleet.may_begin_anew(1), "its agent is there"
    fleet.engine_ended(1, "exit code 255", S)
    assert fleet.may_begin_anew(1)
    fleet.fence(0)
    fleet.fenced(2, 0)
    effects = fleet.reborn(1, "reset", 2 * S)
    assert fenced(effects)
    assert [e.fields["proof"] for e in effects if isinstance(e, Note)] == ["reset"]
    assert fleet.renewed(1, 1, 2 * S) == [], "it has no lease yet"
    fleet.start({2: {0: 1, 1: 1}})
    assert [type(each) for each in fleet.back(1, 1, 3 * S)] == [Answer, Note]
    assert not fleet.may_begin_anew(1)


def test_no_other_agent_is_started_on_a_host_that_was_left_out() -> None:
    fleet = fleet_of("a", "b")
    fleet.leave_out("a", "at fault", S)
    fleet.engine_ended(1, "exit code 0", S)
    assert not fleet.may_begin_anew(1)
    assert fleet.reborn(1, "reset", S) == []


def test_a_host_that_says_that_all_has_ended_needs_no_lease() -> None:
    fleet = fleet_of("a", "b")
    fleet.start({1: {0: 0}, 2: {1: 0}})
    fleet.fence(0)
    fleet.fenced(1, 0)
    effects = fleet.ended(2, "told to end", S)
    assert fenced(effects)
    assert [e.fields["proof"] for e in effects if isinstance(e, Note) and e.event == "host-fenced"] == [
        "reaped"
    ]


def test_a_host_that_does_not_start_is_no_loss() -> None:
    fleet = Fleet([Node("a", 1), Node("b", 1)], lease_ns=LEASE_NS)
    fleet.joined(1, 0)
    effects = fleet.engine_ended(2, "exit code 255", S)
    assert [type(effect) for effect in effects] == [Note]
    assert fleet.joined(2, 2 * S) == [], "too late"
    assert [node.name for node in fleet.nodes()] == ["a"]
    assert fleet.index_of("b") == 2
    assert fleet.deadline_ns() == over_ns(0, LEASE_NS)


def test_the_log_says_how_long_the_hosts_of_the_last_controller_may_have_a_lease() -> None:
    """A restart waits for that, whatever lease it is given itself."""
    joined = [{"event": "host-joined", "host": name, "slots": 1, "lease_s": 15.0} for name in "ab"]
    assert summarise([{"event": "controller"}, *joined]).lease_s == 15.0
    assert summarise([{"event": "controller"}, *joined, {"event": "controller"}]).lease_s == 0.0
    replaced = {"event": "continued", **dump(summarise(joined))}
    assert summarise([replaced]).lease_s == 15.0


def test_a_host_that_stands_still_says_so_and_is_told_which_lease_it_needs() -> None:
    """Once for each longer time, however often the lease begins anew; not for what every busy machine does."""
    lease = AgentLease(LEASE_NS, 0)
    due = LEASE_NS // 5
    assert lease.stall(due + 3 * S) is None
    assert lease.stall(due + 4 * S) == 4 * S
    assert lease.stall(due + 4 * S) is None, "it has been said"
    assert lease.renewal(due + 4 * S) == 1
    assert lease.stall(due + 4 * S + due + 3 * S) is None
    for later in (lease.again(100 * S), lease.handed_on(100 * S)):
        assert later.stall(100 * S + due + 4 * S) is None
        assert later.stall(100 * S + due + 9 * S) == 9 * S
    note = Fleet([Node("a", 1)], lease_ns=LEASE_NS).stalled(1, 4 * S)
    assert note.event == "host-stalled" and note.fields["host"] == "a" and note.fields["s"] == 4.0
    assert "given up after 10 s: use --lease 12" in note.fields["reason"]

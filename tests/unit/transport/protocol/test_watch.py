"""When a link between hosts is down, and when it only looks so: a peer whose kernel answers is never taken for dead."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from ckpt.transport.protocol.events import Event, LinkDown, LinkUp
from ckpt.transport.protocol.watch import LinkWatch, TcpState, kind_of

MS = 1_000_000
GIVE_UP_NS = 2000 * MS
STEP_NS = 500 * MS
ANSWERED = TcpState(0, 0, 0)


def silent(silent_ns: int) -> TcpState:
    return TcpState(retransmits=3, probes=0, silent_ns=silent_ns)


def test_silence_that_lasts_is_probed_once_and_reported_once() -> None:
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 500 * MS, 1000 * MS)
    assert watch.due(1000 * MS) == [7]
    assert watch.looked(7, silent(500 * MS), 1000 * MS) is False
    assert watch.deadline_ns() == 1000 * MS + watch.look_ns
    assert watch.looked(7, silent(2000 * MS), 2500 * MS) is True
    assert watch.deadline_ns() is None and watch.due(9000 * MS) == []
    down = watch.probed(7, errno.ETIMEDOUT, 3300 * MS)
    assert down == LinkDown(7, "silent", errno.ETIMEDOUT, 500 * MS, silent(2000 * MS))
    watch.late(7, 4000 * MS, 4500 * MS)
    assert watch.looked(7, silent(4000 * MS), 4500 * MS) is False, "it is known"
    assert watch.looked(7, ANSWERED, 5500 * MS) == LinkUp(7)
    assert watch.deadline_ns() is None, "nothing runs while all is well"


def test_a_peer_whose_kernel_answers_is_well_however_long_it_is_late() -> None:
    watch = LinkWatch(GIVE_UP_NS)
    for second in range(60):
        watch.late(7, second * 1000 * MS, second * 1000 * MS)
        assert watch.looked(7, ANSWERED, second * 1000 * MS) is False
        assert watch.deadline_ns() is None


def test_a_closed_window_whose_probes_are_answered_is_a_peer_that_is_stopped() -> None:
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 9000 * MS, 9000 * MS)
    assert watch.looked(7, TcpState(retransmits=0, probes=0, silent_ns=8000 * MS), 9000 * MS) is False
    assert watch.deadline_ns() is None


def test_a_connection_that_can_be_made_is_no_loss() -> None:
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 3000 * MS, 3000 * MS)
    assert watch.looked(7, None, 3000 * MS) is True
    assert watch.probed(7, None, 3001 * MS) is None
    assert watch.looked(7, None, 4000 * MS) is False, "the time to give up begins again"
    assert watch.looked(7, None, 5001 * MS) is True


def test_a_connection_that_carries_nothing_is_down_though_others_can_be_made() -> None:
    """Large packets are lost (MTU): TCP sends them again for ever, and every new connection is accepted."""
    watch, now_ns = LinkWatch(GIVE_UP_NS), 1000 * MS
    watch.late(7, 500 * MS, now_ns)
    for turn in range(3):
        assert watch.looked(7, silent(now_ns), now_ns) is False
        now_ns += 2000 * MS
        assert watch.looked(7, silent(now_ns), now_ns) is True
        down = watch.probed(7, None, now_ns)
        assert (down is None) == (turn < 2)
    assert down == LinkDown(7, "silent", errno.ETIMEDOUT, 500 * MS, silent(now_ns), accepts=True)
    assert watch.looked(7, silent(now_ns), now_ns + 1000 * MS) is False, "it is known"
    assert watch.looked(7, ANSWERED, now_ns + 2000 * MS) is False, (
        "a new connection, which has carried nothing yet"
    )
    assert watch.looked(7, silent(now_ns), now_ns + 3000 * MS) is False
    assert watch.looked(7, ANSWERED, now_ns + 4000 * MS) is False
    assert watch.looked(7, ANSWERED, now_ns + 5000 * MS) == LinkUp(7)
    assert watch.deadline_ns() is None


def test_connections_without_one_that_carries_nothing_prove_nothing() -> None:
    """The peer is being started: there is no connection to look at."""
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 3000 * MS, 3000 * MS)
    for turn in range(9):
        now_ns = 4000 * MS + turn * 2000 * MS
        assert watch.looked(7, None, now_ns) is True
        assert watch.probed(7, None, now_ns) is None


def test_a_connection_that_was_idle_is_not_silent_since_its_last_message() -> None:
    """The kernel counts from the last acknowledgement, which may be an hour old: what counts is since when it is asked."""
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 300 * MS, 1000 * MS)
    assert watch.looked(7, silent(3600_000 * MS), 1000 * MS) is False
    assert watch.looked(7, silent(3600_000 * MS), 2700 * MS) is True


def test_another_address_begins_anew() -> None:
    watch = LinkWatch(GIVE_UP_NS)
    watch.late(7, 5000 * MS, 5000 * MS)
    watch.forget(7)
    assert watch.due(9000 * MS) == [] and watch.deadline_ns() is None


@pytest.mark.parametrize(
    ("number", "has_route", "kind"),
    [
        (errno.ECONNREFUSED, True, "refused"),
        (errno.ECONNRESET, True, "reset"),
        (errno.EPIPE, True, "reset"),
        (errno.ETIMEDOUT, True, "silent"),
        (errno.ETIMEDOUT, False, "silent"),
        (errno.EHOSTUNREACH, True, "unreachable"),
        (errno.ENETUNREACH, True, "unreachable"),
        (errno.ENETUNREACH, False, "local"),
        (errno.EHOSTUNREACH, False, "local"),
        (errno.ENETDOWN, True, "local"),
        (errno.EADDRNOTAVAIL, True, "local"),
        (errno.EACCES, True, "local"),
    ],
)
def test_kinds(number: int, has_route: bool, kind: str) -> None:
    assert kind_of(number, has_route=has_route) == kind


def test_all_histories_of_a_connection() -> None:
    """Half-second steps of a connection that answers (a), does not (s), or is not there (n); a raw connect succeeds only
    in a. Down is said where, and only where, nothing has answered for the time to give up, and up when it does again."""
    for history in product("asn", repeat=9):
        watch, told = LinkWatch(GIVE_UP_NS), list[tuple[int, type[Event]]]()
        expected, quiet_since, is_down = list[tuple[int, type[Event]]](), 0, False
        for step, state in enumerate(history):
            now_ns = step * STEP_NS
            # the model
            if state == "a":
                if is_down:
                    expected.append((step, LinkUp))
                quiet_since, is_down = now_ns, False
            elif not is_down and now_ns - quiet_since >= GIVE_UP_NS:
                expected.append((step, LinkDown))
                is_down = True
            # the machine: a link is late whenever nothing answers
            if state != "a":
                watch.late(1, now_ns - quiet_since, now_ns)
            for rank in watch.due(now_ns):
                quiet_ns = now_ns - quiet_since
                tcp = {"a": ANSWERED, "s": silent(quiet_ns), "n": None}[state]
                what = watch.looked(rank, tcp, now_ns)
                if what is True:
                    what = watch.probed(rank, errno.ETIMEDOUT, now_ns) or False
                if isinstance(what, Event):
                    told.append((step, type(what)))
        assert [each for each in told if each[1] is LinkDown] == [e for e in expected if e[1] is LinkDown], (
            history
        )
        for step, kind in expected:
            if kind is LinkUp:  # looked for once a second
                assert (
                    any(kind is LinkUp and step <= at <= step + 2 for at, kind in told)
                    or "".join(history[step : step + 3]) != "aaa"
                ), history

"""The rules of the protocol, one scenario each, on real endpoints and hand-carried frames.

Two or three ranks; `carry` gives frames to their target, `talk` lets frames flow until nobody has any.
Time stands still unless a test moves it.
"""

from __future__ import annotations

import pytest

from ckpt.transport.errors import EpochError, StateMismatch, UnknownRank
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.events import (
    ImageDue,
    LinkLate,
    LinkStalled,
    PeerHeard,
    PeerRestarted,
    PeerSilent,
    Zombie,
)
from ckpt.transport.protocol.state import Buffer, PortState, link_error

MS = 1_000_000
Frame = tuple[int, tuple[Buffer, ...]]
JOB = 0xABC


def endpoint(
    rank: int, size: int = 2, *, state: PortState | None = None, meet: bool = True, **config: int
) -> Endpoint:
    made = Endpoint(EndpointConfig(JOB, rank, size, **config), state)
    if meet:
        for peer in range(size):
            made.set_peer(peer, config.get("incarnation", 0), 0)
    return made


def pair(**config: int) -> tuple[Endpoint, Endpoint]:
    return endpoint(0, **config), endpoint(1, **config)


def take(port: Endpoint) -> list[bytes]:
    """Deliver and consume all messages."""
    found = []
    for source, messages in port.delivered():
        found += [bytes(message) for message in messages]
        port.consumed(source, sum(map(len, messages)), len(messages))
    return found


def carry(port: Endpoint, out: list[Frame], now_ns: int = 0) -> None:
    """Give these frames to their target."""
    for target, parts in out:
        assert target == port.config.rank
        port.receive(parts, now_ns)


def talk(a: Endpoint, b: Endpoint, now_ns: int = 0) -> list[bytes]:
    """Frames flow until nobody has any; what b got."""
    got: list[bytes] = []
    while True:
        out, back = a.transmit(now_ns), b.transmit(now_ns)
        if not out and not back:
            return got
        carry(b, out, now_ns)
        carry(a, back, now_ns)
        got += take(b)
        take(a)


def later(port: Endpoint, now_ns: int) -> list[Frame]:
    """Timers up to `now_ns`, and what they bring."""
    port.tick(now_ns)
    return port.transmit(now_ns)


def kinds(out: list[Frame]) -> list[str]:
    return [frames.KIND_NAMES[frames.open_frame(parts)[0][2]] for _, parts in out]


def image(port: Endpoint, epoch: int, now_ns: int = 0) -> PortState:
    port.freeze()
    state = port.snapshot()
    port.advance(epoch, now_ns)
    port.thaw(now_ns)
    return state


# ---- the epoch rule


def test_a_message_of_a_higher_epoch_waits_for_the_image() -> None:
    a, b = pair()
    image(a, 1)
    a.send(1, b"m")
    carry(b, a.transmit(0))
    assert take(b) == []
    assert b.events() == [ImageDue(1, 0)]
    state = image(b, 1)
    assert state.vectors() == {}, "the message is not in the image"
    assert take(b) == [b"m"]


def test_an_ack_of_a_higher_epoch_waits_for_the_image() -> None:
    a, b = pair()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    take(b)
    image(b, 1)
    b.send(0, b"reply")
    carry(a, b.transmit(0))
    assert a.base(1) == 0
    assert a.events() == [ImageDue(1, 1)]
    state = image(a, 1)
    assert state.links[1].messages == [b"m"], "the receiver's image may lack it: it must be in the sender's"
    assert a.base(1) == 1
    assert take(a) == [b"reply"]


def test_a_pure_ack_of_a_higher_epoch_waits_too() -> None:
    a, b = pair()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    take(b)
    image(b, 1)
    carry(a, later(b, 50 * MS))
    assert a.base(1) == 0 and a.events() == [ImageDue(1, 1)]
    a.advance(1, 0)
    assert a.base(1) == 1


def test_ack_value_and_stamp_are_those_of_the_moment_of_transmission() -> None:
    a, b = pair()
    a.send(1, b"1")
    carry(b, a.transmit(0))
    take(b)
    b.tick(50 * MS)  # an ack is due …
    image(b, 1)  # … but it goes out only after the image
    out = b.transmit(50 * MS)
    header, _ = frames.open_frame(out[0][1])
    assert (header[9], header[10]) == (1, 1)


def test_traffic_of_a_lower_epoch_is_taken() -> None:
    a, b = pair()
    image(b, 1)
    a.send(1, b"m")
    carry(b, a.transmit(0))
    assert take(b) == [b"m"]


def test_image_due_is_told_once_per_epoch_and_epochs_may_jump() -> None:
    a, b = pair()
    image(a, 1)
    a.send(1, b"1")
    out = a.transmit(0)
    carry(b, out)
    carry(b, out)
    assert b.events() == [ImageDue(1, 0)]
    image(a, 4)
    a.send(1, b"2")
    carry(b, a.transmit(0))
    assert b.events() == [ImageDue(4, 0)]
    b.advance(2, 0)
    assert take(b) == [b"1"], "only what is stamped up to 2"
    b.advance(4, 0)
    assert take(b) == [b"2"]


def test_epochs_only_grow() -> None:
    a, _ = pair(epoch=5)
    for epoch in (5, 4):
        with pytest.raises(EpochError):
            a.advance(epoch, 0)


def test_held_frames_are_bounded_and_what_is_beyond_comes_again() -> None:
    a, b = endpoint(0), endpoint(1, held_bytes=200)
    image(a, 1)
    for number in range(3):
        a.send(1, b"%d" % number * 50)
        carry(b, a.transmit(0))
    assert b.counters()["dropped_held_overflow"] == 2
    assert (a.held, b.held) == (0, 1)
    b.advance(1, 0)
    assert b.held == 0 and take(b) == [b"0" * 50]
    now_ns, got = 0, []
    while not a.idle():
        now_ns += 500 * MS
        a.tick(now_ns)
        b.tick(now_ns)
        got += talk(a, b, now_ns)
    assert got == [b"1" * 50, b"2" * 50]


# ---- acks and duplicates


def test_nothing_is_acked_before_it_is_delivered() -> None:
    a, b = pair()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    b.send(0, b"back")
    carry(a, b.transmit(0))
    assert a.base(1) == 0
    assert b.snapshot().vectors()[0][2] == 0, "received, ack not sent: in no image"
    take(b)
    carry(a, later(b, 50 * MS))
    assert a.base(1) == 1


def test_every_duplicate_is_acked_again_with_the_current_value() -> None:
    a, b = pair()
    a.send(1, b"m")
    out = a.transmit(0)
    carry(b, out)
    take(b)
    later(b, 50 * MS)  # this ack is lost
    carry(b, out)
    assert take(b) == []
    carry(a, b.transmit(50 * MS))
    assert a.base(1) == 1


def test_lost_messages_are_sent_again_until_acked() -> None:
    a, b = pair()
    a.send(1, b"m")
    a.transmit(0)
    now_ns, rounds = 0, 0
    while a.deadline_ns() is not None and rounds < 5:
        now_ns = a.deadline_ns() or 0
        out = later(a, now_ns)
        rounds += 1
        assert kinds(out) == ["messages"]
    assert a.counters()["retransmitted"] == 5
    carry(b, out)
    carry(a, b.transmit(now_ns))
    assert a.base(1) == 0, "not delivered, not acked"
    assert take(b) == [b"m"]
    carry(a, later(b, now_ns + 50 * MS))
    assert a.idle() and a.deadline_ns() is not None
    a.tick(now_ns + 10_000 * MS)
    assert a.deadline_ns() is None, "nothing left to do"


def test_a_gap_is_told_and_only_what_is_missing_is_sent_again() -> None:
    a, b = pair()
    units = []
    for number in range(6):
        a.send(1, b"%d" % number)
        units += a.transmit(0)
    carry(b, [u for i, u in enumerate(units) if i != 1])
    assert take(b) == [b"0"]
    carry(a, b.transmit(0))
    again = a.transmit(0)
    assert kinds(again) == ["messages"]
    carry(b, again)
    assert take(b) == [b"1", b"2", b"3", b"4", b"5"]
    assert a.counters()["retransmitted"] == 1


def test_reordered_frames_are_delivered_in_order() -> None:
    a, b = pair()
    units = []
    for number in range(5):
        a.send(1, b"%d" % number)
        units += a.transmit(0)
    carry(b, units[::-1])
    assert take(b) == [b"0", b"1", b"2", b"3", b"4"]


# ---- incarnations and foreign frames


def test_frames_of_and_for_former_incarnations_are_dropped() -> None:
    old_a, _ = pair()
    old_a.send(1, b"old")
    stale = old_a.transmit(0)
    new_b = endpoint(1, incarnation=1)
    carry(new_b, stale)
    assert take(new_b) == [] and new_b.events() == []
    assert new_b.counters()["dropped_stale"] == 1
    survivor = endpoint(1, meet=False)
    survivor.set_peer(0, 1, 0)
    carry(survivor, stale)
    assert take(survivor) == [] and survivor.counters()["dropped_stale"] == 1


def test_a_process_that_was_replaced_stops() -> None:
    zombie, _ = pair()
    zombie.send(1, b"never")
    new = endpoint(1, incarnation=1)
    new.send(0, b"m")
    carry(zombie, new.transmit(0))
    assert zombie.events() == [Zombie(1, 1)]
    assert zombie.transmit(0) == [] and zombie.deadline_ns() is None
    carry(zombie, new.transmit(0))
    assert zombie.delivered() == []


def test_a_later_incarnation_of_a_peer_has_to_be_introduced() -> None:
    _, b = pair()
    new_a = endpoint(0, meet=False, incarnation=1)
    new_a.set_peer(1, 0, 0)
    new_a.send(1, b"m")
    out = new_a.transmit(0)
    carry(b, out)
    carry(b, out)
    assert b.events() == [PeerRestarted(0, 1)] and take(b) == []
    b.set_peer(0, 1, 0)
    carry(b, out)
    assert take(b) == [b"m"]


def test_an_older_incarnation_is_not_introduced() -> None:
    b = endpoint(1, meet=False)
    b.set_peer(0, 2, 0)
    b.set_peer(0, 1, 0)
    b.send(0, b"m")
    assert frames.open_frame(b.transmit(0)[0][1])[0][8] == 2


def test_a_peer_nobody_told_of_yet_is_heard_but_nothing_is_sent_to_it() -> None:
    a, b = endpoint(0), endpoint(1, meet=False)
    a.send(1, b"early")
    b.send(0, b"waits")
    carry(b, a.transmit(0))
    assert take(b) == [b"early"]
    assert later(b, 1000 * MS) == []
    b.set_peer(0, 0, 1000 * MS)
    out = b.transmit(1000 * MS)
    carry(a, out, 1000 * MS)
    assert take(a) == [b"waits"] and a.base(1) == 1


def test_a_new_incarnation_of_a_peer_gets_everything_unacked_again() -> None:
    a, b = pair()
    a.send(1, b"1")
    talk(a, b)
    carry(a, later(b, 50 * MS))
    a.send(1, b"2")
    a.send(1, b"3" * 100_000)
    carry(b, a.transmit(0))
    carry(a, later(b, 60 * MS))
    state = PortState(JOB, 1, 2, 0, 0, b.snapshot().links)
    b.delivered()
    b2 = endpoint(1, meet=False, state=state, incarnation=1)
    b2.set_peer(0, 0, 0)
    a.set_peer(1, 1, 0)
    assert talk(a, b2) == [b"2", b"3" * 100_000]


def test_foreign_misrouted_and_damaged_frames_are_counted_and_dropped() -> None:
    _, b = pair()
    for job, rank, size, name in ((1, 0, 2, "foreign"), (JOB, 0, 3, "misrouted"), (JOB, 1, 2, "misrouted")):
        other = Endpoint(EndpointConfig(job, rank, size))
        target = 2 if size == 3 else 1 - rank
        other.set_peer(target, 0, 0)
        other.send(target, b"m")
        out = other.transmit(0)
        before = b.counters()[f"dropped_{name}"]
        b.receive(out[0][1], 0)
        assert b.counters()[f"dropped_{name}"] == before + 1
    for noise in ((), (b"",), (b"x" * 500,), (b"x", b"y", b"z"), (bytearray(72),)):
        b.receive(noise, 0)
    assert b.counters()["dropped_malformed"] == 5
    assert b.delivered() == []


# ---- frozen ports


def test_a_frozen_port_holds_answers_nack_and_goes_on_after_thaw() -> None:
    a, b = pair()
    b.freeze()
    b.send(0, b"not now")
    a.send(1, b"m")
    carry(b, a.transmit(0))
    nack = b.transmit(0)
    assert kinds(nack) == ["nack"]
    assert take(b) == [] and b.deadline_ns() is None
    carry(a, nack)
    a.send(1, b"n")
    assert a.transmit(0) == [], "paused"
    b.thaw(0)
    assert take(b) == [b"m"], "what came is not lost"
    carry(a, b.transmit(0))
    assert take(a) == [b"not now"]
    assert a.base(1) == 1
    assert talk(a, b) == [b"n"]


def test_a_paused_peer_still_acks() -> None:
    a, b = pair()
    b.send(0, b"m")
    carry(a, b.transmit(0))
    take(a)
    a.send(1, b"x")
    b.freeze()
    carry(b, a.transmit(0))
    carry(a, b.transmit(0))
    b.thaw(0)
    carry(a, b.transmit(0))
    assert b.base(0) == 1


def test_a_lost_thaw_notice_is_made_good_by_the_probe() -> None:
    a, b = pair()
    b.freeze()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    carry(a, b.transmit(0))
    b.thaw(0)
    b.transmit(0)  # the notice is lost
    now_ns, probes = 0, 0
    a.send(1, b"n")
    while a.deadline_ns() is not None and not probes:
        now_ns = a.deadline_ns() or 0
        out = later(a, now_ns)
        probes = kinds(out).count("probe")
    carry(b, out, now_ns)
    carry(a, b.transmit(now_ns), now_ns)
    got = take(b) + talk(a, b, now_ns)
    assert got == [b"m", b"n"]


def test_a_nack_older_than_what_the_peer_sent_since_means_nothing() -> None:
    a, b = pair()
    b.freeze()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    nack = b.transmit(0)
    b.advance(1, 0)
    b.thaw(0)
    a.advance(1, 0)
    carry(a, b.transmit(0))
    carry(a, nack)
    a.send(1, b"n")
    assert kinds(a.transmit(0)) == ["messages"]


def test_a_nack_spreads_the_epoch() -> None:
    a, b = pair()
    b.advance(3, 0)
    b.freeze()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    carry(a, b.transmit(0))
    assert a.events() == [ImageDue(3, 1)]


# ---- long messages


def test_long_messages_travel_in_pieces_and_arrive_as_one_buffer() -> None:
    a, b = pair(fragment_bytes=1000, large_bytes=500)
    payload = bytes(range(256)) * 20
    a.send(1, b"envelope", payload)
    assert talk(a, b) == [b"envelope" + payload]
    assert a.base(1) == 1, "acked at once: the program may wait for its buffer"


def test_payload_of_another_item_size_and_shape() -> None:
    a, b = pair(fragment_bytes=1000, large_bytes=500)
    view = memoryview(bytearray(4096)).cast("d", (16, 32))
    a.send(1, b"", view)
    assert talk(a, b) == [bytes(4096)]


def test_hints_about_pieces_save_sending_them_again() -> None:
    a, b = pair(fragment_bytes=1000, large_bytes=500)
    a.send(1, bytes(10_000))
    out = a.transmit(0)
    assert len(out) == 10
    carry(b, [f for i, f in enumerate(out) if i != 4])
    carry(a, later(b, 50 * MS))
    again = a.transmit(50 * MS)
    assert len(again) == 1
    carry(b, again)
    assert take(b) == [bytes(10_000)]


def test_a_partial_message_is_in_no_image() -> None:
    a, b = pair(fragment_bytes=1000, large_bytes=500)
    a.send(1, b"x" * 10_000)
    carry(b, a.transmit(0)[:5])
    assert b.snapshot().vectors() == {}
    assert a.snapshot().links[1].messages == [b"x" * 10_000]


def test_pieces_of_a_higher_epoch_wait_so_the_message_counts_as_of_its_highest() -> None:
    a, b = pair(fragment_bytes=1000, large_bytes=500, burst_bytes=2000)
    a.send(1, b"x" * 4000)
    carry(b, a.transmit(0))
    image(a, 1)
    while a.flush_due:
        carry(b, a.transmit(0))
    assert take(b) == [] and b.events() == [ImageDue(1, 0)]
    assert b.snapshot().vectors() == {}
    b.advance(1, 0)
    assert take(b) == [b"x" * 4000]


# ---- credit


def test_a_slow_receiver_stops_the_sender_and_nothing_is_dropped() -> None:
    a, b = pair(credit_bytes=1000, initial_credit_bytes=1000, coalesce_bytes=200, message_overhead_bytes=0)
    for number in range(100):
        a.send(1, b"%03d" % number * 20)
    got: list[Buffer] = []
    now_ns = 0
    for _ in range(50):
        now_ns += 20 * MS
        carry(b, later(a, now_ns), now_ns)
        for _, messages in b.delivered():
            got += messages
        carry(a, later(b, now_ns), now_ns)
    assert 0 < sum(map(len, got)) <= 1300
    assert b.counters()["refused"] == 0
    taken = len(got)
    b.consumed(0, sum(map(len, got)), len(got))
    for _ in range(400):
        now_ns += 20 * MS
        carry(b, later(a, now_ns), now_ns)
        got += [bytes(m) for m in take(b)]
        carry(a, later(b, now_ns), now_ns)
    assert got == [b"%03d" % number * 20 for number in range(100)] and taken < 100


def test_consuming_reopens_the_window_at_once() -> None:
    a, b = pair(credit_bytes=1000, initial_credit_bytes=1000, message_overhead_bytes=0)
    a.send(1, b"x" * 1000)
    carry(b, a.transmit(0))
    b.delivered()
    a.send(1, b"next")
    assert kinds(a.transmit(0)) == ["probe"], "no credit: it asks"
    carry(a, later(b, 50 * MS))
    assert a.base(1) == 1
    assert "messages" not in kinds(a.transmit(50 * MS))
    b.consumed(0, 1000, 1)
    assert b.flush_due
    carry(a, b.transmit(50 * MS))
    assert kinds(a.transmit(50 * MS)) == ["messages"]


def test_a_hungry_receiver_grants_more_although_its_mailbox_is_full() -> None:
    a, b = pair(
        credit_bytes=1000, initial_credit_bytes=1000, hungry_credit_bytes=300, message_overhead_bytes=0
    )
    for number in range(30):
        a.send(1, b"%02d" % number * 50)
        carry(b, a.transmit(0))
        b.delivered()
        carry(a, later(b, number * 50 * MS))
    stuck_at = b.rx(0)
    assert stuck_at < 30
    now_ns = 2000 * MS
    b.hungry(True, now_ns)
    assert b.flush_due
    for _ in range(100):
        now_ns += 20 * MS
        carry(a, later(b, now_ns), now_ns)
        carry(b, later(a, now_ns), now_ns)
        b.delivered()
    assert b.rx(0) == 30
    b.hungry(False, now_ns)


def test_a_lost_window_update_is_made_good_by_the_probe() -> None:
    a, b = pair(credit_bytes=1000, initial_credit_bytes=1000, message_overhead_bytes=0)
    a.send(1, b"x" * 1000)
    carry(b, a.transmit(0))
    b.delivered()
    carry(a, later(b, 50 * MS))
    a.send(1, b"next")
    a.transmit(50 * MS)
    b.consumed(0, 1000, 1)
    b.transmit(50 * MS)  # lost
    now_ns = a.deadline_ns()
    assert now_ns is not None
    out = later(a, now_ns)
    assert kinds(out) == ["probe"]
    carry(b, out, now_ns)
    carry(a, b.transmit(now_ns), now_ns)
    assert kinds(a.transmit(now_ns)) == ["messages"]


# ---- latency and coalescing


def test_an_idle_link_sends_at_once_and_a_burst_shares_frames() -> None:
    a, b = pair()
    talk(a, b)
    a.send(1, b"ping")
    assert a.flush_due, "an idle link does not wait for company"
    out = a.transmit(0)
    assert not a.flush_due
    for _ in range(100):
        a.send(1, b"burst")
    assert not a.flush_due, "a busy link does"
    burst = a.transmit(0)
    assert len(out) == len(burst) == 1
    carry(b, out + burst)
    assert take(b) == [b"ping", *[b"burst"] * 100]


def test_ping_pong_needs_no_frames_but_its_own() -> None:
    a, b = pair()
    talk(a, b)
    for number in range(100):
        for x, y in ((a, b), (b, a)):
            x.send(y.config.rank, b"%d" % number)
            assert x.flush_due
            out = x.transmit(number)
            assert kinds(out) == ["messages"]
            carry(y, out, number)
            assert take(y) == [b"%d" % number]
    assert a.base(1) == 100 and b.base(0) == 99


def test_a_full_batch_goes_without_waiting() -> None:
    a, _ = pair(coalesce_bytes=1000)
    a.send(1, b"first")
    a.transmit(0)
    for _ in range(15):
        a.send(1, b"x" * 20)
    assert a.flush_due


def test_a_congested_wire_keeps_its_messages_back() -> None:
    a = endpoint(0, 3)
    a.send(1, b"one")
    a.send(2, b"two")
    assert [rank for rank, _ in a.transmit(0, blocked={1})] == [2]
    assert [rank for rank, _ in a.transmit(0)] == [1]


# ---- images and restart


def test_the_five_states_of_a_message() -> None:
    a, b = pair()
    a.send(1, b"acked")
    talk(a, b)
    carry(a, later(b, 50 * MS))
    a.send(1, b"delivered, ack under way")
    carry(b, a.transmit(0))
    take(b)
    a.send(1, b"received")
    carry(b, a.transmit(0))
    a.send(1, b"lost")
    a.transmit(0)
    a.send(1, b"queued")
    saved_a, saved_b = image(a, 1), image(b, 1)
    assert saved_a.links[1].messages == [b"delivered, ack under way", b"received", b"lost", b"queued"]
    assert (saved_a.vectors()[1], saved_b.vectors()[0]) == ((5, 1, 0), (0, 0, 2))
    assert link_error({0: saved_a.vectors(), 1: saved_b.vectors()}) is None
    a2 = endpoint(0, state=saved_a, incarnation=1, epoch=1)
    b2 = endpoint(1, state=saved_b, incarnation=1, epoch=1)
    assert talk(a2, b2) == [b"received", b"lost", b"queued"]
    assert a2.send(1, b"new") == 5


def test_an_ack_may_precede_the_first_transmission_after_restart() -> None:
    a, b = pair()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    take(b)
    a2 = endpoint(0, state=image(a, 1), incarnation=1, epoch=1)
    b2 = endpoint(1, state=image(b, 1), incarnation=1, epoch=1)
    b2.send(0, b"hello")
    carry(a2, b2.transmit(0))
    assert a2.base(1) == 1
    assert "messages" not in kinds(a2.transmit(0))


def test_a_snapshot_is_not_changed_by_what_comes_later() -> None:
    a, b = pair()
    a.send(1, b"m")
    carry(b, a.transmit(0))
    take(b)
    state = image(a, 1)
    b.advance(1, 0)
    carry(a, later(b, 50 * MS))
    a.send(1, b"later")
    assert a.base(1) == 1
    assert state.links[1].messages == [b"m"] and state.vectors()[1] == (1, 0, 0)


def test_messages_to_oneself_are_an_ordinary_link() -> None:
    a = endpoint(0)
    assert [a.send(0, b"me"), a.send(0, b"x", bytearray(100_000))] == [0, 1]
    assert a.flush_due and not a.idle()
    state = image(a, 1)
    assert state.vectors()[0] == (2, 0, 0) and len(state.links[0].messages) == 2
    again = endpoint(0, state=state, incarnation=1, epoch=1)
    for port in (a, again):
        assert port.transmit(0) == []
        assert take(port) == [b"me", b"x" + bytes(100_000)]
        assert port.base(0) == port.tx(0) == port.rx(0) == 2 and port.idle()


def test_state_of_another_port_is_refused() -> None:
    a, _ = pair()
    a.send(1, b"m")
    state = image(a, 1)
    for config in (
        EndpointConfig(1, 0, 2, 1, 1),
        EndpointConfig(JOB, 1, 2, 1, 1),
        EndpointConfig(JOB, 0, 3, 1, 1),
    ):
        with pytest.raises(StateMismatch):
            Endpoint(config, state)
    state.links[1].tx += 1
    with pytest.raises(StateMismatch, match="1 messages"):
        Endpoint(EndpointConfig(JOB, 0, 2, 1, 1), state)


# ---- silence, and wrong calls


def test_a_silent_peer_is_told_once_and_when_it_speaks_again() -> None:
    a, b = pair(silent_ns=1000 * MS)
    now_ns = 3_600_000 * MS
    a.send(1, b"m")
    out = a.transmit(now_ns)
    told = []
    for _ in range(8):
        now_ns = a.deadline_ns() or 0
        out = later(a, now_ns)
        told += a.events()
    told = [event for event in told if not isinstance(event, LinkLate | LinkStalled)]
    assert [type(event) for event in told] == [PeerSilent]
    assert told[0].rank == 1 and told[0].silent_ns >= 1000 * MS  # type: ignore[attr-defined]
    carry(b, out, now_ns)
    take(b)
    carry(a, later(b, now_ns + 50 * MS), now_ns + 50 * MS)
    assert a.events() == [PeerHeard(1)]


def test_a_link_is_late_from_the_second_timeout_in_a_row_on() -> None:
    a, b = pair()
    a.send(1, b"m")
    a.transmit(0)
    told = []
    for _ in range(3):
        now_ns = a.deadline_ns() or 0
        out = later(a, now_ns)
        told.append([event.silent_ns for event in a.events() if isinstance(event, LinkLate)])
    assert told[0] == []
    assert 0 < told[1][0] < told[2][0] <= now_ns
    carry(b, out, now_ns)
    take(b)
    carry(a, later(b, now_ns + 50 * MS), now_ns + 50 * MS)
    a.send(1, b"n")
    a.transmit(now_ns + 60 * MS)
    later(a, a.deadline_ns() or 0)
    assert a.events() == [], "one timeout says nothing"


def test_unknown_ranks_raise() -> None:
    a, _ = pair()
    for call in (
        lambda: a.send(2, b""),
        lambda: a.send(-1, b""),
        lambda: a.base(2),
        lambda: a.backlog_bytes(7),
        lambda: a.consumed(2, 0, 0),
        lambda: a.set_peer(2, 0, 0),
    ):
        with pytest.raises(UnknownRank):
            call()

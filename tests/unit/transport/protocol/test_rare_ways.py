"""Ways through the core that ordinary traffic seldom takes. With the other tests every branch is taken."""

from __future__ import annotations

import array
from typing import Any

import pytest

from ckpt.transport.errors import FrameError, StateMismatch, UnknownRank, UsageError
from ckpt.transport.protocol import frames
from ckpt.transport.protocol.config import EndpointConfig
from ckpt.transport.protocol.endpoint import Endpoint
from ckpt.transport.protocol.link import NEVER
from ckpt.transport.protocol.state import LinkState, PortState
from ckpt.transport.protocol.timeout import Timeout
from ckpt.transport.protocol.window import SendWindow

MS = 1_000_000
IDENT = (7, 1, 0, 0, 0)


def port(rank: int = 0, *, meet: bool = True, **limits: Any) -> Endpoint:
    made = Endpoint(EndpointConfig(7, rank, 2, **limits))
    if meet:
        for peer in range(2):
            made.set_peer(peer, 0, 0)
        made.transmit(0)
    return made


def take(endpoint: Endpoint) -> list[bytes]:
    return [bytes(message) for _, messages in endpoint.delivered() for message in messages]


def carry(source: Endpoint, target: Endpoint, now_ns: int = 0) -> int:
    """Frames from one to the other; how many."""
    out = source.transmit(now_ns)
    for _, parts in out:
        target.receive(parts, now_ns)
    return len(out)


@pytest.mark.parametrize(
    ("config", "epoch", "incarnation"),
    [(EndpointConfig(7, 0, 2, 1, 3), 4, 1), (EndpointConfig(7, 0, 2, 1, 3), 3, 2)],
)
def test_a_saved_port_is_not_of_the_future(config: EndpointConfig, epoch: int, incarnation: int) -> None:
    with pytest.raises(StateMismatch, match="is later than"):
        Endpoint(config, PortState(7, 0, 2, epoch, incarnation, {}))


def test_a_saved_pair_of_buffers_is_one_message() -> None:
    state = PortState(7, 0, 2, 0, 0, {1: LinkState(2, 3, 0, 0, [(b"head", b"body")])})
    a, b = Endpoint(EndpointConfig(7, 0, 2), state), port(1, meet=False)
    a.set_peer(1, 0, 0)
    b._links[0].ledger.rx = b._links[0].ledger.arrived = 2
    carry(a, b)
    assert take(b) == [b"headbody"]


def test_messages_as_they_come_in_many_forms() -> None:
    """Buffers of other items, short pairs that fill a batch, long data before a payload, data that may change."""
    a, b = port(0, large_bytes=40, coalesce_bytes=100), port(1)
    told: list[int] = []
    a.on_flush_due = lambda: told.append(1)
    sent: list[tuple[Any, Any]] = [
        (array.array("i", [1, 2]), None),
        (b"head", array.array("h", [3, 4])),
        (b"a" * 30, b"b" * 5),
        (bytearray(b"c" * 20), b"d" * 30),
        (b"e" * 60, b"f" * 10),
        (b"g" * 60, None),
    ]
    for data, payload in sent:
        a.send(1, data, payload)
    for _ in range(4):
        carry(a, b)
        carry(b, a)
    plain = [bytes(data) + (b"" if payload is None else bytes(payload)) for data, payload in sent]
    assert take(b) == plain
    assert told and a.marks.deadline_ns <= NEVER


def test_short_pairs_on_a_busy_link_wait_for_company() -> None:
    a = port()
    a.send(1, b"first")
    a.transmit(0)
    for _ in range(2):
        a.send(1, b"x", b"y")
    assert not a.flush_due and len(a.transmit(0)) == 1


def test_what_comes_early_beyond_the_limit_is_refused() -> None:
    a = port(credit_bytes=10, message_overhead_bytes=0)
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 5, [bytes(21)]),), 0)
    assert a.counters()["refused"] == 1 and a.flush_due


def test_a_message_above_the_limit_is_refused_where_it_is_sent() -> None:
    a = port(0, large_bytes=10, max_message_bytes=20)
    with pytest.raises(UsageError, match="above max_message_bytes"):
        a.send(1, bytes(21))


def test_a_message_above_the_limit_is_dropped_where_it_comes() -> None:
    a = port(max_message_bytes=20)
    a.receive(frames.encode_fragment(IDENT, (0, 0, 100), 0, 30, 0, b"", bytes(10)), 0)
    assert a.counters()["dropped_oversized"] == 1
    head, _ = frames.encode_fragment(IDENT, (0, 0, 100), 0, 20, 0, b"", bytes(4))
    a.receive((head, memoryview(array.array("i", [1]))), 0)
    assert a._links[1].ledger.partials


def test_there_is_something_to_deliver_or_not() -> None:
    a = port()
    assert not a.deliverable
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 0, [b"m"]),), 0)
    assert a.deliverable
    a.freeze()
    assert a.frozen and not a.deliverable
    a.thaw(0)
    assert take(a) == [b"m"] and not a.deliverable
    a.send(0, b"to myself")
    assert a.deliverable


def test_hunger_grants_credit_only_where_that_is_more() -> None:
    a = port(credit_bytes=200, hungry_credit_bytes=400, message_overhead_bytes=0)
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 0, [bytes(150)]),), 0)
    take(a)
    a.tick(20 * MS)
    a.transmit(20 * MS)  # the ack tells of 50 bytes: the link is tight
    a.hungry(True, 20 * MS)
    assert a.transmit(20 * MS)
    a.hungry(True, 20 * MS)
    a.hungry(False, 20 * MS)
    a.hungry(False, 20 * MS)
    assert not a.transmit(20 * MS)
    a._links[1].grant()
    assert not a.flush_due


def test_hunger_of_a_port_without_any_tight_link_says_nothing() -> None:
    a = port()
    a.hungry(True, 0)
    assert not a.transmit(0)


def test_a_port_cannot_drop_itself() -> None:
    a = port()
    with pytest.raises(UsageError, match="itself"):
        a.drop_peer(0)


def test_a_dropped_peer_takes_nothing_and_says_nothing() -> None:
    a = port()
    a.send(1, b"lost")
    a.drop_peer(1)
    a.drop_peer(1)
    assert a.base(1) == a.tx(1) == 1
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 0, [b"m"]),), 0)
    assert take(a) == [] and a.counters()["dropped_stale"] == 1


def test_a_zombie_counts_what_still_comes() -> None:
    a = port()
    a.receive((frames.encode_probe((7, 1, 0, 0, 3), (0, 0, 0)),), 0)
    a.receive((frames.encode_probe(IDENT, (0, 0, 0)),), 0)
    assert a.counters()["dropped_zombie"] == 2 and take(a) == [] and not a.transmit(0)


def test_a_later_incarnation_is_told_once() -> None:
    a = port()
    for _ in range(2):
        a.receive((frames.encode_probe((7, 1, 0, 4, 0), (0, 0, 0)),), 0)
    assert len(a.events()) == 1 and a.counters()["dropped_later_incarnation"] == 2


def test_an_ack_beyond_all_that_was_sent_changes_nothing() -> None:
    a = port()
    a.send(1, b"m")
    a.receive((frames.encode_ack(IDENT, (0, 9, 100)),), 0)
    assert a.base(1) == 0 and a.counters()["invalid_acks"] == 1


def test_old_acks_and_more_credit() -> None:
    a = port(initial_credit_bytes=60, message_overhead_bytes=0)
    for _ in range(3):
        a.send(1, bytes(50))
        a.transmit(0)
    assert a._links[1].window.sealed
    a.receive((frames.encode_ack(IDENT, (0, 1, 60)),), 0)
    a.transmit(0)
    a.receive((frames.encode_ack(IDENT, (0, 0, 500)),), 0)  # an older one is late
    assert a.counters()["old_acks"] == 1
    a.receive((frames.encode_ack(IDENT, (0, 1, 500)),), 0)  # the same again, with more credit
    assert a.flush_due and a.transmit(0)


def test_a_frozen_peer_is_left_alone_until_it_speaks() -> None:
    a = port()
    nack = (frames.encode_nack(IDENT, 0),)
    a.receive(nack, 0)
    a.receive(nack, 0)
    a.send(1, b"m")
    assert not [parts for _, parts in a.transmit(0) if parts[0][6] == frames.MESSAGES]
    a.receive((frames.encode_ack(IDENT, (0, 0, 1000)),), 0)
    assert a.transmit(0)
    b = port()
    b.receive(nack, 0)
    b.receive((frames.encode_ack(IDENT, (0, 0, 1000)),), 0)
    assert not b.flush_due


def test_a_negative_ack_of_an_older_epoch_means_nothing() -> None:
    a = port(epoch=3)
    a.receive((frames.encode_ack(IDENT, (2, 0, 1000)),), 0)
    a.receive((frames.encode_nack(IDENT, 1),), 0)
    assert not a._links[1].paused


def test_hints_that_nobody_stands_by_any_more_are_not_believed_for_ever() -> None:
    """The peer said that it has the second message, and then nothing: first probes, then all is sent again."""
    a = port(rto_initial_ns=MS, rto_min_ns=MS, rto_max_ns=4 * MS)
    a.send(1, b"1")
    a.transmit(0)
    a.receive((frames.encode_ack(IDENT, (0, 0, 1000), [(0, 1)]),), 0)
    now_ns, kinds = 0, []
    for _ in range(6):
        now_ns = (a.deadline_ns() or 0) + MS
        a.tick(now_ns)
        kinds += [frames.KIND_NAMES[frames.open_frame(parts)[0][2]] for _, parts in a.transmit(now_ns)]
    assert kinds[:2] == ["probe", "probe"] and "messages" in kinds


def test_a_frozen_port_answers_only_those_it_can_reach() -> None:
    a = port(meet=False)
    a.freeze()
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 0, [b"m"]),), 0)
    assert not a.transmit(0)


def test_a_timer_of_a_peer_that_cannot_be_reached_is_put_away() -> None:
    link = port(meet=False)._links[1]
    link._on_timeout(0)
    assert link._rto_at == NEVER and not link.counts.timeouts


def test_payloads_carry_their_checksum_when_asked() -> None:
    a, b = port(0, large_bytes=4, checksum_payload=True), port(1)
    a.send(1, b"a long message")
    (_, parts), *_ = a.transmit(0)
    assert parts[0][7] & frames.CHECKED
    b.receive((parts[0], b"a wrong message"[: len(parts[1])]), 0)
    assert b.counters()["dropped_malformed"] == 1
    b.receive(parts, 0)
    assert take(b) == [b"a long message"]


def test_the_lengths_of_a_fragment_are_its_own() -> None:
    head, payload = frames.encode_fragment(IDENT, (0, 0, 0), 0, 10, 0, b"ab", b"cdef")
    assert frames.decode_fragment((head, payload), head, 0, 2, 4)[:2] == (10, 0)
    for parts, count, length in (((head, payload), 3, 4), ((head, payload), 2, 5), ((head, b"cd"), 2, 4)):
        with pytest.raises(FrameError, match="length"):
            frames.decode_fragment(parts, head, 0, count, length)
    numbers = memoryview(array.array("i", [1]))
    assert len(frames.decode_fragment((head, numbers), head, 0, 2, 4)[3]) == 4


class Elsewhere(frames.Remote):
    """A payload in the memory of another process."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content

    def read(self, into: memoryview) -> bool:
        into[:] = self.content
        return True


def test_the_payload_of_a_fragment_may_be_elsewhere() -> None:
    a = port()
    head, _ = frames.encode_fragment(IDENT, (0, 0, 100), 0, 6, 0, b"ab", b"cdef", frames.CHECKED)
    a.receive((head, Elsewhere(b"cdeX")), 0)
    assert not a.deliverable, "another checksum"
    a.receive((head, Elsewhere(b"cdef")), 0)
    assert take(a) == [b"abcdef"]


@pytest.mark.parametrize(("total", "content"), [(6, b"cd"), (5, b"cdef")])
def test_the_length_of_a_payload_elsewhere_is_that_of_its_fragment(total: int, content: bytes) -> None:
    head, _ = frames.encode_fragment(IDENT, (0, 0, 0), 0, total, 0, b"ab", b"cdef")
    with pytest.raises(FrameError, match="length"):
        frames.decode_fragment((head, Elsewhere(content)), head, 0, 2, 4)


def test_how_a_payload_elsewhere_is_read_is_the_wires() -> None:
    with pytest.raises(NotImplementedError):
        frames.Remote(4).read(memoryview(bytearray(4)))


def test_a_long_message_is_sent_again_in_shorter_fragments() -> None:
    a, b = port(0, large_bytes=40, fragment_bytes=1000), port(1)
    a.send(1, b"head", bytes(200))
    assert len(a.transmit(0)) == 1
    a.set_fragment(1, 100)
    assert a.flush_due and carry(a, b) == 2
    a.set_fragment(1, None)
    assert carry(a, b) == 0, "nothing is sent again for longer ones"
    assert take(b) == [b"head" + bytes(200)]


def test_pieces_of_what_came_whole_are_forgotten() -> None:
    a = port()
    a.receive(frames.encode_fragment(IDENT, (0, 0, 100), 1, 20, 0, b"", bytes(10)), 0)
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 2, [b"3"]),), 0)
    a.receive((frames.encode_messages(IDENT, (0, 0, 100), 0, [b"1", b"2"]),), 0)
    assert take(a) == [b"1", b"2", b"3"] and not a._links[1].ledger.partials


def test_a_round_trip_is_never_shorter_than_a_nanosecond() -> None:
    timeout = Timeout(1000, 1, 1000)
    for _ in range(40):
        timeout.sample(0)
    assert timeout.srtt_ns == 1


def window(**limits: int) -> SendWindow:
    numbers = {"overhead": 0, "fragment": 10, "pipeline": 10, "edge": 1000} | limits
    return SendWindow(**numbers)


def test_what_is_lost_waits_while_enough_is_in_flight() -> None:
    w = window()
    for content in (b"0123456789", b"abcdefghij"):
        w.add_small(content)
        w.seal()
        unit = w.next_unit()
        assert unit is not None
        w.sent(unit, 0)
    assert w.expire() and w.urgent
    w.urgent = False
    assert w.next_unit() is None  # the other one fills the pipeline
    w.urgent = True
    unit = w.next_unit()
    assert unit is not None and unit.order == 1


def test_a_batch_half_acked_while_it_is_lost() -> None:
    w = window(pipeline=100)
    w.add_small(b"a")
    w.add_small(b"bc")
    unit = w.next_unit()
    assert unit is not None
    w.sent(unit, 0)
    w.expire()
    w.acknowledge(1, 0)
    assert w.messages() == [b"bc"] and w.flight_charge == 0 and w.backlog() == 2


def test_frames_of_unknown_kinds_or_parts_are_refused() -> None:
    probe = frames.encode_probe(IDENT, (0, 0, 0))
    for parts, why in (
        ((), "parts"),
        ((probe, b"", b""), "parts"),
        ((probe[:71],), "truncated"),
        ((probe[:4] + b"xx" + probe[6:],), "magic"),
        ((probe[:-1] + b"x",), "checksum"),
        ((probe, b"payload"), "kind"),
    ):
        with pytest.raises(FrameError, match=why):
            frames.open_frame(parts)


def test_a_partial_message_that_comes_whole_another_way_is_put_away() -> None:
    ledger = port()._links[1].ledger
    ledger.accept_piece(1, 20, 0, b"", bytes(10), bytearray)
    ledger.accept(2, [b"3"], 1)
    ledger.accept(0, [b"1", b"2"], 2)
    assert ledger.arrived == 3 and not ledger.partials


def test_a_reserved_number_has_a_link_when_it_is_used_and_messages_wait_for_it() -> None:
    a = Endpoint(EndpointConfig(7, 0, 4, reserved=2))
    b = Endpoint(EndpointConfig(7, 3, 4, reserved=2))  # a reserved number itself
    assert set(a._links) == {0, 1} and set(b._links) == {0, 1, 3}
    assert a.send(3, b"early") == 0  # before the port has been told of it
    a.set_peer(3, 0, 0)
    b.set_peer(0, 0, 0)
    carry(a, b)
    assert take(b) == [b"early"]
    a.drop_peer(2)
    assert a.send(2, b"to nobody") == -1 and a.backlog_bytes(2) == 0
    with pytest.raises(UnknownRank):
        a.set_peer(4, 0, 0)


def test_a_saved_port_of_a_reserved_number_has_its_links() -> None:
    state = PortState(7, 3, 4, 0, 0, {2: LinkState(1, 2, 0, 0, [b"one"])})
    b = Endpoint(EndpointConfig(7, 3, 4, reserved=2), state)
    assert b.base(2) == 1 and b.backlog_bytes(2) > 0

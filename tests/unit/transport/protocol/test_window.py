"""The sender's side: order, batches, credit, acks, hints, loss."""

from __future__ import annotations

import gc

from ckpt.transport.protocol.units import DONE, FLIGHT, HINTED, LOST, Batch, Fragment
from ckpt.transport.protocol.window import SendWindow


def window(**limits: int) -> SendWindow:
    defaults = {"overhead": 10, "fragment": 100, "pipeline": 1000, "edge": 10_000}
    return SendWindow(**(defaults | limits))


def transmit(w: SendWindow, now_ns: int = 0) -> list[Batch | Fragment]:
    out = []
    while (unit := w.next_unit()) is not None:
        w.sent(unit, now_ns)
        out.append(unit)
    return out


def test_messages_enqueued_together_share_a_batch() -> None:
    w = window()
    assert [w.add_small(m) for m in (b"a", b"bb")] == [0, 1]
    (batch,) = transmit(w)
    assert isinstance(batch, Batch)
    assert (batch.first, batch.end, batch.messages, batch.charge) == (0, 2, [b"a", b"bb"], 23)
    assert w.add_small(b"c") == 2
    assert [u.first for u in transmit(w)] == [2]  # type: ignore[union-attr]


def test_long_messages_are_cut_and_keep_their_place() -> None:
    w = window()
    w.add_small(b"before")
    assert w.add_large(b"head", memoryview(bytes(250))) == 1
    w.add_small(b"after")
    first, *pieces, last = transmit(w)
    assert isinstance(first, Batch) and isinstance(last, Batch)
    assert first.first == 0 and last.first == 2
    assert [(p.offset, p.charge) for p in pieces] == [(0, 104), (104, 100), (204, 50)]  # type: ignore[union-attr]
    inline, payload = pieces[0].parts()  # type: ignore[union-attr]
    assert (bytes(inline), len(payload)) == (b"head", 100)
    inline, payload = pieces[1].parts()  # type: ignore[union-attr]
    assert (bytes(inline), len(payload)) == (b"", 100)


def test_fragments_that_became_too_long_are_cut_and_sent_again() -> None:
    w = window(fragment=1000)
    w.add_large(b"head", memoryview(bytes(250)))
    w.add_large(b"more", memoryview(bytes(50)))
    long, short = transmit(w)
    assert (long.charge, short.charge) == (254, 54)
    w.set_fragment(100)
    assert w.flight_charge == 54, "the short one is still under way"
    again = transmit(w)
    assert [(p.offset, p.charge, p.sends) for p in again] == [(0, 104, 1), (104, 100, 1), (204, 50, 1)]  # type: ignore[union-attr]
    assert w.flight_charge == 254 + 54
    w.add_large(b"", memoryview(bytes(150)))
    assert [p.charge for p in transmit(w)] == [100, 50]
    w.set_fragment(1000)
    assert transmit(w) == [], "what is under way in short pieces is not sent again"
    w.acknowledge(3, 0)
    assert (w.flight, w.flight_charge, w.backlog()) == ({}, 0, 0)


def test_a_message_that_is_half_cut_is_cut_again_from_its_start() -> None:
    w = window(fragment=200, pipeline=300)
    w.add_large(b"", memoryview(bytes(1000)))
    assert len(transmit(w)) == 2
    w.set_fragment(150)
    seen = [(p.offset, p.charge) for p in transmit(w)]  # type: ignore[union-attr]
    assert seen == [(0, 150), (150, 150)], "no more than the pipeline takes"
    for unit in list(w.flight.values()):
        w.hint([], [(0, unit.offset, unit.offset + unit.charge)], 0)  # type: ignore[union-attr]
    assert [(p.offset, p.charge) for p in transmit(w)] == [(300, 150), (450, 150)]  # type: ignore[union-attr]


def test_what_has_arrived_of_a_message_is_under_way_no_more_when_it_is_cut_again() -> None:
    w = window(fragment=200)
    w.add_large(b"", memoryview(bytes(400)))
    transmit(w)
    w.hint([], [(0, 0, 200)], 0)
    w.set_fragment(100)
    assert w.flight_charge == 0
    assert [p.offset for p in transmit(w)] == [0, 100, 200, 300]  # type: ignore[union-attr]
    w.acknowledge(1, 0)
    assert (w.flight, w.flight_charge, w.backlog()) == ({}, 0, 0)


def test_a_payload_is_sent_from_the_callers_memory() -> None:
    w = window()
    memory = bytearray(150)
    w.add_large(b"", memoryview(memory))
    piece = transmit(w)[1]
    memory[100:] = b"x" * 50
    assert bytes(piece.parts()[1]) == b"x" * 50  # type: ignore[union-attr]


def test_a_payload_is_let_go_when_it_is_acked_and_not_at_the_next_garbage_collection() -> None:
    w = window()
    memory = bytearray(150)
    sequence = w.add_large(b"head", memoryview(memory))
    pieces = transmit(w)
    w.acknowledge(sequence + 1, now_ns=10)
    del pieces
    gc.disable()
    try:
        memory.extend(b"more")  # BufferError while anything looks at it
        assert len(memory) == 154 and w.backlog() == 0
    finally:
        gc.enable()


def test_ack_frees_whole_messages_only_and_gives_a_sample() -> None:
    w = window()
    w.add_small(b"a")
    transmit(w, now_ns=100)
    w.add_small(b"b")
    transmit(w, now_ns=300)
    assert w.acknowledge(1, now_ns=350) == 250
    assert (w.base, w.tx, w.backlog()) == (1, 2, 11)
    assert w.messages() == [b"b"]
    assert w.acknowledge(2, now_ns=400) == 100
    assert (w.base, w.backlog(), w.flight_charge, list(w.flight)) == (2, 0, 0, [])


def test_ack_inside_a_batch_trims_it() -> None:
    w = window()
    for message in (b"a", b"bb", b"ccc"):
        w.add_small(message)
    (batch,) = transmit(w)
    w.acknowledge(2, 0)
    assert isinstance(batch, Batch)
    assert (batch.first, batch.messages, batch.state) == (2, [b"ccc"], FLIGHT)
    assert w.flight_charge == w.backlog() == 13
    w.acknowledge(3, 0)
    assert (batch.state, w.flight_charge, w.backlog()) == (DONE, 0, 0)


def test_ack_of_what_was_never_sent_by_this_incarnation() -> None:
    w = window()
    w.base = w.tx = 7
    for message in (b"a", b"bb", b"ccc"):
        w.add_small(message)
    w.add_large(b"", memoryview(bytes(200)))
    w.acknowledge(9, 0)
    assert w.messages() == [b"ccc", memoryview(bytes(200))]
    assert [u.first for u in transmit(w) if isinstance(u, Batch)] == [9]
    w.acknowledge(11, 0)
    assert w.backlog() == 0 and not w.unacked and not w.flight


def test_ack_in_the_middle_of_cutting_a_long_message() -> None:
    w = window(pipeline=100)
    w.add_large(b"", memoryview(bytes(500)))
    w.add_small(b"next")
    assert len(transmit(w)) == 1
    w.acknowledge(1, 0)
    assert [u.first for u in transmit(w)] == [1]  # type: ignore[union-attr]


def test_karn_no_sample_from_what_was_sent_twice() -> None:
    w = window()
    w.add_small(b"a")
    transmit(w, 100)
    assert w.expire()
    transmit(w, 200)
    assert w.acknowledge(1, 300) == 0


def test_credit_stops_the_sender() -> None:
    w = window(edge=25)
    w.add_small(b"x" * 10)
    assert len(transmit(w)) == 1
    w.add_small(b"y" * 10)
    assert transmit(w) == []
    assert not w.starved()
    w.acknowledge(1, 0)
    assert len(transmit(w)) == 1, "alone and below the edge: one entry of any size may go"
    w.acknowledge(2, 0)
    w.add_small(b"z")
    assert transmit(w) == [] and w.starved(), "at or above the edge nothing may go"
    w.edge = 41
    assert len(transmit(w)) == 1


def test_pipeline_limits_fragments_in_flight() -> None:
    w = window(pipeline=250)
    w.add_large(b"", memoryview(bytes(1000)))
    assert len(transmit(w)) == 3
    w.hint([], [(0, 0, 200)], 0)
    assert len(transmit(w)) == 2


def test_hints_stop_retransmission_but_free_nothing() -> None:
    w = window()
    for message in (b"a", b"b", b"c"):
        w.add_small(message)
        w.seal()
    a, b, _ = transmit(w)
    assert w.hint([(1, 2)], [], 50)[0]
    assert b.state == HINTED and a.state == FLIGHT
    assert w.base == 0 and w.messages() == [b"a", b"b", b"c"]
    assert w.expire()
    assert transmit(w) == [a]


def test_lost_when_three_later_ones_arrived() -> None:
    w = window()
    for number in range(5):
        w.add_small(bytes([number]))
        w.seal()
    units = transmit(w)
    w.hint([(1, 3)], [], 0)
    assert w.find_lost(0, reorder_ns=100) == 0
    w.hint([(3, 4)], [], 0)
    assert w.find_lost(0, reorder_ns=100) == 1
    assert units[0].state == LOST
    assert transmit(w) == [units[0]]


def test_lost_when_sent_long_before_something_that_arrived() -> None:
    w = window()
    w.add_small(b"a")
    (first,) = transmit(w, 0)
    w.add_small(b"b")
    transmit(w, 10)
    w.hint([(1, 2)], [], 20)
    assert w.find_lost(99, reorder_ns=100) == 0
    assert w.find_lost(100, reorder_ns=100) == 1
    assert first.state == LOST


def test_requeue_sends_everything_again_in_order() -> None:
    w = window()
    w.add_small(b"a")
    w.add_large(b"h", memoryview(bytes(150)))
    units = transmit(w)
    w.hint([(0, 1)], [(1, 0, 101)], 0)
    w.requeue()
    assert transmit(w) == units
    assert w.flight_charge == sum(u.charge for u in units)


def test_expire_takes_the_oldest() -> None:
    w = window()
    assert not w.expire()
    w.add_small(b"a")
    transmit(w)
    w.add_small(b"b")
    transmit(w)
    assert w.expire()
    assert [u.first for u in transmit(w)] == [0]  # type: ignore[union-attr]


def test_clone_shares_nothing_that_changes() -> None:
    w = window(pipeline=250)
    w.add_small(b"a")
    w.add_large(b"h", memoryview(bytes(1000)))
    transmit(w)
    w.expire()
    before = w.key()
    copy = w.clone()
    assert copy.key() == before
    copy.acknowledge(2, 0)
    copy.add_small(b"more")
    transmit(copy)
    assert w.key() == before != copy.key()
    assert len(w.flight) == 3 and w.current is not None
    assert [m.charge for m in transmit(w)] == [11], "what timed out goes again although the pipeline is full"

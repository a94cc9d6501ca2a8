"""Fault plans and the wire that carries them out."""

from __future__ import annotations

import pytest

from ckpt.transport.errors import FaultPlanError
from ckpt.transport.wires.faultinject import FaultPlan, FaultyWire, Partition
from tests.unit.transport.wires.memory_wire import Clock, MemoryNetwork, MemoryWire

FRAME = (b"0123456789",)


def wire_with(plan: FaultPlan, rank: int = 0) -> tuple[FaultyWire, MemoryWire, MemoryWire, Clock]:
    network, clock = MemoryNetwork(), Clock()
    inner, peer = MemoryWire(network, "a"), MemoryWire(network, "b")
    faulty = FaultyWire(inner, plan, rank, clock=clock)
    faulty.connect(1, "b")
    return faulty, inner, peer, clock


def arrived(peer: MemoryWire) -> list[bytes]:
    frames = []
    while (frame := peer.receive()) is not None:
        frames.append(b"".join(frame))
    return frames


def test_plan_is_read_from_text() -> None:
    plan = FaultPlan.parse(
        "seed=7, loss=0.25,dup=0.5,reorder=0.1,corrupt=0.01,delay=2ms,partition=0+1|2@0.5-1.5"
    )
    assert plan == FaultPlan(
        seed=7,
        loss=0.25,
        dup=0.5,
        reorder=0.1,
        corrupt=0.01,
        delay_ns=2_000_000,
        partition=Partition((frozenset({0, 1}), frozenset({2})), 500_000_000, 1_500_000_000),
    )
    assert not plan.harmless
    assert FaultPlan.parse("").harmless


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("loss", "write name=value"),
        ("loss=much", "not a number"),
        ("loss=1.5", "between 0 and 1"),
        ("delay=3", "write a time like"),
        ("delay=-1ms", "cannot be negative"),
        ("lost=0.1", "'lost' is no fault; there are corrupt, delay, dup, loss"),
        ("partition=0@1-2", "two groups"),
        ("partition=0|1@2-1", "begins before it ends"),
        ("partition=x|1@1-2", "write it like"),
    ],
)
def test_what_cannot_be_understood_is_told(text: str, told: str) -> None:
    with pytest.raises(FaultPlanError, match=told):
        FaultPlan.parse(text)


def test_environment_names_a_plan_or_none() -> None:
    assert FaultPlan.from_environment({}) is None
    assert FaultPlan.from_environment({"CKPT_FAULTS": " "}) is None
    assert FaultPlan.from_environment({"CKPT_FAULTS": "loss=0.5"}) == FaultPlan(loss=0.5)


def test_loss_takes_about_its_share_and_the_same_frames_every_time() -> None:
    def survivors() -> list[bytes]:
        faulty, _, peer, _ = wire_with(FaultPlan(seed=3, loss=0.3))
        for index in range(500):
            assert faulty.send(1, (b"%d" % index,))
        return arrived(peer)

    first = survivors()
    assert 300 < len(first) < 400
    assert survivors() == first


def test_duplicates_follow_later() -> None:
    faulty, _, peer, clock = wire_with(FaultPlan(dup=1.0))
    faulty.send(1, FRAME)
    assert arrived(peer) == [FRAME[0]]
    assert faulty.deadline_ns() is not None
    clock.advance_ms(3)
    assert faulty.receive() is None
    assert arrived(peer) == [FRAME[0]]
    assert faulty.deadline_ns() is None


def test_reordering_keeps_every_frame() -> None:
    faulty, _, peer, clock = wire_with(FaultPlan(seed=1, reorder=0.5))
    frames = [b"%d" % index for index in range(100)]
    for frame in frames:
        faulty.send(1, (frame,))
        clock.advance_ms(0.1)
    clock.advance_ms(3)
    faulty.receive()
    received = arrived(peer)
    assert received != frames
    assert sorted(received) == sorted(frames)


def test_delay_holds_every_frame_back() -> None:
    faulty, _, peer, clock = wire_with(FaultPlan(delay_ns=5_000_000))
    faulty.send(1, FRAME)
    assert arrived(peer) == []
    clock.advance_ms(6)
    faulty.receive()
    assert arrived(peer) == [FRAME[0]]


def test_corruption_sends_a_damaged_copy_and_leaves_the_original_alone() -> None:
    faulty, _, peer, _ = wire_with(FaultPlan(corrupt=1.0))
    head, payload = b"h" * 50, bytearray(b"p" * 50)
    whole = head + bytes(payload)
    for _ in range(50):
        faulty.send(1, (head, memoryview(payload)))
    assert head + bytes(payload) == whole
    received = arrived(peer)
    assert len(received) == 50
    assert whole not in received


def test_partition_separates_groups_for_its_time() -> None:
    faulty, _, peer, clock = wire_with(FaultPlan.parse("partition=0|1@0.5-1.5"))
    for wanted in (1, 0, 1):
        faulty.send(1, FRAME)
        assert len(arrived(peer)) == wanted
        clock.advance_ms(800)


def test_ranks_of_one_group_or_of_none_hear_each_other() -> None:
    partition = Partition.parse("0+1|2@0-9")
    assert partition.separates(0, 2) and partition.separates(2, 1)
    assert not partition.separates(0, 1) and not partition.separates(0, 3)


def test_cut_by_hand() -> None:
    faulty, _, peer, _ = wire_with(FaultPlan())
    faulty.cut([1])
    faulty.send(1, FRAME)
    faulty.cut(())
    faulty.send(1, FRAME)
    assert arrived(peer) == [FRAME[0]]
    assert faulty.counters()["fault_cut"] == 1


def test_nothing_held_back_reaches_a_peer_that_moved() -> None:
    faulty, _, peer, clock = wire_with(FaultPlan(delay_ns=5_000_000))
    faulty.send(1, FRAME)
    faulty.connect(1, "b")
    clock.advance_ms(6)
    faulty.receive()
    assert arrived(peer) == []


def test_congestion_is_passed_on() -> None:
    network = MemoryNetwork()
    inner, _ = MemoryWire(network, "a", capacity=1), MemoryWire(network, "b")
    faulty = FaultyWire(inner, FaultPlan(), 0, clock=Clock())
    faulty.connect(1, "b")
    assert faulty.send(1, FRAME)
    assert not faulty.send(1, FRAME)

"""Running digests: what is one stream, what differs, and that replicas report counts that others report too."""

from __future__ import annotations

from random import Random

import pytest

from ckpt.mpi.base.envelope import ACTIVE, AGREE, EAGER, MATCHED, PLANES, SYNC, WINDOW, pack
from ckpt.mpi.rma import wire
from ckpt.redundancy.digest import EVERY, RING, Stream, Streams
from ckpt.redundancy.vote import Vote


def send(streams: Streams, data: bytes, *, dst: int = 1, payload: bytes | None = None) -> Stream | None:
    stream = streams.find(data[:32])
    if stream is not None:
        stream.add(dst, data, payload, 0)
    return stream


def digest(data: bytes, **more: object) -> bytes:
    streams = Streams()
    stream = send(streams, data, **more)  # type: ignore[arg-type]
    assert stream is not None
    return stream.state


HEAD = pack(EAGER, 0, 5, 4 * 7)


def test_content_destination_tag_communicator_and_kind_count() -> None:
    same = digest(HEAD + b"x")
    assert digest(HEAD + b"x") == same == digest(HEAD, payload=b"x")
    for other in (
        HEAD + b"y",
        pack(EAGER, 0, 6, 28) + b"x",
        pack(EAGER, 0, 5, 32) + b"x",
        pack(SYNC, 0, 5, 28, 1) + b"x",
    ):
        assert digest(other) != same
    assert digest(HEAD + b"x", dst=2) != same


def test_collectives_have_a_stream_for_each_tag_and_answers_have_none() -> None:
    streams = Streams()
    collective = 7 * PLANES + 1
    one, two = pack(EAGER, 0, 1, collective), pack(EAGER, 0, 2, collective)
    assert send(streams, HEAD) is streams.point
    assert send(streams, one) is not send(streams, two)
    assert send(streams, one) is send(streams, one)
    assert send(streams, pack(MATCHED, 0, 5, 28, 3)) is None
    assert send(streams, pack(AGREE, 0, 5, 28, 3)) is None


def test_what_may_depend_on_time_is_refused() -> None:
    with pytest.raises(ValueError, match="active messages"):
        Streams().find(pack(ACTIVE, 0, 0, 28))


def test_requests_to_windows_are_in_the_order_of_the_program_and_answers_have_a_stream_for_each_window() -> (
    None
):
    streams = Streams()
    for action in (wire.PUT, wire.LOCK_SHARED, wire.COMPLETE, wire.POST):
        assert send(streams, pack(WINDOW, 0, action, 28)) is streams.point
    one = send(streams, pack(WINDOW, 0, wire.DATA, 28, 5))
    assert one is not None and one is not streams.point
    assert send(streams, pack(WINDOW, 0, wire.DONE, 28, 6)) is one
    assert send(streams, pack(WINDOW, 0, wire.FAILED, 28, 7)) is one
    assert send(streams, pack(WINDOW, 0, wire.DONE, 32, 5)) is not one


@pytest.mark.parametrize("seed", range(20))
def test_replicas_that_report_at_any_moments_are_compared_to_the_end(seed: int) -> None:
    random, vote = Random(seed), Vote(3)
    replicas, total = [Streams() for _ in range(3)], random.randrange(1, 400)
    while any(streams.point.count < total for streams in replicas):
        k = random.randrange(3)
        for _ in range(min(random.choice([1, 5, 150]), total - replicas[k].point.count)):
            send(replicas[k], HEAD + bytes([replicas[k].point.count % 256]))
        for name, marks in replicas[k].report().items():
            assert vote.report(k, name, marks) is None
    for _ in range(2):  # those that wait report what is left
        for k, streams in enumerate(replicas):
            for name, marks in streams.report().items():
                assert vote.report(k, name, marks) is None
    assert vote.compared == total
    assert vote.finish() is None


def test_the_last_messages_are_remembered_one_by_one() -> None:
    stream = Stream("point")
    for number in range(1, RING + 100):
        stream.add(1, HEAD, None, number)
    rows = stream.details(1, RING + 99)
    assert [row[0] for row in rows] == list(range(100, RING + 100))
    assert all(number == ns for number, _, ns in rows)
    assert len(stream.marks(up_to_last=False)) == (RING + 99) // EVERY

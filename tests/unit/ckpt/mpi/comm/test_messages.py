"""Point-to-point messages between ranks, as programs use them."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_UB
from ckpt.mpi.base.errors import (
    ERR_COMM,
    ERR_RANK,
    ERR_REQUEST,
    ERR_ROOT,
    ERR_TAG,
    ERR_TRUNCATE,
    MpiException,
)
from ckpt.mpi.comm.communicator import COMM_NULL
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.engine import engine
from ckpt.mpi.engine.engine import BUSY_NS, BUSY_SENDS, DIRECT_COPY_BYTES
from ckpt.mpi.requests.request import REQUEST_NULL, Request
from tests.unit.ckpt.mpi.bus import Stuck, run_ranks

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_arrive_in_order_of_sending_per_tag(seed: int) -> None:
    def program(comm: Any) -> Any:
        if comm.rank:
            for number in range(50):
                comm.send((comm.rank, number), 0, tag=number % 3)
            return None
        got = {}
        for tag in (2, 0, 1):
            for source in (2, 1):
                got[source, tag] = [comm.recv(source=source, tag=tag)[1] for _ in range(tag, 50, 3)]
        return got

    got = run_ranks(3, program, seed=seed)[0]
    for (_, tag), numbers in got.items():
        assert numbers == list(range(tag, 50, 3))


@pytest.mark.parametrize("seed", SEEDS)
def test_wildcards_keep_the_order_of_each_source(seed: int) -> None:
    def program(comm: Any) -> Any:
        if comm.rank:
            for number in range(40):
                comm.send(number, 0, tag=number % 4)
            return None
        got: dict[int, list[int]] = {1: [], 2: [], 3: []}
        status = Status()
        for turn in range(120):
            if turn % 3 == 0:
                comm.probe(status=status)
                got[status.source].append(comm.recv(source=status.source, tag=ANY_TAG))
            else:
                number = comm.recv(source=ANY_SOURCE, tag=ANY_TAG, status=status)
                assert status.tag == number % 4
                got[status.source].append(number)
        return got

    assert run_ranks(4, program, seed=seed)[0] == {source: list(range(40)) for source in (1, 2, 3)}


@pytest.mark.parametrize("size", [1, 10, 70_000, 3_000_000])
def test_buffers_of_all_sizes(size: int) -> None:
    def program(comm: Any) -> Any:
        data = np.arange(size, dtype="u1")
        other = (comm.rank + 1) % comm.size
        into = np.zeros(size + 5, "u1")
        status = Status()
        comm.Sendrecv(data, other, 1, into, ANY_SOURCE, 1, status)
        assert status.Get_count() == size
        assert (into[:size] == data).all()
        assert not into[size:].any()
        receives = [comm.Irecv(np.zeros(size, "u1"), source=other, tag=tag) for tag in (5, 6, 7)]
        sends = [comm.Isend(data, other, 5), comm.Issend(data, other, 6), comm.Ibsend(data, other, 7)]
        Request.Waitall(receives + sends)
        comm.send(data, other)
        assert (comm.recv(source=other) == data).all()

    run_ranks(2, program)


def test_a_synchronous_send_ends_only_after_the_match() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 0:
            request = comm.issend("matched?", 1, tag=1)
            comm.send("go", 1, tag=2)
            assert comm.recv(source=1) == "not yet received"
            assert not request.test()[0]
            comm.send("go", 1, tag=2)
            request.wait()
            comm.ssend("again", 1)
            comm.Ssend(np.arange(3), 1)
        else:
            assert comm.recv(source=0, tag=2) == "go"
            comm.probe(source=0, tag=1)
            comm.send("not yet received", 0)
            comm.recv(source=0, tag=2)
            assert comm.recv(source=0, tag=1) == "matched?"
            assert comm.recv() == "again"
            comm.Recv(np.zeros(3, int))

    for seed in SEEDS:
        run_ranks(2, program, seed=seed)


def test_matched_probes_take_the_message_away() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 0:
            comm.send("first", 1)
            comm.send("second", 1)
            comm.Send(np.arange(3), 1, tag=9)
        else:
            status = Status()
            message = comm.mprobe(status=status, tag=0)
            assert status.source == 0
            assert comm.recv(tag=0) == "second"
            assert message.recv() == "first"
            assert not message
            with pytest.raises(MpiException) as caught:
                message.recv()
            assert caught.value.error_class == ERR_REQUEST
            message = None
            while message is None:
                message = comm.Improbe(tag=9)
            into = np.zeros(3, int)
            message.Irecv(into).Wait()
            assert into.tolist() == [0, 1, 2]
            assert comm.improbe() is None
            assert not comm.iprobe()

    run_ranks(2, program)


def test_no_process() -> None:
    def program(comm: Any) -> Any:
        status = Status()
        comm.send("x", PROC_NULL)
        comm.Send(b"x", PROC_NULL)
        comm.isend("x", PROC_NULL).wait()
        comm.ssend("x", PROC_NULL)
        assert comm.recv(source=PROC_NULL, status=status) is None
        assert (status.source, status.tag, status.count) == (PROC_NULL, ANY_TAG, 0)
        comm.Recv(bytearray(3), source=PROC_NULL, status=status)
        assert status.source == PROC_NULL
        assert comm.sendrecv("x", PROC_NULL, source=PROC_NULL) is None
        assert comm.probe(source=PROC_NULL)
        assert comm.mprobe(source=PROC_NULL).recv() is None

    run_ranks(1, program)


def test_requests() -> None:
    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        receives = [comm.irecv(source=other, tag=tag) for tag in range(4)]
        assert Request.testany([]) == (-32766, True, None)
        for tag in (3, 1, 0, 2):
            comm.isend(tag * 10, other, tag).wait()
        index, value = Request.waitany(receives)
        assert value == index * 10
        assert not receives[index]
        rest = {index: value}
        while len(rest) < 4:
            indices, values = Request.waitsome(receives)
            rest.update(zip(indices, values, strict=True))
        assert rest == {tag: tag * 10 for tag in range(4)}
        assert Request.waitsome(receives) == (None, None)
        assert Request.waitall(receives) == [None] * 4
        assert receives[0] == REQUEST_NULL
        assert receives[0].wait() is None
        comm.barrier()
        done = False
        statuses: list[Status] = []
        receives = [comm.irecv(source=other), comm.irecv(source=other)]
        comm.send("a", other, 1)
        comm.send("b", other, 2)
        while not done:
            done, values = Request.testall(receives, statuses)
        assert values == ["a", "b"]
        assert [status.tag for status in statuses] == [1, 2]

    for seed in SEEDS:
        run_ranks(2, program, seed=seed)


def test_a_cancelled_receive_lets_messages_pass() -> None:
    def program(comm: Any) -> Any:
        request = comm.irecv(source=0, tag=5)
        request.cancel()
        status = Status()
        request.wait(status)
        assert status.cancelled
        comm.send("x", 0, 5)
        assert comm.recv(source=0, tag=5) == "x"

    run_ranks(1, program)


def test_persistent_requests() -> None:
    def program(comm: Any) -> Any:
        other = 1 - comm.rank
        out, into = np.zeros(3), np.zeros(3)
        requests = [comm.Recv_init(into, other), comm.Send_init(out, other)]
        for turn in range(5):
            out[:] = turn + comm.rank
            Prequest = type(requests[0])
            Prequest.Startall(requests)
            if turn == 0:
                with pytest.raises(MpiException) as caught:
                    requests[0].Start()
                assert caught.value.error_class == ERR_REQUEST
            Request.Waitall(requests)
            assert (into == turn + other).all()
            assert requests[0]
            requests[0].Wait()
        requests[0].Free()
        assert not requests[0]

    run_ranks(2, program)


def test_wrong_use_is_told_at_once() -> None:
    def program(comm: Any) -> Any:
        wrong = [
            (lambda: comm.send(0, 7), ERR_RANK),
            (lambda: comm.send(0, -5), ERR_RANK),
            (lambda: comm.Send(b"", comm.size), ERR_RANK),
            (lambda: comm.recv(source=9), ERR_RANK),
            (lambda: comm.irecv(source=-7), ERR_RANK),
            (lambda: comm.send(0, 0, tag=-1), ERR_TAG),
            (lambda: comm.recv(tag=-2), ERR_TAG),
            (lambda: comm.probe(source=3), ERR_RANK),
            (lambda: comm.bcast(0, root=5), ERR_ROOT),
            (lambda: comm.Bcast(bytearray(2), root=-1), ERR_ROOT),
            (lambda: COMM_NULL.send(0, 0), ERR_COMM),
            (lambda: COMM_NULL.Get_rank(), ERR_COMM),
            (lambda: comm.Free(), ERR_COMM),
        ]
        for call, error_class in wrong:
            with pytest.raises(MpiException) as caught:
                call()
            assert caught.value.error_class == error_class
        with pytest.raises(TypeError):
            comm.send(0, "zero")
        with pytest.raises(OverflowError):  # the largest tag is the largest C int
            comm.send(0, 0, tag=TAG_UB + 1)
        with pytest.raises(TypeError):
            comm.Send(None, 0)
        with pytest.raises(ValueError, match="expecting 1 items"):
            comm.scatter([1, 2])

    run_ranks(1, program)


def test_a_message_that_is_too_long() -> None:
    def program(comm: Any) -> Any:
        into = np.zeros(2, "u1")
        for start in (lambda: comm.Recv(into, source=0), lambda: comm.Irecv(into, source=0).Wait()):
            comm.Send(np.arange(1, 6, dtype="u1"), 0)
            with pytest.raises(MpiException) as caught:
                start()
            assert caught.value.error_class == ERR_TRUNCATE
            assert into.tolist() == [1, 2]

    run_ranks(1, program)


def test_a_receive_that_nobody_serves_is_seen_as_stuck_here() -> None:
    with pytest.raises(Stuck):
        run_ranks(2, lambda comm: comm.recv())


def test_an_interrupted_receive_does_not_swallow_the_next_message() -> None:
    def program(comm: Any) -> Any:
        progress = comm._engine.progress

        def interrupt() -> None:
            progress.before_block = None
            raise KeyboardInterrupt

        progress.before_block = interrupt
        with pytest.raises(KeyboardInterrupt):
            comm.recv(source=0)
        assert not progress.lock.locked()
        comm.send("kept", 0)
        assert comm.recv(source=0) == "kept"

    run_ranks(1, program)


def test_everything_taken_is_reported_for_flow_control() -> None:
    totals = []

    def program(comm: Any) -> Any:
        progress = comm._engine.progress
        if comm.rank == 0:
            for number in range(300):
                comm.send(b"x" * number, 1)
            comm.recv(source=1)
        else:
            for _ in range(300):
                comm.recv(source=0)
            comm.send(None, 0)
            comm.iprobe()
            totals.append(tuple(progress.bus.consumed[1]))

    # A message is counted with its envelope, exactly as it was delivered.
    run_ranks(2, program)
    assert totals == [(sum(32 + len(pickle.dumps(b"x" * number, 5)) for number in range(300)), 300)]


def test_a_blocking_send_waits_while_the_backlog_is_high() -> None:
    def program(comm: Any) -> Any:
        progress = comm._engine.progress
        if comm.rank == 0:
            highest = 0
            for _ in range(40):
                comm.send(bytes(1 << 20), 1)
                highest = max(highest, progress.backlog_bytes(1))
            return highest
        for _ in range(40):
            comm.recv(source=0)
        return None

    assert run_ranks(2, program)[0] <= 18 << 20


@pytest.mark.parametrize("nbytes", [200_000, DIRECT_COPY_BYTES])
def test_a_blocking_send_copies_for_a_receiver_that_is_busy(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads this process's memory is waited for. While it computes, messages of moderate length are copied instead."""
    clock = SimpleNamespace(step_ns=1_000, now_ns=0)

    def monotonic_ns() -> int:
        clock.now_ns += clock.step_ns
        return int(clock.now_ns)

    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic_ns=monotonic_ns))
    data = np.arange(nbytes // 8)

    def program(comm: Any) -> Any:
        if comm.rank:
            got = [np.empty_like(data) for _ in range(BUSY_SENDS + 12)]
            for into in got:
                comm.Recv(into, 0)
            return all(np.array_equal(into, data) for into in got)
        progress, kinds = comm._engine.progress, []
        send = progress.send

        def noted(dst: int, head: Any, payload: Any = None) -> Any:
            kinds.append(type(payload) is bytes)
            return send(dst, head, payload)

        monkeypatch.setattr(progress, "send", noted)
        comm._engine.direct = {1}
        for number in range(BUSY_SENDS + 12):
            clock.step_ns = BUSY_NS + 1 if number == 5 else 1_000
            comm.Send(data, 1)
        return kinds

    copied, is_whole = run_ranks(2, program)
    assert is_whole
    assert copied[:6] == [False] * 6
    assert copied[6:] == [nbytes < DIRECT_COPY_BYTES] * BUSY_SENDS + [False] * 6


def test_a_rank_that_waits_for_a_message_is_hungry() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 0:
            assert comm.recv(source=1) == 1
            return comm._engine.progress.hungry
        comm.send(1, 0)
        return None

    assert all(run_ranks(2, program)[0])

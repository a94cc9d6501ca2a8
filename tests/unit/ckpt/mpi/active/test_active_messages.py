"""Active messages over a bus that delays and mixes messages: who is called, in which order, and what an image holds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest

import ckpt
from ckpt.errors import CkptError, Deadlock, NotInHandler
from ckpt.mpi import make_world
from ckpt.mpi.active.channel import ActiveMessages
from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.base.errors import ERR_COMM, ERR_PROC_FAILED, ERR_RANK, ERR_REVOKED, MpiException
from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.engine.engine import REFERENCE_BYTES, Engine
from ckpt.rank.standalone import Standalone
from ckpt.replay import mailbox
from tests.unit.ckpt.mpi.bus import Bus, BusProgress, Killed, image_of, revive, run_ranks


class Log:
    """Handlers that write down what they are called with. It can be part of the bus's images, as no closure can."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Any]] = []
        self.dead: list[int] = []
        self.channel: Any = None

    def receive(self, source: int, obj: Any) -> None:
        self.heard.append((source, obj))

    def failed(self, rank: int) -> None:
        self.dead.append(rank)

    def of(self, source: int) -> list[Any]:
        return [obj for each, obj in self.heard if each == source]


def code_of(error: Any) -> int:
    code: int = error.value.error_class
    return code


@pytest.mark.parametrize("seed", range(12))
def test_each_source_is_heard_in_order_on_each_channel_apart(seed: int) -> None:
    def program(comm: Any) -> None:
        logs = [Log() for _ in range(4)]
        other = comm.Dup()
        channels = [
            ActiveMessages(each, log.receive) for each, log in zip((comm, comm, other), logs, strict=False)
        ]
        for number in range(20):
            for dest in range(comm.size):
                for name, channel in enumerate(channels):
                    channel.send(dest, f"{name} {number}")
                comm.send(number, dest)
        for source in range(comm.size):
            assert [comm.recv(source=source) for _ in range(20)] == list(range(20))
        if comm.rank:  # the others' messages come before the channel
            channels.append(ActiveMessages(other, logs[3].receive))
            for dest in range(comm.size):
                channels[3].send(dest, "large" * REFERENCE_BYTES)
            comm.barrier()
        else:
            comm.barrier()
            channels.append(ActiveMessages(other, logs[3].receive))
            for dest in range(comm.size):
                channels[3].send(dest, "large" * REFERENCE_BYTES)
        other.Free()  # channels outlive it
        for channel, log, count in zip(channels, logs, (20, 20, 20, 1), strict=True):
            assert channel.wait(lambda log=log, count=count: len(log.heard) == count * comm.size)
            channel.free()
            channel.free()
        for name, log in enumerate(logs[:3]):
            for source in range(comm.size):
                assert log.of(source) == [f"{name} {number}" for number in range(20)]
        assert sorted(source for source, _ in logs[3].heard) == list(range(comm.size))
        assert not comm._engine.handlers.in_use

    run_ranks(3, program, seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_handlers_send_and_free_waits_until_all_is_handled(seed: int) -> None:
    def program(comm: Any) -> int:
        heard: list[Any] = []

        def receive(source: int, left: int) -> None:
            heard.append(left)
            if left > 0:
                channel.send((source + left) % comm.size, left - 1)
            elif left == 0:
                for rank in range(comm.size):
                    channel.send(rank, -1)

        channel = ActiveMessages(comm, receive)
        channel.send(comm.rank, 20)
        channel.wait(lambda: heard.count(-1) == comm.size)
        for _ in range(5):
            channel.send(0, -2)
        channel.free()
        with pytest.raises(MpiException) as error:
            channel.send(0, 1)
        assert code_of(error) == ERR_COMM
        return heard.count(-2)

    assert run_ranks(3, program, seed=seed) == [15, 0, 0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("victim", [None, 2])
def test_free_waits_for_answers_to_answers(seed: int, victim: int | None) -> None:
    def program(comm: Any) -> int:
        heard: list[Any] = []

        def receive(source: int, left: int) -> None:
            heard.append(left)
            if left:
                channel.send(source, left - 1)

        channel = ActiveMessages(comm, receive, lambda rank: None)
        for dest in range(comm.size):
            channel.send(dest, 2 + dest)
        if comm.rank == victim:
            raise Killed
        channel.free()
        return sum(heard)

    results = run_ranks(3, program, seed=seed)
    if victim is None:
        assert sum(results) == 3 * (2 + 1 + 3 + 2 + 1 + 4 + 3 + 2 + 1)
    else:
        assert results[victim] is Killed


def test_free_raises_what_a_handler_raises_and_goes_on_when_it_is_called_again() -> None:
    def program(comm: Any) -> int:
        channel = ActiveMessages(comm, lambda source, obj: 1 / obj)
        channel.send(1 - comm.rank, 0)
        raised = 0
        while comm._engine.handlers.in_use or comm._engine.handlers.failures:
            try:
                channel.free()
            except ZeroDivisionError:
                raised += 1
        return raised

    for seed in range(6):
        assert run_ranks(2, program, seed=seed) == [1, 1]


@pytest.mark.parametrize("seed", range(12))
def test_a_death_is_told_once_after_all_messages_of_the_dead(seed: int) -> None:
    def program(comm: Any) -> Any:
        log, late = Log(), Log()
        channel = ActiveMessages(comm, log.receive, log.failed)
        if comm.rank == 2:
            for number in range(5):
                channel.send(number % 2, number)
            raise Killed
        channel.wait(lambda: log.dead)
        heard = log.of(2)
        assert heard == [0, 2, 4][: len(heard)] or heard == [1, 3][: len(heard)]
        later = ActiveMessages(comm, late.receive, late.failed)
        later.wait(lambda: late.dead)
        later.send(2, "nobody is there, and the handler for deaths has been told")
        alone = ActiveMessages(comm, log.receive)
        with pytest.raises(MpiException) as error:
            alone.send(2, 1)
        assert code_of(error) == ERR_PROC_FAILED
        for each in (channel, later, alone):
            each.free()
        return log.dead, late.dead, log.of(2) == heard

    assert run_ranks(3, program, seed=seed)[:2] == [([2], [2], True)] * 2


def test_what_handlers_raise_is_raised_by_the_next_calls_one_by_each() -> None:
    def program(comm: Any) -> None:
        def receive(source: int, obj: Any) -> None:
            raise obj

        other = 1 - comm.rank
        channel = ActiveMessages(comm, receive)
        raised: list[Any] = []
        for error in (ValueError(1), KeyError(2), SystemExit(3)):
            channel.send(other, error)
        comm.send("sent after them", other)
        calls = [lambda: comm.recv(source=other), lambda: comm.send(None, other), lambda: comm.iprobe()]
        while len(raised) < 3:
            try:
                calls[0]()
                calls.pop(0)
            except (ValueError, KeyError, SystemExit) as error:
                raised.append(error)
        assert [repr(error) for error in raised] == ["ValueError(1)", "KeyError(2)", "SystemExit(3)"]
        assert f"called by rank {comm.rank} for a message of rank {other}" in raised[0].__notes__[0]
        for call in calls:
            call()
        comm.barrier()

    for seed in range(6):
        run_ranks(2, program, seed=seed)


def test_a_call_that_raises_what_a_handler_has_raised_has_not_begun() -> None:
    """The numbers of collectives and of new communicators stay equal at all ranks."""

    def program(comm: Any) -> None:
        def receive(source: int, obj: Any) -> None:
            raise ValueError(obj)

        channel = ActiveMessages(comm, receive)
        for call in (comm.barrier, comm.Barrier, comm.Ibarrier, comm.Barrier_init, comm.Dup):
            channel.send(comm.rank, "to itself")
            while comm._engine.guard is None:
                with comm._engine.progress.lock:
                    comm._engine.progress.poll()
            before = comm._shared.collectives, comm._shared.persistent, comm._engine.count
            with pytest.raises(ValueError, match="itself"):
                call()
            assert (comm._shared.collectives, comm._shared.persistent, comm._engine.count) == before
        comm.Dup().barrier()

    run_ranks(2, program)


def test_calls_are_refused_in_a_handler_in_a_predicate_and_under_the_lock() -> None:
    def program(comm: Any) -> None:
        refused: list[str] = []

        def attempt(*_: Any) -> bool:
            for call in (comm.recv, comm.barrier, comm.Dup, channel.free, lambda: channel.wait(lambda: True)):
                with pytest.raises(NotInHandler) as error:
                    call()
                refused.append(str(error.value).split()[0])
            return True

        channel = ActiveMessages(comm, attempt)
        with channel.lock:
            with channel.lock:
                attempt()
            attempt()
            channel.send(comm.rank, None)
            assert len(refused) == 10
        channel.wait(attempt)
        channel.wait(lambda: len(refused) == 20)
        assert refused == ["recv()", "barrier()", "Dup()", "free()", "wait()"] * 4
        assert comm._engine.lock is comm._engine.progress.lock
        assert comm._engine.guard is None
        comm.send(1, comm.rank)
        assert comm.recv(source=ANY_SOURCE) == 1
        channel.free()

    run_ranks(1, program)


def test_a_predicate_that_raises_ends_the_wait() -> None:
    def program(comm: Any) -> None:
        channel = ActiveMessages(comm, Log().receive)
        with pytest.raises(ZeroDivisionError):
            channel.wait(lambda: 1 / 0)
        comm.barrier()

    run_ranks(2, program)


def test_bad_arguments_are_refused() -> None:
    def program(comm: Any) -> None:
        log = Log()
        for arguments in ((comm, None), (comm, log.receive, 3), (None, log.receive)):
            with pytest.raises(TypeError):
                ActiveMessages(*arguments)
        side = comm.Split(comm.rank)
        inter = side.Create_intercomm(0, comm, 1 - comm.rank)
        with pytest.raises(MpiException) as error:
            ActiveMessages(inter, log.receive)
        assert code_of(error) == ERR_COMM
        side.Free()
        with pytest.raises(MpiException):
            ActiveMessages(side, log.receive)
        channel = ActiveMessages(comm, log.receive)
        with pytest.raises(MpiException) as error:
            channel.send(2, 1)
        assert code_of(error) == ERR_RANK
        with pytest.raises(AttributeError):
            channel.send(0, Log)  # cannot be pickled: it is defined in no module of this name
            raise AttributeError
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="each rank makes its own"):
                copied(channel)
        assert "0 of MPI_COMM_WORLD" in repr(channel)
        comm._engine.imports.provisional = True
        with pytest.raises(CkptError, match="imported"):
            ActiveMessages(comm, log.receive)
        comm._engine.imports.provisional = False

    run_ranks(2, program)


def test_a_revoked_communicator_ends_waits_and_takes_no_messages() -> None:
    def program(comm: Any) -> None:
        channel = ActiveMessages(comm, Log().receive)
        if comm.rank:
            comm.Revoke()
        with pytest.raises(MpiException) as error:
            channel.wait(lambda: False)
        assert code_of(error) == ERR_REVOKED
        with pytest.raises(MpiException) as error:
            channel.send(0, 1)
        assert code_of(error) == ERR_REVOKED
        channel.free()

    run_ranks(2, program)


# ---- images ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_engines_and_channels_revived_at_any_wait_go_on(seed: int) -> None:
    """Two ranks, each driven by hand: at every step one of them is replaced by its image."""
    bus = Bus(2, seed)
    ranks: list[tuple[BusProgress, Any, Log]] = []
    sent: list[list[str]] = [[], []]
    for rank in range(2):
        progress = BusProgress(bus, rank)
        progress.engine = Engine(progress)
        comm, log = world_of(progress.engine), Log()
        if rank == 0:
            log.channel = ActiveMessages(comm, log.receive, log.failed)
        ranks.append((progress, comm, log))
    for step in range(40):
        rank = bus.random.randrange(2)
        progress, comm, log = ranks[rank]
        if step == 10:
            progress, comm, log = ranks[rank := 1]
            log.channel = ActiveMessages(comm, log.receive, log.failed)
        if log.channel is not None:
            log.channel.send(1 - rank, f"step {step}")
            sent[rank].append(f"step {step}")
        with progress.lock:
            progress.poll()
        new = BusProgress(bus, rank)
        new.seen = progress.seen
        with progress.lock:
            image = image_of(progress, comm, log)
        comm, log = revive(image, new)
        new.engine = comm._engine
        with new.lock:
            comm._engine.handlers.resume()
        ranks[rank] = (new, comm, log)
    for rank in (0, 1, 0, 1) * 20:
        progress = ranks[rank][0]
        with progress.lock:
            progress.poll()
    for rank in range(2):
        assert ranks[rank][2].of(1 - rank) == sent[1 - rank]
    assert len(sent[0] + sent[1]) > 30


def test_until_the_program_goes_on_after_a_restart_nothing_is_called() -> None:
    bus = Bus(1)
    progress = BusProgress(bus, 0)
    progress.engine = Engine(progress)
    comm, log = world_of(progress.engine), Log()
    log.channel = ActiveMessages(comm, log.receive)
    log.channel.send(0, "before")
    new = BusProgress(bus, 0)
    comm, log = revive(image_of(progress, comm, log), new)
    new.engine = comm._engine
    with new.lock:
        new.poll()
        assert log.heard == []
        again = BusProgress(bus, 0)
        comm, log = revive(image_of(new, comm, log), again)
        again.engine = comm._engine
    with again.lock:
        comm._engine.handlers.resume()
    assert log.heard == [(0, "before")]


def test_a_program_that_saves_itself_takes_no_image_with_active_messages() -> None:
    def program(comm: Any) -> str:
        assert mailbox.pending(comm._engine) == ""
        channel = ActiveMessages(comm, Log().receive)
        found = mailbox.pending(comm._engine)
        channel.free()
        assert mailbox.pending(comm._engine) == ""
        return found

    (found,) = run_ranks(1, program)
    assert found.startswith("active messages are in use")


# ---- one rank without a job ------------------------------------------------------------------------------


def test_one_rank_without_a_job_calls_handlers_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of other tests send nothing here
    world = Standalone()
    world.engine, world.world = make_world(world)
    depth, trail = [0], []

    def receive(source: int, n: int) -> None:
        assert not depth[0]
        depth[0] += 1
        if n:
            channel.send(0, n - 1)
        trail.append(n)
        depth[0] -= 1

    channel = ckpt.ActiveMessages(world.world, receive)
    with channel.lock:
        channel.send(0, 2000)
        assert trail == []
    assert trail == list(range(2000, -1, -1))
    assert channel.wait(lambda: False, timeout=0.01) is False
    with pytest.raises(Deadlock):
        channel.wait(lambda: False)
    channel.free()


def test_active_messages_cost_a_program_without_them_nothing_at_its_start() -> None:
    """`import ckpt` loads no room of message passing, `ckpt.ActiveMessages` does."""
    count = "print(sum(name.startswith('ckpt.mpi') for name in sys.modules))"
    program = f"import sys, ckpt; {count}; ckpt.ActiveMessages; {count}"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    before, after = map(int, said.split())
    assert before == 0 < after


def test_what_a_handler_raises_last_is_said_when_a_program_without_a_job_ends() -> None:
    program = "import ckpt; ckpt.ActiveMessages(ckpt.comm, lambda source, obj: 1 / 0).send(0, None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ZeroDivisionError" in done.stderr

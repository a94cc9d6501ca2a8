"""Failed members: nothing hangs, nothing is made of less than everybody's, survivors agree and go on.

Ranks die at random calls into the transport; a program that hangs raises Stuck.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.constants import ANY_SOURCE, UNDEFINED
from ckpt.mpi.base.errors import (
    ERR_PROC_FAILED,
    ERR_PROC_FAILED_PENDING,
    ERR_REVOKED,
    MpiException,
)
from ckpt.mpi.comm.comm_inter import Intercomm, Side
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.datatypes import op as ops
from ckpt.mpi.requests.request import Request
from tests.unit.ckpt.mpi.bus import BusProgress, Killed, run_ranks

SEEDS = range(25)


def run_with_deaths(
    size: int, program: Callable[[Any], Any], deaths: dict[int, int], seed: int
) -> dict[int, Any]:
    """Results of the survivors. `deaths`: after how many calls a rank dies."""

    def arm(progress: BusProgress) -> None:
        progress.die_in = deaths.get(progress.rank)

    results = run_ranks(size, program, seed=seed, hook=arm)
    return {rank: result for rank, result in enumerate(results) if result is not Killed}


def code_of(call: Callable[[], Any]) -> int:
    """Error class of what a call raises; 0 if it returns."""
    try:
        call()
    except MpiException as error:
        return error.error_class
    return 0


def until_failed(comm: Any) -> None:
    """Wait, making progress, until a death is known here."""
    while not comm.Get_failed().size:
        with comm._engine.lock:
            comm._engine.block()


def together(comm: Any) -> None:
    """Return when all have come here; if somebody dies on the way out, too."""
    try:
        comm.barrier()
    except MpiException as error:
        assert error.error_class == ERR_PROC_FAILED


# ---- point to point --------------------------------------------------------------------------------------


def test_operations_with_a_dead_rank_end_with_proc_failed() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 2:
            comm.send("last words", 0, tag=1)
            raise Killed
        if comm.rank == 1:
            until_failed(comm)
            return None
        pending = [comm.irecv(source=2, tag=5), comm.Irecv(bytearray(8), 2, 6), comm.issend("x", 2)]
        codes = [code_of(request.wait) for request in pending]
        until_failed(comm)
        codes += [
            code_of(lambda: comm.send("x", 2)),
            code_of(lambda: comm.ssend("x", 2)),
            code_of(lambda: comm.Send(b"x", 2)),
            code_of(lambda: comm.recv(source=2, tag=7)),
            code_of(lambda: comm.Recv(bytearray(4), source=2, tag=7)),
            code_of(lambda: comm.probe(source=2, tag=7)),
            code_of(lambda: comm.iprobe(source=2, tag=7)),
            code_of(lambda: comm.mprobe(source=2, tag=7)),
            code_of(lambda: comm.sendrecv("x", 2, source=2, recvtag=7)),
            code_of(lambda: comm.Sendrecv(b"x", 2, recvbuf=bytearray(1), source=2, recvtag=7)),
        ]
        return codes

    for seed in SEEDS:
        result = run_with_deaths(3, program, {}, seed)
        assert set(result[0]) == {ERR_PROC_FAILED}, (seed, result)


def test_nonblocking_operations_say_so_when_waited_for_not_when_started() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 1:
            raise Killed
        until_failed(comm)
        requests = [
            comm.isend("x", 1),
            comm.issend("x", 1),
            comm.ibsend("x", 1),
            comm.Isend(b"x", 1),
            comm.Issend(b"x", 1),
            comm.Ibsend(b"x", 1),
            comm.irecv(source=1),
            comm.Irecv(bytearray(1), source=1),
            comm.Isendrecv(b"x", 1, recvbuf=bytearray(1), source=1),
            comm.Ibarrier(),
            comm.Iallreduce(np.ones(3), np.ones(3)),
        ]
        persistent = [comm.Send_init(b"x", 0), comm.Recv_init(bytearray(1), 0)]
        for request in persistent:
            request.Start()
        Request.Waitall(persistent)
        return [code_of(request.wait) for request in requests]

    assert set(run_with_deaths(2, program, {}, 1)[0]) == {ERR_PROC_FAILED}


def test_a_message_that_is_there_is_received_although_its_sender_is_dead() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 1:
            comm.send("last words", 0)
            comm.recv(source=0)
            raise Killed
        comm.probe(source=1)
        comm.send("go", 1)
        until_failed(comm)
        return comm.recv(source=1), code_of(lambda: comm.recv(source=1))

    for seed in SEEDS:
        assert run_with_deaths(2, program, {}, seed)[0] == ("last words", ERR_PROC_FAILED)


def test_a_wildcard_is_pending_until_the_failure_is_acknowledged() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 2:
            raise Killed
        if comm.rank == 1:
            until_failed(comm)
            comm.recv(source=0)
            comm.send("alive", 0)
            return None
        request = comm.irecv(source=ANY_SOURCE)
        codes = [code_of(request.wait), code_of(request.wait), code_of(lambda: comm.recv(source=ANY_SOURCE))]
        codes += [code_of(lambda: comm.probe()), code_of(lambda: Request.Waitany([request]))]
        codes += [code_of(lambda: Request.Waitall([request])), code_of(lambda: comm.iprobe())]
        codes += [code_of(request.test)]
        assert request, "it is still pending"
        assert comm.Ack_failed(0) == 0 and comm.Ack_failed() == 1
        comm.send("go", 1)
        return codes, request.wait()

    pending = ERR_PROC_FAILED_PENDING
    expected = [pending, pending, ERR_PROC_FAILED, ERR_PROC_FAILED, pending, pending, pending, pending]
    for seed in SEEDS:
        assert run_with_deaths(3, program, {}, seed)[0] == (expected, "alive"), seed


def test_waitall_does_not_sleep_on_what_its_look_for_failures_has_completed() -> None:
    """It did, until something else came: 54 ms each time in a job of two ranks, for ever where nothing comes."""

    def program(comm: Any) -> Any:
        if comm.rank == 2:
            raise Killed
        until_failed(comm)
        other = 1 - comm.rank
        return [Request.waitall([comm.isend(step, other), comm.irecv(source=other)])[1] for step in range(20)]

    for seed in SEEDS:
        results = run_with_deaths(3, program, {}, seed)
        assert results == {rank: list(range(20)) for rank in (0, 1)}, seed


def test_communicators_without_the_dead_rank_go_on() -> None:
    def program(comm: Any) -> Any:
        pair = comm.Split(comm.rank // 2)
        together(comm)
        if comm.rank == 3:
            raise Killed
        until_failed(comm)
        if comm.rank == 2:
            return code_of(pair.barrier), pair.Get_failed().size
        return pair.allreduce(1), pair.Get_failed().size

    assert run_with_deaths(4, program, {}, 3) == {0: (2, 0), 1: (2, 0), 2: (ERR_PROC_FAILED, 1)}


# ---- collectives -----------------------------------------------------------------------------------------


def collective_calls(comm: Any, step: int) -> dict[str, tuple[Callable[[], Any], Any]]:
    """Per family a call, and what it must give when it does not raise."""
    rank, size = comm.rank, comm.size
    root = step % size
    total = size * (size - 1) // 2
    ones, into, table = np.full(200, rank + 1.0), np.zeros(200), np.zeros((size, 200))
    big, big_into = np.full(100_000, rank + 1.0), np.zeros(100_000)
    summed = total + size

    def buffer(call: Callable[[], Any], where: Any, at: Any) -> Callable[[], Any]:
        def run() -> Any:
            call()
            return where[at]

        return run

    return {
        "barrier": (comm.barrier, None),
        "bcast": (lambda: comm.bcast(root if rank == root else None, root), root),
        "gather": (lambda: comm.gather(rank, root), list(range(size)) if rank == root else None),
        "scatter": (lambda: comm.scatter(list(range(size)) if rank == root else None, root), rank),
        "allgather": (lambda: comm.allgather(rank), list(range(size))),
        "alltoall": (lambda: comm.alltoall([rank] * size), list(range(size))),
        "reduce": (lambda: comm.reduce(rank, ops.SUM, root), total if rank == root else None),
        "allreduce": (lambda: comm.allreduce(rank), total),
        "scan": (lambda: comm.scan(rank), rank * (rank + 1) // 2),
        "Bcast": (buffer(lambda: comm.Bcast(ones, root), ones, 3), root + 1.0),
        "Allreduce": (buffer(lambda: comm.Allreduce(ones, into), into, 7), summed),
        "Allreduce of much": (buffer(lambda: comm.Allreduce(big, big_into), big_into, 99_999), summed),
        "Allgather": (buffer(lambda: comm.Allgather(ones, table), table, (size - 1, 0)), size),
        "Ireduce": (buffer(lambda: comm.Iallreduce(ones, into).Wait(), into, 0), summed),
        "Dup": (lambda: comm.Dup().size, size),
        "Split": (lambda: comm.Split(0, -rank).rank, size - 1 - rank),
        "Create_cart": (lambda: comm.Create_cart([size]).size, size),
    }


FAMILIES = list(collective_calls(type("C", (), {"rank": 0, "size": 1, "barrier": None})(), 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_collective_raises_wherever_its_result_may_be_invalid_and_never_hangs(family: str) -> None:
    def program(comm: Any) -> Any:
        for step in range(200):
            call, expected = collective_calls(comm, step)[family]
            try:
                got = call()
            except MpiException as error:
                assert error.error_class == ERR_PROC_FAILED
                break
            assert got == expected, (step, got, expected)
        else:
            if comm._engine.progress.die_in is not None:
                raise Killed
            until_failed(comm)
        rest = comm.Shrink()
        return rest.size, rest.allreduce(1), rest.allgather(comm.rank)

    for seed in range(8):
        choose = random.Random(f"{family} {seed}")
        size = choose.randint(2, 6)
        victim = choose.randrange(size)
        left = [rank for rank in range(size) if rank != victim]
        results = run_with_deaths(size, program, {victim: choose.randint(0, 60)}, seed)
        assert results == dict.fromkeys(left, (size - 1, size - 1, left)), seed


def test_new_communicators_of_a_group_do_not_wait_for_a_dead_member() -> None:
    def program(comm: Any) -> Any:
        part = comm.Get_group().Incl([3, 1, 0])
        if comm.rank == 2:
            return None
        try:
            comm.Create_group(part).barrier()
        except MpiException as error:
            return error.error_class
        return 0

    for seed in SEEDS:
        for victim in (0, 1, 3):
            results = run_with_deaths(4, program, {victim: random.Random(seed).randint(0, 3)}, seed)
            results.pop(2)
            assert set(results.values()) <= {0, ERR_PROC_FAILED}


def test_joining_and_merging_two_groups_ends_at_all_survivors() -> None:
    def program(comm: Any) -> Any:
        low = comm.rank < 2
        local = comm.Split(low)
        together(comm)
        comm._engine.progress.die_in = deaths.get(comm.rank)
        try:
            both = local.Create_intercomm(0, comm, 2 if low else 0)
        except MpiException as error:
            return error.error_class
        try:
            for _ in range(10):
                both.allgather(comm.rank)
                both.Merge()
        except MpiException as error:
            return error.error_class
        return 0

    for seed in range(60):
        choose = random.Random(seed)
        deaths = {choose.randrange(5): choose.randint(0, 60)}
        results = run_with_deaths(5, program, {}, seed)
        assert set(results.values()) <= {0, ERR_PROC_FAILED}, seed


# ---- revoking --------------------------------------------------------------------------------------------


def test_revoking_ends_everything_pending_at_every_member_even_if_the_revoker_dies() -> None:
    def program(comm: Any) -> Any:
        other = comm.Dup()
        if comm.rank == 0:
            other.Revoke()
            return None
        waits = {
            1: lambda: other.recv(source=2),
            2: lambda: other.ssend("x", 3),
            3: lambda: other.barrier(),
            4: lambda: other.recv(source=ANY_SOURCE),
        }
        code = code_of(waits[comm.rank])
        after = {code_of(lambda: other.send("x", 1)), code_of(other.barrier), code_of(other.Dup)}
        return code, after, other.Is_revoked()

    for seed in range(40):
        choose = random.Random(seed)
        deaths = {0: choose.randint(30, 60)} if seed % 2 else {}
        results = run_with_deaths(5, program, deaths, seed)
        heard = [result for rank, result in results.items() if rank and result[2]]
        if not deaths:
            assert len(heard) == 4
        if heard:
            assert len(heard) == 4, "all or nobody"
            assert all(code in (ERR_REVOKED, ERR_PROC_FAILED) for code, _, _ in heard)
            assert all(after <= {ERR_REVOKED} for _, after, _ in heard)


def test_a_revoked_communicator_can_be_agreed_on_and_shrunk() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 1:
            comm.Revoke()
        else:
            assert code_of(comm.barrier) == ERR_REVOKED
        return comm.Agree(0b1110 | comm.rank), comm.Shrink().allreduce(1)

    assert run_with_deaths(3, program, {}, 5) == dict.fromkeys(range(3), (0b1110, 3))


# ---- agreeing and shrinking ------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["Agree", "Agree_failed", "Shrink", "shrink", "Iagree", "Ishrink"])
def test_members_that_call_different_agreements_are_told(call: str) -> None:
    """A rank that goes to the end of the program, say, and others that meet a failure before."""

    def other(comm: Any) -> Any:
        match call:
            case "Agree":
                return comm.Agree(1)
            case "shrink":
                return comm.shrink("something")
            case "Iagree":
                return comm.Iagree(np.ones(1, "i")).Wait()
            case "Ishrink":
                return Request.Waitall([comm.Ishrink()[1]])
            case _:
                return getattr(comm, call)()

    def program(comm: Any) -> str:
        with pytest.raises(MpiException) as caught:
            if comm.rank == 1:
                comm.Shrink() if call in ("Agree", "Agree_failed", "shrink", "Iagree") else comm.Agree(1)
            else:
                other(comm)
        return str(caught.value)

    said = run_ranks(3, program)
    assert len(set(said)) == 1
    assert "rank 0 of the job" in said[0] and "rank 1 of the job" in said[0]


@pytest.mark.parametrize("batch", range(4))
def test_agree_gives_all_survivors_the_same_whoever_dies_when(batch: int) -> None:
    def program(comm: Any) -> Any:
        outcomes: list[Any] = []
        for step in range(6):
            flag = ~(1 << ((comm.rank + step) % 8))
            try:
                outcomes.append(comm.Agree(flag))
            except MpiException as error:
                outcomes.append((error.error_class, error.agreed))
                comm.Ack_failed()
        return outcomes

    for seed in range(batch * 50, batch * 50 + 50):
        choose = random.Random(seed)
        size = choose.randint(2, 6)
        victims = choose.sample(range(size), choose.randint(1, size - 1))
        deaths = {rank: choose.randint(0, 40) for rank in victims}
        results = run_with_deaths(size, program, deaths, seed)
        assert len({repr(outcomes) for outcomes in results.values()}) <= 1, (seed, results)
        for outcomes in results.values():
            for step, outcome in enumerate(outcomes):
                agreed = outcome[1] if isinstance(outcome, tuple) else outcome
                for rank in results:
                    assert not agreed & (1 << ((rank + step) % 8)), "a survivor's contribution is missing"


def test_agree_raises_everywhere_until_everybody_has_acknowledged() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 3:
            raise Killed
        until_failed(comm)
        codes = []
        for turn in range(4):
            codes.append(code_of(lambda: comm.Agree(1)))
            if turn >= comm.rank:
                comm.Ack_failed()
        return codes

    expected = [ERR_PROC_FAILED] * 3 + [0]
    assert run_with_deaths(4, program, {}, 2) == dict.fromkeys(range(3), expected)


def test_several_nonblocking_agreements_at_a_time() -> None:
    def program(comm: Any) -> Any:
        flags = [np.array([7 << comm.rank], dtype="i") for _ in range(5)]
        requests = [comm.Iagree(flag) for flag in flags]
        codes = [code_of(request.wait) for request in reversed(requests)]
        return [int(flag[0]) for flag in flags], codes

    for seed in SEEDS:
        choose = random.Random(seed)
        results = run_with_deaths(3, program, {choose.randrange(3): choose.randint(0, 20)}, seed)
        assert len(set(map(repr, results.values()))) <= 1, (seed, results)


def test_decided_agreements_are_forgotten() -> None:
    def program(comm: Any) -> Any:
        for _ in range(100):
            comm.Agree(1)
        return len(comm._engine.failed_ranks.agreements)

    assert max(run_ranks(3, program)) <= 3


def test_shrinking_survives_failures_during_it_and_what_comes_out_works() -> None:
    def program(comm: Any) -> Any:
        rest = comm
        while True:
            rest = rest.Shrink()
            try:
                result, fine = (rest.allgather(comm.rank), rest.allreduce(1)), 1
            except MpiException as error:
                assert error.error_class in (ERR_PROC_FAILED, ERR_REVOKED)
                rest.Revoke()
                result, fine = None, 0
            try:
                if rest.Agree(fine):
                    return result
            except MpiException as error:
                assert error.error_class == ERR_PROC_FAILED

    for seed in range(100):
        choose = random.Random(seed)
        size = choose.randint(3, 6)
        victims = choose.sample(range(size), choose.randint(1, size - 1))
        results = run_with_deaths(size, program, {rank: choose.randint(0, 25) for rank in victims}, seed)
        for rank, (members, total) in results.items():
            assert total == len(members) and rank in members, seed
        assert len(set(map(repr, results.values()))) <= 1, seed


def test_shrinking_with_objects_gives_all_survivors_the_same_whoever_dies_when() -> None:
    """The objects of all members of the new communicator, in its order; without a further call."""

    def program(comm: Any) -> Any:
        rest, outcomes = comm, []
        for step in range(6):
            rest, found = rest.shrink((comm.rank, step))
            assert len(found) == rest.size and found[rest.rank] == (comm.rank, step)
            outcomes.append(found)
        return outcomes

    for seed in range(100):
        choose = random.Random(seed)
        size = choose.randint(2, 6)
        victims = choose.sample(range(size), choose.randint(1, size - 1))
        results = run_with_deaths(size, program, {rank: choose.randint(0, 40) for rank in victims}, seed)
        assert len(set(map(repr, results.values()))) <= 1, (seed, results)
        for outcomes in results.values():
            for step, found in enumerate(outcomes):
                assert {(rank, step) for rank in results} <= set(found), "a survivor's object is missing"


def test_merging_with_objects_gives_all_survivors_of_both_groups_the_same_whoever_dies_when() -> None:
    """Whoever dies in it, nobody is left alone in it, as in Merge; what comes out of it works."""

    def program(comm: Any) -> Any:
        ranks, low = tuple(range(comm.size)), comm.rank < comm.size // 2
        ours, theirs = (ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :])[:: 1 if low else -1]
        engine, base = comm._engine, 1 << 40
        local = Intracomm._make(engine, ours, base + 100 * low)
        both, found = Intercomm._join(engine, ours, theirs, base + 200, Side(local, low)).merge(
            (comm.rank, low)
        )
        assert len(found) == both.size and found[both.rank] == (comm.rank, low)
        _, again = both.shrink(comm.rank)
        return found, again

    for seed in range(100):
        choose = random.Random(seed)
        size = choose.randint(2, 6)
        victims = choose.sample(range(size), choose.randint(0, size - 1))
        results = run_with_deaths(size, program, {rank: choose.randint(0, 15) for rank in victims}, seed)
        assert len(set(map(repr, results.values()))) <= 1, (seed, results)
        for found, again in results.values():
            assert found == sorted(found), "the low group comes first"
            assert set(results) <= set(again) <= {rank for rank, _ in found}, "a survivor's object is missing"


# ---- the agreed group of the dead ------------------------------------------------------------------------


def world_ranks(group: Any) -> list[int]:
    return list(group.Translate_ranks())


@pytest.mark.parametrize("batch", range(4))
def test_all_survivors_agree_on_the_same_dead_whoever_dies_when(batch: int) -> None:
    """And so have all later groups."""

    def program(comm: Any) -> Any:
        outcomes: list[list[int]] = []
        for _ in range(6):
            known = world_ranks(comm.Get_failed())
            agreed = world_ranks(comm.Agree_failed())
            assert agreed == sorted(agreed) and set(known) <= set(agreed)
            assert not outcomes or set(outcomes[-1]) <= set(agreed), "a dead one is alive again"
            outcomes.append(agreed)
        return outcomes

    for seed in range(batch * 50, batch * 50 + 50):
        choose = random.Random(seed)
        size = choose.randint(2, 6)
        victims = choose.sample(range(size), choose.randint(1, size - 1))
        deaths = {rank: choose.randint(0, 40) for rank in victims}
        results = run_with_deaths(size, program, deaths, seed)
        assert len({repr(outcomes) for outcomes in results.values()}) <= 1, (seed, results)
        for outcomes in results.values():
            assert not set(outcomes[-1]) & set(results), "a survivor is called dead"


def test_who_returns_with_the_agreed_dead_has_been_told_of_them() -> None:
    """A member that is told late returns late: from then on Get_failed has the group, and sends to the dead raise."""

    def told_late(progress: BusProgress) -> None:
        """Rank 1 is told of the death only after it has received what was decided."""
        hear = progress._hear

        def hear_late(*, all_of_it: bool) -> bool:
            assert progress.engine is not None
            agreements = progress.engine.failed_ranks.agreements.values()
            return any(each.decided and each.value[1] for each in agreements) and hear(all_of_it=all_of_it)

        if progress.rank == 1:
            progress._hear = hear_late  # type: ignore[method-assign]

    def program(comm: Any) -> Any:
        if comm.rank == 2:
            raise Killed
        outcomes = []
        while not outcomes or not outcomes[-1][0]:
            agreed = world_ranks(comm.Agree_failed())
            outcomes.append((agreed, sorted(comm._engine.failed_ranks.known)))
        return outcomes[-1], code_of(lambda: comm.send("x", 2))

    for seed in SEEDS:
        results = run_ranks(4, program, seed=seed, hook=told_late)
        expected = ([2], [2]), ERR_PROC_FAILED
        assert [results[rank] for rank in (0, 1, 3)] == [expected] * 3, seed


def test_agreeing_on_the_dead_raises_and_acknowledges_nothing() -> None:
    def program(comm: Any) -> Any:
        if comm.rank == 3:
            raise Killed
        until_failed(comm)
        dead = [world_ranks(comm.Agree_failed()) for _ in range(2)]
        codes = [code_of(lambda: comm.Agree(1)), comm.Ack_failed(), code_of(lambda: comm.Agree(1))]
        return dead, codes, comm.Get_group().Difference(comm.Get_group(), comm.Agree_failed()).size

    expected = [[3], [3]], [ERR_PROC_FAILED, 1, 0], 3
    for seed in SEEDS:
        assert run_with_deaths(4, program, {}, seed) == dict.fromkeys(range(3), expected)


def test_several_nonblocking_agreements_on_the_dead_at_a_time() -> None:
    def program(comm: Any) -> Any:
        pairs = [comm.Iagree_failed() for _ in range(4)]
        agreed = comm.Iagree(np.array([1], dtype="i"))
        nulls = [bool(group) for group, request in pairs if not request.Get_status()]
        Request.Waitall([request for _, request in reversed(pairs)])
        code = code_of(agreed.wait)
        assert code in (0, ERR_PROC_FAILED) and not any(nulls), "null until the request is done"
        return [world_ranks(group) for group, _ in pairs]

    for seed in range(60):
        choose = random.Random(seed)
        results = run_with_deaths(3, program, {choose.randrange(3): choose.randint(0, 20)}, seed)
        assert len(set(map(repr, results.values()))) <= 1, (seed, results)


def test_the_dead_of_a_revoked_communicator_are_agreed_on() -> None:
    def program(comm: Any) -> Any:
        other = comm.Dup()
        together(comm)
        if comm.rank == 2:
            raise Killed
        if comm.rank == 1:
            other.Revoke()
        dead = other.Agree_failed()
        while not dead.size:
            dead = other.Agree_failed()
        return world_ranks(dead), other.Is_revoked() or comm.rank != 1

    for seed in SEEDS:
        assert run_with_deaths(4, program, {}, seed) == dict.fromkeys((0, 1, 3), ([2], True))


def test_the_dead_of_both_groups_of_an_intercommunicator_are_agreed_on_at_both_sides() -> None:
    def program(comm: Any) -> Any:
        low = comm.rank < 3
        both = comm.Split(low, -comm.rank).Create_intercomm(0, comm, 5 if low else 2)
        together(comm)
        if comm.rank in (1, 4):
            raise Killed
        outcomes = []
        while not outcomes or len(outcomes[-1]) < 2:
            outcomes.append(world_ranks(both.Agree_failed()))
        return outcomes

    for seed in SEEDS:
        results = run_with_deaths(6, program, {}, seed)
        assert set(results) == {0, 2, 3, 5} and len(set(map(repr, results.values()))) == 1, (seed, results)
        assert results[0][-1] == [1, 4]


def test_one_rank_agrees_with_itself_that_nobody_is_dead() -> None:
    def program(comm: Any) -> Any:
        group = comm.Agree_failed()
        return group.size, group.rank, bool(group), comm.Dup().Agree_failed().size

    assert run_ranks(1, program) == [(0, UNDEFINED, True, 0)]


def test_an_intercommunicator_is_shrunk_on_both_sides() -> None:
    def program(comm: Any) -> Any:
        low = comm.rank < 3
        both = comm.Split(low).Create_intercomm(0, comm, 3 if low else 0)
        together(comm)
        if comm.rank in (1, 4):
            raise Killed
        while comm.Get_failed().size < 2:
            with comm._engine.lock:
                comm._engine.block()
        rest = both.Shrink()
        return rest.size, rest.remote_size, rest.allgather(comm.rank), rest.Merge().allreduce(1)

    for seed in SEEDS:
        results = run_with_deaths(6, program, {}, seed)
        low, high = (2, 2, [3, 5], 4), (2, 2, [0, 2], 4)
        assert results == {0: low, 2: low, 3: high, 5: high}, seed

"""What libraries make of communicators, and hear from other ranks, while they are imported, over a restart."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt import MPI
from ckpt.errors import CkptError
from ckpt.mpi.base.constants import UNDEFINED
from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.engine import imports
from ckpt.mpi.engine.engine import Engine
from tests.unit.ckpt.mpi.bus import run_ranks

LIBRARY = """
first, second = WORLD.Dup(), WORLD.Dup()
handle = type(WORLD)(WORLD)
"""

HEARS = """
seed = WORLD.bcast(SEED if WORLD.rank == 1 else None, root=1)
half = WORLD.Split(WORLD.rank % 2, -WORLD.rank)
low = WORLD.Split(0 if WORLD.rank < 2 else UNDEFINED)
grid = WORLD.Create_cart([3], [True])
names = WORLD.gather(f"{SEED} of {WORLD.rank}")
sums = np.zeros(2)
WORLD.Allreduce(np.full(2, float(SEED)), [sums, DOUBLE])
WORLD.Bcast(table := np.full(3, SEED if WORLD.rank == 0 else 0), 0)
WORLD.Barrier()
total = half.allreduce(SEED)
NUMBER = WORLD.Get_rank()
"""


@pytest.fixture(autouse=True)
def _import_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "under_way", {1: 1})


def imported(source: str, name: str, **names: Any) -> SimpleNamespace:
    """A module of this source, imported just now."""
    space = {"__spec__": SimpleNamespace(name=name, _initializing=True), **names}
    exec(compile(source, name, "exec"), space)
    return SimpleNamespace(**{key: value for key, value in space.items() if not key.startswith("__")})


def provisional_for(engine: Engine) -> Engine:
    """The engine of a restart before it has read the image that `engine` is in. It can reach nobody."""
    found = Engine(engine.progress)
    found.imports.hear_again(engine.imports.told())

    def no_port(*args: Any, **options: Any) -> Any:
        raise CkptError("no port")

    found.progress = SimpleNamespace(  # type: ignore[assignment]
        rank=engine.progress.rank, size=engine.progress.size, send=no_port, block=no_port
    )
    return found


def test_what_a_library_duplicates_is_found_again_when_it_is_imported_again() -> None:
    def program(comm: Any) -> Any:
        engine = comm._engine
        before = imported(LIBRARY, "library", WORLD=comm)
        comm.Dup()  # the program's own
        before.second.send("kept", 1 - comm.rank)
        provisional = provisional_for(engine)
        after = imported(LIBRARY, "library", WORLD=world_of(provisional))
        states = {"_world": comm.__getstate__()}
        engine.take_over(provisional, states)
        assert after.handle == world_of(provisional) == comm
        assert after.first == before.first
        assert after.second == before.second
        return after.second.recv(source=1 - comm.rank), after.first.allreduce(1), after.handle.allreduce(2)

    assert run_ranks(2, program) == [("kept", 2, 4)] * 2


def test_what_a_library_hears_from_other_ranks_it_hears_again_when_it_is_imported_again() -> None:
    """heat spreads a seed when it is imported: no restart was possible."""

    def program(comm: Any) -> Any:
        given = {"np": np, "UNDEFINED": UNDEFINED, "DOUBLE": MPI.DOUBLE}
        comm.Dup()  # the program's own: numbers of contexts are others in the provisional engine
        before = imported(HEARS, "library", WORLD=comm, SEED=7 + comm.rank, **given)
        provisional = provisional_for(comm._engine)
        after = imported(HEARS, "library", WORLD=world_of(provisional), SEED=-1, **given)
        comm._engine.take_over(provisional, {"_world": comm.__getstate__()})
        assert (after.seed, after.names, after.total) == (before.seed, before.names, before.total)
        assert after.sums.tolist() == before.sums.tolist() == [24, 24] and after.table.tolist() == [7] * 3
        assert after.half == before.half and bool(after.low) == (comm.rank < 2) and after.grid == before.grid
        assert not after.low or after.low == before.low
        return after.seed, after.half.allgather(comm.rank), after.grid.Shift(0, 1), after.NUMBER

    assert run_ranks(3, program) == [
        (8, [2, 0], (2, 1), 0),
        (8, [1], (0, 2), 1),
        (8, [2, 0], (1, 0), 2),
    ]


def test_what_was_noted_outlives_a_second_restart() -> None:
    def program(comm: Any) -> Any:
        source = "seed = WORLD.bcast(SEED)"
        imported(source, "first", WORLD=comm, SEED=1 + comm.rank)
        for _ in range(2):
            provisional = provisional_for(comm._engine)
            again = imported(source, "first", WORLD=world_of(provisional), SEED=-1)
            comm._engine.take_over(provisional, {"_world": comm.__getstate__()})
        later = imported(source, "second", WORLD=comm, SEED=3 + comm.rank)
        return again.seed, later.seed, sorted(comm._engine.imports.heard)

    assert run_ranks(2, program) == [(1, 3, [("first", "bcast"), ("second", "bcast")])] * 2


def test_what_a_program_hears_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(comm: Any) -> Any:
        comm.bcast(1)
        monkeypatch.setattr(imports, "under_way", {})
        imported("WORLD.bcast(1)", "not watched", WORLD=comm)
        return comm._engine.imports.told()

    assert run_ranks(1, program) == [[]]


@pytest.mark.parametrize(
    ("obj", "why"),
    [(lambda: 0, "cannot be kept (Can't pickle"), (bytes(1 << 21), "has brought more than 1048576 bytes")],
    ids=["no pickle", "large"],
)
def test_what_cannot_be_heard_again_is_said_when_an_image_is_taken(obj: Any, why: str) -> None:
    def program(comm: Any) -> Any:
        comm._engine.codec = SimpleNamespace(dumps=lambda obj: b"", loads=lambda data: obj)
        imported("WORLD.bcast(obj)", "library.part", WORLD=comm, obj=obj)
        return comm._engine.imports.refusal

    (refusal,) = run_ranks(1, program)
    assert why in refusal and "module library.part calls bcast while it is imported" in refusal, refusal


def test_a_message_while_a_library_is_imported_again_cannot_be_repeated() -> None:
    def program(comm: Any) -> Any:
        source = "WORLD.send(1, 0); WORLD.recv()"
        imported(source, "library", WORLD=comm)
        provisional = provisional_for(comm._engine)
        with pytest.raises(CkptError, match="no port"):
            imported(source, "library", WORLD=world_of(provisional))

    run_ranks(1, program)


def test_a_duplicate_that_was_freed_before_the_image_is_null_afterwards() -> None:
    def program(comm: Any) -> Any:
        engine = comm._engine
        imported(LIBRARY, "library", WORLD=comm).first.Free()
        provisional = provisional_for(engine)
        after = imported(LIBRARY, "library", WORLD=world_of(provisional))
        engine.take_over(provisional, {"_world": comm.__getstate__()})
        return bool(after.first), bool(after.second)

    assert run_ranks(2, program) == [(False, True)] * 2


def test_modules_are_told_apart_and_programs_are_none() -> None:
    def program(comm: Any) -> Any:
        assert imports.module_being_imported() is None
        imported("WORLD.Dup()", "one", WORLD=comm)
        imported("WORLD.Dup(); WORLD.Dup()", "two", WORLD=comm)
        return sorted(comm._engine.imports.made)

    assert run_ranks(1, program) == [[("one", 0), ("two", 0), ("two", 1)]]

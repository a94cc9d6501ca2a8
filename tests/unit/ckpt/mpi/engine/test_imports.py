"""Communicators that libraries make while they are imported, over a restart."""

from types import SimpleNamespace
from typing import Any

from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.engine import imports
from ckpt.mpi.engine.engine import Engine
from tests.unit.ckpt.mpi.bus import run_ranks

LIBRARY = """
first, second = WORLD.Dup(), WORLD.Dup()
handle = type(WORLD)(WORLD)
"""


def imported(source: str, name: str, **names: Any) -> SimpleNamespace:
    """A module of this source, imported just now."""
    space = {"__spec__": SimpleNamespace(name=name, _initializing=True), **names}
    exec(compile(source, name, "exec"), space)
    return SimpleNamespace(**{key: value for key, value in space.items() if not key.startswith("__")})


def test_what_a_library_duplicates_is_found_again_when_it_is_imported_again() -> None:
    def program(comm: Any) -> Any:
        engine = comm._engine
        before = imported(LIBRARY, "library", WORLD=comm)
        comm.Dup()  # the program's own
        before.second.send("kept", 1 - comm.rank)
        provisional = Engine(engine.progress)
        provisional.imports.provisional = True
        after = imported(LIBRARY, "library", WORLD=world_of(provisional))
        states = {"_world": comm.__getstate__()}
        engine.take_over(provisional, states)
        assert after.handle == world_of(provisional) == comm
        assert after.first == before.first
        assert after.second == before.second
        return after.second.recv(source=1 - comm.rank), after.first.allreduce(1), after.handle.allreduce(2)

    assert run_ranks(2, program) == [("kept", 2, 4)] * 2


def test_a_duplicate_that_was_freed_before_the_image_is_null_afterwards() -> None:
    def program(comm: Any) -> Any:
        engine = comm._engine
        imported(LIBRARY, "library", WORLD=comm).first.Free()
        provisional = Engine(engine.progress)
        provisional.imports.provisional = True
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

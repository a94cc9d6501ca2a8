"""Where module-level functions of MPI find the engine of this process.

ckpt.mpi knows nothing of jobs; whoever makes the world (the rank's runtime, or the one-rank stand-in)
registers a function that gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

_find: list[Callable[[], Engine]] = []
_abort: list[Callable[[int], NoReturn]] = []


def provide(find: Callable[[], Engine], abort: Callable[[int], NoReturn]) -> None:
    """`find` gives this process's engine, making it if need be; `abort` ends the whole job."""
    _find[:] = [find]
    _abort[:] = [abort]


def is_provided() -> bool:
    """Whether this process has a world."""
    return bool(_find)


def engine() -> Engine:
    """This process's engine."""
    return _find[0]()


def abort(exit_code: int) -> NoReturn:
    """End the job."""
    _abort[0](exit_code)


def codec_changed(codec: Any) -> None:
    """Objects are pickled by `codec` from now on; None: as by default."""
    engine().codec = codec

"""The registry of this process's engine, for functions of the module MPI that have no communicator as an argument.

ckpt.mpi does not know jobs. The module MPI registers functions here (`provide`): one returns the engine of the
rank's runtime, one ends the job, and one asks it for processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine

_find: list[Callable[[], Engine]] = []
_abort: list[Callable[[int], NoReturn]] = []
_ask: list[Callable[[dict[str, Any] | None], str | None]] = []


def provide(
    find: Callable[[], Engine],
    abort: Callable[[int], NoReturn],
    ask: Callable[[dict[str, Any] | None], str | None],
) -> None:
    """Register the functions. `find` returns this process's engine, which it makes if necessary; `abort` ends the job;
    `ask`: see :meth:`ckpt.rank.world.World.spawn`."""
    _find[:] = [find]
    _abort[:] = [abort]
    _ask[:] = [ask]


def may_spawn() -> bool:
    """May this job have more processes?"""
    return bool(_ask) and _ask[0](None) is None


def ask(packet: dict[str, Any]) -> str | None:
    """Send this request for processes; the answer comes to the engine's `spawns`. Returns why it was not sent."""
    return _ask[0](packet)


def is_provided() -> bool:
    """Whether the functions are registered."""
    return bool(_find)


def engine() -> Engine:
    """This process's engine. IndexError before `provide`."""
    return _find[0]()


def abort(exit_code: int) -> NoReturn:
    """End the whole job with this exit code."""
    _abort[0](exit_code)


def codec_changed(codec: Any) -> None:
    """The engine pickles objects with `codec` from now on. None: with the default."""
    engine().codec = codec

"""Checkpoint/restart for message-passing Python.

In an application::

    import ckpt

    comm = ckpt.enable()            # under `ckpt run -n 4 app.py`: four ranks; under plain `python app.py`: one
    total = comm.allreduce(comm.rank)

Nothing else is needed: checkpoints are taken where the program is, and after a ``kill -9`` it goes on from the last
committed one.

Public names: :func:`enable`, :data:`comm`, :func:`checkpoint`, :func:`register`, :func:`epoch`, :func:`restarts`,
:class:`CkptError`. Everything heavier is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ckpt.errors import CkptError

if TYPE_CHECKING:
    from ckpt.mpi.communicator import Communicator
    from ckpt.runtime import Runtime
    from ckpt.standalone import Standalone

    comm: Communicator

__all__ = ["CkptError", "checkpoint", "comm", "enable", "epoch", "register", "restarts"]

T = TypeVar("T")

_world: list[Runtime | Standalone] = []


def _runtime() -> Runtime | Standalone:
    if not _world:
        from ckpt.runtime import current

        runtime = current()
        if runtime is None:
            from ckpt.standalone import Standalone

            _world.append(Standalone.start())
        else:
            _world.append(runtime)
    return _world[0]


def enable() -> Communicator:
    """The world communicator of this job, with mpi4py's names; a world of one rank outside ``ckpt run``.

    May be called any number of times; always returns the same communicator.
    """
    from ckpt.runtime import current

    runtime = _runtime()
    if runtime is current():
        from ckpt.image import look

        look()  # now, rather than while the program stands still for its first image
    assert runtime.world is not None
    return runtime.world


def checkpoint(wait: bool = True) -> int | None:
    """Ask for a checkpoint of the whole job.

    With ``wait`` the call returns, with the epoch, once this rank's image is captured (it need not be committed yet);
    otherwise at once, with ``None``. A program resumed from that image returns from the call too: compare
    :func:`restarts`. Outside a job nothing happens and ``None`` is returned. Calls of several ranks at about the same time
    lead to one checkpoint.
    """
    runtime = _runtime()
    from ckpt.runtime import Runtime

    return runtime.checkpoint(wait) if isinstance(runtime, Runtime) else None


def register(name: str, obj: T) -> T:
    """Give ``obj`` a name in this rank's images; returns ``obj``.

    Raises :class:`ckpt.errors.RegistrationError` when the name is taken by another object or is not usable.
    """
    runtime = _runtime()
    from ckpt.runtime import Runtime

    if isinstance(runtime, Runtime):
        runtime.register(name, obj)
    else:
        runtime.registered[name] = obj
    return obj


def epoch() -> int:
    """The epoch of this rank's last image; 0 before the first."""
    runtime = _runtime()
    return getattr(runtime, "epoch", 0)


def restarts() -> int:
    """How many times this job has been restarted so far."""
    runtime = _runtime()
    return getattr(runtime, "restarts", 0)


def __getattr__(name: str) -> Any:
    if name == "comm":
        return enable()
    raise AttributeError(f"module 'ckpt' has no attribute {name!r}")

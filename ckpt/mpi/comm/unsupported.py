"""Parts of MPI that are not offered: ports; and spawned processes in a job without ``--spares``.

The names exist. A call of a function or method raises NotImplementedError; the message says what the program can use
instead.

If such an exception is raised in a thread and not caught there, the job ends. Otherwise the main thread might wait for
ever for the result of that thread. (A pool of mpi4py.futures spawns its workers in such a thread.)
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from ckpt.mpi.base.errors import (
    ERR_PROC_FAILED,
    ERR_PROC_FAILED_PENDING,
    ERR_REVOKED,
    ERR_SPAWN,
    MpiException,
)
from ckpt.mpi.engine import worlds

PORTS = "a job's ranks are fixed when it starts; start more with `ckpt run -n N`"
SPAWNING = (
    f"{PORTS} (a pool of mpi4py.futures then works on them: `ckpt run -n N -m mpi4py.futures PROGRAM`), or let the program "
    "start K more: `ckpt run --spares K --on-failure continue`"
)


class NotOffered(NotImplementedError):
    """A function or method that is not offered was called."""


def not_offered(name: str, instead: str) -> NotOffered:
    """The exception for a call of `name`, for the caller to raise. If a thread does not catch it, the job ends."""
    _end_job_if_uncaught()
    return NotOffered(f"{name}: {instead}")


class SpawnFailed(MpiException):
    """Processes were not started."""


def spawn_failed(reason: str) -> SpawnFailed:
    """The exception for that, for the caller to raise. If a thread does not catch it, the job ends: a pool would wait for
    ever for the workers that its thread has not got."""
    _end_job_if_uncaught()
    return SpawnFailed(ERR_SPAWN, reason)


def has_spawned() -> None:
    """This thread has started processes. If one of them dies and the thread does not catch the error, the job ends: as a
    rule it is the thread of a pool, for whose results the main thread would wait for ever."""
    if threading.current_thread() is not threading.main_thread():
        _spawners.add(threading.get_ident())
        _end_job_if_uncaught()


_spawners: set[int] = set()
_DEATHS = (ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED)


def _ends_job(failure: BaseException | None, thread: threading.Thread | None) -> bool:
    if isinstance(failure, MpiException) and failure.error_class in _DEATHS:
        return thread is not None and thread.ident in _spawners
    return isinstance(failure, (NotOffered, SpawnFailed))


def _end_job_if_uncaught() -> None:
    if threading.current_thread() is not threading.main_thread():
        hook = threading.excepthook
        if hook is not _uncaught:
            _hooks[:] = [hook]
            threading.excepthook = _uncaught


_hooks: list[Callable[[Any], Any]] = []


def _uncaught(args: Any) -> None:
    """Replaces threading.excepthook: calls the former hook, then ends the job if the exception is one of these."""
    (_hooks[0] if _hooks else threading.__excepthook__)(args)
    if _ends_job(args.exc_value, args.thread) and worlds.is_provided():
        sys.stderr.write(f"ckpt: thread {args.thread.name!r} cannot go on: {args.exc_value}; the job ends\n")
        sys.stderr.flush()
        worlds.abort(1)


def refusing(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function with the name `name` that raises NotOffered."""

    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise not_offered(name, instead)

    refuse.__name__ = refuse.__qualname__ = name.rsplit(".", 1)[-1]
    refuse.__doc__ = f"Not offered: {instead}."
    return refuse


Open_port = refusing("Open_port", PORTS)
Close_port = refusing("Close_port", PORTS)
Publish_name = refusing("Publish_name", PORTS)
Unpublish_name = refusing("Unpublish_name", PORTS)
Lookup_name = refusing("Lookup_name", PORTS)

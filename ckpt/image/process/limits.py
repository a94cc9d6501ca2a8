"""What the kernel and the interpreter hold a process to, and a program may change: priority, limits, processors, threads.

Only what the program has changed is part of an image: what differs from what its process began with (:func:`note_baseline`).
All else is a matter of the machine, or of the batch system, that a restart happens in. Put back last of all, so that a low
limit does not stand in the way of the restart itself; a hard limit that may not be raised any more is kept, which is said.

Not here: how deep calls may go, the umask (:mod:`ckpt.image.process.resources`).
"""

from __future__ import annotations

import _thread
import contextlib
import os
import resource
import sys
from typing import Any

__all__ = ["not_put_back", "note_baseline", "note_limits", "put_back_limits"]

_LIMITS = {
    getattr(resource, name): name
    for name in sorted(vars(resource), reverse=True)
    if name.startswith("RLIMIT_")
}
_baseline: dict[str, Any] = {}
_not_put_back: list[str] = []


def note_baseline() -> None:
    """The program begins here, or goes on."""
    _not_put_back.clear()
    _baseline.clear()
    _baseline.update(_present())


def _present() -> dict[str, Any]:
    found: dict[str, Any] = {
        "threads' stack": _stack_size(),
        "digits of an int": sys.get_int_max_str_digits(),
    }
    with contextlib.suppress(OSError):  # a sandbox may not let us ask
        found["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        found["processors"] = tuple(sorted(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError):
        found["scheduling"] = (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
    for number, name in _LIMITS.items():
        with contextlib.suppress(OSError, ValueError):
            found[name] = resource.getrlimit(number)
    return found


def _stack_size() -> int:
    size = _thread.stack_size()  # which sets it to the default
    _thread.stack_size(size)
    return size


def note_limits() -> dict[str, Any]:
    """What the program has changed: plain values by name."""
    return {name: value for name, value in _present().items() if _baseline.get(name, value) != value}


def put_back_limits(saved: dict[str, Any]) -> None:
    """What is not allowed is left, and told by :func:`not_put_back`."""
    for name, value in saved.items():
        try:
            _put_back(name, value)
        except (OSError, ValueError) as failure:
            _not_put_back.append(f"{name} {_text(value)}: {failure}")


def not_put_back() -> list[str]:
    """What the program had changed, and could not be put back in this process, with the reason."""
    return list(_not_put_back)


def _put_back(name: str, value: Any) -> None:
    match name:
        case "threads' stack":
            _thread.stack_size(value)
        case "digits of an int":
            sys.set_int_max_str_digits(value)
        case "nice":
            os.setpriority(os.PRIO_PROCESS, 0, value)
        case "processors":
            os.sched_setaffinity(0, value)
        case "scheduling":
            os.sched_setscheduler(0, value[0], os.sched_param(value[1]))
        case _:
            _put_limit_back(getattr(resource, name), *value)


def _put_limit_back(number: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):
        most = resource.getrlimit(number)[1]
        fits = soft != resource.RLIM_INFINITY and (most == resource.RLIM_INFINITY or soft <= most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (soft if fits else most, most))
        raise


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join("unlimited" if one == resource.RLIM_INFINITY else str(one) for one in value)
    return str(value)

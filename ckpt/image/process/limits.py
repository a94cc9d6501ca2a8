"""Limits of a process that a program may change: priority, resource limits, processors, stack size of threads, digits of
int.

An image holds only the values that the program has changed, that is, those that differ from the values with which its
process began (:func:`note_baseline`). The machine or the batch system of the restart decides all others. The values are
restored last, so that a low limit does not disturb the restart itself. A hard limit that may not be raised again is kept,
and reported.

Not here: the recursion limit and the umask (:mod:`ckpt.image.process.resources`).
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
    """Record the values with which the process begins; called before the program begins or goes on."""
    _not_put_back.clear()
    _baseline.clear()
    _baseline.update(_current_limits())


def _current_limits() -> dict[str, Any]:
    found: dict[str, Any] = {
        "threads' stack": _stack_size(),
        "digits of an int": sys.get_int_max_str_digits(),
    }
    with contextlib.suppress(OSError):  # a sandbox may forbid this call
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
    size = _thread.stack_size()  # the call also sets the size to the default
    _thread.stack_size(size)
    return size


def note_limits() -> dict[str, Any]:
    """The values that the program has changed, by name; plain values only."""
    return {name: value for name, value in _current_limits().items() if _baseline.get(name, value) != value}


def put_back_limits(saved: dict[str, Any]) -> None:
    """Set the saved values. Values that may not be set here are left as they are; :func:`not_put_back` lists them."""
    for name, value in saved.items():
        try:
            _put_back(name, value)
        except (OSError, ValueError) as failure:
            _not_put_back.append(f"{name} {_text(value)}: {failure}")


def not_put_back() -> list[str]:
    """Texts for people: the values that could not be set in this process, with the reasons."""
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
        return ", ".join("unlimited" if number == resource.RLIM_INFINITY else str(number) for number in value)
    return str(value)

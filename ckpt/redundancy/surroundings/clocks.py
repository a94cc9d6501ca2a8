"""Clocks that tell the same in all replicas of a rank: the leader is asked (a choice as any other,
:mod:`ckpt.redundancy.agreement.choices`). (driver)

    time        time, monotonic, perf_counter, process_time, thread_time and their _ns; clock_gettime and its _ns; localtime,
                gmtime, ctime, asctime and strftime without a time
    os.times    of the process
    datetime    now, utcnow, today, of the genuine classes: their methods are replaced, since libraries in C know the classes
                by their addresses (pandas), and programs compare types
    uuid1       its time and its place, which a library in C tells
    MPI.Wtime

All functions are found by their names in this module, so an image refers to them, and a process without replicas can load
the image: there they do what the genuine ones do.

Only the main thread asks. In other threads, and in functions that the library itself calls (reductions, finalizers while it
works), a clock gives the last time that the leader has told: replicas that use it then still do the same. A clock that has
stood still for STILL_S goes on by itself, or a thread that waits for a time to come would wait for ever.

Not here: numbers without a seed, and the pid (`randomness`, `processes`).
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ckpt import MPI
from ckpt.layer import replace_method, replace_uuid_of_time, unbound
from ckpt.redundancy.files.changes import inside_library

__all__ = ["ASKED", "Asked", "install", "named", "value"]

Ask = Callable[[Callable[[], Any]], Any]

STILL_S = 5.0
"""So long a clock may stand still in other threads than the main one."""

_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_CLOCKS = (*_SECONDS, *(f"{name}_ns" for name in _SECONDS))


class Asked:
    """What the functions of this room look at. Without a layer (`ask` is None) they do what the genuine ones do."""

    def __init__(self) -> None:
        self.ask: Ask | None = None
        self.main = 0
        """The thread that may ask."""
        self.last: dict[str, Any] = {}
        self.told_s: dict[str, float] = {}
        """When that was, by the genuine `time.monotonic`."""

    def may_ask(self) -> bool:
        """Is this the main thread, outside of the library, which may hold the lock?"""
        return threading.get_ident() == self.main and not inside_library()


ASKED = Asked()  # one for the process


def value(name: str, look: Callable[[], Any]) -> Any:
    """The leader's value of a clock."""
    if ASKED.ask is None:
        return look()
    if not ASKED.may_ask():
        return _still(name)
    found = ASKED.last[name] = ASKED.ask(look)
    ASKED.told_s[name] = time.monotonic()
    return found


def _still(name: str) -> Any:
    """What a clock tells that may not ask."""
    last = ASKED.last.get(name, 0 if name.split()[0].endswith("ns") else 0.0)
    if isinstance(last, tuple):
        return last
    over_s = time.monotonic() - ASKED.told_s.setdefault(name, time.monotonic()) - STILL_S
    if over_s <= 0:
        return last
    return last + (int(over_s * 1e9) if isinstance(last, int) else over_s)


def named(space: dict[str, Any], function: Any, module: str, name: str) -> Any:
    """`function` as a variable of the module with this `space`: so an image has it by its name, with replicas and
    without. Returns what the program gets in the place of `module.name`."""
    function.__name__, function.__qualname__ = name, f"{module}_{name}"
    space[function.__qualname__] = function
    return unbound(function, name)


def _clock(name: str) -> Any:
    look = getattr(time, name)

    def read() -> Any:
        return value(name, look)

    return named(globals(), read, "time", name)


def _of_number(name: str) -> Any:
    look = getattr(time, name)

    def read(clock: int, /) -> Any:
        return value(f"{name} {clock}", lambda: look(clock))

    return named(globals(), read, "time", name)


def _os_times() -> os.times_result:
    return os.times_result(value("times", lambda: tuple(os.times())))


_TIMES = named(globals(), _os_times, "os", "times")


def _of_seconds(name: str) -> Any:
    genuine = getattr(time, name)

    def of(seconds: float | None = None, /) -> Any:
        return genuine(_of_program("time").time() if seconds is None else seconds)

    return named(globals(), of, "time", name)


def _of_form(name: str, words: int) -> Any:
    genuine = getattr(time, name)

    def of(*given: Any) -> Any:
        return genuine(*given, *(() if len(given) > words else (_of_program("time").localtime(),)))

    return named(globals(), of, "time", name)


def _of_program(name: str) -> Any:
    """A module as the program sees it; here `time` is that of the library."""
    return sys.modules[name]


_TIME = {
    **{name: _clock(name) for name in _CLOCKS},
    **{name: _of_number(name) for name in ("clock_gettime", "clock_gettime_ns")},
    **{name: _of_seconds(name) for name in ("localtime", "gmtime", "ctime")},
    **{name: _of_form(name, words) for name, words in (("asctime", 0), ("strftime", 1))},
}


def datetime_now(cls: Any, tz: Any = None) -> Any:
    return cls.fromtimestamp(_of_program("time").time(), tz)


def datetime_utcnow(cls: Any) -> Any:
    return cls.fromtimestamp(_of_program("time").time(), datetime.UTC).replace(tzinfo=None)


def date_today(cls: Any) -> Any:
    return cls.fromtimestamp(_of_program("time").time())


for _function in (datetime_now, datetime_utcnow, date_today):
    named(globals(), _function, *_function.__name__.split("_"))


def uuid_generate_time_safe() -> tuple[bytes, int | None]:
    """Bytes of a UUID of version 1, and whether it is safe: the leader's. Elsewhere than in the main thread from random
    numbers, since the last one that the leader has told must not be given twice."""
    if ASKED.ask is None or ASKED.may_ask():
        found: tuple[bytes, int | None] = (
            _uuid_of_system() if ASKED.ask is None else ASKED.ask(_uuid_of_system)
        )
        return found
    made = bytearray(_of_program("os").urandom(16))
    made[6], made[8] = made[6] & 0x0F | 0x10, made[8] & 0x3F | 0x80
    return bytes(made), None


_genuine_uuid: list[Callable[[], tuple[bytes, int | None]]] = []


def _uuid_of_system() -> tuple[bytes, int | None]:
    return _genuine_uuid[0]()


def install(ask: Ask, began: Mapping[str, float]) -> None:
    """From now on the program's clocks tell what the leader of its rank is told by them. `ask(look)`: the leader's value of
    `look()`; `began`: what clocks told when the program began."""
    clock: Any = _of_program("time")
    wall: Any = MPI
    ASKED.ask, ASKED.main = ask, threading.get_ident()
    in_ns = {f"{name}_ns": int(seconds * 1e9) for name, seconds in began.items()}
    ASKED.last = {
        **dict.fromkeys(_SECONDS, 0.0),
        **dict.fromkeys(_CLOCKS[len(_SECONDS) :], 0),
        **began,
        **in_ns,
    }
    ASKED.last["times"] = (0.0,) * 5
    for name, function in _TIME.items():
        setattr(clock, name, function)
    _of_program("os").times = _TIMES
    wall.Wtime = clock.perf_counter
    replace_method(datetime.datetime, "now", classmethod(datetime_now))
    replace_method(datetime.datetime, "utcnow", classmethod(datetime_utcnow))
    replace_method(datetime.date, "today", classmethod(date_today))
    genuine = replace_uuid_of_time(uuid_generate_time_safe)
    if genuine is not None:
        _genuine_uuid[:] = [genuine]

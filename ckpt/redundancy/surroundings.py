"""★ The surroundings of a program that several processes compute: what would differ between them is made the same, or
refused.

Made the same, by asking the leader (a choice as any other, :mod:`ckpt.redundancy.choices`)
    clocks              time, time_ns, monotonic, perf_counter, process_time, thread_time and their _ns; localtime, gmtime,
                        ctime, asctime and strftime without a time; datetime.now, utcnow, today; date.today; MPI.Wtime
    os.getpid           the leader's, asked for once

Made the same without asking: a generator whose key is the job's secret and the rank
    os.urandom          and so uuid4, secrets, random.SystemRandom, and numpy generators without a seed
    random              generators without a seed, the module's own too

Refused, with NotReplicable, before anything is done
    files               opened for writing, created, renamed, removed
    processes           subprocess, os.fork, os.system
    connections         of sockets

Only the main thread asks. In other threads, and in functions that the library itself calls (reductions, finalizers while it
works), a clock gives the last time that the leader has told.

Not here: the hash seed, which is the job's; the host name, which is the same since all processes are on one host.
"""

from __future__ import annotations

import copyreg
import datetime
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from ckpt import MPI
from ckpt.errors import NotReplicable

__all__ = ["Randomness", "install"]

Ask = Callable[[Callable[[], Any]], Any]

_CLOCKS = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = {
    **dict.fromkeys(
        ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
        "changes files",
    ),
    **dict.fromkeys(
        ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"),
        "starts a process",
    ),
    **dict.fromkeys(("socket.connect", "socket.bind"), "opens a connection"),
}


class Randomness:
    """Random bytes that follow from a key: BLAKE2b over a counter. The same in all replicas, unknown outside."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def __call__(self, size: int, /) -> bytes:
        """Like `os.urandom`. Raises ValueError for a negative size."""
        if size < 0:
            raise ValueError("negative argument not allowed")
        found = bytearray()
        while len(found) < size:
            self._count += 1
            found += blake2b(self._count.to_bytes(16, "little"), key=self._key).digest()
        return bytes(found[:size])


def install(ask: Ask, secret: bytes, rank: int) -> None:
    """Give the program of this process surroundings that are the same in all replicas of `rank`.

    `ask(look)`: the leader's value of `look()`. `secret`: see :class:`ckpt.layer.Below`."""
    _Clocks(ask).install()
    _same_pid(ask)
    _same_random_numbers(blake2b(rank.to_bytes(8, "little"), key=secret).digest())
    sys.addaudithook(_refuse)


# ---- clocks ----------------------------------------------------------------------------------------------


class _Clocks:
    """The functions of the module `time`, and the classes of `datetime`, that look at a clock."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._last: dict[str, Any] = {}
        self._main = threading.get_ident()

    def _value(self, name: str, look: Callable[[], Any]) -> Any:
        if threading.get_ident() != self._main or _inside_library():
            return self._last.get(name, 0)
        value = self._last[name] = self._ask(look)
        return value

    def install(self) -> None:
        clock: Any = sys.modules["time"]
        for name in _CLOCKS:
            look = getattr(time, name)
            self._last[name] = look() * 0
            setattr(clock, name, self._clock(name, look))
        for name in ("localtime", "gmtime", "ctime"):
            setattr(clock, name, self._of_seconds(clock, getattr(time, name)))
        genuine_asctime, genuine_strftime = time.asctime, time.strftime
        clock.asctime = lambda *when: genuine_asctime(*(when or (clock.localtime(),)))
        clock.strftime = lambda form, *when: genuine_strftime(form, *(when or (clock.localtime(),)))
        names: Any = MPI
        names.Wtime = clock.perf_counter
        _patch_datetime(clock)

    def _clock(self, name: str, look: Callable[[], Any]) -> Callable[[], Any]:
        def read() -> Any:
            return self._value(name, look)

        read.__name__ = read.__qualname__ = name
        return read

    @staticmethod
    def _of_seconds(clock: Any, genuine: Callable[[Any], Any]) -> Callable[..., Any]:
        def of(seconds: float | None = None, /) -> Any:
            return genuine(clock.time() if seconds is None else seconds)

        return of


def _inside_library() -> bool:
    """Is a function of the library on the stack, which may hold the lock?"""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("ckpt.mpi.", "ckpt.transport.")):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _patch_datetime(clock: Any) -> None:
    """Put subclasses in the place of `datetime.datetime` and `datetime.date` whose `now` and `today` ask the leader.

    Objects of the genuine classes still count as their instances, and are pickled under the same names."""
    module: Any = datetime
    genuine_datetime: Any = datetime.datetime
    genuine_date: Any = datetime.date

    class Kind(type):
        genuine: type = object

        def __instancecheck__(cls, obj: object) -> bool:
            return isinstance(obj, cls.genuine)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, cls.genuine)

    class ReplicaDatetime(genuine_datetime, metaclass=Kind):  # type: ignore[misc]
        genuine = genuine_datetime

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(clock.time(), tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(clock.time())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(clock.time(), datetime.UTC).replace(tzinfo=None)

    class ReplicaDate(genuine_date, metaclass=Kind):  # type: ignore[misc]
        genuine = genuine_date

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(clock.time())

    for name, made, genuine in (
        ("datetime", ReplicaDatetime, genuine_datetime),
        ("date", ReplicaDate, genuine_date),
    ):
        made.__name__ = made.__qualname__ = name
        made.__module__ = "datetime"
        setattr(module, name, made)
        copyreg.pickle(genuine, _reduced_as(made))


def _reduced_as(made: type) -> Callable[[Any], Any]:
    def reduced(obj: Any) -> Any:
        return (made, *obj.__reduce_ex__(2)[1:])

    return reduced


# ---- pid, random numbers ---------------------------------------------------------------------------------


def _same_pid(ask: Ask) -> None:
    program_os: Any = sys.modules["os"]
    look, main = os.getpid, threading.get_ident()
    known: list[int] = []

    def getpid() -> int:
        if not known:
            if threading.get_ident() != main or _inside_library():
                return look()
            known.append(ask(look))
        return known[0]

    program_os.getpid = getpid


def _same_random_numbers(key: bytes) -> None:
    """The module `random` binds the system's function when it is imported: so its classes get methods of their own."""
    program_os: Any = sys.modules["os"]
    generator: Any = random
    urandom = program_os.urandom = Randomness(key)
    genuine: Any = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        genuine(self, int.from_bytes(urandom(32), "little") if a is None else a, version)

    def getrandbits(self: random.Random, k: int) -> int:
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        return int.from_bytes(urandom((k + 7) // 8), "big") >> -k % 8

    generator.Random.seed = seed  # without a value, its own would take bytes of the system
    generator.SystemRandom.getrandbits = getrandbits
    generator.SystemRandom.random = lambda self: getrandbits(self, 53) * 2.0**-53
    generator.SystemRandom.randbytes = lambda self, n: urandom(n)
    generator.seed = random.random.__self__.seed  # type: ignore[attr-defined]
    generator.seed()


# ---- refusals --------------------------------------------------------------------------------------------


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook (PEP 578): raises for what replicas cannot do alike."""
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & _WRITES or isinstance(path, int) or _is_harmless(path):
            return
        what, name = "opens a file for writing", os.fspath(path)
    elif event in _REFUSED:
        what, name = _REFUSED[event], arguments[0] if arguments else event
    else:
        return
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("ckpt.") or threading.current_thread() is not threading.main_thread():
        return
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    raise NotReplicable(
        f"under --redundancy the program {what} ({event}: {name!r:.200}): each replica would do it. "
        "Print results, or give them to ckpt.redundancy.result"
    )


def _is_harmless(path: Any) -> bool:
    try:
        text = os.fsdecode(path)
    except TypeError:
        return False
    return text.startswith(("/dev/null", "/proc/self/")) or "__pycache__" in text

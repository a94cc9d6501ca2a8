"""The surroundings of a program that several processes compute: what would differ between them is made the same, or
refused. (driver)

Made the same, by asking the leader (a choice as any other, :mod:`ckpt.redundancy.choices`)
    clocks              time, time_ns, monotonic, perf_counter, process_time, thread_time and their _ns; localtime, gmtime,
                        ctime, asctime and strftime without a time; datetime.now, utcnow, today; date.today; MPI.Wtime
    os.getpid           the leader's, asked for once

Made the same without asking: a generator whose key is the job's secret and the rank
    os.urandom          and so uuid4, secrets, random.SystemRandom, and numpy generators without a seed
    random              generators without a seed, the module's own too

Made once, by the leader, when all have come to it
    files               opened with `open` and written, directories made, files renamed and removed: see `files`

Refused, with NotReplicable, before anything is done
    files               opened for reading and writing at once, or with os.open for writing; by descriptors of directories
    processes           subprocess, os.fork, os.system
    connections         of sockets

All that is put into modules of the standard library is found by its name in this module, so an image refers to it, and a
process without replicas can load the image: there the functions do what the genuine ones do.

Only the main thread asks. In other threads, and in functions that the library itself calls (reductions, finalizers while it
works), a clock gives the last time that the leader has told.

Not here: the hash seed, which is the job's; the host name, which is the same since all processes are on one host.
"""

from __future__ import annotations

import atexit
import copyreg
import datetime
import fcntl
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from ckpt import MPI
from ckpt.errors import NotReplicable
from ckpt.redundancy.files import changes, names, objects
from ckpt.redundancy.memory import arrays

__all__ = ["Randomness", "begin", "go_on", "install", "state"]

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

    @property
    def count(self) -> int:
        """So often it has been used; set, it goes on from there."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = count

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

    `ask(look)`: the leader's value of `look()`; what is imported before the program begins looks itself.
    `secret`: what all replicas know, and nobody else; at least 32 bytes, of which the last 64 count."""
    tempfile.gettempdir()  # its first call writes a file, to see if it can; those of the program do not
    _State.ask, _State.open_before = ask, open_for_writing()
    _install_clocks()
    _of_program("os").getpid = _pid
    _same_random_numbers(blake2b(rank.to_bytes(8, "little"), key=secret[-64:]).digest())


def begin() -> None:
    """The program is about to begin, or to go on: from now on what replicas cannot do alike is refused. Raises NotReplicable
    where it holds something already that they could not share."""
    for fd, path in open_for_writing() - _State.open_before:
        raise NotReplicable(
            f"the program has a file open for writing (descriptor {fd}: {path}): each replica would write it. Go on without "
            "replicas (--redundancy 1)"
        )
    arrays.zero_new_arrays()
    sys.addaudithook(_refuse)
    atexit.register(objects.flush_all)


def state() -> dict[str, Any]:
    """For an image: what a copy of this process has to know, to get what this one would."""
    return {"last": dict(_State.last), "pid": list(_State.pid), "random": getattr(_State.urandom, "count", 0)}


def go_on(state: Mapping[str, Any]) -> None:
    """This process is a copy of one that had this `state`."""
    _State.last.update(state["last"])
    _State.pid[:] = state["pid"]
    if isinstance(_State.urandom, Randomness):
        _State.urandom.count = state["random"]


def open_for_writing() -> set[tuple[int, str]]:
    """Descriptors above 2 of regular files that can be written, with their paths; files without a name are left out."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
        is_named = path.startswith("/") and not path.startswith(("/dev/", "/memfd:", "/proc/"))
        if int(name) > 2 and mode != os.O_RDONLY and is_named and os.path.isfile(path):
            found.add((int(name), path))
    return found


# ---- clocks ----------------------------------------------------------------------------------------------


class _State:
    """What the functions of this module look at. Without a layer (`ask` is None) they do what the genuine ones do."""

    ask: Ask | None = None
    main = 0
    open_before: set[tuple[int, str]] = set()  # noqa: RUF012
    urandom: Callable[[int], bytes] = os.urandom
    last: dict[str, Any] = {}  # noqa: RUF012 (one object for the process)
    pid: list[int] = []  # noqa: RUF012


def _value(name: str, look: Callable[[], Any]) -> Any:
    """The leader's value of a clock."""
    if _State.ask is None:
        return look()
    if threading.get_ident() != _State.main or _inside_library():
        return _State.last.get(name, 0)
    value = _State.last[name] = _State.ask(look)
    return value


def _named(function: Any, module: str, name: str) -> Any:
    """`function` as a variable of this module, so that an image has it by its name, whether there are replicas or not."""
    function.__name__, function.__qualname__ = name, f"{module}_{name}"
    globals()[function.__qualname__] = function
    return function


def _clock(name: str) -> Any:
    look = getattr(time, name)

    def read() -> Any:
        return _value(name, look)

    return _named(read, "time", name)


def _of_seconds(name: str) -> Any:
    genuine = getattr(time, name)

    def of(seconds: float | None = None, /) -> Any:
        return genuine(_of_program("time").time() if seconds is None else seconds)

    return _named(of, "time", name)


def _of_form(name: str, words: int) -> Any:
    genuine = getattr(time, name)

    def of(*given: Any) -> Any:
        return genuine(*given, *(() if len(given) > words else (_of_program("time").localtime(),)))

    return _named(of, "time", name)


def _of_program(name: str) -> Any:
    """A module as the program sees it; here `time` and `os` are those of the library."""
    return sys.modules[name]


_TIME = {
    **{name: _clock(name) for name in _CLOCKS},
    **{name: _of_seconds(name) for name in ("localtime", "gmtime", "ctime")},
    **{name: _of_form(name, words) for name, words in (("asctime", 0), ("strftime", 1))},
}


def _inside_library() -> bool:
    """Is a function of the library on the stack, which may hold the lock?"""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("ckpt.mpi.", "ckpt.transport.")):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _install_clocks() -> None:
    clock, names, main = _of_program("time"), MPI, threading.get_ident()
    _State.main = main
    _State.last = {name: getattr(time, name)() * 0 for name in _CLOCKS}
    for name, function in _TIME.items():
        setattr(clock, name, function)
    names.Wtime = clock.perf_counter  # type: ignore[attr-defined]
    _patch_datetime(clock)


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


def _pid() -> int:
    if _State.ask is None:
        return os.getpid()
    if not _State.pid:
        if threading.get_ident() != _State.main or _inside_library():
            return os.getpid()
        _State.pid.append(_State.ask(os.getpid))
    return _State.pid[0]


_named(_pid, "os", "getpid")


def _urandom(size: int, /) -> bytes:
    return _State.urandom(size)


_named(_urandom, "os", "urandom")
_genuine_seed: Any = random.Random.seed


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    _genuine_seed(self, int.from_bytes(_State.urandom(32), "little") if a is None else a, version)


def _getrandbits(self: random.Random, k: int) -> int:
    if k < 0:
        raise ValueError("number of bits must be non-negative")
    return int.from_bytes(_State.urandom((k + 7) // 8), "big") >> -k % 8


def _random(self: random.Random) -> float:
    return _getrandbits(self, 53) * 2.0**-53


def _randbytes(self: random.Random, n: int) -> bytes:
    return _State.urandom(n)


def _same_random_numbers(key: bytes) -> None:
    """The module `random` binds the system's function when it is imported: so its classes get methods of their own."""
    generator: Any = random
    _State.urandom = Randomness(key)
    _of_program("os").urandom = _urandom
    generator.Random.seed = _seed  # without a value, its own would take bytes of the system
    generator.SystemRandom.getrandbits = _getrandbits
    generator.SystemRandom.random = _random
    generator.SystemRandom.randbytes = _randbytes
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
    elif event == "import":
        arrays.zero_new_arrays()
        names.adjust_libraries()
        return
    elif event in _REFUSED:
        what, name = _REFUSED[event], arguments[0] if arguments else event
    else:
        return
    if (
        changes.is_of_ckpt()
        or _is_harmless(name)
        or threading.current_thread() is not threading.main_thread()
    ):
        return
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    raise NotReplicable(
        f"under --redundancy the program {what} ({event}: {name!r:.200}): each replica would do it. "
        "Files are written once through open() with mode w, a or x; results can be given to ckpt.redundancy.result"
    )


def _is_harmless(path: Any) -> bool:
    try:
        text = os.fsdecode(path)
    except TypeError:
        return False
    return text.startswith(("/dev/null", "/proc/self/")) or "__pycache__" in text

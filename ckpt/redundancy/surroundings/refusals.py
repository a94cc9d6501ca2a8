"""What replicas cannot do alike is refused before it is done, in all threads: an audit hook (PEP 578) raises NotReplicable.
(driver)

    files           opened for writing by functions that are not replaced (such as those of `posix`); by descriptors of
                    directories
    processes       subprocess, os.fork, os.system; signals to other processes
    connections     of sockets; datagrams to an address
    databases       of SQLite in files, also attached ones, unless they are only read; files of h5py, too
    memory          that has a name (multiprocessing.shared_memory): all replicas would have it under the same one

Not here: files that are opened with `open` and `os.open` (:mod:`ckpt.redundancy.files`).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import sys
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import SQLITE_IN_C, replace_shm_open
from ckpt.redundancy.files import changes, names
from ckpt.redundancy.memory import arrays, pickles
from ckpt.redundancy.surroundings.clocks import ASKED

__all__ = ["begin", "open_for_writing"]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = {
    **dict.fromkeys(
        (
            *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
            *("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"),
        ),
        "changes files",
    ),
    **dict.fromkeys(
        ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"),
        "starts a process",
    ),
    **dict.fromkeys(("socket.connect", "socket.bind"), "opens a connection"),
    **dict.fromkeys(("socket.sendto", "socket.sendmsg"), "sends a datagram"),
    **dict.fromkeys(("os.kill", "os.killpg"), "sends a signal to another process"),
    "sqlite3.connect": "opens a database",
}
_ALLOWED, _DENIED, _ATTACH = 0, 1, 24
"""Of SQLite: what an authorizer answers, and what it is asked for by ATTACH and VACUUM INTO."""


def begin() -> None:
    """From now on."""
    sys.addaudithook(_refuse)
    if SQLITE_IN_C in sys.modules:
        _adjust_sqlite3()
        kind = sys.modules[SQLITE_IN_C].Connection
        for each in gc.get_objects():  # what an image has brought back
            if issubclass(type(each), kind):
                _guard(each)
    genuine = replace_shm_open(posixshmem_shm_open)
    if genuine is not None:
        _genuine_shm_open[:] = [genuine]


_genuine_shm_open: list[Any] = []


def posixshmem_shm_open(*arguments: Any, **named: Any) -> Any:
    """As it is where there are no replicas; an image of a program refers to it by this name."""
    if ASKED.ask is not None:
        raise _not_replicable("shares memory", "shm_open", named.get("path", arguments and arguments[0]))
    return _genuine_shm_open[0](*arguments, **named)


def _adjust_h5py() -> None:
    """Files that h5py writes are refused: its library opens them in C, where no hook sees it."""
    cls: Any = getattr(sys.modules.get("h5py"), "File", None)
    if cls is not None and cls.__init__ is not h5py_init:
        _genuine_h5py_init[:] = [cls.__init__]
        cls.__init__ = h5py_init


_genuine_h5py_init: list[Any] = []


def h5py_init(self: Any, name: Any, mode: str = "r", *arguments: Any, **named: Any) -> None:
    """As that of h5py.File; an image of a program refers to it by this name."""
    _adjust_h5py()  # in a process without replicas
    is_file = isinstance(name, (str, bytes, os.PathLike)) and named.get("backing_store", True)
    if ASKED.ask is not None and is_file and mode != "r" and not changes.is_of_ckpt():
        raise _not_replicable("opens a file for writing", "h5py.File", name)
    _genuine_h5py_init[0](self, name, mode, *arguments, **named)


def _adjust_sqlite3() -> None:
    """Connections have an authorizer from their beginning: no hook sees what a statement attaches."""
    if _genuine_connect:
        return
    _genuine_connect.append(None)  # the import below is told to the hook, too
    module = importlib.import_module(SQLITE_IN_C)
    genuine = module.__dict__["connect"]
    _genuine_connect[:] = [genuine]
    for name in (SQLITE_IN_C, "sqlite3.dbapi2", "sqlite3"):
        if getattr(sys.modules.get(name), "connect", None) is genuine:
            vars(sys.modules[name])["connect"] = sqlite3_connect


_genuine_connect: list[Any] = []


def sqlite3_connect(*arguments: Any, **named: Any) -> Any:
    """As sqlite3.connect; an image of a program refers to it by this name. The hook takes this module's call for ckpt's own,
    so what it would say is said here."""
    _adjust_sqlite3()  # in a process without replicas
    name = arguments[0] if arguments else named.get("database", "")
    is_refused = ASKED.ask is not None and not _is_harmless("sqlite3.connect", name, ())
    if is_refused and not changes.is_of_ckpt():
        raise _not_replicable(_REFUSED["sqlite3.connect"], "sqlite3.connect", name)
    connection = _genuine_connect[0](*arguments, **named)
    if not any(
        each in str(name) for each in ("mode=ro", "immutable=1")
    ):  # what these attach is only read, too
        _guard(connection)
    return connection


def _guard(connection: Any) -> None:
    with contextlib.suppress(sys.modules[SQLITE_IN_C].ProgrammingError):  # closed, or another thread's
        connection.set_authorizer(_authorize)


def _not_replicable(what: str, event: str, name: Any) -> NotReplicable:
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return NotReplicable(
        f"under --redundancy the program {what} ({event}: {name!r:.200}): each replica would do it. "
        "Files are written once through open() or os.open(); results can be given to ckpt.redundancy.result"
    )


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & _WRITES or isinstance(path, int):
            return
        what, name = "opens a file for writing", os.fspath(path)
    elif event == "import":
        arrays.zero_new_arrays()
        pickles.adjust()
        names.adjust_libraries()
        _adjust_h5py()
        if arguments[0] == SQLITE_IN_C:
            _adjust_sqlite3()
        return
    elif event in _REFUSED:
        what, name = _REFUSED[event], arguments[0] if arguments else event
        if event.startswith("socket."):
            name = arguments[1]  # the address
    else:
        return
    if _is_harmless(event, name, arguments) or changes.is_of_ckpt() or _is_of_import():
        return
    raise _not_replicable(what, event, name)


def _is_harmless(event: str, name: Any, arguments: tuple[Any, ...]) -> bool:
    if event == "os.kill":  # to itself, or to see whether there is a process
        return name == os.getpid() or not arguments[1]
    if event == "socket.sendmsg" and name is None:  # to who is connected: a socketpair of the program
        return True
    try:
        text = os.fsdecode(name)
    except TypeError:
        return False
    if event == "sqlite3.connect":
        return _is_harmless_database(text)
    return text.startswith(("/dev/null", "/proc/self/")) or "__pycache__" in text


def _is_harmless_database(text: str) -> bool:
    is_read = text.startswith("file:") and any(
        each in text for each in ("mode=ro", "mode=memory", "immutable=1", ":memory:")
    )
    return text in ("", ":memory:") or is_read


def _authorize(action: int, name: str | None, *_: Any) -> int:
    """Called by SQLite as it compiles a statement, in C: what is raised here would not get to the program."""
    if (
        action != _ATTACH
        or ASKED.ask is None
        or changes.is_of_ckpt()
        or (name is not None and _is_harmless_database(name))
    ):
        return _ALLOWED
    print(f"ckpt: {_not_replicable('attaches a database', 'ATTACH', name or 'a parameter')}", file=sys.stderr)
    return _DENIED


def _is_of_import() -> bool:
    """Does the import of a module write its compiled form, perhaps below PYTHONPYCACHEPREFIX?"""
    return sys._getframe(2).f_code.co_filename.startswith("<frozen importlib")


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

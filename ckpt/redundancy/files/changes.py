"""Files that a program with replicas changes: each change is made once, when all replicas of the rank have come to it, and mean the
same (together.py). (driver)

    open(path, "w" | "a" | "x"), also binary    a file object over `ReplicaFile`: text and buffers are the replica's own, and what
                                                they write below is a change
    os.mkdir, rmdir, remove, unlink, rename,    a change; so are os.makedirs, shutil.copy, shutil.rmtree, pathlib, which call these
    replace, link, symlink, truncate, fsync
    reading, stat, listing                      each replica does it itself: all changes that come before are made, none that comes
                                                after is

The leader makes the change, and tells what came of it: the number of bytes, or the error, which all replicas raise. A leader that
dies has made it, or not, or in part. So the next one makes it again, and that must come to the same:

    a write has its offset, opening "w" empties the file, truncating has its length     once more is the same as once
    others (append, mkdir, rename, …)    what was there *before* is told to all first. Where it was there before, and is not now
                                         (or the other way round), the former leader has made the change

No descriptor is kept: a file is opened for each change, and has to be the one that was opened first (device and inode). So images
have no descriptors of such files, and load where there are no replicas: there these objects write by themselves.

After a restart a file that was open for writing is cut to its length at the checkpoint, or gets its content of then, if it was small;
a copy cuts nothing. Other files are what they are.

Not here: files that are read, what is refused (surroundings.py).
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ckpt.errors import NotReplicable

__all__ = ["ReplicaFile", "adjust_libraries", "flush_all", "go_on", "install", "state"]

Meet = Callable[[bytes, Callable[[], Any]], Any]
Outcome = tuple[Any, ...]
"""("done", value), or ("failed", errno, text, path, second path)."""

CONTENT_BYTES = 1 << 20
NO_DESCRIPTOR = 1 << 29
"""`fileno` gives numbers from here on: good for os.fsync, refused by the kernel."""


class _State:
    """Of this process. Without replicas (`meet` is None) everything is done as the program says."""

    meet: Meet | None = None
    flipped: Callable[[bytes], bytes] = bytes
    session: object = object()
    opened: list[weakref.ref[Any]] = []  # noqa: RUF012 (one object for the process)
    next_number = NO_DESCRIPTOR


class RefusedMode(NotReplicable, OSError):
    """A file was to be opened in a way that replicas cannot share. Also an OSError: some libraries try another way then."""


# ---- changes ---------------------------------------------------------------------------------------------


def _change(
    what: str,
    act: Callable[[Any, bool], Any],
    before: Callable[[], Any] | None = None,
    content: bytes = b"",
) -> Any:
    """Make a change. `act(seen, again)` makes it; `seen`: what `before` has found; `again`: another process may have made it."""
    meet = _State.meet
    if meet is None:
        return _result(_attempt(act, None if before is None else before(), False))
    if threading.current_thread() is not threading.main_thread():
        raise NotReplicable(f"under --redundancy only the main thread changes files: {what}")
    if _inside_library():
        raise NotReplicable(f"under --redundancy no function that the library calls changes files: {what}")
    text = what.encode("utf-8", "surrogatepass") + b"\0" + content
    if before is None:
        return _result(meet(text, lambda: _attempt(act, None, True)))
    decided: list[object] = []
    see = before

    def look() -> Any:
        decided.append(_State.session)
        return see()

    seen = meet(text, look)
    return _result(meet(b"", lambda: _attempt(act, seen, not (decided and decided[-1] is _State.session))))


def _attempt(act: Callable[[Any, bool], Any], seen: Any, again: bool) -> Outcome:
    try:
        return ("done", act(seen, again))
    except OSError as failure:
        second = failure.filename2
        return ("failed", failure.errno, failure.strerror or str(failure), failure.filename, second)


def _result(outcome: Outcome) -> Any:
    if outcome[0] == "done":
        return outcome[1]
    _, number, text, path, second = outcome
    raise OSError(number, text, path, None, second) if second is not None else OSError(number, text, path)


def _inside_library() -> bool:
    """Is a function of the library on the stack that may hold the lock?"""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("ckpt.mpi.", "ckpt.transport.")):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_LIBRARY = sysconfig.get_path("stdlib") + os.sep


def _is_of_ckpt() -> bool:
    """Has ckpt itself called this, perhaps through the standard library?"""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("ckpt."):
            return True
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen", _LIBRARY)) or "-packages" in file:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


# ---- file objects ----------------------------------------------------------------------------------------


class ReplicaFile(io.RawIOBase):
    """A raw file that is written, by all replicas of the rank together. `identity`: device and inode; None: not known."""

    def __init__(self, name: Any, path: str, mode: str, identity: tuple[int, int] | None) -> None:
        super().__init__()
        self.name, self.mode = name, mode
        self._path, self._identity = path, identity
        self._at = 0
        self._number = 0
        self._session: object = _State.session
        self._saved: tuple[int, bytes | None] = (0, None)
        """Length and content when the last image was taken."""

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        """A number for os.fsync alone. Raises UnsupportedOperation for numpy, which would write to the descriptor itself."""
        self._check()
        if sys._getframe(1).f_globals.get("__name__", "").startswith("numpy"):
            raise io.UnsupportedOperation("fileno: replicas write this file together")
        if not self._number:
            self._number = _State.next_number
            _State.next_number += 1
            _numbers[self._number] = self
        return self._number

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._check()
        base = {0: 0, 1: self._at}.get(whence)
        at = offset + (os.stat(self._path).st_size if base is None else base)
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = at
        return at

    def write(self, data: Any, /) -> int:
        self._check()
        content = _State.flipped(bytes(data))
        path, identity, at = self._path, self._identity, self._at
        if self.mode.startswith("a"):
            self._at = _change(
                f"append to {path}",
                lambda seen, again: _append(path, identity, seen, content, again),
                lambda: os.stat(path).st_size if os.path.exists(path) else 0,
                content,
            )
        else:
            self._at = _change(
                f"write to {path} at {at}", lambda seen, again: _write(path, identity, at, content), None, content
            )
        return len(content)

    def truncate(self, size: int | None = None, /) -> int:
        self._check()
        length = self._at if size is None else size
        path, identity = self._path, self._identity
        _change(f"truncate {path} to {length}", lambda seen, again: _truncate(path, identity, length))
        return length

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._session is not _State.session:  # from an image, and there are no replicas
            self.put_back()

    def save(self) -> None:
        """An image is about to be taken."""
        length = os.stat(self._path).st_size if os.path.exists(self._path) else 0
        content = None
        if length <= CONTENT_BYTES and os.path.exists(self._path):
            with _genuine_open(self._path, "rb") as file:
                content = file.read(length)
        self._saved = length, content

    def go_on(self) -> None:
        """This object has come from an image, and nothing is put back."""
        self._session = _State.session

    def put_back(self) -> None:
        """A restart: the file becomes what it was. All replicas may do that, to the same effect. Raises NotReplicable for a
        large file that is gone."""
        self.go_on()
        path, (length, content) = self._path, self._saved
        status = os.stat(path) if os.path.exists(path) else None
        if status is not None and (status.st_dev, status.st_ino) == self._identity and status.st_size >= length:
            os.truncate(path, length)
            return
        if content is None:
            raise NotReplicable(
                f"the file {path!r}, which the program had open for writing when the checkpoint was taken, is gone, or has "
                f"been replaced: put it back with its first {length} bytes"
            )
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _put(fd, content, 0)
        os.ftruncate(fd, length)
        os.close(fd)
        self._identity = None

    def _sync(self) -> None:
        path, identity = self._path, self._identity
        _change(f"fsync {path}", lambda seen, again: _synced(path, identity))


_numbers: weakref.WeakValueDictionary[int, ReplicaFile] = weakref.WeakValueDictionary()


class _Open:
    """The file of one change, opened for it. Raises OSError if it is not the one that the program has opened."""

    def __init__(self, path: str, identity: tuple[int, int] | None) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        status = os.fstat(self.fd)
        if identity is not None and (status.st_dev, status.st_ino) != identity:
            os.close(self.fd)
            text = "replaced by another file while the program had it open, which replicas cannot follow"
            raise OSError(errno.ESTALE, text, path)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *raised: object) -> None:
        os.close(self.fd)


def _put(fd: int, content: bytes, at: int) -> int:
    view = memoryview(content)
    while view:
        done = os.pwrite(fd, view, at)
        view, at = view[done:], at + done
    return at


def _write(path: str, identity: tuple[int, int] | None, at: int, content: bytes) -> int:
    with _Open(path, identity) as fd:
        return _put(fd, content, at)


def _append(path: str, identity: tuple[int, int] | None, seen: int, content: bytes, again: bool) -> int:
    """Returns the offset behind it. Other ranks may append, too: each has the file locked for its change."""
    with _Open(path, identity) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        at = os.fstat(fd).st_size
        if again and at > seen:
            there = os.pread(fd, len(content), seen)
            if there == content[: len(there)]:
                at = seen  # the former leader has written this, or its beginning
        return _put(fd, content, at)


def _truncate(path: str, identity: tuple[int, int] | None, length: int) -> None:
    with _Open(path, identity) as fd:
        os.ftruncate(fd, length)


def _synced(path: str, identity: tuple[int, int] | None) -> None:
    with _Open(path, identity) as fd:
        _genuine_fsync(fd)


_genuine_open = builtins.open
_genuine_fsync = os.fsync


def replica_open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """As `open`. Raises RefusedMode for files that are to be read and written through one object."""
    is_written = isinstance(mode, str) and not {"w", "a", "x", "+"}.isdisjoint(mode)
    if _State.meet is None or not is_written or isinstance(file, int) or _is_of_ckpt():
        return _genuine_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    path = os.path.abspath(os.fsdecode(file))
    is_text = "b" not in mode
    is_odd = (
        sum(map(mode.count, "wax")) != 1 or not set(mode) <= set("waxbt") or (buffering == 0 and is_text)
    )
    if path.startswith("/dev/") or (is_odd and "+" not in mode):
        return _genuine_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    if "+" in mode or opener is not None:
        how = "with an opener" if opener is not None else "for reading and writing at once"
        raise RefusedMode(
            f"under --redundancy the program opens a file {how} ({path!r}, mode {mode!r}), which replicas cannot share: "
            "write it and read it one after the other"
        )
    kind = next(letter for letter in mode if letter in "wax")
    identity = _begin(path, kind, file)
    raw: Any = ReplicaFile(file, path, kind + "b", identity)
    if kind == "a":
        raw.seek(0, 2)
    made: Any = raw if buffering == 0 else io.BufferedWriter(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
    if is_text:
        made = io.TextIOWrapper(made, encoding, errors, newline, buffering == 1)
        made.mode = mode
    _State.opened = [each for each in _State.opened if each() is not None and not each().closed]
    _State.opened.append(weakref.ref(made))
    return made


def _begin(path: str, kind: str, given: Any) -> tuple[int, int]:
    def act(seen: bool | None, again: bool) -> tuple[int, int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if kind == "w" else 0)
        if kind == "x" and not (again and seen is False):
            flags |= os.O_EXCL
        try:
            fd = os.open(path, flags, 0o666)
        except OSError as failure:
            failure.filename = given
            raise
        status = os.fstat(fd)
        os.close(fd)
        return status.st_dev, status.st_ino

    before = (lambda: os.path.lexists(path)) if kind == "x" else None
    dev, ino = _change(f"open {path} ({kind})", act, before)
    return dev, ino


def flush_all() -> None:
    """The program has ended: what its open files hold is written, in the order in which they were opened."""
    for each in _State.opened:
        file = each()
        if file is not None and not file.closed:
            file.flush()


# ---- directories, names ----------------------------------------------------------------------------------


def _named(name: str, genuine: Any, before: Callable[..., Any] | None, is_done: Callable[..., bool]) -> Any:
    """A function of `os` that is a change. `is_done(seen, failure, paths)`: does this failure say that it was made already?"""

    def changed(*arguments: Any, **named: Any) -> Any:
        if _State.meet is None or _is_of_ckpt():
            return genuine(*arguments, **named)
        if any(value is not None for key, value in named.items() if key.endswith("dir_fd")):
            raise NotReplicable(f"under --redundancy: os.{name} with a descriptor of a directory; give a whole path")
        count = 2 if name in ("rename", "replace", "link", "symlink") else 1
        paths = [os.fsdecode(each) if isinstance(each, (str, bytes, os.PathLike)) else each for each in arguments[:count]]
        if any(isinstance(each, int) for each in paths):
            return genuine(*arguments, **named)
        rest = (*arguments[count:], *sorted(named.items()))

        def act(seen: Any, again: bool) -> None:
            try:
                genuine(*arguments, **named)
            except OSError as failure:
                if not (again and is_done(seen, failure, paths)):
                    raise

        _change(
            f"{name} {[os.path.abspath(each) if isinstance(each, str) else each for each in paths]} {rest}",
            act,
            None if before is None else lambda: before(*paths),
        )
        return None

    changed.__name__, changed.__qualname__ = name, f"os_{name}"
    changed.__doc__ = genuine.__doc__
    globals()[changed.__qualname__] = changed
    return changed


def _was_there(path: str, *more: str) -> bool:
    return os.path.lexists(path)


def _second_was_there(path: str, second: str) -> bool:
    return os.path.lexists(second)


def _is_made(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return not seen and isinstance(failure, FileExistsError)


def _is_gone(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return seen and isinstance(failure, FileNotFoundError)


def _is_renamed(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return seen and isinstance(failure, FileNotFoundError) and os.path.lexists(paths[1])


def _never(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return False


def os_fsync(fd: Any) -> None:
    """As `os.fsync`."""
    file = _numbers.get(fd if isinstance(fd, int) else fd.fileno())
    if file is None:
        return _genuine_fsync(fd)
    return file._sync()


_CHANGES: dict[str, Any] = {
    "mkdir": _named("mkdir", os.mkdir, _was_there, _is_made),
    "rmdir": _named("rmdir", os.rmdir, _was_there, _is_gone),
    "remove": _named("remove", os.remove, _was_there, _is_gone),
    "unlink": _named("unlink", os.unlink, _was_there, _is_gone),
    "rename": _named("rename", os.rename, _was_there, _is_renamed),
    "replace": _named("replace", os.replace, _was_there, _is_renamed),
    "link": _named("link", os.link, _second_was_there, _is_made),
    "symlink": _named("symlink", os.symlink, _second_was_there, _is_made),
    "truncate": _named("truncate", os.truncate, None, _never),
}


def install(meet: Meet, flipped: Callable[[bytes], bytes]) -> None:
    """From now on the program of this process changes files together with the other replicas of its rank. `flipped`: what this
    replica writes instead (`CKPT_FLIPS`)."""
    _State.meet, _State.flipped = meet, flipped
    system: Any = sys.modules["os"]
    for name, function in _CHANGES.items():
        setattr(system, name, function)
    system.fsync = system.fdatasync = os_fsync
    for module in ("builtins", "io"):
        sys.modules[module].open = replica_open  # type: ignore[attr-defined]
    adjust_libraries()


def adjust_libraries() -> None:
    """What `shutil` does with descriptors it does with paths."""
    shutil: Any = sys.modules.get("shutil")
    if shutil is not None:
        shutil._use_fd_functions = shutil._USE_CP_SENDFILE = False


# ---- images ----------------------------------------------------------------------------------------------


def state() -> list[Any]:
    """For an image, while the program stands still: the open files."""
    files = [file for each in _State.opened if (file := each()) is not None and not file.closed]
    for file in files:
        _raw(file).save()
    return files


def _raw(file: Any) -> ReplicaFile:
    raw = getattr(file, "buffer", file)
    found: ReplicaFile = getattr(raw, "raw", raw)
    return found


def go_on(files: list[Any], *, is_copy: bool) -> None:
    """This process goes on from an image with these open files; a copy of a replica leaves them as they are. Raises
    NotReplicable for a large file that is gone."""
    _State.opened = [weakref.ref(file) for file in files]
    for file in files:
        raw = _raw(file)
        if is_copy:
            raw.go_on()
        else:
            raw.put_back()

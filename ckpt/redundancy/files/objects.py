"""File objects of a program with replicas: what they write below is a change (changes.py). (driver)

Text and buffers are those of :mod:`io`, over a raw file written in Python, as images can hold them. No descriptor is kept.

Not here: directories and names of files (names.py); what is in images (images.py).
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import weakref
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import wait_for_files
from ckpt.redundancy.files.changes import STATE, change, is_of_ckpt
from ckpt.redundancy.files.descriptors import (
    TABLE,
    DescriptorFile,
    is_descriptor,
    opened_by,
    refuse_numpy,
)
from ckpt.redundancy.files.random_access import ReplicaBuffer

__all__ = [
    "ReplicaFile",
    "flush_all",
    "numbers",
    "replica_open",
]

CONTENT_BYTES = 1 << 20
_FILES_IN_DEV = "/dev/shm/"


class ReplicaFile(io.RawIOBase):
    """A raw file that is written, by all replicas of the rank together. `identity`: device and inode; None: not known."""

    def __init__(self, name: Any, path: str, mode: str, identity: tuple[int, int] | None) -> None:
        super().__init__()
        self.name, self.mode = name, mode
        self._path, self._identity = path, identity
        self._at = 0
        self._number = 0
        self._session: object = STATE.session
        self._saved: tuple[int, bytes | None] | None = (0, None)
        """Length and content when the last image was taken; None: the file had no name any more, or another one."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return "+" in self.mode

    def readinto(self, buffer: Any, /) -> int:
        """Each replica reads by itself: all changes before are made, and none that comes after."""
        self._check()
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        with _Open(self._path, self._identity) as fd:
            count = os.preadv(fd, [memoryview(buffer).cast("B")], self._at)
        self._at += count
        return count

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        """A number for os.fsync alone. Raises UnsupportedOperation for numpy, which would write to the descriptor itself."""
        return self.number(2)

    def number(self, depth: int) -> int:
        """The same, for the caller at this depth of the stack."""
        self._check()
        refuse_numpy(depth + 1)
        self._number = self._number or TABLE.new()
        numbers[self._number] = self  # also of an object that has come from an image
        return self._number

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._check_open()
        if whence == 2:
            self._check()
        base = {0: 0, 1: self._at}.get(whence)
        at = offset + (os.stat(self._path).st_size if base is None else base)
        if at < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = at
        return at

    def write(self, data: Any, /) -> int:
        self._check()
        if not (given := bytes(data)):
            return 0  # also in mode "a" the position stays
        content = STATE.flipped(given)
        path, identity, at = self._path, self._identity, self._at
        if self.mode.startswith("a"):
            self._at = change(
                f"append to {path}",
                lambda seen, again: _append(path, identity, seen, content, again),
                lambda: os.stat(path).st_size if os.path.exists(path) else 0,
                content,
            )
        else:
            self._at = change(
                f"write to {path} at {at}",
                lambda seen, again: _write(path, identity, at, content),
                None,
                content,
            )
        return len(content)

    def truncate(self, size: int | None = None, /) -> int:
        self._check()
        length = self._at if size is None else size
        path, identity = self._path, self._identity
        change(f"truncate {path} to {length}", lambda seen, again: _truncate(path, identity, length))
        return length

    def set_mode(self, mode: int) -> None:
        """As `os.fchmod`. Raises NotReplicable for a mode with which the file could not be opened again."""
        self._check()
        path, identity = self._path, self._identity
        if mode & 0o600 != 0o600:
            raise NotReplicable(
                f"under --redundancy: os.fchmod of {path!r:.200} to 0o{mode:o}: replicas open it again for each change. "
                "Use os.chmod with its path when it is closed"
            )
        change(f"fchmod {path} to 0o{mode:o}", lambda seen, again: _set_mode(path, identity, mode))

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _check(self) -> None:
        self._check_open()
        if self._session is not STATE.session:  # from an image, and there are no replicas
            self.put_back()

    def save(self) -> None:
        """An image is about to be taken."""
        status = os.stat(self._path) if os.path.exists(self._path) else None
        if status is None or self._identity not in (None, (status.st_dev, status.st_ino)):
            self._saved = None
            return
        length, content = status.st_size, None
        if length <= CONTENT_BYTES:
            with _genuine_open(self._path, "rb") as file:
                content = file.read(length)
        self._saved = length, content

    def go_on(self) -> None:
        """This object has come from an image, and nothing is put back."""
        self._session = STATE.session

    def put_back(self) -> None:
        """A restart: the file becomes what it was. All replicas may do that, to the same effect. Raises NotReplicable for a
        large file that is gone."""
        wait_for_files()  # it is loaded, and others are not yet
        self.go_on()
        if self._saved is None:
            return  # whatever is done with it fails, as it did
        path, (length, content) = self._path, self._saved
        status = os.stat(path) if os.path.exists(path) else None
        if (
            status is not None
            and (status.st_dev, status.st_ino) == self._identity
            and status.st_size >= length
        ):
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

    def sync(self) -> None:
        path, identity = self._path, self._identity
        change(f"fsync {path}", lambda seen, again: _synced(path, identity))


numbers: weakref.WeakValueDictionary[int, ReplicaFile] = weakref.WeakValueDictionary()


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
    STATE.notes.content(path, at)
    with _Open(path, identity) as fd:
        return _put(fd, content, at)


def _append(path: str, identity: tuple[int, int] | None, seen: int, content: bytes, again: bool) -> int:
    """Returns the offset behind it. Other ranks may append, too: each has the file locked for its change."""
    with _Open(path, identity) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        at = os.fstat(fd).st_size
        STATE.notes.content(path, min(at, seen) if again else at)
        if again and at > seen:
            there = os.pread(fd, len(content), seen)
            if there == content[: len(there)]:
                at = seen  # the former leader has written this, or its beginning
        return _put(fd, content, at)


def _truncate(path: str, identity: tuple[int, int] | None, length: int) -> None:
    STATE.notes.content(path, length)
    with _Open(path, identity) as fd:
        os.ftruncate(fd, length)


def _set_mode(path: str, identity: tuple[int, int] | None, mode: int) -> None:
    STATE.notes.attributes(path)
    with _Open(path, identity) as fd:
        os.fchmod(fd, mode)


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
    """As `open`. Raises RefusedMode for what replicas cannot share."""
    is_written = isinstance(mode, str) and not {"w", "a", "x", "+"}.isdisjoint(mode)
    layers = mode, buffering, encoding, errors, newline
    if is_descriptor(file):
        return _over(file, file, closefd, *layers)
    if opener is not None and STATE.meet is not None and not isinstance(file, int) and not is_of_ckpt():
        number = opened_by(opener, file, mode)
        if is_descriptor(number):
            return _over(number, file, closefd, *layers)
        return _genuine_open(file, *layers, closefd, lambda path, flags: number)
    if STATE.meet is None or not is_written or isinstance(file, int) or is_of_ckpt():
        return _genuine_open(file, *layers, closefd, opener)
    path = os.path.abspath(os.fsdecode(file))
    kind = _kind(mode, buffering)
    is_device = path.startswith("/dev/") and not path.startswith(_FILES_IN_DEV)
    if is_device or kind is None:
        return _genuine_open(file, *layers, closefd, opener)
    raw = ReplicaFile(file, path, _raw_mode(kind, "+" in mode), _begin(path, kind, file))
    return _layers(raw, *layers)


def _kind(mode: str, buffering: int) -> str | None:
    """The letter of the mode that says how a file is opened; None: `open` refuses this mode."""
    kinds, letters = [letter for letter in mode if letter in "rwax"], set(mode)
    is_odd = (
        len(kinds) != 1 or len(letters) < len(mode) or not letters <= set("rwax+bt") or letters >= {"b", "t"}
    )
    return None if is_odd or (buffering == 0 and "b" not in mode) else kinds[0]


def _over(number: int, name: Any, closefd: bool, mode: str, buffering: int, *text: str | None) -> Any:
    """A file object over a descriptor that replicas share. Raises RefusedMode for one whose file has no name any more."""
    kind = _kind(mode, buffering)
    if kind is None:
        raise ValueError(f"invalid mode: {mode!r}")
    TABLE.named(number)
    return _layers(
        DescriptorFile(number, name, _raw_mode(kind, "+" in mode), closefd), mode, buffering, *text
    )


def _layers(
    raw: ReplicaFile | DescriptorFile,
    mode: str,
    buffering: int,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    made: Any = _buffered(raw, buffering)
    if "b" not in mode:
        made = io.TextIOWrapper(made, encoding, errors, newline, buffering == 1)
        made.mode = mode
    STATE.opened = [each for each in STATE.opened if (other := each()) is not None and not other.closed]
    STATE.opened.append(weakref.ref(made))
    return made


def _raw_mode(kind: str, is_both: bool) -> str:
    """The `mode` of a raw file, as :class:`io.FileIO` gives it."""
    return f"{'r' if is_both and kind == 'w' else kind}b{'+' * is_both}"


def _buffered(raw: ReplicaFile | DescriptorFile, buffering: int) -> Any:
    if raw.mode.startswith("a"):
        raw.seek(0, 2)
    if buffering == 0:
        return raw
    nbytes = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    if raw.readable() and raw.writable():
        return ReplicaBuffer(raw, nbytes)
    return io.BufferedReader(raw, nbytes) if raw.readable() else io.BufferedWriter(raw, nbytes)


def _begin(path: str, kind: str, given: Any) -> tuple[int, int]:
    def act(seen: bool | None, again: bool) -> tuple[int, int]:
        if kind == "x" or (kind != "r" and not os.path.exists(path)):
            STATE.notes.name(os.path.realpath(path))
        elif kind == "w":
            STATE.notes.content(path, 0)
        flags = os.O_CLOEXEC | (os.O_RDWR if kind == "r" else os.O_WRONLY | os.O_CREAT)
        flags |= os.O_TRUNC if kind == "w" else 0
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
    dev, ino = change(f"open {path} ({kind})", act, before)
    return dev, ino


def flush_all() -> None:
    """The program has ended: what its open files hold is written, in the order in which they were opened."""
    for each in STATE.opened:
        file = each()
        if file is not None and not file.closed:
            file.flush()

"""Open files, put back at load: what the pickle of an image calls for them. Counterpart of :mod:`ckpt.image.files`.

Its names are part of the image format. A writable file is cut to its saved length; the descriptor number is the old one
where that is free. What cannot be opened, or is shorter than the image needs, is a :class:`RestoreError` with the path; the
loader adds the variable.

What the program had written but not flushed goes where it was, into the buffer of its file object: other descriptors of
the same file may write first.

No file is cut while anything can still fail: opening it notes that (:data:`_cuts`), and the loader calls :func:`settle` when
all else has been loaded. So a restart that fails leaves files and output as they were, for a newer image too.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import stat
import sys
import tempfile
import warnings
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.rebuild import fill_attributes
from transport.lean import dataclass


@dataclass(frozen=True, slots=True)
class SavedFile:
    """``length``: of a writable file; ``content``: if deleted, or temporary (``is_temporary``: made again only if it is
    gone).
    """

    fd: int
    path: str
    flags: int
    offset: int
    length: int | None
    content: bytes | None
    is_temporary: bool = False


def open_saved(saved: SavedFile) -> int:
    """A new descriptor of the file, cut to its length; a temporary file that is gone is made again under its name."""
    if saved.content is None:
        return _open_again(saved)
    if not saved.is_temporary:
        return _deleted_again(saved)
    if not os.path.exists(saved.path):
        with contextlib.suppress(OSError):  # _open_again says what is wrong with the place
            os.makedirs(os.path.dirname(saved.path), mode=0o700, exist_ok=True)
            fd = os.open(saved.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(saved.content)
    return _open_again(saved)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A file to be cut to ``length`` bytes; ``fd`` is a descriptor for this alone. What loading itself has printed, behind
    byte ``kept_from``, stays (``None``: there is no such thing).
    """

    fd: int
    length: int
    kept_from: int | None = None


_cuts: list[_Cut] = []


def begin() -> None:
    """A load begins: no file is to be cut yet."""
    _cuts.clear()


def cut_output(fd: int, length: int) -> None:
    """What a standard stream, if it is a file, now holds beyond ``length`` bytes is to be cut out of it."""
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size != length:
        _cuts.append(_Cut(_aside(fd), length, kept_from=status.st_size))


def settle() -> None:
    """Cut what is noted. Raises RestoreError: a file system that does not do it."""
    done: set[tuple[int, int]] = set()
    try:
        for cut in _cuts:
            status = os.fstat(cut.fd)
            if (status.st_dev, status.st_ino) not in done:  # several descriptors may be of one file
                done.add((status.st_dev, status.st_ino))
                _cut(cut)
    except OSError as failure:
        raise RestoreError(
            f"a file that the program writes cannot be cut to its length: {failure.strerror}"
        ) from failure
    finally:
        for cut in _cuts:
            os.close(cut.fd)
        _cuts.clear()


def _cut(cut: _Cut) -> None:
    said = b""
    if cut.kept_from is not None and cut.kept_from < cut.length:
        warnings.warn(
            f"the output in {os.readlink(f'/proc/self/fd/{cut.fd}')!r} has {cut.kept_from} bytes, but had {cut.length} when "
            "the image was taken: some of it has been removed, by hand or by a restart from an older image",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    if cut.kept_from is not None:
        with open(f"/proc/self/fd/{cut.fd}", "rb") as again:
            again.seek(cut.kept_from)
            said = again.read()
    os.ftruncate(cut.fd, cut.length)
    if said:
        os.lseek(cut.fd, cut.length, os.SEEK_SET)
        os.write(cut.fd, said)


class OpenedFile:
    """One descriptor, opened again: under its old number where that is free."""

    def __init__(self, saved: SavedFile) -> None:
        fd = open_saved(saved)
        if fd != saved.fd and not os.path.exists(f"/proc/self/fd/{saved.fd}"):
            os.dup2(fd, saved.fd, inheritable=False)
            os.close(fd)
            fd = saved.fd
        if fd != saved.fd:
            fd = _out_of_the_way(fd)
        with contextlib.suppress(OSError):  # a device
            os.lseek(fd, saved.offset, os.SEEK_SET)
        self.fd = fd


_ELSEWHERE = 200  # above what programs have open as a rule


def _out_of_the_way(fd: int) -> int:
    """The same file under a number that no other descriptor of the image has, lest that one finds its own in use."""
    try:
        elsewhere = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ELSEWHERE)
    except OSError:  # so many are not allowed
        return fd
    os.close(fd)
    return elsewhere


def _aside(fd: int) -> int:
    """A duplicate for :func:`settle`: by then the object that owns ``fd`` may have been dropped."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ELSEWHERE)
    except OSError:
        return os.dup(fd)


def make_raw_file(opened: OpenedFile, mode: str, name: Any, closefd: bool) -> io.FileIO:
    made = io.FileIO(opened.fd, mode, closefd)
    made.name = opened.fd if isinstance(name, int) else name
    return made


def make_closed_memory(cls: Any) -> Any:
    made = cls()
    made.close()
    return made


def _open_again(saved: SavedFile) -> int:
    try:
        fd = os.open(saved.path, saved.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_CLOEXEC)
    except OSError as failure:
        raise RestoreError(
            f"the open file {saved.path!r} cannot be opened again: {failure.strerror}"
        ) from failure
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        needed = saved.offset if saved.length is None else saved.length
        if status.st_size < needed:
            raise RestoreError(
                f"the open file {saved.path!r} has {status.st_size} bytes; the image needs {needed}"
            )
        if saved.length is not None and status.st_size > saved.length:
            _cuts.append(_Cut(_aside(fd), saved.length))
    return fd


def _deleted_again(saved: SavedFile) -> int:
    """A file without a name, with its content.

    The first descriptor gives the kernel's copy of the access mode.
    """
    assert saved.content is not None
    directory = os.path.dirname(saved.path)
    fd, path = tempfile.mkstemp(dir=directory if os.path.isdir(directory) else None)
    try:
        with open(fd, "wb") as file:
            file.write(saved.content)
        return os.open(
            path, saved.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_TMPFILE) | os.O_CLOEXEC
        )
    finally:
        os.unlink(path)


def make_std_raw(fd: int, mode: str, name: Any) -> io.FileIO:
    made = io.FileIO(fd, mode, closefd=False)
    made.name = name
    return made


def make_buffered(cls: Any, raw: Any, position: int | None, pending: bytes = b"") -> Any:
    """``pending``: what its buffer holds, not written yet; ``position`` is behind it. One that only writes is where its
    descriptor is, which others may share.
    """
    made = cls(raw, max(io.DEFAULT_BUFFER_SIZE, len(pending) + 1)) if pending else cls(raw)
    if position is not None and cls is not io.BufferedWriter:
        made.seek(position - len(pending))
    if pending:
        made.write(pending)
    return made


def make_text(
    buffer: Any, settings: tuple[Any, ...], position: Any, attributes: dict[str, Any], pending: str = ""
) -> Any:
    made = io.TextIOWrapper(buffer, *settings)
    if position is not None and type(buffer) is not io.BufferedWriter and position != buffer.tell():
        made.seek(position)  # which would flush what is pending
    if pending:
        made.write(pending)
    made.__dict__.update(attributes)
    return made


def make_closed(layer: str, name: Any, mode: str) -> Any:
    raw = io.FileIO(os.devnull, "r")
    raw.name = name
    made: Any = raw if layer == "raw" else io.BufferedReader(raw)
    if layer == "text":
        made = io.TextIOWrapper(made)
        made.mode = mode
    made.close()
    return made


# ---------------------------------------------------------------------- compressed files


def compressed_readers() -> dict[type, Any]:
    """Reducers for what decompresses: it cannot be saved, but begins again, and whoever is above seeks to the place."""
    found: dict[type, Any] = {}
    for module, name in (("gzip", "_GzipReader"), ("_compression", "DecompressReader")):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None:
            found[cls] = reduce_reader
    return found


def reduce_reader(pickler: Any, reader: Any) -> Any:
    attributes = {key: value for key, value in reader.__dict__.items() if key != "_decompressor"}
    if "_decompressor" not in reader.__dict__:  # it is being made, and has read nothing
        return make_reader, (type(reader),), attributes, None, None, fill_attributes
    return make_reader, (type(reader),), attributes, None, None, fill_reader


def make_reader(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_reader(reader: Any, attributes: dict[str, Any]) -> None:
    """At the beginning of the compressed file."""
    reader.__dict__.update(attributes)
    reader._rewind()

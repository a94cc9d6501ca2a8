"""Open files are restored: the functions that the pickle stream of an image calls. Counterpart of
:mod:`ckpt.image.files.open_files`.

- The names of this module are part of the image format.
- A descriptor gets its old number again (:mod:`ckpt.image.files.numbers`). Descriptors that shared one open file description
  (duplicates) share one again, with its offset and locks.
- A writable file is cut to its saved length, unless its changes stay (:mod:`ckpt.undo.selection.kept`): such a file is
  opened as it is now. One that is appended to goes on at its present end, another one at its saved offset, at most at its
  end.
- A file that is gone is made again if the image holds its content (small files). A writable file gets its saved content
  back if another file has its path now, or if the file is shorter than it was: a temporary file, for example, that the
  program has renamed or removed since the image, and made again.
- Where a restart has still to put files back, that is waited for before the first file is opened: who opens one otherwise
  calls :func:`wait_for_files`.
- A file that cannot be opened is a :class:`RestoreError` with the path; the loader adds the name of the variable.
- Bytes that were written and not flushed are put into the buffer of their file object: others may write to the file first.

Not here: when files are cut or written (:mod:`ckpt.image.files.cuts`), and locked (:mod:`ckpt.image.files.file_locks`).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from ckpt.compat.stdlib import decompressing_readers, reader_attributes, rewind
from ckpt.image.errors import RestoreError
from ckpt.image.files import cuts, file_locks, numbers
from ckpt.image.files.file_notes import has_length
from ckpt.image.frames import _frames
from ckpt.image.interface.moved import moved
from ckpt.image.reducers.buffers import buffer_over
from ckpt.image.reducers.rebuild import fill_attributes
from ckpt.transport.records import dataclass

_CREATION_FLAGS = os.O_CREAT | os.O_EXCL | os.O_TRUNC  # flags of open(2) that a restart must leave out


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One open file in an image.

    ``length``: in bytes, of a writable file; else None. ``content``: of a small file, or of one without a name
    (``is_deleted``); else None. ``stream``: 1 or 2 if the file is the rank's own standard output or error: after a restart
    the descriptor refers to that stream, whatever its path is then. ``is_kept``: what has changed in the file since stays.
    The other fields: :class:`ckpt.image.files.file_notes.FileNote`.
    """

    fd: int
    path: str
    flags: int
    offset: int
    length: int | None
    content: bytes | None
    is_deleted: bool = False
    stream: int | None = None
    first: int = -1
    identity: tuple[int, int, int] = (0, 0, 0)
    mode: int = 0o600
    locks: tuple[file_locks.FileLock, ...] = ()
    is_kept: bool = False


_put_back: list[Callable[[str], bool]] = []  # if a restart has put files back: has it this one?

_wait: list[Callable[[bool], None]] = []  # if files are still to be put back: waits for that
_due: list[Callable[[], None]] = []  # what follows then

_Opened = tuple[int, int, int]  # a descriptor, device, inode
_opened: dict[int, _Opened] = {}  # by SavedFile.first
_made: set[str] = set()  # paths of files that were gone and have been made again
_made_directories: list[str] = []  # directories that have been made again, outermost first
_replacements: list[
    tuple[int, SavedFile]
] = []  # files that get the numbers of standard output and error in change_files()


def declare_put_back(is_right: Callable[[str], bool]) -> None:
    """Declare which files are what they were at the checkpoint, by their paths: their lengths are right, also where other
    ranks have written to them.
    """
    _put_back[:] = [is_right]


def begin(wait: Callable[[bool], None] | None = None) -> None:
    """A load begins: the records of an earlier load are dropped. ``wait``: see :func:`ckpt.image.load`."""
    _wait[:] = [] if wait is None else [wait]
    _due.clear()
    _opened.clear()
    _made.clear()
    _made_directories.clear()
    _replacements.clear()
    cuts.begin()


def waits_for_files() -> bool:
    """Are files still to be put back?"""
    return bool(_wait)


def wait_for_files(*, is_all_loaded: bool = False) -> None:
    """Return when the files are what they were at the checkpoint. ``is_all_loaded``: nothing is left that could fail. Raises
    what functions for then raise."""
    if _wait:
        _wait.pop()(is_all_loaded)
    functions, _due[:] = list(_due), []
    for function in functions:
        function()


def when_files_are_back(function: Callable[[], None]) -> bool:
    """Call this when files have been put back, unless they are already: then False is returned."""
    if _wait:
        _due.append(function)
    return bool(_wait)


def put(saved: SavedFile) -> int:
    """Open the file at its saved offset, under its old number if that is free or reserved. Returns the descriptor. Raises
    RestoreError: the file cannot be opened, or is too short.
    """
    fd = numbers.place(open_saved(saved), saved.fd, is_inheritable=not saved.flags & os.O_CLOEXEC)
    _remember(fd, saved)
    return fd


def put_stream(saved: SavedFile) -> None:
    """Open a file that the program had put under the number of a standard stream. Standard input is replaced at once,
    output and error by :func:`change_files`: until then messages of the loader go to the rank's own output, where they are
    read.
    """
    fd = open_saved(saved)
    if saved.fd == 0:
        os.dup2(fd, 0)
        os.close(fd)
        fd = 0
    else:
        _replacements.append((fd, saved))
    _remember(fd, saved)


def change_files() -> None:
    """Change the files and take the locks; called when everything is loaded. Raises RestoreError: a file cannot be
    written, or another process has locked it."""
    cuts.make_changes()
    for fd, saved in _replacements:
        os.dup2(fd, saved.fd)
        os.close(fd)
    _replacements.clear()
    _opened.clear()
    file_locks.take_again()


def abandon() -> None:
    """The load has failed: remove the files and directories that it has made."""
    for path in _made:
        with contextlib.suppress(OSError):
            os.unlink(path)
    _made.clear()
    for path in reversed(_made_directories):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    _made_directories.clear()


def make_directory(path: str) -> None:
    """Make the directory and those above it, as far as they do not exist. Raises OSError."""
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path))
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):  # a directory there now has been made by another rank
            raise
    else:
        _made_directories.append(path)


def _remember(fd: int, saved: SavedFile) -> None:
    status = os.fstat(fd)
    offset = saved.offset
    if saved.is_kept:
        offset = status.st_size if saved.flags & os.O_APPEND else min(offset, status.st_size)
    with contextlib.suppress(OSError):  # a device cannot seek
        os.lseek(fd, offset, os.SEEK_SET)
    _opened.setdefault(saved.first, (fd, status.st_dev, status.st_ino))
    file_locks.note(fd if saved.fd not in (1, 2) else saved.fd, moved(saved.path), saved.locks)


def open_saved(saved: SavedFile) -> int:
    """A new descriptor of the file. A file that is gone is made again if the image holds its content. A descriptor with the
    same ``first`` as one before is a duplicate of that. Raises RestoreError.
    """
    if saved.stream is not None:
        return os.dup(saved.stream)
    wait_for_files()
    if saved.first in _opened:
        fd, *identity = _opened[saved.first]
        with contextlib.suppress(OSError):
            status = os.fstat(fd)
            if [status.st_dev, status.st_ino] == identity:
                return os.dup(fd)
    if saved.is_deleted:
        return _deleted_again(saved)
    if saved.content is not None and not os.path.lexists(moved(saved.path)):
        _make_again(saved, saved.content)
    return _open_again(saved)


class OpenedFile:
    """The open file of one descriptor; its file objects are made over ``fd``."""

    def __init__(self, saved: SavedFile) -> None:
        self.fd = put(saved)


def make_raw_file(opened: OpenedFile, mode: str, name: Any, closefd: bool) -> io.FileIO:
    """A raw file over an open file. ``name``: the file's name attribute; an integer becomes the new descriptor."""
    with file_offset(opened.fd):
        made = io.FileIO(opened.fd, mode, closefd)
    made.name = opened.fd if isinstance(name, int) else name
    return made


@contextlib.contextmanager
def file_offset(fd: int) -> Iterator[None]:
    """At the end of the context, the offset of the descriptor, if it has one, is what it was: a FileIO for appending puts it
    to the end."""
    offset = None
    with contextlib.suppress(OSError):
        offset = os.lseek(fd, 0, os.SEEK_CUR)
    yield
    if offset is not None:
        os.lseek(fd, offset, os.SEEK_SET)


def make_raw_over(fd: int, mode: str, name: Any, closefd: bool) -> io.FileIO:
    """A raw file over a pipe or socket that has been made again under its number."""
    made = io.FileIO(fd, mode, closefd)
    made.name = name
    return made


def make_closed_memory(cls: Any) -> Any:
    made = cls()
    made.close()
    return made


def _make_again(saved: SavedFile, content: bytes) -> None:
    with contextlib.suppress(OSError):  # _open_again, which follows, raises and names the cause
        make_directory(os.path.dirname(moved(saved.path)))
        fd = os.open(moved(saved.path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _made.add(moved(saved.path))
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), saved.mode)


def _open_again(saved: SavedFile) -> int:
    is_written = saved.flags & os.O_ACCMODE != os.O_RDONLY
    try:
        fd = os.open(moved(saved.path), saved.flags & ~(_CREATION_FLAGS | os.O_TMPFILE) | os.O_CLOEXEC)
    except OSError as failure:
        raise RestoreError(
            f"the file {moved(saved.path)!r}, which the program had open for {'writing' if is_written else 'reading'} when "
            f"the checkpoint was taken, cannot be opened again: {failure.strerror}. Put it back, and run `ckpt restart`"
        ) from failure
    status = os.fstat(fd)
    if not has_length(saved.path, status.st_mode) or moved(saved.path) in _made or saved.is_kept:
        return fd
    is_put_back = bool(_put_back) and _put_back[0](moved(saved.path))
    appends_only = is_put_back and saved.flags & os.O_APPEND
    most = saved.offset if saved.length is None or appends_only else saved.length
    needed = most if saved.content is None else min(most, len(saved.content))  # it may have been cut since
    is_another_file = not _is_the_same(status, _frames.born(fd), saved)
    if is_written and saved.content is not None and (is_another_file or status.st_size < needed):
        cuts.put_back(fd, saved.content)
    elif status.st_size < needed:
        os.close(fd)
        raise RestoreError(
            f"the open file {moved(saved.path)!r} has {status.st_size} bytes; the image needs {needed}. "
            "Put back what it had, and run `ckpt restart`"
        )
    elif saved.length is not None and status.st_size > saved.length and not is_put_back:
        cuts.cut(fd, saved.length)
    return fd


def _is_the_same(status: os.stat_result, born_ns: int, saved: SavedFile) -> bool:
    """Is this the saved file, by inode and time of creation (``born_ns``, 0: unknown)? The device number is compared only
    where the time of creation is unknown, because it may change with a reboot.
    """
    device, inode, was_born_ns = saved.identity
    if (status.st_ino, born_ns) != (inode, was_born_ns):
        return False
    return bool(born_ns) or status.st_dev == device


def _deleted_again(saved: SavedFile) -> int:
    """A descriptor of a new file without a name, with the saved content.

    The file is opened a second time for its saved flags, and then removed. One that never had a name (O_TMPFILE) may be
    given one: it is made in that way again.
    """
    assert saved.content is not None
    directory = os.path.dirname(moved(saved.path))
    if saved.flags & os.O_TMPFILE == os.O_TMPFILE:
        with contextlib.suppress(OSError):  # the file system may have no such files
            return _nameless(directory, saved, saved.content)
    import tempfile  # seldom needed, and slow to import

    fd, path = tempfile.mkstemp(dir=directory if os.path.isdir(directory) and directory != "/" else None)
    try:
        with open(fd, "wb") as file:
            file.write(saved.content)
        opened = os.open(path, saved.flags & ~(_CREATION_FLAGS | os.O_TMPFILE) | os.O_CLOEXEC)
        os.chmod(path, saved.mode)
        return opened
    finally:
        os.unlink(path)


def _nameless(directory: str, saved: SavedFile, content: bytes) -> int:
    fd = os.open(directory, saved.flags & ~_CREATION_FLAGS | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(content):
            written += os.write(fd, content[written:])
        os.fchmod(fd, saved.mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def make_std_raw(fd: int, mode: str, name: Any) -> io.FileIO:
    """A raw file of the program over the descriptor of a standard stream."""
    made = io.FileIO(fd, mode, closefd=False)
    made.name = name
    return made


def make_buffered(
    cls: Any, raw: Any, position: int | None, pending: bytes = b"", nbytes: int = io.DEFAULT_BUFFER_SIZE
) -> Any:
    """A buffered object over ``raw``. ``pending``: the bytes in its buffer that are not written yet. ``position``: the
    logical one, behind ``pending``. Not used for a BufferedWriter, whose position is the offset of its descriptor: other
    file objects may share that. ``nbytes``: of its buffer."""
    made = buffer_over(cls, raw, max(nbytes, len(pending) + 1))  # since 3.13 a full buffer is written at once
    if position is not None and not issubclass(cls, io.BufferedWriter):
        made.seek(position - len(pending))
    if pending:
        made.write(pending)
    return made


def make_closed(layer: str, name: Any, mode: str) -> Any:
    """A closed file object. ``layer``: "raw", "buffered" or "text"."""
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
    """Reducers for the raw readers of gzip, bz2 and lzma files. Their decompressor cannot be saved: it starts again at the
    beginning of the file, and the buffered reader above seeks to the program's position.
    """
    return dict.fromkeys(decompressing_readers(), reduce_reader)


def reduce_reader(pickler: Any, reader: Any) -> Any:
    attributes, is_complete = reader_attributes(reader)
    if not is_complete:  # its __init__ has not finished: nothing has been read
        return make_reader, (type(reader),), attributes, None, None, fill_attributes
    return make_reader, (type(reader),), attributes, None, None, fill_reader


def make_reader(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_reader(reader: Any, attributes: dict[str, Any]) -> None:
    """Restore the attributes; the reader is at the beginning of the compressed file."""
    reader.__dict__.update(attributes)
    rewind(reader)

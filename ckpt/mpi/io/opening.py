"""Opening, closing and deleting of files.

Opening is collective. Rank 0 of the communicator opens the file, and makes it if that is wanted; then the others open it,
too, if they are to read it. Whoever cannot, all raise."""

from __future__ import annotations

import os
import stat
from typing import Any

from ckpt.mpi.base.errors import ERR_COMM, ERR_IO, MpiException
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.null_handles import NULL_PART
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.comm.unsupported import not_offered
from ckpt.mpi.engine import worlds
from ckpt.mpi.io import disk, modes
from ckpt.mpi.io.collective import together
from ckpt.mpi.io.handle import FileHandle, defaults, handled
from ckpt.mpi.io.state import WRITER, FileState
from ckpt.mpi.io.writer import ReplicaWriter, Writer
from ckpt.mpi.members.state import private_copy

_NEW_FILE = 0o666


def file_of(engine: Any, state: FileState) -> Any:
    """A new handle of a file, for its error handler."""
    from ckpt.mpi.io.file import File

    return File._of(state)


class Opening(FileHandle):
    """Base class of File with these methods."""

    __slots__ = ()

    @classmethod
    def Open(cls, comm: Intracomm, filename: Any, amode: int = modes.RDONLY, info: Info = INFO_NULL) -> Any:
        """Open a file at all ranks of a communicator. Collective. filename: str, bytes or a path.

        MpiException: ERR_COMM, ERR_AMODE, ERR_NOT_SAME (other modes at other ranks), ERR_NO_SUCH_FILE, ERR_FILE_EXISTS,
        ERR_ACCESS, ERR_BAD_FILE (a directory), ERR_READ_ONLY, ERR_NO_SPACE, ERR_QUOTA, ERR_IO."""
        path, mode = os.fsdecode(filename), argument(amode)
        try:
            state = _opened(comm, path, mode)
        except MpiException as error:
            raise handled(None, error)  # noqa: B904
        state.info.update(info.items())
        state.errhandler = defaults().errhandler
        return cls._of(state)

    @classmethod
    def Delete(cls, filename: Any, info: Info = INFO_NULL) -> None:
        """Delete a file that nobody has open. MpiException: ERR_NO_SUCH_FILE, ERR_ACCESS, ERR_BAD_FILE, ERR_IO."""
        path = os.fsdecode(filename)
        of_replicas = worlds.engine().windows.disk
        try:
            if of_replicas is None:
                os.remove(path)
            else:
                of_replicas.remove(os.path.abspath(path))
        except OSError as refused:
            raise handled(None, MpiException(*modes.failure_of(refused, path)))  # noqa: B904

    def Close(self) -> None:
        """Close the file when all its ranks have called Close, and delete it if it was opened so. Collective.

        If a member has failed, the file is closed here, and the call raises. MpiException (ERR_IO): a split collective is
        under way."""
        state = self._alive()
        if state.split is not None:
            raise MpiException(ERR_IO, f"{state.split[0]}_begin has not had its end")
        with state.engine.lock:
            while state.pending:
                state.engine.wait(next(iter(state.pending.values())))
        failure: MpiException | None = None
        try:
            together(state.private, None, _end, state.writer, bool(state.amode & modes.DELETE_ON_CLOSE))
        except MpiException as error:
            failure = error
        if failure is not None:
            failure = handled(self, failure)
        _leave(state)
        self._shared = NULL_PART
        if failure is not None:
            raise failure


def _opened(comm: Any, path: str, amode: int) -> FileState:
    if not isinstance(comm, Intracomm):
        raise TypeError(f"a file needs an Intracomm, not {type(comm).__name__}")
    if not comm:
        raise MpiException(ERR_COMM, "the communicator is null or freed")
    engine = comm._engine
    if engine.windows.refusal:
        raise not_offered(
            "File.Open", f"parallel files go by the messages of windows: {engine.windows.refusal}"
        )
    if engine.windows.disk is not None:
        path = os.path.abspath(path)
    problem = _problem(amode)
    private = private_copy(comm)
    state = FileState(engine, private, path, amode, file_of)
    state.join(comm)
    try:
        size = together(private, amode, _open_first, state, what="the access mode", error=problem)
        together(private, None, _nothing, error=_open_here(state))
    except BaseException:
        _leave(state)
        raise
    if amode & modes.APPEND:
        state.position = state.view.end(size)
        if state.writer is not None:
            state.writer.shared = state.position
    with engine.lock:
        engine.windows.add(state)
    return state


def _problem(amode: int) -> MpiException | None:
    try:
        modes.check(amode)
    except MpiException as error:
        return error.with_traceback(None)
    return None


def _nothing(values: list[Any]) -> None:
    pass


def _open_first(amode: int, state: FileState) -> int:
    """Open the file at the rank that writes. Returns its size."""
    of_replicas = state.engine.windows.disk
    made = state.writer = (
        Writer(state.path, disk.NONE, disk.NONE)
        if of_replicas is None
        else ReplicaWriter(state.engine, state.path)
    )
    try:
        _refuse_what_is_no_file(state.path)
        if not amode & modes.RDONLY:
            flags = os.O_WRONLY
            flags |= os.O_CREAT if amode & modes.CREATE else 0
            flags |= os.O_EXCL if amode & modes.EXCL else 0
            if of_replicas is not None:
                of_replicas.create(state.path, flags, _NEW_FILE)
            else:
                made.writing = os.open(state.path, flags, _NEW_FILE)
                os.lseek(made.writing, 0, os.SEEK_END)
        if not amode & modes.WRONLY:
            made.reading = _reading(state)
    except OSError as error:
        raise made.failure(error) from None
    return made.size()


def _reading(state: FileState) -> int:
    """Open the file for reading at this rank. Raises OSError."""
    state.reading = os.open(state.path, os.O_RDONLY)
    if state.engine.windows.disk is not None:
        os.close(state.reading)
        state.reading = disk.BY_PATH
    return state.reading


def _refuse_what_is_no_file(path: str) -> None:
    """Raises IsADirectoryError. A named pipe would have the call wait for its other end."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        raise IsADirectoryError(21, "no file", path)


def _open_here(state: FileState) -> MpiException | None:
    """Open the file at another rank, if it reads by itself. Returns why it cannot."""
    if state.rank == WRITER or state.amode & modes.WRONLY or not state.engine.one_host:
        return None
    try:
        _reading(state)
    except OSError as error:
        return MpiException(*modes.failure_of(error, state.path))
    return None


def _end(values: list[Any], writer: Writer, deletes: bool) -> None:
    """All ranks have called Close."""
    if deletes:
        writer.remove()


def _leave(state: FileState) -> None:
    """Close a file at this rank."""
    failure: OSError | None = None
    writing = -1 if state.writer is None else state.writer.writing
    for fd in (writing, state.reading):
        try:
            if fd >= 0:
                os.close(fd)
        except OSError as error:
            failure = error
    state.reading = disk.NONE
    state.leave()
    if failure is not None:
        raise MpiException(ERR_IO, f"{state.path}: {failure.strerror}")

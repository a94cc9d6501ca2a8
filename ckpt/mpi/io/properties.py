"""What `File` has beside its data: size, view, info, group, atomicity; and what makes the data durable. Also the data
representations that a program registers: a name can be taken once, and views cannot use them."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERR_ARG, ERR_TYPE, ERROR_CLASSES, MpiException
from ckpt.mpi.base.info import INFO_NULL, Info
from ckpt.mpi.base.integers import COUNT, argument
from ckpt.mpi.comm.unsupported import not_offered
from ckpt.mpi.datatypes.datatypes import BYTE, Datatype
from ckpt.mpi.datatypes.derived import _handle
from ckpt.mpi.io import modes
from ckpt.mpi.io.accesses import size_of
from ckpt.mpi.io.collective import at_writer, together
from ckpt.mpi.io.handle import FileHandle, defaults
from ckpt.mpi.io.state import FileState
from ckpt.mpi.io.view import View

DISPLACEMENT_CURRENT = NUMBERS["DISPLACEMENT_CURRENT"]
_DATAREPS = ("native", "internal", "external32")


class Properties(FileHandle):
    """Base class of File with these methods."""

    __slots__ = ()

    # -- size --------------------------------------------------------------------------------------

    def Set_size(self, size: int) -> None:
        """Cut or extend the file to this size in bytes. Collective. MpiException: ERR_ARG, ERR_READ_ONLY, ERR_NOT_SAME,
        ERR_NO_SPACE, ERR_IO."""
        self._resize("resize", size)

    def Preallocate(self, size: int) -> None:
        """Have space set apart, so that the file has at least this size in bytes. Collective. MpiException: as Set_size."""
        self._resize("preallocate", size)

    def _resize(self, act: str, size: int) -> None:
        nbytes, state = argument(size, COUNT), self._alive()
        error: MpiException | None = None
        try:
            modes.check_writing(state.amode)
            if nbytes < 0:
                raise MpiException(ERR_ARG, f"negative size {nbytes}")
        except MpiException as problem:
            error = problem.with_traceback(None)
        at_writer(state, nbytes, act, "the size of the file", error)

    def Get_size(self) -> int:
        """The size of the file in bytes."""
        return size_of(self._alive())

    @property
    def size(self) -> int:
        return self.Get_size()

    # -- view --------------------------------------------------------------------------------------

    def Set_view(
        self,
        disp: int = 0,
        etype: Datatype = BYTE,
        filetype: Datatype | None = None,
        datarep: str = "native",
        info: Info = INFO_NULL,
    ) -> None:
        """Set this rank's view, and all pointers to its beginning. Collective. filetype: the etype if it is None.

        MpiException: ERR_ARG, ERR_TYPE, ERR_NOT_SAME (etypes of other extents, other representations),
        ERR_UNSUPPORTED_DATAREP."""
        state, number = self._alive(), argument(disp, COUNT)
        error: MpiException | None = None
        view, extent = state.view, 0
        try:
            extent = etype.extent
            number = _displacement(state, number)
            view = _view(state, number, etype, etype if filetype is None else filetype, datarep)
        except MpiException as problem:
            error = problem.with_traceback(None)
        except NotImplementedError as problem:
            error = MpiException(ERROR_CLASSES["ERR_UNSUPPORTED_DATAREP"], str(problem))
        said = extent, str(datarep)
        together(
            state.private, said, _rewind, state, what="(extent of the etype, representation)", error=error
        )
        state.view = view
        state.types = etype._info, (etype if filetype is None else filetype)._info
        state.datarep = str(datarep)
        state.position = 0
        state.info.update(info.items())

    def Get_view(self) -> tuple[int, Datatype, Datatype, str]:
        """(displacement, etype, filetype, representation)"""
        state = self._alive()
        etype, filetype = state.types
        return state.view.displacement, _handle(etype), _handle(filetype), state.datarep

    def Get_type_extent(self, datatype: Datatype) -> int:
        """The extent of a datatype in the file: that in memory, in all representations that are offered."""
        self._alive()
        return datatype.extent

    # -- the rest ----------------------------------------------------------------------------------

    def Get_amode(self) -> int:
        return self._alive().amode

    @property
    def amode(self) -> int:
        return self.Get_amode()

    def Set_atomicity(self, flag: bool) -> None:
        """Should what one rank writes be seen by others at once and as a whole? Collective. MpiException (ERR_NOT_SAME)."""
        state, wanted = self._alive(), bool(flag)
        together(state.private, wanted, _same, what="the flag of Set_atomicity")
        state.atomic = wanted

    def Get_atomicity(self) -> bool:
        return self._alive().atomic

    @property
    def atomicity(self) -> bool:
        return self.Get_atomicity()

    @atomicity.setter
    def atomicity(self, value: bool) -> None:
        self.Set_atomicity(value)

    def Sync(self) -> None:
        """What all ranks have written before is on the disk, and is read by all of them from now on. Collective."""
        state = self._alive()
        together(state.private, None, _sync, state)


def _displacement(state: FileState, number: int) -> int:
    if number != DISPLACEMENT_CURRENT:
        return number
    if not state.amode & modes.SEQUENTIAL:
        raise MpiException(ERR_ARG, "DISPLACEMENT_CURRENT is for files opened with MODE_SEQUENTIAL")
    from ckpt.mpi.io.shared import _draw

    return state.view.byte_offset(_draw(state, 0))


def _view(state: FileState, number: int, etype: Datatype, filetype: Datatype, datarep: str) -> View:
    if not etype or not filetype:
        raise MpiException(ERR_TYPE, "the datatype is null or freed")
    if datarep not in _DATAREPS:
        if datarep in defaults().datareps:
            raise not_offered(
                "File.Set_view", f"with the representation {datarep!r} of the program; convert the data"
            )
        raise MpiException(ERROR_CLASSES["ERR_UNSUPPORTED_DATAREP"], f"representation {datarep!r}")
    return View(number, etype.layout, filetype.layout, writes=not state.amode & modes.RDONLY)


def _rewind(said: Any, state: FileState) -> None:
    assert state.writer is not None
    state.writer.shared = 0


def _same(value: Any) -> None:
    pass


def _sync(values: list[Any], state: FileState) -> None:
    assert state.writer is not None
    state.writer.sync()


def Register_datarep(datarep: str, read_fn: Any, write_fn: Any, extent_fn: Any) -> None:
    """Take a name for a representation. MpiException: ERR_DUP_DATAREP, ERR_ARG (the name is too long)."""
    known = defaults().datareps
    if datarep in known or datarep in _DATAREPS:
        raise MpiException(ERROR_CLASSES["ERR_DUP_DATAREP"], f"representation {datarep!r}")
    if not 0 < len(datarep) <= 128:
        raise MpiException(ERR_ARG, "the name of a representation has 1 to 128 characters")
    known[datarep] = read_fn, write_fn, extent_fn

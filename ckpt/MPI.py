"""The module `MPI` of mpi4py 4, on this toolkit: `from ckpt import MPI`.

Under `ckpt run`, `from mpi4py import MPI` also imports this module (mpi4py_alias.py). The module collects names; their
definitions are in ckpt.mpi. COMM_WORLD and COMM_SELF are looked up at each use (`__getattr__`), because after a restart
they are the restored objects; windows are loaded when a program uses their name.
"""

# ruff: noqa: F401  the module exists to export the names that it imports

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.mpi.base.constants import (
    BOTTOM,
    BUFFER_AUTOMATIC,
    IN_PLACE,
    NUMBERS,
    BottomType,
    BufferAutomaticType,
    InPlaceType,
)
from ckpt.mpi.base.errhandler import (
    ERRHANDLER_NULL,
    ERRORS_ABORT,
    ERRORS_ARE_FATAL,
    ERRORS_RETURN,
    Errhandler,
)
from ckpt.mpi.base.errors import (
    ERROR_CLASSES,
    add_error_class,
    add_error_code,
    add_error_string,
    error_class,
    error_string,
    remove_error_class,
    remove_error_code,
    remove_error_string,
)
from ckpt.mpi.base.errors import MpiException as Exception
from ckpt.mpi.base.group import GROUP_EMPTY, GROUP_NULL, Group
from ckpt.mpi.base.info import INFO_ENV, INFO_NULL, Info
from ckpt.mpi.comm.comm_inter import Intercomm
from ckpt.mpi.comm.comm_topology import Cartcomm, Distgraphcomm, Graphcomm, Topocomm
from ckpt.mpi.comm.communicator import COMM_NULL, Comm, Intracomm
from ckpt.mpi.comm.communicator import self_of as _self_of
from ckpt.mpi.comm.communicator import world_of as _world_of
from ckpt.mpi.comm.message import MESSAGE_NO_PROC, MESSAGE_NULL, Message
from ckpt.mpi.comm.session import SESSION_NULL, Session
from ckpt.mpi.comm.unsupported import (
    Close_port,
    Lookup_name,
    Open_port,
    Publish_name,
    Unpublish_name,
)
from ckpt.mpi.datatypes.datatypes import DATATYPE_NULL, PREDEFINED, Datatype
from ckpt.mpi.datatypes.op import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    NO_OP,
    OP_NULL,
    PROD,
    REPLACE,
    SUM,
    Op,
)
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.datatypes.typenames import ALIASES, MISSING
from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.pickling import Pickle, pickle
from ckpt.mpi.environment import (
    Aint_add,
    Aint_diff,
    Alloc_mem,
    Attach_buffer,
    Compute_dims,
    Detach_buffer,
    Finalize,
    Flush_buffer,
    Free_mem,
    Get_abi_fortran_info,
    Get_abi_info,
    Get_abi_version,
    Get_address,
    Get_hw_resource_info,
    Get_library_version,
    Get_processor_name,
    Get_version,
    Iflush_buffer,
    Init,
    Init_thread,
    Is_finalized,
    Is_initialized,
    Is_thread_main,
    Pcontrol,
    Query_thread,
    Wtick,
    Wtime,
    _set_abort_status,
    get_vendor,
)
from ckpt.mpi.mpi4py_private import (
    _addressof,
    _comm_lock,
    _comm_lock_table,
    _commctx_inter,
    _commctx_intra,
    _datatype_create,
    _datatype_decode,
    _handleof,
    _sizeof,
    _typealign,
    _typecode,
)
from ckpt.mpi.requests.grequest import Grequest
from ckpt.mpi.requests.request import REQUEST_NULL, Prequest, Request

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine
    from ckpt.mpi.io.file import FILE_NULL, File
    from ckpt.mpi.io.properties import Register_datarep
    from ckpt.mpi.rma.window import WIN_NULL, Win

    COMM_WORLD: Intracomm
    COMM_SELF: Intracomm

Get_error_class = error_class
Get_error_string = error_string
Add_error_class = add_error_class
Add_error_code = add_error_code
Add_error_string = add_error_string
Remove_error_class = remove_error_class
Remove_error_code = remove_error_code
Remove_error_string = remove_error_string

SUCCESS = 0
globals().update(NUMBERS)
globals().update({name: number for name, number in ERROR_CLASSES.items() if name != "SUCCESS"})
globals().update({name[4:]: kind for name, kind in PREDEFINED.items() if name != "MPI_2INT"})
globals().update({name: PREDEFINED[f"MPI_{target}"] for name, target in ALIASES.items()})
globals().update(dict.fromkeys(MISSING, DATATYPE_NULL))

_typedict_c = {code: Datatype.fromcode(code) for code in "cbBhHiIlLqQfdgFDG?"}
_typedict_f: dict[str, Datatype] = {}
_typedict = {**_typedict_c, **_typedict_f}


def _engine() -> Engine:
    import ckpt

    engine = ckpt._runtime().engine
    assert engine is not None, "there are no communicators before"
    return engine


def _abort(exit_code: int) -> NoReturn:
    import ckpt

    ckpt._runtime().abort(exit_code)


def _ask(packet: dict[str, Any] | None) -> str | None:
    import ckpt

    return ckpt._runtime().spawn(packet)


worlds.provide(_engine, _abort, _ask)

_LAZY = (
    *("COMM_WORLD", "COMM_SELF", "WIN_NULL", "Win", "FILE_NULL", "File", "Register_datarep"),
    *("buffer", "memory"),
)


def __getattr__(name: str) -> Any:
    if name == "COMM_WORLD":
        return _world_of(_engine())
    if name == "COMM_SELF":
        return _self_of(_engine())
    if name in ("WIN_NULL", "Win"):
        from ckpt.mpi.rma import window

        return getattr(window, name)
    if name in ("FILE_NULL", "File"):
        from ckpt.mpi.io import file

        return getattr(file, name)
    if name == "Register_datarep":
        from ckpt.mpi.io import properties

        return properties.Register_datarep
    if name in ("buffer", "memory"):
        from ckpt.mpi.datatypes.memory import buffer_type

        return buffer_type()
    raise AttributeError(f"module 'MPI' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


__all__ = [name for name in [*globals(), *_LAZY] if not name.startswith("_") and name not in ("annotations",)]

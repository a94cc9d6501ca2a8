"""Errors of message passing: one exception type that carries an MPI error class.

    RuntimeError
     └─ MpiException          exported as MPI.Exception; `.error_class` is its MPI error class
         └─ PeerFailed        the peer of the operation has failed (ERR_PROC_FAILED)

Every error code is its own error class, except the codes that a program adds with `add_error_code`. The numbers are
those of MPICH; a program may rely on the names only. Wrong Python types (a string for a rank, an object without a
buffer) raise TypeError, ValueError or BufferError, as in mpi4py.
"""

from __future__ import annotations

from typing import Any

from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.process import ERROR_FIRST, process_state

_TABLE = (
    ("SUCCESS", 0, "No error"),
    ("ERR_BUFFER", 1, "Invalid buffer pointer"),
    ("ERR_COUNT", 2, "Invalid count"),
    ("ERR_TYPE", 3, "Invalid datatype"),
    ("ERR_TAG", 4, "Invalid tag"),
    ("ERR_COMM", 5, "Invalid communicator"),
    ("ERR_RANK", 6, "Invalid rank"),
    ("ERR_ROOT", 7, "Invalid root"),
    ("ERR_GROUP", 8, "Invalid group"),
    ("ERR_OP", 9, "Invalid reduction operation"),
    ("ERR_TOPOLOGY", 10, "Invalid topology"),
    ("ERR_DIMS", 11, "Invalid dimension argument"),
    ("ERR_ARG", 12, "Invalid argument"),
    ("ERR_UNKNOWN", 13, "Unknown error"),
    ("ERR_TRUNCATE", 14, "Message truncated"),
    ("ERR_OTHER", 15, "Other error"),
    ("ERR_INTERN", 16, "Internal error"),
    ("ERR_IN_STATUS", 17, "Error code is in status"),
    ("ERR_PENDING", 18, "Pending request"),
    ("ERR_REQUEST", 19, "Invalid request"),
    ("ERR_ACCESS", 20, "Permission denied"),
    ("ERR_AMODE", 21, "Invalid access mode"),
    ("ERR_BAD_FILE", 22, "Invalid file name"),
    ("ERR_CONVERSION", 23, "Error in data conversion"),
    ("ERR_DUP_DATAREP", 24, "Data representation already defined"),
    ("ERR_FILE_EXISTS", 25, "File exists"),
    ("ERR_FILE_IN_USE", 26, "File in use"),
    ("ERR_FILE", 27, "Invalid file"),
    ("ERR_INFO", 28, "Invalid info"),
    ("ERR_INFO_KEY", 29, "Invalid info key"),
    ("ERR_INFO_VALUE", 30, "Invalid info value"),
    ("ERR_INFO_NOKEY", 31, "Info key not defined"),
    ("ERR_IO", 32, "Input/output error"),
    ("ERR_NAME", 33, "Service name not published"),
    ("ERR_NO_MEM", 34, "Out of memory"),
    ("ERR_NOT_SAME", 35, "Arguments not identical on all ranks"),
    ("ERR_NO_SPACE", 36, "Not enough space"),
    ("ERR_NO_SUCH_FILE", 37, "No such file"),
    ("ERR_PORT", 38, "Invalid port"),
    ("ERR_QUOTA", 39, "Quota exceeded"),
    ("ERR_READ_ONLY", 40, "Read-only file"),
    ("ERR_SERVICE", 41, "Invalid service name"),
    ("ERR_SPAWN", 42, "Spawn failed"),
    ("ERR_UNSUPPORTED_DATAREP", 43, "Unsupported data representation"),
    ("ERR_UNSUPPORTED_OPERATION", 44, "Unsupported operation"),
    ("ERR_WIN", 45, "Invalid window"),
    ("ERR_BASE", 46, "Invalid base address"),
    ("ERR_LOCKTYPE", 47, "Invalid lock type"),
    ("ERR_KEYVAL", 48, "Invalid attribute key"),
    ("ERR_RMA_CONFLICT", 49, "Conflicting accesses to window"),
    ("ERR_RMA_SYNC", 50, "Wrong synchronization of RMA calls"),
    ("ERR_SIZE", 51, "Invalid size"),
    ("ERR_DISP", 52, "Invalid displacement"),
    ("ERR_ASSERT", 53, "Invalid assertion"),
    ("ERR_RMA_RANGE", 55, "Memory outside of window"),
    ("ERR_RMA_ATTACH", 56, "Memory cannot be attached"),
    ("ERR_RMA_SHARED", 57, "Memory cannot be shared"),
    ("ERR_RMA_FLAVOR", 58, "Wrong window flavor"),
    ("ERR_SESSION", 59, "Invalid session"),
    ("ERR_PROC_ABORTED", 60, "Process aborted"),
    ("ERR_VALUE_TOO_LARGE", 61, "Value too large"),
    ("ERR_ERRHANDLER", 62, "Invalid error handler"),
    ("ERR_PROC_FAILED", 71, "Process failed"),
    ("ERR_PROC_FAILED_PENDING", 72, "Pending operation may involve a failed process"),
    ("ERR_REVOKED", 73, "Communicator revoked"),
    ("ERR_ABI", 63, "Wrong binary interface"),
    ("ERR_LASTCODE", 0x3FFFFFFF, "Last error code"),
)

ERROR_CLASSES: dict[str, int] = {name: number for name, number, _ in _TABLE}
"""The number of each error class, by its name in MPI."""

_TEXTS: dict[int, str] = {number: text for _, number, text in _TABLE}
_NAMES: dict[int, str] = {number: name for name, number, _ in _TABLE}

SUCCESS = 0
ERR_BUFFER = 1
ERR_COUNT = 2
ERR_TYPE = 3
ERR_TAG = 4
ERR_COMM = 5
ERR_RANK = 6
ERR_ROOT = 7
ERR_GROUP = 8
ERR_OP = 9
ERR_TOPOLOGY = 10
ERR_DIMS = 11
ERR_ARG = 12
ERR_UNKNOWN = 13
ERR_TRUNCATE = 14
ERR_OTHER = 15
ERR_INTERN = 16
ERR_IN_STATUS = 17
ERR_PENDING = 18
ERR_REQUEST = 19
ERR_FILE = 27
ERR_IO = 32
ERR_NOT_SAME = 35
ERR_WIN = 45
ERR_BASE = 46
ERR_SPAWN = 42
ERR_LOCKTYPE = 47
ERR_KEYVAL = 48
ERR_RMA_SYNC = 50
ERR_SIZE = 51
ERR_DISP = 52
ERR_RMA_RANGE = 55
ERR_RMA_ATTACH = 56
ERR_RMA_SHARED = 57
ERR_RMA_FLAVOR = 58
ERR_UNSUPPORTED_OPERATION = 44
ERR_PROC_FAILED = 71
ERR_PROC_FAILED_PENDING = 72
ERR_REVOKED = 73


def error_string(code: int) -> str:
    """The text of an error code. MpiException (ERR_ARG): there is no such code."""
    code = argument(code)
    text = _TEXTS.get(code)
    if text is not None:
        return f"MPI_{_NAMES[code]}: {text}"
    if code in process_state().error_classes:
        return process_state().error_texts.get(code, "")
    raise MpiException(ERR_ARG, f"{code} is no error code")


def error_class(code: int) -> int:
    """The class of an error code; a class is its own class. MpiException (ERR_ARG): there is no such code."""
    code = argument(code)
    if code in _TEXTS:
        return code
    found = process_state().error_classes.get(code)
    if found is None:
        raise MpiException(ERR_ARG, f"{code} is no error code")
    return found


def add_error_class() -> int:
    """The number of a new error class for the program."""
    state = process_state()
    number = state.next_error
    state.next_error += 1
    state.error_classes[number] = number
    return number


def add_error_code(errorclass: int) -> int:
    """The number of a new error code in the class `errorclass`."""
    of = error_class(errorclass)
    number = add_error_class()
    process_state().error_classes[number] = of
    return number


def _own_error(code: int) -> int:
    code = argument(code)
    if code not in process_state().error_classes:
        raise MpiException(ERR_ARG, f"{code} is no error code of the program's own")
    return code


def add_error_string(errorcode: int, string: str) -> None:
    process_state().error_texts[_own_error(errorcode)] = string


def remove_error_string(errorcode: int) -> None:
    process_state().error_texts.pop(_own_error(errorcode), None)


def remove_error_class(errorclass: int) -> None:
    state = process_state()
    errorclass = _own_error(errorclass)
    users = [code for code, of in state.error_classes.items() if of == errorclass and code != errorclass]
    if users or state.error_classes[errorclass] != errorclass or errorclass in state.error_texts:
        raise MpiException(ERR_ARG, "the class has codes or a text, or is a code")
    _forget_error(errorclass)


def remove_error_code(errorcode: int) -> None:
    errorcode = _own_error(errorcode)
    if errorcode in process_state().error_texts:
        raise MpiException(ERR_ARG, "the code has a text")
    _forget_error(errorcode)


def _forget_error(code: int) -> None:
    state = process_state()
    del state.error_classes[code]
    while state.next_error > ERROR_FIRST and state.next_error - 1 not in state.error_classes:
        state.next_error -= 1


class MpiException(RuntimeError):
    """An MPI call failed. The exception compares and hashes like its error code."""

    error_code: int = SUCCESS
    diagnosis: dict[str, Any] | None = None
    """Of a rank that has failed with its host: the fault that was located there ("text", "hosts", "between", "faults",
    "suspects", as in the event `fault-located`); None: nothing was, or the rank has died alone."""

    def __init__(self, error_code: int = SUCCESS, detail: str = "") -> None:
        code = argument(error_code)
        super().__init__(code, detail) if detail else super().__init__(code)
        self.error_code = code if code >= SUCCESS else ERR_UNKNOWN
        self.detail = detail
        self.handled = False
        """Whether an error handler has been called with this exception."""
        self.where: Any = None
        """The state (CommShared) of the communicator where the error happened, for the choice of the error handler."""
        self.agreed: int | None = None
        """The value that the members agreed on although a member had failed. Comm.Agree sets it."""
        self.requests: tuple[int, ...] = ()
        """Indices of the requests that have failed. Calls on several requests set it, because they return no value
        when they raise."""

    @property
    def error_class(self) -> int:
        return error_class(self.error_code)

    @property
    def error_string(self) -> str:
        return error_string(self.error_code)

    def Get_error_code(self) -> int:
        return self.error_code

    def Get_error_class(self) -> int:
        return self.error_class

    def Get_error_string(self) -> str:
        return self.error_string

    def __str__(self) -> str:
        try:
            head = error_string(self.error_code)
        except MpiException:
            head = f"MPI error {self.error_code}"
        return f"{head}: {self.detail}" if self.detail else head

    def __repr__(self) -> str:
        return f"MPI.Exception({self.error_code})"

    def __int__(self) -> int:
        return self.error_code

    def __bool__(self) -> bool:
        return self.error_code != SUCCESS

    def __eq__(self, other: object) -> bool:
        return int(other) == self.error_code if isinstance(other, (MpiException, int)) else NotImplemented

    def __lt__(self, other: int | MpiException) -> bool:
        return self.error_code < int(other)

    def __le__(self, other: int | MpiException) -> bool:
        return self.error_code <= int(other)

    def __gt__(self, other: int | MpiException) -> bool:
        return self.error_code > int(other)

    def __ge__(self, other: int | MpiException) -> bool:
        return self.error_code >= int(other)

    def __hash__(self) -> int:
        return hash(self.error_code)


class PeerFailed(MpiException):
    """The operation's peer has failed (ERR_PROC_FAILED). A blocking call raises it; a request raises it on completion."""

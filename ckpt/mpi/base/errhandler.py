"""Error handlers: they decide what happens when a call on an object fails (MPI standard, "Error handling").

    ERRORS_RETURN                    the call raises MPI.Exception; the default for every object, as in mpi4py
    ERRORS_ARE_FATAL, ERRORS_ABORT   the job ends
    a handler made by the program    is called with the object and the error code; then the call raises MPI.Exception

Not here: the calls of handlers when a call of the program fails (requests/handling.py, comm/guard.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from ckpt.mpi.base.errors import ERR_ARG, ERROR_CLASSES, SUCCESS, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument
from ckpt.mpi.base.process import process_state

HANDLERS_MAX = 32
"""Number of handlers that a program may make for one kind of object, as in mpi4py."""


class Errhandler(Handle):
    """An error handler: its kind ("return", "abort", "fatal", "user-Comm" …) and the program's function, if any.

    `bool(handler)` is False for the null handler."""

    __slots__ = ("__weakref__", "_kind", "_target")
    _constants: ClassVar[tuple[str, ...]] = (
        "ERRHANDLER_NULL",
        "ERRORS_RETURN",
        "ERRORS_ABORT",
        "ERRORS_ARE_FATAL",
    )

    _kind: str
    _target: Callable[[Any, int], Any] | None

    def __new__(cls, errhandler: Errhandler | None = None) -> Self:
        expect(cls, errhandler, Errhandler)
        self = super().__new__(cls)
        self._kind = "" if errhandler is None else errhandler._kind
        self._target = None if errhandler is None else errhandler._target
        return self

    @classmethod
    def _make(cls, kind: str, target: Callable[[Any, int], Any] | None = None) -> Errhandler:
        handler = cls()
        handler._kind = kind
        handler._target = target
        return handler

    def __bool__(self) -> bool:
        return bool(self._kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Errhandler):
            return NotImplemented
        return self._kind == other._kind and self._target is other._target

    def __reduce__(self) -> Any:
        name = self._named()
        if name is not None:
            return name
        for constant in (ERRHANDLER_NULL, ERRORS_RETURN, ERRORS_ABORT, ERRORS_ARE_FATAL):
            if self == constant:
                return type(self), (constant,)
        raise ValueError("cannot pickle a user-defined error handler")

    def Free(self) -> None:
        if not self:
            raise MpiException(ERROR_CLASSES["ERR_ERRHANDLER"], "the handler is null")
        if self._target is not None:
            made = process_state().interned.get(("errhandlers", self._kind))
            if made:
                made.discard(id(self._target))
        self._kind = ""
        self._target = None


ERRHANDLER_NULL = Errhandler()
ERRORS_RETURN = Errhandler._make("return")
ERRORS_ABORT = Errhandler._make("abort")
ERRORS_ARE_FATAL = Errhandler._make("fatal")


class HasErrhandler:
    """Mixin for objects that have an error handler."""

    __slots__ = ()

    def _errhandler_slot(self) -> Any:
        """The object whose attribute `errhandler` holds the handler. Raises MpiException for the null object."""
        raise NotImplementedError

    def _fatal(self, code: int) -> None:
        raise MpiException(code, "error handler: fatal")

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[[Any, int], None]) -> Errhandler:
        """A handler that calls `errhandler_fn(object, error code)`. RuntimeError: HANDLERS_MAX handlers exist."""
        kind = "user-" + getattr(cls, "_errhandler_kind", cls.__name__)
        made = process_state().interned.setdefault(("errhandlers", kind), set())
        if len(made) >= HANDLERS_MAX:
            raise RuntimeError(f"cannot create more than {HANDLERS_MAX} user-defined error handlers")
        made.add(id(errhandler_fn))
        return Errhandler._make(kind, errhandler_fn)

    def Get_errhandler(self) -> Errhandler:
        handler: Errhandler | None = self._errhandler_slot().errhandler
        return Errhandler(ERRORS_RETURN if handler is None else handler)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        slot = self._errhandler_slot()
        if not errhandler:
            raise MpiException(ERR_ARG, "the error handler is null")
        slot.errhandler = Errhandler(errhandler)

    def Call_errhandler(self, errorcode: int) -> None:
        """Call the object's handler with an error code. No effect under ERRORS_RETURN."""
        errorcode = argument(errorcode)
        handler: Errhandler | None = self._errhandler_slot().errhandler
        if handler is None:
            return
        if handler._target is not None:
            handler._target(self, errorcode)
        elif handler._kind in ("abort", "fatal") and errorcode != SUCCESS:
            self._fatal(errorcode)

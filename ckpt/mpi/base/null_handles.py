"""The null object `NULL_PART`: a null or freed communicator has it in place of its engine, group, rank and routes.

Every use of `NULL_PART` raises NullCommunicator: reading an attribute, calling, indexing, converting to a number, comparing.
So the methods of a communicator need not test whether the communicator is null. The alternative, a `__getattr__` in the
communicator's class, would make every attribute lookup on every communicator several times slower.

A method that returns such a part unchanged (`Get_rank`) must use the part once before, so that it raises. To ask whether a
communicator is null, compare by identity: `comm._shared is NULL_PART`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ckpt.mpi.base.errors import ERR_COMM, MpiException


class NullCommunicator(MpiException, AttributeError):
    """A null communicator was used (ERR_COMM). It is an AttributeError too, so that `hasattr` returns False."""


def _refuse(*args: Any) -> NoReturn:
    raise NullCommunicator(ERR_COMM, "the communicator is null or freed")


class NullPart:
    """The class of `NULL_PART`."""

    __slots__ = ()

    __getattr__ = __setattr__ = __delattr__ = __call__ = __enter__ = __exit__ = _refuse
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = _refuse
    __bool__ = __int__ = __index__ = __float__ = __pos__ = __neg__ = __invert__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __floordiv__ = __rfloordiv__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse

    def __reduce__(self) -> str:
        return "NULL_PART"  # pickled by name: the restored process has one NULL_PART, too


NULL_PART: Any = NullPart()

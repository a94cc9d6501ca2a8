"""What a null or freed communicator has in place of its engine, its group, its rank and its routes.

Every use of `NOTHING` raises NullCommunicator: an attribute, a call, an index, a number, a comparison. So the methods
of a communicator need no look whether it is null, and its class no `__getattr__`, which would make every attribute and
method that Python looks up on any communicator several times as dear. What hands a part out as it is has to use it first
(`Get_rank`). Whether a communicator is null is asked by identity: `comm._shared is NOTHING`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ckpt.mpi.base.errors import ERR_COMM, MpiException


class NullCommunicator(MpiException, AttributeError):
    """A call on the null communicator: ERR_COMM, and a missing attribute to Python itself."""


def _refuse(*args: Any) -> NoReturn:
    raise NullCommunicator(ERR_COMM, "the communicator is null or freed")


class Nothing:
    """The class of `NOTHING`."""

    __slots__ = ()

    __getattr__ = __setattr__ = __delattr__ = __call__ = __enter__ = __exit__ = _refuse
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = _refuse
    __bool__ = __int__ = __index__ = __float__ = __pos__ = __neg__ = __invert__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __floordiv__ = __rfloordiv__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse

    def __reduce__(self) -> str:
        return "NOTHING"  # there is one: also in an image


NOTHING: Any = Nothing()

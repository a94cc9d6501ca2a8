"""The only module that uses dill: dill's savers give reduce tuples for the C pickler.

dill can save types that no other library can (capsules, thread handles, parts of ctypes, …). Its savers are functions
``save_x(pickler, obj)`` that call ``pickler.save_reduce(callable, args, state, …, obj=obj)`` on a pickler written in Python.
:func:`reduce` gives such a saver a stand-in for the pickler, which writes nothing and keeps the arguments of that call; the
C pickler then saves them. A saver that writes opcodes itself, or saves several objects, cannot be used in this way.

Importing dill (30 ms) adds entries to the table of the pickler that is written in Python; they are removed again. dill
is imported only when the pickler meets the first such object.
"""

from __future__ import annotations

from typing import Any

from ckpt.compat.stdlib import python_pickler

__all__ = ["reduce"]


class _NotOneReduce(Exception):
    """The saver does more than one ``save_reduce``."""


class _StandIn:
    """The attributes of a pickler that savers of dill read. ``reduced``: the arguments of ``save_reduce``."""

    proto = 5
    bin = True
    fast = False
    _byref = False
    _recurse = False
    _ignore = False
    _strictio = False
    _fmode = 0
    _session = False

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}
        self._postproc: dict[int, Any] = {}
        self._main = None
        self.reduced: tuple[Any, ...] | None = None

    def save_reduce(
        self,
        func: Any,
        args: Any,
        state: Any = None,
        listitems: Any = None,
        dictitems: Any = None,
        state_setter: Any = None,
        *,
        obj: Any = None,
    ) -> None:
        if self.reduced is not None:
            raise _NotOneReduce
        self.reduced = (func, args, state, listitems, dictitems, state_setter)

    def save(self, *_: Any, **__: Any) -> None:
        raise _NotOneReduce

    write = memoize = save


def reduce(obj: Any) -> tuple[Any, ...] | None:
    """The reduce tuple for ``obj`` (as of ``__reduce_ex__``) from dill's saver; ``None``: dill has no saver that can be
    used.
    """
    saver = _savers().get(type(obj))
    if saver is None:
        return None
    stand_in = _StandIn()
    try:
        saver(stand_in, obj)
    except (_NotOneReduce, AttributeError):
        return None
    return stand_in.reduced


def _savers() -> dict[type, Any]:
    dispatch = python_pickler().dispatch
    before = dict(dispatch)
    import dill

    dispatch.clear()
    dispatch.update(before)
    savers: dict[type, Any] = dill.Pickler.dispatch
    return savers

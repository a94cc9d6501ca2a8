"""The one place that uses dill: its savers, asked for a reduce tuple.

dill knows how to save objects that nobody else does (capsules, thread handles, ctypes pieces, …), as
functions ``save_x(pickler, obj)`` that call ``pickler.save_reduce(callable, args, state, …, obj=obj)`` on a
pickler written in Python. :func:`reduce` hands such a function a stand-in that writes nothing and keeps the
arguments of that call, so that the C pickler does the work. A saver that writes opcodes itself, or saves
several objects, cannot be used this way: ``None``.

Importing dill (30 ms) adds entries to ``pickle._Pickler.dispatch``; they are taken out again. It is imported
when the first such object is met, not before.
"""

from __future__ import annotations

from typing import Any

__all__ = ["reduce"]


class _NotOneReduce(Exception):
    """The saver does more than one ``save_reduce``."""


class _StandIn:
    """As much of a pickler as a saver of dill may look at."""

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
    """What ``obj.__reduce_ex__`` would return if it could, as dill knows it; ``None`` where it does not."""
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
    import pickle

    dispatch = pickle._Pickler.dispatch
    before = dict(dispatch)
    import dill

    dispatch.clear()
    dispatch.update(before)
    savers: dict[type, Any] = dill.Pickler.dispatch
    return savers

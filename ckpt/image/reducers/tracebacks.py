"""Tracebacks in an image: every entry with its file, function and line, none with the variables of its frame.

A kept exception, and one that is being handled, is printed after a restart as it would have been before. The frames that its
entries show are new ones, made of code and globals only: what their variables held is not saved (they may be anything, and
keep anything alive), so ``f_locals`` is empty and ``f_back`` is ``None``.

CPython makes such frames for anyone who asks (``PyFrame_New``), but has no name for it in Python.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["make_traceback", "reduce_traceback"]

Entry = tuple[types.CodeType, dict[str, Any], int, int]


def reduce_traceback(pickler: Saver, traceback: types.TracebackType) -> Any:
    """One call for the whole chain, so that a long one costs no depth. Parts of it that others hold become copies."""
    entries: list[Entry] = []
    entry: types.TracebackType | None = traceback
    while entry is not None:
        frame = entry.tb_frame
        entries.append((frame.f_code, frame.f_globals, entry.tb_lasti, entry.tb_lineno))
        entry = entry.tb_next
    return make_traceback, (entries,)


def make_traceback(entries: list[Entry]) -> types.TracebackType | None:
    """The chain of tracebacks, outermost first, with frames that have no variables."""
    made = None
    for code, namespace, instruction, line in reversed(entries):
        made = types.TracebackType(made, _frame(code, namespace), instruction, line)
    return made


def _frame(code: types.CodeType, namespace: dict[str, Any]) -> types.FrameType:
    import ctypes

    new, here = ctypes.pythonapi.PyFrame_New, ctypes.pythonapi.PyThreadState_Get
    new.argtypes, new.restype = (ctypes.c_void_p, *[ctypes.py_object] * 3), ctypes.py_object
    here.restype = ctypes.c_void_p
    frame: types.FrameType = new(here(), code, namespace, {})
    return frame

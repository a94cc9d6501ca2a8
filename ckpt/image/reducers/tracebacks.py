"""Tracebacks: every entry is saved with its file, function and line, but without the variables of its frame.

So an exception that the program keeps or handles is printed after a restart as before. The frames of its entries are new,
made of code and globals only. Their variables are not saved, because they may be of any type, and keep any object alive; so
``f_locals`` is empty and ``f_back`` is ``None``.

Not here: how such a frame is made (:func:`ckpt.compat.memory.new_frame`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ckpt.compat.memory import new_frame

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["make_traceback", "reduce_traceback"]

Entry = tuple[types.CodeType, dict[str, Any], int, int]


def reduce_traceback(pickler: Saver, traceback: types.TracebackType) -> Any:
    """The reduce tuple is one call for the whole chain, so that a long chain needs no recursion. If another object holds a
    later part of the chain, that part becomes a copy.
    """
    entries: list[Entry] = []
    entry: types.TracebackType | None = traceback
    while entry is not None:
        frame = entry.tb_frame
        entries.append((frame.f_code, frame.f_globals, entry.tb_lasti, entry.tb_lineno))
        entry = entry.tb_next
    return make_traceback, (entries,)


def make_traceback(entries: list[Entry]) -> types.TracebackType | None:
    """The chain of tracebacks for ``entries`` (outermost first), with frames that have no variables; None for no entries."""
    made = None
    for code, namespace, instruction, line in reversed(entries):
        made = types.TracebackType(made, new_frame(code, namespace), instruction, line)
    return made

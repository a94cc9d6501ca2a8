"""Functions that have another code than the one a frame of theirs runs.

A program may give a function another ``__code__`` while it runs, and libraries do that: functions that compile themselves
when they are called first, tracers. And what is saved by reference has, in a new process, the code it was imported with.
So a frame is saved with its code, and is entered by its function only where that has the same.

Not here: whether such a frame can be captured (`stack`).
"""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import Any

__all__ = ["entered"]


def entered(func: FunctionType, code: CodeType, variables: list[Any]) -> FunctionType:
    """The function that a frame of that code and with these variables is entered by: func, or a stand-in for it."""
    if func.__code__ is code or func.__code__ == code:
        return func
    cells = variables[len(variables) - len(code.co_freevars) :]
    closure = tuple(cell if type(cell) is CellType else CellType() for cell in cells)
    return FunctionType(code, func.__globals__, code.co_name, None, closure)

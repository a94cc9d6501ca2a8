"""Functions whose ``__code__`` is not the code that a running frame of theirs executes.

A program may give a function another ``__code__`` while the function runs; libraries do that, for example functions that
compile themselves at their first call, and tracers. And in a new process, a function that is saved by reference has the code
with which it was imported. So a frame is saved with its own code. At a restart the frame is entered by its function if the
function has that code, else by a function that is made for the frame.

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

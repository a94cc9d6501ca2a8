"""What a program has set in libraries, which keep it in tables of their own: no variable of the program holds it.

Noted in the child, as values that may hold objects of the program; put back when all modules are loaded. Only
libraries that the program has imported are looked at. What it is, each library says
(:meth:`ckpt.image.interface.library.Library.note_settings`).

Not here: state that belongs to the process (:mod:`ckpt.image.process.resources`), loggers (:mod:`ckpt.image.reducers.logs`).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ckpt.image.interface.registry import libraries

__all__ = ["apply_ambient", "note_ambient", "quiet"]


def note_ambient() -> dict[str, Any]:
    """Library → what is set in it; libraries in which nothing can be set, or nothing is, are left out."""
    noted = {library.name: library.note_settings() for library in libraries.loaded()}
    return {name: value for name, value in noted.items() if value}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings meanwhile: the program may be collecting them, and would find ours among its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def apply_ambient(saved: dict[str, Any]) -> None:
    """Raises RestoreError where what has noted a library's settings is not installed here."""
    for name, value in saved.items():
        libraries.require(name).apply_settings(value)

"""Settings of libraries: a program has set them, and the libraries keep them in tables of their own.

The settings are noted in the child, as values that may hold objects of the program, and restored when all modules are
loaded. Only libraries that the program has imported are asked. Each library says which settings it has
(:meth:`ckpt.image.interface.library.Library.note_settings`).

Not here: state that belongs to the process (:mod:`ckpt.image.process.resources`), loggers (:mod:`ckpt.image.reducers.logs`).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ckpt.image.interface.registry import libraries

__all__ = ["apply_library_settings", "note_library_settings", "warnings_ignored"]


def note_library_settings() -> dict[str, Any]:
    """Name of a library → its settings; libraries without settings are left out."""
    noted = {library.name: library.note_settings() for library in libraries.loaded()}
    return {name: value for name, value in noted.items() if value}


@contextlib.contextmanager
def warnings_ignored() -> Iterator[None]:
    """A context in which warnings are ignored: the program may be collecting warnings, and would also get those of ckpt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def apply_library_settings(saved: dict[str, Any]) -> None:
    """Restore the settings. Raises RestoreError: the distribution that has noted a library's settings is not installed
    here."""
    for name, value in saved.items():
        libraries.require(name).apply_settings(value)

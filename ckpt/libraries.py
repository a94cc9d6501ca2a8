"""The names that a distribution needs to say how images treat a library: :class:`Library` and others (docs/extending.md)."""

from __future__ import annotations

from ckpt.image.errors import RestoreError, Unpicklable
from ckpt.image.interface.library import InPlace, Library, Reducer, by_name, later

__all__ = ["InPlace", "Library", "Reducer", "RestoreError", "Unpicklable", "by_name", "later"]

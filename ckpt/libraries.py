"""What a distribution needs that says how images treat a library: :class:`Library` (docs/extending.md)."""

from __future__ import annotations

from ckpt.image.errors import RestoreError, Unpicklable
from ckpt.image.interface.library import InPlace, Library, Reducer, by_name, later

__all__ = ["InPlace", "Library", "Reducer", "RestoreError", "Unpicklable", "by_name", "later"]

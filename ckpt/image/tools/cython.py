"""Cython: generators of modules that Cython has compiled. Libraries use such generators to iterate over their columns.

Each version of Cython has its own type for them, in a module that it makes (``_cython_3_1_2``). A generator is saved as an
iterator over its remaining items.
"""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.stdlib.c_objects import reduce_remaining

__all__ = ["Cython"]


class Cython(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        return (
            reduce_remaining
            if cls.__name__ == "generator" and cls.__module__.startswith("_cython_")
            else None
        )

"""Cython: generators of the modules that it has compiled. Libraries iterate over their columns by them.

Each version of Cython has a type of its own for them, in a module that it makes (``_cython_3_1_2``). A generator is saved as
the items that it would still have given.
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

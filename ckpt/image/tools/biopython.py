"""Biopython: the alignments that an aligner has found, of which the paths are listed one by one by an object in C.

The object tells neither its matrix nor its place. In the forked child that writes the image it is asked for all paths that
are left, and then for all of them. Two sequences may have more alignments than any memory holds, so there is a limit.
"""

from __future__ import annotations

import itertools
from pickle import PicklingError
from typing import Any

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.iterators import by_exhausting

__all__ = ["Biopython", "Paths", "reduce_paths"]

_MOST_PATHS = 10_000


class Biopython(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        return reduce_paths if (cls.__module__, cls.__name__) == ("builtins", "Path generator") else None


class Paths:
    """What a list of paths does in Biopython's ``PairwiseAlignments``, from the ``place`` on."""

    def __init__(self, paths: list[Any], place: int) -> None:
        self.paths, self.place = paths, place

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Paths:
        return self

    def __next__(self) -> Any:
        if self.place == len(self.paths):
            raise StopIteration
        self.place += 1
        return self.paths[self.place - 1]

    def reset(self) -> None:
        self.place = 0


def reduce_paths(saver: Any, paths: Any) -> Any:
    """The reducer for the object in C. Raises PicklingError."""
    if not saver.is_disposable:
        raise PicklingError("alignments of Biopython cannot be saved without fork")
    if _count(paths) > _MOST_PATHS:
        raise PicklingError(
            f"more than {_MOST_PATHS} alignments of Biopython, which are found one by one: keep those that are needed "
            "(alignments[0]) and drop the object that lists them"
        )
    left, everything = by_exhausting(paths, _listed)
    return Paths, (everything, len(everything) - len(left))


def _count(paths: Any) -> int:
    try:
        return len(paths)
    except OverflowError:  # more than an index can count
        return _MOST_PATHS + 1


def _listed(paths: Any) -> tuple[list[Any], list[Any]]:
    left = list(paths)
    paths.reset()
    return left, list(itertools.islice(paths, _MOST_PATHS))

"""os.scandir: directories that are being read, by ``os.walk``, ``glob`` and ``pathlib`` too, and their entries.

An iterator of ``os.scandir`` does not show what it has still to return, so the forked child reads its own copy to the
end. It can do so because ``_frames.fork`` gives the child an open file description of its own for each directory;
what the C library has read ahead is in the child's memory. After a restart a stand-in (:class:`Entries`) returns the
remaining entries, in the same order. Nothing is read again then: what is made in the directory later is not seen, as
with entries that were read ahead.

An entry (``os.DirEntry``) keeps all that it knows: name, path, type, inode, and the results of ``stat`` that it has
asked for. So it comes back as it was, also if its file is gone by then, which is what a program must expect of
entries anyhow.

Refused by name: an iterator in an image that is written without fork, because reading it would use it up.
"""

from __future__ import annotations

import os
from pickle import PicklingError
from typing import Any

from ckpt.compat.memory import EntryState, entry_state, make_entry
from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.iterators import by_exhausting

__all__ = ["Directories", "Entries", "reduce_entry", "reduce_iterator", "remake_entry"]


class Directories(Library):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        with self.module.scandir("/") as iterator:  # its type has no name
            self._iterator_type = type(iterator)

    def reducers(self) -> dict[type, Reducer]:
        return {self._iterator_type: reduce_iterator, **by_name(self.name, {"DirEntry": reduce_entry})}


class Entries:
    """Stands for an iterator of ``os.scandir``, with the entries that it had still to return."""

    __slots__ = ("_remaining",)

    def __init__(self, remaining: list[os.DirEntry[Any]]) -> None:
        self._remaining = iter(remaining)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._remaining)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._remaining = iter([])


def reduce_iterator(pickler: Any, iterator: Any) -> Any:
    if not pickler.is_disposable:
        raise PicklingError(
            "a directory that is being read (os.scandir, os.walk, glob, pathlib) cannot be saved without fork; use "
            "--image-mode fork, or read the entries into a list first"
        )
    remaining, closed = by_exhausting(iterator, _read_to_end)
    pickler.owned.update(closed)  # no number of the program: nothing opens it again
    return Entries, (remaining,)


def _read_to_end(iterator: Any) -> tuple[list[os.DirEntry[Any]], list[int]]:
    """The remaining entries, and the descriptor of the directory, which the iterator closes at its end."""
    before = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd)]
    try:
        remaining = list(iterator)
    except OSError as failure:
        raise PicklingError(
            f"a directory that is being read (os.scandir) could not be read to its end: {failure.strerror}"
        ) from failure
    return remaining, [fd for fd in before if not _is_open(fd)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def reduce_entry(pickler: Any, entry: os.DirEntry[Any]) -> Any:
    state = entry_state(entry)
    if state is None:
        raise PicklingError("an os.DirEntry has another layout in this Python than is known: keep its path")
    return remake_entry, (type(entry), state)


# ---------------------------------------------------------------------- called while loading


def remake_entry(cls: type, state: EntryState) -> Any:
    entry = make_entry(cls, state)
    if entry is None:
        raise RestoreError("an os.DirEntry has another layout in this Python than in that of the image")
    return entry

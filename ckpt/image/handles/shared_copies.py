"""Memory that a program shares with its child processes is copied for an image, so that a forked copy can write the image.

A forked copy has the same shared memory as the program, which goes on, and changes it. So the memory is copied while all
threads of the program stand still (:meth:`Copies.copy_out`), and in the forked copy the copies take its place, at the same
addresses (:meth:`Copies.put_in_place`): whatever lies over that memory (arrays, objects of ctypes) is saved as it was.

Child processes do not stand still. The tasks that a pool has not answered are done again after a restart, and a task that
has changed this memory would change it a second time, without a word. So there is no image while child processes are at work
(:func:`note_idle_workers`): one is taken when all results have come. Where workers get work ahead of need, that moment would
never come: whoever gives it holds it back while an image waits (:func:`is_image_waiting`).

Up to :data:`MOST_BYTES` are copied, and a quarter of the memory that this process can still get: where a program shares
more, the image is written without a fork (:mod:`ckpt.capture.choice`).

Used for the memory of ``multiprocessing`` (:mod:`ckpt.image.handles.shared_heap`, :mod:`ckpt.image.handles.shared_memory`)
and for mapped files (:mod:`ckpt.image.handles.file_maps`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ckpt.compat import children
from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library
from ckpt.image.stdlib import mapped
from ckpt.transport.wires.crossmemory import address_of

__all__ = [
    "MOST_BYTES",
    "CopiedMaps",
    "Copies",
    "are_children_at_work",
    "copy_of",
    "is_image_waiting",
    "note_idle_workers",
    "note_image_over",
    "put_in_place",
    "there_is_room",
]

MOST_BYTES = 1 << 30
_SHARE = 4
_MREMAP_MAYMOVE_FIXED = 1 | 2
_AT_WORK = (
    "child processes are at work (tasks of a pool, workers of a DataLoader), and may change memory that they share with the "
    "program (multiprocessing.Value, Array, shared_memory): after a restart they would change it once more. A checkpoint "
    "waits until all of their results have come"
)
_WAITS_S = 5.0
_askers: list[Callable[[], Iterable[Any]]] = []
_refused_at: float | None = None
"""When an image was refused for the last time because child processes are at work; None: it has been taken since."""


def note_idle_workers(idle: Callable[[], Iterable[Any]]) -> None:
    """``idle()``: the processes that are workers of pools of some kind and have no work: all results have come."""
    _askers.append(idle)


def are_children_at_work() -> bool:
    """Then memory that they share with the program cannot be part of an image."""
    global _refused_at
    started = {id(each) for each in children.children_started()}
    if not started or not started - {id(each) for idle in _askers for each in idle()}:
        return False
    _refused_at = time.monotonic()
    return True


def is_image_waiting() -> bool:
    """Does an image wait until child processes have no work? It is looked for again and again, until it is given up."""
    return _refused_at is not None and time.monotonic() - _refused_at < _WAITS_S


def note_image_over() -> None:
    """The image has been taken."""
    global _refused_at
    _refused_at = None


def there_is_room(nbytes: int, left: int | None) -> bool:
    """May so much be copied? ``left``: bytes of memory that this process can still get; None: nobody knows."""
    return nbytes <= MOST_BYTES and (left is None or nbytes <= left // _SHARE)


def copy_of(memory: Any) -> mmap.mmap:
    """A copy that can take the place of this memory in a forked copy of the program."""
    copy = mmap.mmap(-1, len(memory), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    copy[:] = memory
    return copy


def put_in_place(copies: Iterable[tuple[int, mmap.mmap]]) -> None:
    """In a forked copy of the program: copies take the place of the memory at these addresses. Raises Unpicklable."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
    )
    for address, copy in copies:
        nbytes = -(-len(copy) // mmap.PAGESIZE) * mmap.PAGESIZE
        moved = libc.mremap(address_of(copy), nbytes, nbytes, _MREMAP_MAYMOVE_FIXED, address)
        if moved != address:
            raise Unpicklable(
                "shared memory", f"its copy cannot be put in its place: {os.strerror(ctypes.get_errno())}"
            )


class Copies:
    """The mappings of one kind, and their copies for one image. ``map_of(owner)``: the mapping of an object that was told of
    (:meth:`note`); None: it has none any more. ``has_names``: files with a name are mapped. ``is_in_use(owner)``: has the
    program something in that mapping?"""

    def __init__(
        self,
        map_of: Callable[[Any], Any],
        *,
        has_names: bool,
        is_in_use: Callable[[Any], bool] = lambda owner: True,
    ) -> None:
        self._map_of = map_of
        self._is_in_use = is_in_use
        self._has_names = has_names
        self._owners: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._copies: dict[int, tuple[Any, Any]] = {}
        """Address → the copy, and the place in the file system of what it is a copy of (:func:`mapped.place_of`)."""

    def note(self, owner: Any) -> None:
        self._owners[id(owner)] = owner

    def _present(self) -> list[Any]:
        """The program may make others meanwhile."""
        return [owner for reference in self._owners.valuerefs() if (owner := reference()) is not None]

    def reason_now(self) -> str | None:
        """Why this memory cannot be part of an image now; None: it can."""
        is_shared = any(
            self._is_in_use(owner) and self._map_of(owner) is not None for owner in self._present()
        )
        return _AT_WORK if is_shared and are_children_at_work() else None

    def _maps(self) -> dict[int, Any]:
        """Address → mapping."""
        owners = self._present()
        maps = [each for owner in owners if (each := self._map_of(owner)) is not None and not each.closed]
        return {address_of(each): each for each in maps}

    def addresses(self) -> Collection[int]:
        """Those of the mappings that are to be copied."""
        maps = self._maps()
        return maps if sum(map(len, maps.values())) <= MOST_BYTES else ()

    def copy_out(self, available: Callable[[], int | None]) -> None:
        """In the program, whose threads stand still. What cannot be copied is left out: an image without fork has it.
        Raises Unpicklable: tasks are at work."""
        if reason := self.reason_now():
            raise Unpicklable("shared memory", reason)
        self._copies, found = {}, self._maps()
        if not there_is_room(sum(map(len, found.values())), available()):
            return
        for address, each in found.items():
            self._copies[address] = (
                copy_of(memoryview(each)),
                mapped.place_of(each) if self._has_names else None,
            )

    def put_in_place(self) -> None:
        """In a forked copy of the program. Raises Unpicklable."""
        put_in_place((address, copy) for address, (copy, _) in self._copies.items())
        for address, (_, place) in self._copies.items():
            mapped.note_copied(address, place)


class CopiedMaps(Library):
    """A library of which the objects that `copies` is told of share memory with child processes."""

    moment_limit_s = 60.0
    copies: Copies

    def reason_now(self, values: Iterable[Any]) -> str | None:
        return self.copies.reason_now()

    def copied_maps(self) -> Collection[int]:
        return self.copies.addresses()

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        self.copies.copy_out(available)

    def before_saving(self, *, is_disposable: bool) -> None:
        if is_disposable:
            self.copies.put_in_place()

    def let_copies_go(self) -> None:
        note_image_over()

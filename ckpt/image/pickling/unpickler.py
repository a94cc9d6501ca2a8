"""The unpickler of images: C's ``pickle.Unpickler``, with the persistent ids of :mod:`ckpt.image.pickling.pickler`.

Strings that were interned are interned again (``sys.intern``), in C: there are many. All other persistent ids are tuples.

Not here: what is done with the objects (:mod:`ckpt.image.loading`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from ckpt.image.lowlevel import _lookup, keyed
from ckpt.image.modules import held_locks, package_restore
from ckpt.image.modules.references import resolve
from ckpt.image.pickling.containers import Filler
from ckpt.image.reducers import iterators

__all__ = ["ImageUnpickler", "PersistentIds"]

Buffer = bytes | bytearray | memoryview


class PersistentIds:
    """What persistent ids stand for. ``live``: name → object of this process, for objects saved by name."""

    def __init__(self, live: Mapping[str, object]) -> None:
        self._live = live
        keyed.begin()
        self._filler = Filler()
        self._locks = held_locks.LockFinder()

    def load(self, pid: tuple[Any, ...]) -> object:
        if pid[0] == "fill" or pid[0] == "again":
            return self._filler.load(pid)
        if pid[0] == "lib":
            return package_restore.resolve(pid[1:])
        if pid[0] == "held":
            return self._locks.find(pid)
        return resolve(pid, self._live)

    def finish(self) -> None:
        """Everything has been loaded: fill the containers and iterators that had to wait."""
        iterators.finish(keyed.finish())


class ImageUnpickler(pickle.Unpickler):
    """Loads what :class:`ckpt.image.pickling.pickler.ImagePickler` has written. Only for authenticated images, because
    loading an image runs its code. ``live``: see :class:`PersistentIds`."""

    def __init__(
        self,
        stream: BinaryIO,
        buffers: Iterable[Buffer],
        live: Mapping[str, object],
        ids: Callable[[Mapping[str, object]], PersistentIds] = PersistentIds,
    ) -> None:
        self._ids = ids(live)
        self.persistent_load = _lookup.Resolver(self._ids.load)  # type: ignore[method-assign]
        super().__init__(stream, buffers=buffers)

    def finish(self) -> None:
        """See :meth:`PersistentIds.finish`."""
        self._ids.finish()

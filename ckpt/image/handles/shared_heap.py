"""``multiprocessing.heap``: the memory of ``Value``, ``Array``, ``RawValue`` and ``RawArray``, shared with child processes.

It consists of arenas, each a file without a name that is mapped. A new process makes such a file again, under the same
number, with the content of then (:mod:`ckpt.image.handles.shared_copies`), and its child processes share it.
"""

from __future__ import annotations

from typing import Any

from ckpt.compat import children
from ckpt.image.errors import ObjectRefused
from ckpt.image.handles.shared_copies import CopiedMaps, Copies
from ckpt.image.interface.library import Reducer, by_name
from ckpt.image.reducers import rebuild
from ckpt.image.stdlib import mapped

__all__ = ["SharedHeap", "fill_arena"]

_arenas = Copies(lambda arena: children.map_of_arena(arena)[1], has_names=False, is_in_use=children.is_in_use)


class SharedHeap(CopiedMaps):
    """multiprocessing.heap"""

    copies = _arenas

    def when_imported(self) -> None:
        children.follow_instances(self.module.Arena, _arenas.note)

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {"Arena": reduce_arena})


def reduce_arena(saver: Any, arena: Any) -> Any:
    fd, buffer = children.map_of_arena(arena)
    if fd < 0 or not mapped.is_copied(buffer):
        raise ObjectRefused(
            arena,
            "the memory of a multiprocessing.Value or Array can be saved with fork only, and up to 1 GiB of it",
        )
    saver.owned.add(fd)
    return rebuild.make_instance, (type(arena),), (fd, buffer), None, None, fill_arena


# ---------------------------------------------------------------------- called while loading


def fill_arena(arena: Any, state: tuple[int, Any]) -> None:
    number, buffer = state
    children.fill_arena(arena, mapped.put_under(buffer, number), buffer)
    _arenas.note(arena)

"""multiprocessing.shared_memory: blocks of memory with a name, which several processes use.

A block is a file in ``/dev/shm`` that is mapped, so its memory is saved as every mapping is
(:mod:`ckpt.image.stdlib.mapped`); where a forked copy writes the image, what was copied before the fork
(:mod:`ckpt.image.handles.shared_copies`). When the program is killed, multiprocessing's resource tracker removes the
block; a restart makes it again under its name, with its content. A block that still exists gets the content that it had at
the checkpoint. Then it is registered with the resource tracker of the new process.
"""

from __future__ import annotations

from typing import Any

from ckpt.compat import children
from ckpt.image.handles.shared_copies import CopiedMaps, Copies
from ckpt.image.interface.library import Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["SharedMemory", "take_up"]

_blocks = Copies(children.map_of_block, has_names=True)


class SharedMemory(CopiedMaps):
    """multiprocessing.shared_memory"""

    copies = _blocks

    def when_imported(self) -> None:
        children.follow_instances(self.module.SharedMemory, _blocks.note)

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, _REDUCERS)

    def reducer_by_base(self, cls: type) -> Reducer | None:
        own = self.reducers()
        return next((reduce for base, reduce in own.items() if issubclass(cls, base)), None)


def reduce_block(pickler: Any, block: Any) -> Any:
    pickler.defer(take_up, block)
    return reduce_raw(pickler, block)


# The __reduce__ of both names the block, for a process that lives beside this one.
_REDUCERS: dict[str, Reducer] = {"SharedMemory": reduce_block, "ShareableList": reduce_raw}

# ---------------------------------------------------------------------- called while loading


def take_up(block: Any) -> None:
    children.track_shared_memory(block)
    _blocks.note(block)

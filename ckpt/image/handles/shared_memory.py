"""multiprocessing.shared_memory: blocks of memory with a name, which several processes use.

A block is a file in ``/dev/shm`` that is mapped, so its memory is saved as every mapping is
(:mod:`ckpt.image.stdlib.mapped`): in an image without fork, with its content. When the program is killed,
multiprocessing's resource tracker removes the block; a restart makes it again under its name, with its content. A
block that still exists gets the content that it had at the checkpoint. Then it is registered with the resource
tracker of the new process.
"""

from __future__ import annotations

from typing import Any

from ckpt.compat.stdlib import track_shared_memory
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["SharedMemory"]


class SharedMemory(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {"SharedMemory": reduce_block})


def reduce_block(pickler: Any, block: Any) -> Any:
    pickler.defer(track_shared_memory, block)
    return reduce_raw(pickler, block)

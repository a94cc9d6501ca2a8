"""``torch.distributed``: its process groups are threads, connections and memory of C++ between the ranks. No image is taken
while there is one, and the program is told so when it makes one.

A program whose groups exist for a part of its time (``destroy_process_group``) gets its checkpoints in the others.
Reductions over ``ckpt.MPI`` are part of images.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ckpt.image.errors import Unpicklable
from ckpt.image.interface.library import Library

__all__ = ["Distributed"]

_REASON = (
    "a process group of torch.distributed is in use, which no image can hold: call destroy_process_group() before a "
    "checkpoint, or reduce gradients over ckpt.MPI instead"
)


class Distributed(Library):
    """torch.distributed.distributed_c10d"""

    def when_imported(self) -> None:
        plain = self.module.init_process_group

        @functools.wraps(plain)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            made = plain(*args, **kwargs)
            if sys.__stderr__ is not None:
                print(f"ckpt: no checkpoint from now on: {_REASON}", file=sys.__stderr__, flush=True)
            return made

        for module in (self.module, sys.modules["torch.distributed"]):
            vars(module)["init_process_group"] = init_process_group

    def refuse(self) -> None:
        if self.module.is_initialized():
            raise Unpicklable("torch.distributed", _REASON)

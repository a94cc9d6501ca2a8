"""Pickles that are the same in all replicas where the values are: of tensors of torch, in messages. (driver)

torch pickles the storage of a tensor under its address. Under ``--redundancy`` it does so in the newer format of its files,
which numbers storages. Who loads that needs nothing of this module.

Not here: what is compared beside messages (:mod:`ckpt.redundancy.memory.content`).
"""

from __future__ import annotations

import copyreg
import functools
import io
import sys
from typing import Any

__all__ = ["adjust"]


def adjust() -> None:
    """From now on tensors of torch are pickled alike, where it is loaded. Else nothing happens."""
    storages: Any = getattr(sys.modules.get("torch"), "storage", None)
    for kind in (getattr(storages, name, None) for name in ("TypedStorage", "UntypedStorage")):
        if kind is not None:
            copyreg.dispatch_table.setdefault(kind, reduce_storage)


def reduce_storage(storage: Any) -> tuple[Any, ...]:
    """As that of torch, but for the format."""
    torch: Any = sys.modules["torch"]
    file = io.BytesIO()
    torch.save(storage, file)
    return functools.partial(torch.load, weights_only=False), (io.BytesIO(file.getvalue()),)

"""dask: its configuration and active callbacks, which its own modules keep.

Beside them these keep the pools of threads that have computed something, which are no settings. Without a class here, all
that has changed in dask would start anew for that: ``dask.config.set(scheduler=…)`` would be lost, and another scheduler
would compute what follows. Of a package with a class here all that can be saved is kept, the pools with their threads
(:mod:`ckpt.image.threads`) included.

A cluster of ``distributed`` in this process is part of images if its parts talk by TCP. Addresses within a process hold its
number, which is another one after a restart: refused by name.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Dask", "Distributed"]


class Dask(Library):
    """Nothing else is special."""


class Distributed(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("distributed.comm.inproc", dict.fromkeys(("InProc", "InProcListener"), _refuse))


def _refuse(saver: Any, obj: Any) -> Any:
    raise ObjectRefused(
        obj,
        f"a cluster of dask.distributed within one process ({type(obj).__name__}) has addresses with the number of the "
        "process, which is another one after a restart; say LocalCluster(processes=False, protocol='tcp'), which is part of "
        "images",
    )

"""Managers of ``multiprocessing``: processes that hold objects which others use by proxies.

A manager that runs is another process, which has what its proxies stand for: it and its proxies are refused by name. One
that has been shut down, and its proxies, are ordinary objects, of which each use is an error, as before. Their own ways to
be pickled are for other processes: a proxy would connect to its manager where it is loaded, which no restart could do.
"""

from __future__ import annotations

from typing import Any

from ckpt.compat.children import manager_runs, proxy_is_served
from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Managers"]

_RUNS = (
    "is in another process, which no image of this one has: checkpoints wait until the manager has been shut down, at the "
    "end of its with block; let processes return what they find (multiprocessing.Pool, concurrent.futures), or share "
    "multiprocessing.Value and Array, which are part of images"
)


class Managers(Library):
    """multiprocessing.managers"""

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if issubclass(cls, self.module.BaseManager):
            return _reduce_manager
        return _reduce_proxy if issubclass(cls, self.module.BaseProxy) else None


def _reduce_manager(saver: Any, manager: Any) -> Any:
    if manager_runs(manager):
        raise ObjectRefused(
            manager, f"what a manager of multiprocessing ({type(manager).__name__}) holds {_RUNS}"
        )
    return reduce_raw(saver, manager)


def _reduce_proxy(saver: Any, proxy: Any) -> Any:
    if proxy_is_served(proxy):
        raise ObjectRefused(
            proxy,
            f"what an object of a manager of multiprocessing ({type(proxy).__name__}) stands for {_RUNS}",
        )
    return reduce_raw(saver, proxy)

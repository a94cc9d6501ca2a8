"""Managers of ``multiprocessing``: processes that hold objects which others use by proxies.

A manager that runs is another process, which has what its proxies stand for: it and its proxies are refused by name. One
that has been shut down, and its proxies, are ordinary objects, of which each use is an error, as before. Their own ways to
be pickled are for other processes: a proxy would connect to its manager where it is loaded, which no restart could do.
"""

from __future__ import annotations

import os
import sys
from typing import Any

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
    if _runs(manager):
        raise ObjectRefused(
            manager, f"what a manager of multiprocessing ({type(manager).__name__}) holds {_RUNS}"
        )
    return reduce_raw(saver, manager)


def _reduce_proxy(saver: Any, proxy: Any) -> Any:
    if _runs(proxy._manager) if proxy._manager is not None else _is_there(proxy._token.address):
        raise ObjectRefused(
            proxy,
            f"what an object of a manager of multiprocessing ({type(proxy).__name__}) stands for {_RUNS}",
        )
    return reduce_raw(saver, proxy)


def _runs(manager: Any) -> bool:
    state = sys.modules["multiprocessing.managers"].State
    return bool(manager._state.value == state.STARTED)


def _is_there(address: Any) -> bool:
    """May the manager of which only the address is known run? One with an address of TCP may."""
    return not isinstance(address, str) or address.startswith("\0") or os.path.exists(address)

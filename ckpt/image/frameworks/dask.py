"""dask: its configuration and active callbacks, which its own modules keep.

Beside them these keep the pools of threads that have computed something, which are no settings. Without a class here, all
that has changed in dask would start anew for that: ``dask.config.set(scheduler=…)`` would be lost, and another scheduler
would compute what follows. Of a package with a class here all that can be saved is kept, the pools with their threads
(:mod:`ckpt.image.threads`) included.
"""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Dask"]


class Dask(Library):
    """Nothing else is special."""

"""diskcache: caches, each with a connection of sqlite for each thread.

A cache that finds itself in another process than before opens its connections anew: it takes a restart for a fork. A
restart brings the connections back, and running methods use them. So each cache of the main thread is told the
identifier of the new process. Caches of other threads open their connections anew.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from ckpt.image.interface.library import Library

__all__ = ["Diskcache"]


class Diskcache(Library):
    def after_restart(self) -> None:
        cache: Any = sys.modules["diskcache.core"].Cache
        for found in [obj for obj in gc.get_objects() if issubclass(type(obj), cache)]:
            own: Any = getattr(found, "_local", None)  # none: the cache was being made
            if hasattr(own, "pid"):
                own.pid = os.getpid()

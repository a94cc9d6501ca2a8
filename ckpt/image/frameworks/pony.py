"""pony: what databases keep by the addresses of code, and connections that are taken for those of another process.

The caches of translated queries have ``id(code)`` in their keys: after a restart another query could be found there, so they
are emptied. A pool that finds itself in another process than before takes that for a fork and connects anew; what a
database in memory holds would be lost.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from ckpt.image.interface.library import Library

__all__ = ["Pony"]

_CACHES = ("_translator_cache", "_constructed_sql_cache")


class Pony(Library):
    def after_restart(self) -> None:
        database: Any = sys.modules["pony.orm.core"].Database
        pool: Any = sys.modules["pony.orm.dbapiprovider"].Pool
        for found in gc.get_objects():
            if issubclass(type(found), database):
                for name in _CACHES:
                    found.__dict__.get(name, {}).clear()
            elif issubclass(type(found), pool) and getattr(found, "pid", None) is not None:
                found.pid = os.getpid()

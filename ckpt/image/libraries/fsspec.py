"""fsspec: the file system in memory that all parts of a program share. Its files are a variable of a class, and each is more
than a setting, so nothing else would save them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ckpt.image.interface.library import Library

__all__ = ["Fsspec"]

_PLACE = "fsspec.implementations.memory"


class Fsspec(Library):
    def note_settings(self) -> Any:
        memory = getattr(sys.modules.get(_PLACE), "MemoryFileSystem", None)
        return memory and {"files": memory.store, "directories": memory.pseudo_dirs}

    def apply_settings(self, saved: Any) -> None:
        memory = importlib.import_module(_PLACE).MemoryFileSystem
        memory.store = saved["files"]
        memory.pseudo_dirs = saved["directories"]

"""uvloop: an event loop in C, with its timers and callbacks. It is refused by name."""

from __future__ import annotations

from pickle import PicklingError
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Uvloop"]


class Uvloop(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        return _refuse if cls.__module__.partition(".")[0] == self.name else None


def _refuse(saver: Any, obj: Any) -> Any:
    raise PicklingError(
        "an event loop of uvloop cannot be saved; run the program with asyncio's own loop (asyncio.run)"
    )

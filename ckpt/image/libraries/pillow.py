"""Pillow: the pixels of an image (a picture), which are in memory of C.

A picture is usually saved by its own methods. While ``image.save`` runs, frames on the stack hold the object in C with the
pixels; the reducer here saves it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Library, Reducer

__all__ = ["Pillow"]


class Pillow(Library):
    def reducers(self) -> dict[type, Reducer]:
        """The type of the object in C with the pixels has no name."""
        new = getattr(sys.modules.get("PIL._imaging"), "new", None)
        return {} if new is None else {type(new("1", (1, 1))): reduce_picture}


def reduce_picture(pickler: Any, core: Any) -> Any:
    image = importlib.import_module("PIL.Image")
    palette = None
    if core.mode in ("P", "PA"):
        palette = (core.getpalettemode(), core.getpalette(core.getpalettemode(), core.getpalettemode()))
    return make_picture, (core.mode, core.size, image.Image()._new(core).tobytes(), palette)


# ---------------------------------------------------------------------- called while loading


def make_picture(mode: str, size: tuple[int, int], content: bytes, palette: tuple[str, bytes] | None) -> Any:
    try:
        core = importlib.import_module("PIL.Image").frombytes(mode, size, content).im
    except (ImportError, ValueError) as failure:
        raise RestoreError(
            f"a picture of mode {mode}, size {size}, cannot be made again: {failure}"
        ) from failure
    if palette is not None:
        core.putpalette(palette[0], palette[0], palette[1])
    return core

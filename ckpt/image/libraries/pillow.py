"""Pillow: the pixels of an image (a picture), which are in memory of C; and files of several pictures.

A picture is usually saved by its own methods. While ``image.save`` runs, frames on the stack hold the object in C with the
pixels; the reducer here saves it.

Pillow's own methods save the present picture of a file, so the others would be lost while the file is read one by one.
A file that is open, and may have more pictures, is saved part by part.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.installed_classes import reduce_by_hooks
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Pillow"]


_CODING = (
    *("Image:Image.tobytes", "Image:Image.frombytes", "ImageFile:ImageFile.load", "ImageFile:_encode_tile"),
    *("TiffImagePlugin:TiffImageFile._load_libtiff", "TiffImagePlugin:_save"),
)
"""Functions that hold a decoder or an encoder. What it has read or written is in memory of C."""


class Pillow(Library):
    transient_functions = tuple((f"PIL.{name}", "a picture is being read or written") for name in _CODING)

    def reducers(self) -> dict[type, Reducer]:
        """The type of the object in C with the pixels has no name."""
        new = getattr(sys.modules.get("PIL._imaging"), "new", None)
        return {} if new is None else {type(new("1", (1, 1))): reduce_picture}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        file: Any = getattr(sys.modules.get("PIL.ImageFile"), "ImageFile", None)
        if file is None or not issubclass(cls, file):
            return None
        return reduce_file if cls.__dict__.get("seek") else None


def reduce_file(saver: Any, image: Any) -> Any:
    parts = image.__dict__
    is_open = any(parts.get(name) is not None and not parts[name].closed for name in ("fp", "_fp"))
    if is_open and "_decoder" not in parts:  # the decoder of WebP and AVIF is in C
        return reduce_raw(saver, image)
    return reduce_by_hooks(saver, image)


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

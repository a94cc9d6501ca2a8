"""Pillow: the pixels of an image (a picture), which are in memory of C; and files of several pictures.

A picture is usually saved by its own methods. While ``image.save`` runs, frames on the stack hold the object in C with the
pixels; the reducer here saves it.

Pillow's own methods save the present picture of a file, so the others would be lost while the file is read one by one.
A file that is open, and may have more pictures, is saved part by part.

What draws (``ImageDraw.Draw``) has the pixels of its picture: after a restart those of the picture as it was loaded.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any

from ckpt.image.errors import RestoreError
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers import rebuild
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
        pictures: dict[type, Reducer] = {} if new is None else {type(new("1", (1, 1))): reduce_picture}
        return {
            **pictures,
            **by_name("PIL.ImageDraw", {"ImageDraw": reduce_drawing}),
            **by_name("PIL.ImageFont", {"FreeTypeFont": reduce_font}),
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        file: Any = getattr(sys.modules.get("PIL.ImageFile"), "ImageFile", None)
        if file is not None and issubclass(cls, file):
            return reduce_file if cls.__dict__.get("seek") else reduce_image
        image: Any = getattr(sys.modules.get("PIL.Image"), "Image", None)
        if image is not None and issubclass(cls, image):
            return reduce_image
        drawing: Any = getattr(sys.modules.get("PIL.ImageDraw"), "ImageDraw", None)
        return reduce_drawing if drawing is not None and issubclass(cls, drawing) else None


def reduce_image(saver: Any, image: Any) -> Any:
    """One that is closed, as after `with Image.open(path) as image`, has no pixels, for which Pillow's own way asks."""
    return reduce_raw(saver, image) if _is_closed(image) else reduce_by_hooks(saver, image)


def _is_closed(image: Any) -> bool:
    return _is_missing(image.__dict__.get("_im"))


def _is_missing(part: Any) -> bool:
    """Does it stand for what a closed picture has no more? Each use of it raises."""
    missing = getattr(sys.modules.get("PIL._util"), "DeferredError", None)
    return missing is not None and type(part) is missing


def _is_open(file: Any) -> bool:
    return file is not None and not _is_missing(file) and not file.closed


def reduce_file(saver: Any, image: Any) -> Any:
    if _is_closed(image):
        return reduce_raw(saver, image)
    parts = image.__dict__
    is_open = any(_is_open(parts.get(name)) for name in ("fp", "_fp"))
    if is_open and "_decoder" not in parts:  # the decoder of WebP and AVIF is in C
        return reduce_raw(saver, image)
    return reduce_by_hooks(saver, image)


def reduce_picture(pickler: Any, core: Any) -> Any:
    image = importlib.import_module("PIL.Image")
    palette = None
    if core.mode in ("P", "PA"):
        palette = (core.getpalettemode(), core.getpalette(core.getpalettemode(), core.getpalettemode()))
    return make_picture, (core.mode, core.size, image.Image()._new(core).tobytes(), palette)


def reduce_font(saver: Any, font: Any) -> Any:
    """Pillow's own way names the file. One in memory, as that of `load_default()`, has been read to its end."""
    content = font.__dict__.get("font_bytes")
    if content is None or not hasattr(font.path, "read"):
        return reduce_by_hooks(saver, font)
    arguments = (font.size, font.index, font.encoding, font.layout_engine)
    return make_font, (type(font), content, arguments), (font.path,), None, None, fill_font


def reduce_drawing(saver: Any, drawing: Any) -> Any:
    """The object in C that draws does not show its picture, which the object in Python has, too."""
    parts = dict(drawing.__dict__)
    picture, core = parts.get("_image"), parts.pop("im", None)
    if core is None or parts.pop("draw", None) is None:
        return reduce_raw(saver, drawing)  # it is being made
    own = None if picture is not None and picture.im is core else core
    if own is None and picture is not None and parts["palette"] is picture.palette:
        del parts["palette"]  # the picture's, which is another object after a restart
    return rebuild.make_instance, (type(drawing),), (parts, own), None, None, fill_drawing


# ---------------------------------------------------------------------- called while loading


def make_font(cls: Any, content: bytes, arguments: tuple[Any, ...]) -> Any:
    return cls(io.BytesIO(content), *arguments)


def fill_font(font: Any, state: tuple[Any]) -> None:
    (font.path,) = state


def fill_drawing(drawing: Any, state: tuple[dict[str, Any], Any]) -> None:
    parts, own = state
    core = parts["_image"].im if own is None else own
    is_blended = parts["mode"] == "RGBA" and core.mode == "RGB"
    draw = importlib.import_module("PIL._imaging").draw(core, int(is_blended))
    drawing.__dict__.update({**parts, "im": core, "draw": draw})
    if "palette" not in parts:
        drawing.palette = parts["_image"].palette


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

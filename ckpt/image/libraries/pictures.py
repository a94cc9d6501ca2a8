"""Pillow's and matplotlib's memory in C: the pixels of a picture, and those of a figure that is being drawn.

Pictures and figures take themselves apart without our help, but for those in use: while ``image.save`` or ``figure.savefig``
runs, the frames on the stack hold what these consist of.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

from ckpt.image.errors import RestoreError

__all__ = ["reduce_canvas", "reduce_picture"]


def reduce_picture(pickler: Any, core: Any) -> Any:
    image = importlib.import_module("PIL.Image")
    palette = None
    if core.mode in ("P", "PA"):
        palette = (core.getpalettemode(), core.getpalette(core.getpalettemode(), core.getpalettemode()))
    return make_picture, (core.mode, core.size, image.Image()._new(core).tobytes(), palette)


def reduce_canvas(pickler: Any, canvas: Any) -> Any:
    """The resolution is known to the Python object around it only."""
    pixels = memoryview(canvas)
    height, width, _ = pixels.shape or (0, 0, 0)
    for around in gc.get_referrers(canvas):
        attributes = around if type(around) is dict else getattr(around, "__dict__", {})
        if attributes.get("_renderer") is canvas and "dpi" in attributes:
            return make_canvas, (width, height, float(attributes["dpi"]), pixels.tobytes())
    raise TypeError("a canvas of matplotlib that no renderer holds cannot be saved")


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


def make_canvas(width: int, height: int, dpi: float, content: bytes) -> Any:
    canvas = importlib.import_module("matplotlib.backends._backend_agg").RendererAgg(width, height, dpi)
    memoryview(canvas).cast("B")[:] = content
    return canvas

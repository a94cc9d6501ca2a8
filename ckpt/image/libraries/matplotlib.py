"""matplotlib: its settings, and the pixels of a figure that is being drawn (by Agg), which are in memory of C.

A figure that is not being drawn is saved by its own methods. While ``figure.savefig`` runs, frames on the stack hold the
renderer with its pixels; the reducer here saves it.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Matplotlib"]


class Matplotlib(Library):
    is_left_alone = True
    transient_types = ("matplotlib.ft2font",)
    transient_functions = (
        # its equations are in a solver in C
        ("matplotlib._constrained_layout:do_constrained_layout", "a layout is being calculated"),
    )

    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name("matplotlib.backends._backend_agg", {"RendererAgg": reduce_canvas}),
            # its own way gives an empty canvas, without what has been drawn
            **by_name("matplotlib.backends.backend_agg", {"RendererAgg": reduce_raw}),
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        nodes = getattr(sys.modules.get("matplotlib.transforms"), "TransformNode", None)
        return reduce_transform if nodes is not None and issubclass(cls, nodes) else None

    def note_settings(self) -> dict[str, Any]:
        parameters = dict(dict.items(getattr(self.module, "rcParams", {})))
        return {"rcParams": parameters, "managers": _managers()}

    def apply_settings(self, saved: dict[str, Any]) -> None:
        dict.update(self.module.rcParams, saved["rcParams"])
        if not saved["managers"]:
            return
        figures = importlib.import_module("matplotlib._pylab_helpers").Gcf.figs
        for number, manager in saved["managers"]:
            figures.setdefault(number, manager)  # most figures have entered themselves when they were loaded
        for number, _ in saved["managers"]:
            figures.move_to_end(number)


def _managers() -> list[tuple[Any, Any]]:
    """Number and manager of each figure that pyplot knows, the current one last. A figure that is being drawn is saved part
    by part, and does not enter itself again. Those with windows are none that can be saved."""
    figures = getattr(getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None), "figs", {})
    base = getattr(sys.modules.get("matplotlib.backend_bases"), "FigureManagerBase", None)
    return [(number, manager) for number, manager in figures.items() if type(manager) is base]


def reduce_transform(pickler: Any, transform: Any) -> Any:
    """By its own way, which gives each reference to a parent a new callback: that one knows the parent's address."""
    return transform.__reduce_ex__(5)


def reduce_canvas(pickler: Any, canvas: Any) -> Any:
    """The reducer for a renderer. Its resolution is known only to the Python object that holds it."""
    pixels = memoryview(canvas)
    height, width, _ = pixels.shape or (0, 0, 0)
    for holder in gc.get_referrers(canvas):
        attributes = holder if type(holder) is dict else getattr(holder, "__dict__", {})
        if attributes.get("_renderer") is canvas and "dpi" in attributes:
            return make_canvas, (width, height, float(attributes["dpi"]), pixels.tobytes())
    raise TypeError("a canvas of matplotlib that no renderer holds cannot be saved")


# ---------------------------------------------------------------------- called while loading


def make_canvas(width: int, height: int, dpi: float, content: bytes) -> Any:
    canvas = importlib.import_module("matplotlib.backends._backend_agg").RendererAgg(width, height, dpi)
    memoryview(canvas).cast("B")[:] = content
    return canvas

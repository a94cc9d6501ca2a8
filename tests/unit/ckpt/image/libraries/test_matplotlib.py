"""matplotlib: when an image of a figure is not to be taken."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.transient import refuse_transient
from tests.unit.ckpt.image.support import copy_of

artist: Any = pytest.importorskip("matplotlib.artist")


class Looking(artist.Artist):  # type: ignore[misc]
    """A part of a figure that looks, when it is asked for its size, whether an image could be taken now."""

    said = ""

    def get_tightbbox(self, renderer: Any = None) -> Any:
        try:
            refuse_transient(capture(at="call"))
        except Refused as refused:
            self.said = refused.reason
        return None


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_no_image_is_taken_while_a_layout_is_calculated() -> None:
    """Its equations are in a solver in C: a program that mostly drew such figures lost one round in two."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    said: list[str] = []

    def program() -> None:
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        looking = Looking()
        looking.set_clip_on(False)  # what is clipped is not asked
        figure.add_subplot().add_artist(looking)
        figure.canvas.draw()
        said.append(looking.said)

    run_base(program)
    assert said == ["a layout is being calculated"]


def test_what_is_to_be_called_when_a_figure_changes_was_forgotten() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    canvas, axes = FigureCanvasAgg(figure), figure.subplots()
    picture = axes.imshow([[0.0, 1.0]])
    bar, drawn = figure.colorbar(picture), [0]
    canvas.mpl_connect("draw_event", lambda event: drawn.append(1))
    figure, picture, bar, drawn, canvas = copy_of((figure, picture, bar, drawn, canvas), is_disposable=True)
    picture.set_clim(0.0, 9.0)
    figure.canvas.draw()
    assert (bar.vmax, drawn) == (9.0, [0, 1]) and figure.canvas is canvas

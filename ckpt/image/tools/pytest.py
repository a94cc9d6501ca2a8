"""pytest, with pluggy: what it keeps belongs to the run of tests that the program is."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Pytest"]


class Pytest(Library):
    is_left_alone = True

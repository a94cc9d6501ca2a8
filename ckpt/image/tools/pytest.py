"""pytest, with pluggy: the variables of these packages are no part of images. They describe a run of
tests, which does not go on after a restart."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Pytest"]


class Pytest(Library):
    is_left_alone = True

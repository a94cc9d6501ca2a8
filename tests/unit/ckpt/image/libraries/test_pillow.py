"""Pillow: the pixels of a picture, which are in memory of C."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ckpt.image.support import copy_of

Image: Any = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "F", "I;16"])
def test_pixels_are_kept_of_the_picture_and_of_its_object_in_c(mode: str) -> None:
    picture = Image.new(mode, (5, 3))
    picture.putpixel((4, 2), 1 if mode != "F" else 0.5)
    for copy in (copy_of(picture), Image.Image()._new(copy_of(picture.im))):
        assert (copy.mode, copy.size, copy.tobytes()) == (mode, (5, 3), picture.tobytes())

"""Pillow: the pixels of a picture, which are in memory of C."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.transient import refuse_transient
from tests.unit.ckpt.image.support import copy_of

Image: Any = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "F", "I;16"])
def test_pixels_are_kept_of_the_picture_and_of_its_object_in_c(mode: str) -> None:
    picture = Image.new(mode, (5, 3))
    picture.putpixel((4, 2), 1 if mode != "F" else 0.5)
    for copy in (copy_of(picture), Image.Image()._new(copy_of(picture.im))):
        assert (copy.mode, copy.size, copy.tobytes()) == (mode, (5, 3), picture.tobytes())


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "F"])
def test_what_draws_goes_on_in_its_picture(mode: str) -> None:
    """A program that kept its `ImageDraw.Draw` got no checkpoint: "cannot pickle 'ImagingDraw' object"."""
    draw_module = pytest.importorskip("PIL.ImageDraw")
    picture = Image.new("RGB" if mode == "RGBA" else mode, (20, 20))
    drawing = draw_module.Draw(picture, mode)
    ink: Any = (250, 9, 9, 90) if mode == "RGBA" else (250, 9, 9) if mode in ("RGB", "P") else 200
    drawing.line((0, 0, 9, 9), fill=ink)
    copied, copied_drawing, apart = copy_of([picture, drawing, draw_module.Draw(Image.new("L", (2, 2)))])
    for each in (drawing, copied_drawing):
        each.ellipse((5, 5, 15, 15), fill=ink)
        each.text((1, 1), "a")
    assert copied.convert("RGB").tobytes() == picture.convert("RGB").tobytes()
    assert copied_drawing.im is copied.im and copied_drawing.palette is (
        copied.palette if mode == "P" else None
    )
    apart.point((0, 0), 7)
    assert apart._image.getpixel((0, 0)) == 7


@pytest.mark.parametrize("format_", ["PNG", "GIF", "TIFF", "BMP"])
def test_a_picture_that_is_closed_is_no_obstacle(tmp_path: Path, format_: str) -> None:
    """A variable of `with Image.open(path) as picture` kept all checkpoints off: "Operation on closed image"."""
    path = tmp_path / "picture"
    Image.new("L", (3, 2), 7).save(path, format_)
    with Image.open(path) as picture:
        picture.load()
    plain = Image.new("L", (3, 2))
    plain.close()
    picture, plain = copy_of([picture, plain])
    assert picture.convert("L").tobytes() == bytes([7] * 6)
    assert plain.size == (3, 2)
    with pytest.raises(ValueError, match="closed image"):
        plain.tobytes()


def test_a_font_that_is_in_memory_comes_back() -> None:
    """No image of a program with `ImageFont.load_default()` could be loaded: "cannot open resource"."""
    module = pytest.importorskip("PIL.ImageFont")
    features = pytest.importorskip("PIL.features")
    if not features.check("freetype2"):
        pytest.skip("Pillow without FreeType")
    font = module.load_default(14)
    copied, again = copy_of([font, font])
    assert again is copied and copied.getbbox("checkpoint") == font.getbbox("checkpoint")
    assert bytes(copied.getmask("a")) == bytes(font.getmask("a"))
    assert copied.font_variant(size=9).getbbox("a") == font.font_variant(size=9).getbbox("a")


class Looking(io.BytesIO):
    """A file that looks, at each transfer, whether an image could be taken now."""

    said = ""

    def look(self) -> None:
        try:
            refuse_transient(capture(at="call"))
        except Refused as refused:
            self.said = refused.reason

    def write(self, data: Any, /) -> int:
        self.look()
        return super().write(data)

    def read(self, size: int | None = -1, /) -> bytes:
        self.look()
        return super().read(size)


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_no_image_is_taken_while_a_picture_is_written_or_read() -> None:
    """A program that wrote pictures for most of its time got no checkpoint: each failed at the encoder in C."""
    said: list[str] = []

    def program() -> None:
        file = Looking()
        Image.effect_noise((200, 200), 50).save(file, "PNG")
        said.append(file.said)
        file.said = ""
        file.seek(0)
        Image.open(file).load()
        said.append(file.said)

    run_base(program)
    assert said == ["a picture is being read or written"] * 2

"""bz2 and xz files in images: behind a restart another stream of the same file goes on."""

from __future__ import annotations

import bz2
import io
import lzma
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.image.stdlib import compressed_files

pytestmark = pytest.mark.turns(2)

IN_A_CHILD, IN_THE_PROGRAM = SimpleNamespace(is_disposable=True), SimpleNamespace(is_disposable=False)
xz_file: Any = lzma.LZMAFile
TEXT = b"".join(b"line %d\n" % n for n in range(2000))


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ended for an image is remembered as long as the child lives; here many images are taken in one process."""
    monkeypatch.setattr(compressed_files, "_ended", {})


def go_on(file: Any) -> None:
    """As in a restart: something else is in the place of its compressor."""
    compressor = file._compressor
    reduce = (
        compressed_files.reduce_stream
        if type(compressor) is compressed_files.FurtherStream
        else compressed_files.reduce_compressor
    )
    make, arguments = reduce(IN_A_CHILD, compressor)
    file._compressor = make(*pickle.loads(pickle.dumps(arguments)))


WRITERS = {
    "bz2": (lambda raw: bz2.BZ2File(raw, "wb", compresslevel=1), bz2.decompress),
    "xz": (lambda raw: xz_file(raw, "wb", preset=0), lzma.decompress),
    "xz without checks": (
        lambda raw: xz_file(raw, "wb", preset=0, check=lzma.CHECK_NONE),
        lzma.decompress,
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("cuts", [[0], [9000], [len(TEXT)], [1, 1, 5000, 5000]], ids=str)
def test_the_content_is_the_same_wherever_it_was_saved_and_however_often(kind: str, cuts: list[int]) -> None:
    opened, decompress = WRITERS[kind]
    raw, before = io.BytesIO(), 0
    file = opened(raw)
    for cut in cuts:
        file.write(TEXT[before:cut])
        go_on(file)
        before = cut
    file.write(TEXT[before:])
    compressor = file._compressor
    file.close()
    assert decompress(raw.getvalue()) == TEXT
    for use in (compressor.flush, lambda: compressor.compress(b"x")):
        with pytest.raises(ValueError, match=r"flush"):
            use()


def test_where_nothing_more_comes_there_is_no_other_stream() -> None:
    raw = io.BytesIO()
    file = bz2.BZ2File(raw, "wb")
    file.write(TEXT)
    go_on(file)
    go_on(file)
    file.close()
    assert raw.getvalue() == bz2.compress(TEXT)


def test_the_check_of_an_xz_file_stays() -> None:
    raw = io.BytesIO()
    file = xz_file(raw, "wb", check=lzma.CHECK_SHA256)
    go_on(file)
    assert file._compressor.check == lzma.CHECK_SHA256


def test_a_second_attempt_in_the_same_child_finds_what_the_first_has_ended() -> None:
    file: Any = bz2.BZ2File(io.BytesIO(), "wb")
    file.write(TEXT)
    compressor = file._compressor
    first, second = (compressed_files.reduce_compressor(IN_A_CHILD, compressor) for _ in range(2))
    assert first == second and bz2.decompress(first[1][0]) == TEXT
    file._compressor = bz2.BZ2Compressor()
    file.close()


def test_one_that_the_program_has_ended_stays_so() -> None:
    file: Any = bz2.BZ2File(io.BytesIO(), "wb")
    file._compressor.flush()
    go_on(file)
    go_on(file)
    with pytest.raises(ValueError, match="Repeated call"):
        file._compressor.flush()
    file._compressor = bz2.BZ2Compressor()
    file.close()


def test_a_call_that_fails_loses_nothing() -> None:
    file: Any = bz2.BZ2File(io.BytesIO(), "wb")
    file.write(TEXT)
    go_on(file)
    with pytest.raises(TypeError):
        file._compressor.compress("text")
    assert bz2.decompress(file._compressor.flush()) == TEXT
    file._compressor = bz2.BZ2Compressor()
    file.close()


@pytest.mark.parametrize("kind", [bz2.BZ2Compressor, lzma.LZMACompressor])
def test_one_that_is_in_no_file_is_no_obstacle_once_the_program_has_ended_it(kind: Any) -> None:
    """Left in a variable, it kept checkpoints off to the end of the program."""
    compressor = kind()
    compressor.flush()
    make, arguments = compressed_files.reduce_compressor(IN_A_CHILD, compressor)
    with pytest.raises(ValueError, match="Repeated call"):
        make(*arguments).flush()


@pytest.mark.parametrize("compressor", [bz2.BZ2Compressor(), lzma.LZMACompressor()], ids=["bz2", "lzma"])
def test_one_that_is_in_no_file_is_named(compressor: Any) -> None:
    with pytest.raises(pickle.PicklingError, match=r"cannot be saved but in files of (bz2|lzma).open"):
        compressed_files.reduce_compressor(IN_A_CHILD, compressor)


@pytest.mark.parametrize("form", [lzma.FORMAT_ALONE, lzma.FORMAT_RAW])
def test_formats_of_one_stream_are_named(form: int) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0}] if form == lzma.FORMAT_RAW else None
    file: Any = xz_file(io.BytesIO(), "wb", format=form, filters=filters)
    with pytest.raises(pickle.PicklingError, match="other than xz"):
        compressed_files.reduce_compressor(IN_A_CHILD, file._compressor)
    file._compressor = lzma.LZMACompressor()
    file.close()


def test_the_program_itself_does_not_end_its_own() -> None:
    file: Any = bz2.BZ2File(io.BytesIO(), "wb")
    with pytest.raises(pickle.PicklingError, match="--image-mode fork"):
        compressed_files.reduce_compressor(IN_THE_PROGRAM, file._compressor)
    go_on(file)
    compressed_files.reduce_stream(IN_THE_PROGRAM, file._compressor)
    file.write(b"more")
    with pytest.raises(pickle.PicklingError, match="--image-mode fork"):
        compressed_files.reduce_stream(IN_THE_PROGRAM, file._compressor)
    file.close()


@pytest.mark.parametrize(
    ("cls", "compressor"), [(bz2.BZ2File, bz2.BZ2Compressor()), (xz_file, lzma.LZMACompressor())]
)
def test_a_file_that_is_being_made_is_a_file(cls: Any, compressor: Any) -> None:
    """Found by the sweep: its attributes refer to nothing that the garbage collector knows, nor does it know them."""
    file = cls.__new__(cls)
    vars(file).update(_fp=None, _closefp=False, _mode=0, _compressor=compressor)
    go_on(file)
    assert type(file._compressor) is compressed_files.FurtherStream
    file._fp = io.BytesIO()  # what is closed at its end

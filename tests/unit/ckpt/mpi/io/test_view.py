"""Views of files, compared with a model that walks the single bytes of a view."""

from __future__ import annotations

import itertools

import pytest

from ckpt.mpi.base.errors import ERR_ARG, ERR_IO, ERR_TYPE, MpiException
from ckpt.mpi.datatypes.datatypes import PREDEFINED, Datatype
from ckpt.mpi.io.view import View

BYTE, SHORT = PREDEFINED["MPI_BYTE"], PREDEFINED["MPI_SHORT"]
BYTES_OF_THE_VIEW = 60


def filetypes(etype: Datatype) -> list[Datatype]:
    """All sets of up to five etypes within five places, with up to two places behind them, and types of types."""
    out = [etype]
    for places in itertools.chain.from_iterable(
        itertools.combinations(range(5), many) for many in range(1, 6)
    ):
        blocks = etype.Create_indexed_block(1, list(places))
        out += [blocks.Create_resized(0, (places[-1] + 1 + more) * etype.extent) for more in range(3)]
    out.append(etype.Create_vector(3, 2, 4))
    out.append(etype.Create_contiguous(3).Create_vector(2, 1, 2).Create_resized(0, 15 * etype.extent))
    out.append(etype.Create_subarray([4, 5], [2, 3], [1, 2]))
    return out


def bytes_of(displacement: int, filetype: Datatype) -> list[int]:
    """The model: the byte of the file that each byte of the view is."""
    out: list[int] = []
    for tile in itertools.count():
        for offset, nbytes in filetype.runs:
            begin = displacement + tile * filetype.extent + offset
            out += range(begin, begin + nbytes)
        if len(out) >= BYTES_OF_THE_VIEW:
            return out
    raise AssertionError


@pytest.mark.parametrize("etype", [BYTE, SHORT], ids=["byte", "short"])
def test_a_view_has_the_bytes_that_a_walk_over_its_filetypes_finds(etype: Datatype) -> None:
    for filetype in filetypes(etype):
        for displacement in (0, 7):
            view = View(displacement, etype.layout, filetype.layout, writes=True)
            model = bytes_of(displacement, filetype)
            for position in range(8):
                assert view.byte_offset(position) == model[position * etype.size]
                for count in range(10):
                    begin, end = position * etype.size, (position + count) * etype.size
                    ranges = view.ranges(position, end - begin)
                    walked = [at for offset, nbytes in ranges for at in range(offset, offset + nbytes)]
                    assert walked == model[begin:end]


@pytest.mark.parametrize("etype", [BYTE, SHORT], ids=["byte", "short"])
def test_neighbouring_pieces_are_one(etype: Datatype) -> None:
    for filetype in filetypes(etype):
        ranges = View(3, etype.layout, filetype.layout, writes=True).ranges(0, 20)
        assert all(first[0] + first[1] < second[0] for first, second in itertools.pairwise(ranges)), (
            filetype.runs
        )


@pytest.mark.parametrize("etype", [BYTE, SHORT], ids=["byte", "short"])
def test_the_end_is_the_first_position_of_which_no_byte_is_in_the_file(etype: Datatype) -> None:
    for filetype in filetypes(etype):
        for displacement in (0, 7):
            view = View(displacement, etype.layout, filetype.layout, writes=True)
            model = bytes_of(displacement, filetype)
            for nbytes in range(40):
                there = sum(at < nbytes for at in model)
                assert view.end(nbytes) == -(-there // etype.size), (filetype.runs, filetype.extent, nbytes)


def test_large_offsets_are_whole_numbers() -> None:
    view = View(1 << 40, BYTE.layout, BYTE.layout, writes=True)
    assert view.ranges(1 << 41, 1 << 33) == [((1 << 40) + (1 << 41), 1 << 33)]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: View(-1, BYTE.layout, BYTE.layout, writes=True), ERR_ARG),
        (lambda: View(0, SHORT.layout, BYTE.layout, writes=True), ERR_ARG),
        (lambda: View(0, BYTE.layout, BYTE.Create_hindexed([1], [-1]).layout, writes=True), ERR_TYPE),
        (lambda: View(0, BYTE.layout, BYTE.Create_hindexed([1, 1], [3, 1]).layout, writes=False), ERR_TYPE),
        (lambda: View(0, BYTE.layout, BYTE.Create_hindexed([2, 2], [0, 1]).layout, writes=True), ERR_TYPE),
        (
            lambda: View(0, BYTE.layout, BYTE.Create_vector(2, 1, 3).Resized(0, 2).layout, writes=True),
            ERR_TYPE,
        ),
        (lambda: View(0, BYTE.layout, BYTE.Create_contiguous(0).layout, writes=True).ranges(0, 1), ERR_ARG),
        (lambda: View(0, SHORT.layout, SHORT.layout, writes=True).ranges(0, 3), ERR_IO),
        (lambda: View(0, SHORT.layout, SHORT.layout, writes=True).ranges(-1, 2), ERR_ARG),
    ],
    ids=["displacement", "etype", "negative", "decreasing", "twice", "tiles", "empty", "part", "offset"],
)
def test_what_the_standard_does_not_allow_is_refused(make: object, code: int) -> None:
    with pytest.raises(MpiException) as refused:
        make()  # type: ignore[operator]
    assert refused.value.error_class == code

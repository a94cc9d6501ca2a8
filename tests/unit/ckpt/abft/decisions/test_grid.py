"""The block-cyclic distribution, and the places of ranks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ckpt.abft.decisions.grid import Column, Place, Roles, Shape, assign


@pytest.mark.parametrize(
    ("P", "Q", "n", "nb"), [(1, 1, 1, 1), (2, 3, 100, 8), (3, 2, 7, 2), (4, 1, 5, 5), (2, 2, 64, 8)]
)
def test_every_matrix_row_is_in_one_place(P: int, Q: int, n: int, nb: int) -> None:
    shape = Shape(P, Q, n, nb)
    assert shape.order >= n and shape.order % (Q * nb) == 0 and shape.order - n < Q * nb
    rows = [shape.row_numbers(p) for p in range(P)]
    assert sorted(np.concatenate(rows)) == list(range(shape.order))
    for p in range(P):
        assert len(rows[p]) == shape.local_rows(p)
        for place, row in enumerate(rows[p]):
            assert shape.local(int(row)) == (p, place)
        for i in range(shape.blocks + 1):
            assert shape.rows_before(p, i) == int((rows[p] < i * nb).sum())


def test_import_ckpt_does_not_import_it() -> None:
    code = "import ckpt, sys; assert not {'ckpt.abft', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_rank_has_a_place_or_is_idle() -> None:
    roles = Roles((Column((0, 3)), Column((1, 4))), (Column((2, 5)),), (6,))
    assert [roles.place(rank) for rank in (0, 4, 5, 6)] == [Place(0, 0), Place(1, 1), Place(1, 2), None]
    assert roles.ranks() == (0, 1, 2, 3, 4, 5, 6) and roles.numbers() == (0, 1, 2)
    assert roles.rank(1, 2) == 5


def test_neighbours_in_a_row_are_neighbours_in_the_job() -> None:
    roles = assign(tuple(range(7)), 2, 2, redundant=1)
    assert roles == Roles((Column((0, 3)), Column((1, 4))), (Column((2, 5)),), (6,))
    assert assign(tuple(range(4)), 2, 2, redundant=0) == Roles((Column((0, 2)), Column((1, 3))))
    assert assign(tuple(range(8)), 2, 2, redundant=2) == Roles(
        (Column((0, 4)), Column((1, 5))), (Column((2, 6)), Column((3, 7)))
    )


def test_places_of_the_dead_are_given_to_idle_ranks_then_to_those_of_the_checksums() -> None:
    before = assign(tuple(range(7)), 2, 2, 1)
    assert assign((0, 2, 3, 4, 5, 6), 2, 2, 1, before) == Roles(
        (Column((0, 3)), Column((6, 4))), (Column((2, 5)),)
    )
    assert assign((0, 3, 4, 5, 6), 2, 2, 1, before) == Roles((Column((0, 3)), Column((6, 4))), (), (5,))
    assert assign((0, 3, 4), 2, 2, 1, before) is None

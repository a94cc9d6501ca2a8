"""The upper triangle as processes give it to each other."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt.abft.decisions.grid import Shape
from ckpt.abft.numbers.triangle import Parts, cholesky_factor, packed, packed_size, upper_triangle

SHAPES = [Shape(1, 1, 7, 2), Shape(2, 2, 24, 3), Shape(3, 2, 30, 4), Shape(2, 3, 31, 2), Shape(5, 2, 8, 4)]


def parts_of(shape: Shape, whole: np.ndarray) -> Parts:
    found = {}
    for p in range(shape.P):
        rows = whole[shape.row_numbers(p)].reshape(-1, shape.groups, shape.Q, shape.nb)
        for v in range(shape.Q):
            numbers = rows[:, :, v].reshape(len(rows), shape.groups * shape.nb)
            found[p, v] = packed(shape, p, numbers)
            assert len(found[p, v]) == packed_size(shape, p)
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_what_all_have_packed_is_the_upper_triangle(shape: Shape, kind: str) -> None:
    random, dtype = np.random.default_rng(1), np.dtype(kind)
    whole = np.triu(random.normal(size=(shape.order, shape.order)) * (1 + 2j * (dtype.kind == "c")))
    whole = (whole.real if dtype.kind == "f" else whole).astype(dtype)
    found = upper_triangle(shape, parts_of(shape, whole), dtype)
    assert found.dtype == dtype and np.array_equal(found, whole)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_the_factor_is_made_of_the_parts(shape: Shape, kind: str) -> None:
    random, dtype = np.random.default_rng(2), np.dtype(kind)
    half = random.normal(size=(shape.order, shape.order)) + 1j * random.normal(
        size=(shape.order, shape.order)
    )
    half = (half.real if dtype.kind == "f" else half).astype(dtype)
    lower = np.linalg.cholesky(half @ half.conj().T + np.eye(shape.order))
    upper = np.diagonal(lower)[:, None] * lower.conj().T
    found = cholesky_factor(shape, parts_of(shape, upper), dtype)
    assert found.dtype == dtype and np.allclose(found, lower, rtol=1e-13, atol=0)
    assert np.array_equal(found, np.tril(found))

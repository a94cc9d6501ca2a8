"""Kernels: factorisation of panels, triangular solves; against numpy, of all kinds of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpt.abft.numbers import dense

KINDS = ("float32", "float64", "complex64", "complex128")


def numbers(random: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    found = random.normal(size=shape)
    return (found + 1j * random.normal(size=shape) if "complex" in kind else found).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (8, 8), (50, 20), (64, 33), (8200, 32)])
def test_a_panel_is_p_l_u(rows: int, columns: int, kind: str) -> None:
    random = np.random.default_rng(rows * columns)
    panel = numbers(random, (rows, columns), kind)
    lu = panel.copy()
    pivots, good = dense.factorise(lu)
    assert good == columns and lu.dtype == np.dtype(kind)
    for t, pivot in enumerate(pivots):
        panel[[t, pivot]] = panel[[pivot, t]]
    lower, upper = np.tril(lu, -1)[:, :columns] + np.eye(rows, columns), np.triu(lu[:columns])
    close = 100 * np.finfo(kind).eps * rows
    assert np.abs(lower @ upper - panel).max() < close
    assert np.abs(lower).max() <= 1 + close or "complex" in kind


def test_a_column_without_a_pivot_is_named() -> None:
    panel = np.random.default_rng(1).normal(size=(40, 20))
    panel[:, 13] = 0
    assert dense.factorise(panel.copy())[1] == 13
    assert dense.factorise(np.zeros((4, 2)))[1] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 8, 9, 40])
def test_triangular_solves(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    square, right = numbers(random, (size, size), kind) / size, numbers(random, (size, 3), kind)
    np.fill_diagonal(square, 2)
    close = 1000 * np.finfo(kind).eps
    lower = np.tril(square, -1) + np.eye(size)
    assert np.abs(lower @ dense.solve_lower(square, right) - right).max() < close
    assert np.abs(np.triu(square) @ dense.solve_upper(square, right) - right).max() < close


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "complex128"])
def test_a_sum_of_arrays_has_the_rounding_of_one_addition(kind: str) -> None:
    random = np.random.default_rng(1)
    terms = [random.normal(size=(30, 20)) * 10.0 ** random.integers(-3, 3) for _ in range(12)]
    if "complex" in kind:
        terms = [term + 1j * random.normal(size=term.shape) for term in terms]
    arrays = [term.astype(kind) for term in terms]
    exact = sum(array.astype(np.clongdouble) for array in arrays)
    found = dense.summed(arrays[0], arrays[1:])
    assert found.dtype == kind
    for part in (np.real, np.imag):
        off = np.abs(part(found) - part(exact))
        assert (off <= 1.01 * np.finfo(kind).eps / 2 * np.abs(part(exact)) + 1e-30).all()

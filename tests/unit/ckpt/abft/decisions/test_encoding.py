"""Weights of checksums, what is computed back of them, and the solution of a system in which columns were replaced."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ckpt.abft.decisions.encoding import (
    Row,
    condition,
    row_of,
    sign,
    solution,
    subtraction,
    unit,
    weights,
)


def test_weights_of_degree_0_are_plus_and_minus_1_and_differ_between_encodings() -> None:
    found = np.array([weights(encoding, group, 8) for encoding in range(20) for group in range(50)])
    assert set(np.unique(found)) == {-1, 1}
    assert abs(found.mean()) < 0.05 and np.abs(found.mean(axis=0)).max() < 0.15
    assert np.abs(np.corrcoef(found.T) - np.eye(8)).max() < 0.15
    assert sign(3, 2, 1) == weights(3, 2, 4)[1]


def true(Q: int) -> list[Row]:
    return [unit(q, Q) for q in range(Q)]


@pytest.mark.parametrize("Q", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_any_columns_can_be_told_apart_by_as_many_columns_of_checksums(Q: int, lost: int) -> None:
    """The bound of the condition number is that of one, two or three lost columns of at most eight."""
    for group in range(20):
        for gone in combinations(range(Q), min(lost, Q)):
            rows = true(Q)
            for degree, d in enumerate(gone):
                rows[d] = weights(0, group, Q, degree)
            assert condition(tuple(rows)) < (100, 1000, 1e5)[lost - 1]
            found = np.linalg.cond(np.array(rows), np.inf)
            assert condition(tuple(rows)) == pytest.approx(max(1.0, found), rel=1e-9)


def test_signs_alone_cannot_tell_two_lost_columns_apart() -> None:
    """Why further columns have other weights: with signs alone half of the groups are singular."""
    rows = [[weights(encoding, group, 2) for encoding in (0, 1)] for group in range(40)]
    assert 10 < sum(np.linalg.matrix_rank(np.array(of)) < 2 for of in rows) < 30
    assert condition(((1.0, -1.0), (-1.0, 1.0))) == np.inf


def test_a_block_that_is_computed_back_is_the_one_that_was_held() -> None:
    random = np.random.default_rng(1)
    for group in range(50):
        Q = int(random.integers(2, 6))
        rows, wanted = true(Q), unit(0, Q)
        rows[0], rows[1] = weights(0, group, Q), weights(0, group, Q, 1)
        for each in (wanted, weights(5, group, Q), rows[0]):
            much = subtraction(tuple(rows), each)
            assert np.allclose(row_of(much, rows), each)
    assert subtraction(((1.0, 0.0), (-1.0, -1.0)), (0.0, 1.0)) == (-1.0, -1.0), "signs alone: exact"
    with pytest.raises(ZeroDivisionError):
        subtraction(((1.0, -1.0), (-1.0, 1.0)), unit(0, 2))


@pytest.mark.parametrize("Q", [1, 2, 5])
def test_the_solution_follows_from_that_of_the_replaced_system(Q: int) -> None:
    random, nb, groups = np.random.default_rng(Q), 3, 4
    matrix = random.normal(size=(groups * Q * nb, groups * Q * nb))
    x = random.normal(size=(len(matrix), 2))
    rows = {}
    for group in (0, 1, 3):
        of = true(Q)
        of[0] = weights(0, group, Q)
        of[-1] = row_of(weights(1, group, Q, 1), of)
        rows[group] = of
    current = matrix.copy()
    blocks, held = current.reshape(len(matrix), groups, Q, nb), matrix.reshape(len(matrix), groups, Q, nb)
    for group, of in rows.items():
        for v in range(Q):
            blocks[:, group, v] = sum(of[v][q] * held[:, group, q] for q in range(Q))
    y = np.linalg.solve(current, matrix @ x)
    assert np.allclose(solution(y, rows, Q, nb), x)
    assert not np.allclose(y, x), "to forget T would be noticed"
    assert solution(y[:, :0], rows, Q, nb).shape == (len(matrix), 0), "no right-hand side"

"""Signs, and the solution of a system in which columns were replaced."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt.abft.decisions.encoding import Replacement, sign, signs, solution


def test_signs_are_plus_and_minus_and_differ_between_encodings() -> None:
    found = np.array([signs(encoding, group, 8) for encoding in range(20) for group in range(50)])
    assert set(np.unique(found)) == {-1, 1}
    assert abs(found.mean()) < 0.05 and np.abs(found.mean(axis=0)).max() < 0.15
    assert np.abs(np.corrcoef(found.T) - np.eye(8)).max() < 0.15
    assert sign(3, 2, 1) == signs(3, 2, 4)[1]


def replaced(matrix: np.ndarray, replacement: Replacement, Q: int, nb: int) -> np.ndarray:
    found = matrix.copy()
    blocks = found.reshape(len(matrix), -1, Q, nb)
    for group in replacement.groups:
        weights = signs(replacement.encoding, group, Q)
        total = sum(weights[q] * blocks[:, group, q] for q in range(Q))
        blocks[:, group, replacement.column] = total
    return found


@pytest.mark.parametrize("Q", [1, 2, 5])
def test_the_solution_follows_from_that_of_the_replaced_system(Q: int) -> None:
    random, nb, groups = np.random.default_rng(Q), 3, 4
    matrix = random.normal(size=(groups * Q * nb, groups * Q * nb))
    x = random.normal(size=(len(matrix), 2))
    history = [
        Replacement(0, 2, 0, frozenset(range(groups))),
        Replacement(Q - 1, 3, 1, frozenset({1, 3})),
        Replacement(0, 4, 2, frozenset({3})),
    ]
    current = matrix
    for replacement in history:
        current = replaced(current, replacement, Q, nb)
    y = np.linalg.solve(current, matrix @ x)
    assert np.allclose(solution(y, history, Q, nb), x)
    assert not np.allclose(y, x) or Q == 1, "to forget T would be noticed"

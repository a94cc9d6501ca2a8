"""sympy: rings of polynomials, whose own way of being pickled fails."""

from __future__ import annotations

import pytest

from tests.unit.ckpt.image.support import copy_of

sympy = pytest.importorskip("sympy")


def test_polynomials_keep_their_ring() -> None:
    """Their ring's ``__getstate__`` changes a dictionary while it goes through it, so the checkpoint failed."""
    ring, a, b = sympy.ring("a,b", sympy.ZZ)
    power, difference = (a + 3 * b) ** 3, a**2 - b
    copies = copy_of((ring, power, difference, {power: 1}))
    assert copies[1].ring is copies[2].ring is copies[0] == ring
    assert str(copies[1] * copies[2]) == str(power * difference)
    assert copies[3][copies[1]] == 1 and copies[0].from_expr(sympy.Symbol("a") + 1) == a + 1

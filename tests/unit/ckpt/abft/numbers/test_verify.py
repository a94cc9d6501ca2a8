"""Wrong numbers in one process: every kind, at any time, is put right or told; rounding is no alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.steps import trailing_group
from ckpt.abft.numbers.local import Local
from ckpt.abft.numbers.verify import TURNS, Corrupt, Sums


def factorised(
    seed: int, flips: dict[int, Any], kind: str = "float64", scale: float = 1.0
) -> tuple[Local, Any]:
    """A factorisation on one process, verified after each step; `flips`: by step, what is done to its numbers before."""
    random, shape = np.random.default_rng(seed), Shape(1, 1, 48, 8)
    matrix = (random.normal(size=(48, 48)) * scale).astype(kind)
    local = Local(shape, 0, matrix.dtype, 1)
    local.numbers[:, :48], local.numbers[:, 48] = matrix, 1
    local.watch()
    assert local.sums is not None
    for k in range(shape.blocks):
        if k in flips:
            flips[k](local.numbers)
        panel = local.factorise(k, {0: local.part(k)})[0]
        start = trailing_group(shape, k, 0, ()) * shape.nb
        for _ in local.applying(k, panel, start, local.solve(k, panel, start, {}), True):
            pass
        local.sums.verify_share((k + 1) * shape.nb, start)
    local.sums.verify()
    return local, matrix


def right(local: Local, matrix: Any) -> bool:
    """Linpack's residual: how far x is off depends on the condition of the matrix too (seed 7077)."""
    x = np.linalg.solve(np.triu(local.numbers[:, :48]), local.numbers[:, 48])
    scale = np.abs(matrix).sum(axis=1).max() * np.abs(x).max() + 1
    return bool(np.abs(matrix @ x - 1).max() <= 16 * np.finfo(float).eps / 2 * scale * 48)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_rounding_is_no_alarm(kind: str, scale: float) -> None:
    for seed in range(10):
        local, _ = factorised(seed, {}, kind, scale)
        assert local.sums is not None and (local.sums.corrected, local.sums.redone) == (0, 0)


@pytest.mark.soak
def test_rounding_is_no_alarm_in_a_million_checks() -> None:
    for seed in range(80_000):
        local, _ = factorised(seed, {}, ("float32", "float64")[seed % 2])
        assert local.sums is not None and (local.sums.corrected, local.sums.redone) == (0, 0)


def flip(seed: int) -> tuple[dict[int, Any], int]:
    random = np.random.default_rng(seed)
    step, bit, i, j = (int(random.integers(top)) for top in (6, 64, 48, 49))

    def change(numbers: Any) -> None:
        numbers.view(np.uint64)[i, j] ^= np.uint64(1) << np.uint64(bit)

    return {step: change}, bit


def outcomes(seeds: range) -> dict[str, int]:
    found = {"put right": 0, "told": 0, "too small": 0}
    for seed in seeds:
        flips, _ = flip(seed)
        try:
            with np.errstate(all="ignore"):
                local, matrix = factorised(seed, flips)
        except Corrupt:
            found["told"] += 1
            continue
        assert right(local, matrix), f"seed {seed}: a wrong solution"
        assert local.sums is not None
        found["put right" if local.sums.corrected else "too small"] += 1
    return found


def test_no_flipped_bit_makes_a_wrong_solution() -> None:
    found = outcomes(range(150))
    assert found["put right"] > 40, found


@pytest.mark.soak
def test_no_flipped_bit_makes_a_wrong_solution_of_10_000() -> None:
    print(outcomes(range(10_000)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1e-3])
def test_one_wrong_number_is_put_right(value: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(30, 20))
    before = numbers.copy()
    sums = Sums(numbers)
    numbers[17, 4] = value
    sums.verify()
    assert np.allclose(numbers, before, rtol=0, atol=1e-13) and sums.corrected == 1
    sums.verify()
    assert sums.corrected == 1


def test_two_wrong_numbers_are_told() -> None:
    numbers = np.random.default_rng(1).normal(size=(30, 20))
    sums = Sums(numbers)
    numbers[17, 4] += 1
    numbers[3, 9] -= 1
    with pytest.raises(Corrupt, match="local row"):
        sums.verify()


@pytest.mark.parametrize(("i", "j"), [(3, 30), (30, 3), (3, 3)])
def test_a_wrong_number_in_what_is_finished_is_put_right_when_all_is_compared(i: int, j: int) -> None:
    numbers = np.random.default_rng(1).normal(size=(40, 40))
    sums, truth = Sums(numbers), numbers.copy()
    sums.verify_share(10, 20)
    numbers[i, j] += 1
    sums.verify_share(12, 20)
    sums.verify()
    assert sums.corrected == 1 and np.allclose(numbers, truth, rtol=1e-12, atol=1e-12)


def test_what_was_finished_may_be_set_again() -> None:
    """As a share that is undone does."""
    numbers = np.random.default_rng(2).normal(size=(40, 40))
    sums = Sums(numbers)
    for rows, columns in ((slice(None), slice(0, 8)), ([2, 30], slice(16, 40)), (slice(5, 9), slice(30, 40))):
        sums.verify_share(10, 20)
        sums.set(rows, columns, np.full_like(numbers[rows, columns], 7))
        sums.verify_share(10, 24)
    sums.subtracted(slice(4, 40), slice(8, None), np.ones((36, 1)), np.ones((1, 32)), np.full(1, 32.0))
    numbers[4:, 8:] -= 1
    sums.verify_share(12, 24)
    sums.verify()
    assert sums.corrected == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_block_that_is_set_again_counts_as_what_it_is(again: bool) -> None:
    """The sums of a part that was compared are kept, and below a finished block all is zero; unless they are set again."""
    numbers = np.random.default_rng(2).normal(size=(40, 40))
    sums, truth, block = Sums(numbers), numbers.copy(), slice(8, 16)
    sums.verify_share(8, 8)
    assert not sums.verify_part(block, 8, numbers[8:, block].copy())
    if again:
        sums.set(slice(None), block, truth[:, block] + 1)
    sums.finish(8, block, truth[:8, block])
    if again:
        sums.set(slice(20, 24), block, truth[:4, block])
    for row in (16, 24):
        for _ in range(2 * TURNS):
            sums.verify_share(row, 16)
    sums.verify()
    assert sums.corrected == 0


@pytest.mark.parametrize("height", [1, 7, 8, 40, 61])
@pytest.mark.parametrize("moved", [0, 1, 3])
def test_each_row_that_still_changes_is_compared_at_one_of_a_few_looks(height: int, moved: int) -> None:
    """`moved`: so many rows are finished between two looks."""
    sums = Sums(np.ones((height, 4)))
    seen: list[slice] = []
    sums.verify_rows = seen.append  # type: ignore[method-assign, assignment]
    last, row = dict.fromkeys(range(height), 0), 0
    for look in range(1, 4 * TURNS):
        if row >= height:
            break
        sums.verify_share(row, 0)
        for place in range(seen[-1].start, seen[-1].stop):
            last[place] = look
        assert all(look - last[place] <= TURNS for place in range(row, height)), (look, last)
        row += moved


def test_a_wrong_number_where_the_steps_go_on_is_put_right_within_some_looks() -> None:
    numbers = np.random.default_rng(3).normal(size=(40, 40))
    sums, truth = Sums(numbers), numbers.copy()
    sums.verify_share(10, 20)
    numbers[30, 30] = np.inf
    for _ in range(TURNS + 1):
        sums.verify_share(12, 22)
    assert sums.corrected == 1 and np.allclose(numbers, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("where", ["panel", "row of the block", "row that moves there"])
def test_what_is_about_to_be_used_is_compared_without_a_look(where: str) -> None:
    random, shape = np.random.default_rng(4), Shape(1, 1, 48, 8)
    local = Local(shape, 0, np.dtype(float), 1)
    local.numbers[...] = random.normal(size=local.numbers.shape)
    local.numbers[40, 0] = 1e3  # the first pivot
    truth = local.numbers.copy()
    local.watch()
    assert local.sums is not None
    if where == "panel":
        local.numbers[20, 3] += 1
    part = local.part(0)
    assert np.allclose(part, truth[:, :8], rtol=1e-12, atol=1e-12), "what is used has been put right"
    panel = local.factorise(0, {0: part})[0]
    if where != "panel":
        local.numbers[3 if where == "row of the block" else 40, 30] += 1
    local.solve(0, panel, 8, {})
    assert local.sums.corrected == 1 and np.allclose(local.numbers, truth, rtol=1e-12, atol=1e-12)

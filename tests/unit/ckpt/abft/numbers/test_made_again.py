"""What a step makes of right numbers is made again when it is wrong: panels of each factorisation, and block rows of U."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.abft.decisions.grid import Shape
from ckpt.abft.numbers import local as local_numbers
from ckpt.abft.numbers.local import Local, Update
from ckpt.abft.numbers.methods import LocalCholesky, LocalQR
from ckpt.abft.numbers.verify import Corrupt, is_product, sums_of_columns

KINDS = pytest.mark.parametrize("kind", [Local, LocalCholesky, LocalQR])


def filled(kind: type[Local], dtype: str = "float64", order: int = 48, scale: float = 1.0) -> Local:
    random, shape = np.random.default_rng(order), Shape(1, 1, order, 8)
    numbers = random.normal(size=(order, order)).astype(dtype) * np.dtype(dtype).type(scale)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * random.normal(size=(order, order)).astype(dtype)
    if kind is LocalCholesky:
        numbers = numbers @ numbers.conj().T + np.eye(order, dtype=dtype)
    local = kind(shape, 0, np.dtype(dtype), 1)
    local.numbers[:, :order] = numbers
    local.watch()
    return local


def spoiling(local: Local, times: int, spoil: Callable[[Any], None]) -> list[Any]:
    """Let the panel be wrong so many times."""
    make, made = local._factorised, list[Any]()

    def wrong(k: int, whole: Any, places: dict[int, Any]) -> Any:
        found = make(k, whole, places)
        made.append(found)
        if len(made) <= times:
            spoil(whole)
        return found

    local._factorised = wrong  # type: ignore[method-assign]
    return made


@KINDS
@pytest.mark.parametrize("place", [(2, 5), (5, 2), (30, 3)], ids=["upper", "lower", "below"])
def test_a_panel_that_is_wrong_is_made_again(kind: type[Local], place: tuple[int, int]) -> None:
    local = filled(kind)
    assert local.sums is not None
    right = filled(kind).factorise(0, {0: local.part(0)})[0].lower

    def spoil(whole: Any) -> None:
        whole[place] += 1e-3

    made = spoiling(local, 2, spoil)
    found = local.factorise(0, {0: local.part(0)})[0].lower
    assert len(made) == 3 and local.sums.redone == 2 and np.array_equal(found, right)


@KINDS
def test_a_process_that_makes_it_wrong_every_time_gives_up(kind: type[Local]) -> None:
    local = filled(kind)

    def spoil(whole: Any) -> None:
        whole[3, 3] = np.nan

    spoiling(local, 9, spoil)
    with pytest.raises(Corrupt, match="3 times"):
        local.factorise(0, {0: local.part(0)})


def test_a_block_row_of_u_that_is_wrong_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    local, solve, made = filled(Local), local_numbers.solve_lower, list[Any]()

    def wrong(lower: Any, right: Any) -> Any:
        made.append(solve(lower, right))
        if len(made) == 1:
            made[0][2, 3] += 1e-6
        return made[-1]

    panel = local.factorise(0, {0: local.part(0)})[0]
    monkeypatch.setattr(local_numbers, "solve_lower", wrong)
    update = local.solve(0, panel, 8, {})
    assert local.sums is not None and local.sums.redone == 1 and update.upper is made[1]


@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("order", "scale"), [(48, 1.0), (48, 1e-15), (48, 1e15), (800, 1.0)])
def test_rounding_makes_nothing_again(kind: type[Local], dtype: str, order: int, scale: float) -> None:
    local = filled(kind, dtype, order, scale)
    panel = local.factorise(0, {0: local.part(0)})[0]
    if kind is Local:
        local.solve(0, panel, 8, {})
    assert local.sums is not None and local.sums.redone == 0


@pytest.mark.parametrize("seed", range(100))
def test_sums_of_a_product_differ_by_rounding_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    height, width = int(random.integers(8, 3000)), int(random.integers(1, 40))
    kind = ("float32", "float64")[seed % 2]
    lower, upper = (
        (random.uniform(low, 1, size) * 10.0 ** random.integers(-6, 6, size)).astype(kind)
        for low, size in ((random.choice([-1, 0]), (height, 8)), (-1, (8, width)))
    )
    sums = sums_of_columns(lower @ upper)
    assert is_product(sums, sums_of_columns(lower), sums_of_columns(np.abs(lower)), upper, height)


def test_a_panel_and_an_update_are_whole_until_a_bit_of_them_flips() -> None:
    panel = filled(Local).factorise(0, {0: filled(Local).part(0)})[0]
    panel.seal()
    assert panel.is_whole()
    panel.lower[40, 3] *= -1
    assert not panel.is_whole()
    update = Update(0, np.ones((8, 5)), {0: np.ones((2, 5)), 1: np.ones((0, 5))}).sealed()
    assert update.is_whole()
    update.out[0][1, 1] = 2
    assert not update.is_whole()

"""Checked products: wrong numbers are put right or computed again; rounding is no alarm; bad input is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt import abft
from ckpt.abft.numbers.checked import checked_product
from ckpt.abft.operations import product as room
from tests.seeds import seed_of_the_commit

KINDS = ("float32", "float64", "complex64", "complex128")


def numbers(random: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    """Numbers of one of several distributions, all of them hard for sums in another way."""
    choice = random.integers(6)
    found = random.normal(size=shape)
    if choice == 1:
        found = random.uniform(size=shape)
    elif choice == 2:
        found *= 10.0 ** random.uniform(-6, 6, size=(*shape[:-1], 1))
    elif choice == 3:
        found *= 10.0 ** random.uniform(-6, 6, size=shape[-1])
    elif choice == 4:
        found = np.where(random.uniform(size=shape) < 0.1, found, 0)
    elif choice == 5:
        found = np.full(shape, 0.1)
    if kind.startswith("complex"):
        found = found + 1j * random.normal(size=shape)
    return found.astype(kind)


def shape(random: np.random.Generator, most: int = 60) -> tuple[int, int, int]:
    return tuple(int(each) for each in random.integers(1, most, size=3))  # type: ignore[return-value]


def flip(product: Any, random: np.random.Generator, count: int) -> None:
    """Flip one bit in each of so many numbers."""
    flat = product.reshape(-1)
    for at in random.choice(flat.size, count, replace=False):
        bits = flat[at : at + 1].view(np.uint8)
        bits[random.integers(bits.size)] ^= np.uint8(1 << random.integers(8))


def harmless(product: Any, right: Any, a: Any, b: Any) -> bool:
    """Is it within what rounding of the sums of rows and columns does?"""
    wide = np.complex128 if product.dtype.kind == "c" else np.float64
    a, b, k = np.abs(a.astype(wide)), np.abs(b.astype(wide)), a.shape[-1]
    size = (a @ b).sum(axis=-1, keepdims=True) + (a @ b).sum(axis=-2, keepdims=True)
    bound = 16 * np.finfo(product.dtype).eps * (k + 4) * size + np.finfo(product.dtype).tiny * 1e4
    with np.errstate(all="ignore"):
        return bool((np.abs(product.astype(wide) - right.astype(wide)) <= bound).all())


def flips(seed: int, many: int) -> dict[str, int]:
    """Products with flipped bits: what became of them."""
    found = {"corrected": 0, "computed again": 0, "below the threshold": 0}
    for number in range(many):
        random = np.random.default_rng([seed, number])
        kind = KINDS[random.integers(4)]
        m, k, n = shape(random)
        a, b = numbers(random, (m, k), kind), numbers(random, (k, n), kind)
        count = min(int(random.choice([1, 1, 2, 5])), m * n)
        times = 0

        def multiply(a: Any, b: Any, random: Any = random, count: int = count) -> Any:
            nonlocal times
            product, times = a @ b, times + 1
            if times == 1:
                flip(product, random, count)
            return product

        with np.errstate(all="ignore"):
            product, findings = checked_product(a, b, multiply)
        assert harmless(product, a @ b, a, b), f"seed {seed}, number {number}: {findings}"
        found[findings[0].what if findings else "below the threshold"] += 1
    return found


def test_flipped_bits_make_no_wrong_product() -> None:
    found = flips(seed_of_the_commit(), 300)
    assert found["corrected"] > 60 and found["computed again"] > 15, found


@pytest.mark.soak
def test_ten_thousand_flips(soaked: Callable[..., None]) -> None:
    found = flips(seed_of_the_commit(), 10_000)
    soaked(
        "abft: flips in checked products",
        10_000,
        **{name.replace(" ", "_"): each for name, each in found.items()},
    )


def checks_without_alarm(seed: int, checks: int, most: int) -> int:
    """Compare at least so many sums of right products; how many they were."""
    done = 0
    while done < checks:
        random = np.random.default_rng([seed, done])
        kind, (m, k, n) = KINDS[random.integers(4)], shape(random, most)
        a, b = numbers(random, (m, k), kind), numbers(random, (k, n), kind)
        product, findings = checked_product(a, b, np.matmul)
        assert not findings, f"seed {seed}, after {done} checks: {findings}"
        assert product.tobytes() == (a @ b).tobytes()
        done += m + n
    return done


def test_rounding_is_no_alarm() -> None:
    checks_without_alarm(seed_of_the_commit(), 20_000, 80)


@pytest.mark.soak
def test_a_million_checks_without_an_alarm(soaked: Callable[..., None]) -> None:
    soaked("abft: checks without an alarm", checks_without_alarm(seed_of_the_commit(), 1_000_000, 300))


def test_a_small_error_is_seen() -> None:
    """One of a hundred times the rounding of its row's sum."""
    random = np.random.default_rng(3)
    a, b = random.normal(size=(200, 300)), random.normal(size=(300, 100))

    def multiply(a: Any, b: Any) -> Any:
        product = a @ b
        product[17, 23] += 1e-10
        return product

    product, findings = checked_product(a, b, multiply)
    assert [(each.what, each.place) for each in findings] == [("corrected", (17, 23))]
    assert np.abs(product - a @ b).max() < 1e-12


def test_what_is_wrong_each_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply(a: Any, b: Any) -> Any:
        product = a @ b
        product[2:4, 5] += 1
        return product

    monkeypatch.setattr(room, "multiply", multiply)
    told: list[Any] = []
    with pytest.raises(
        abft.WrongProduct, match=r"10 × 7 and 7 × 9 is wrong in 2 numbers or more, at \(2, 5\)"
    ):
        abft.checked_matmul(np.ones((10, 7)), np.ones((7, 9)), told=told.append)


def test_who_is_told_must_be_a_function() -> None:
    with pytest.raises(abft.InputError, match="told must be a function, not list"):
        abft.checked_matmul(np.ones((2, 2)), np.ones(2), told=[])  # type: ignore[arg-type]


def test_the_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply(a: Any, b: Any) -> Any:
        product = a @ b
        product[-1] = np.nan
        return product

    monkeypatch.setattr(room, "multiply", multiply)
    told: list[Any] = []
    found = abft.checked_matmul(np.ones((4, 3)), np.ones(3), told=told.append)
    assert told[0].what == "computed again" or told[0].place == (3, 0)
    assert found.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        *[((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (7, 3, 4))],
        *[((0, 3), (3, 2)), ((2, 0), (0, 2)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 2)), ((1, 1), (1, 1))],
        ((6, 3), (2, 3, 1)),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_of_matmul_and_an_error_anywhere_is_put_right(
    a: tuple[int, ...], b: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(size=a).astype(kind), random.normal(size=b).astype(kind)
    right = one @ other
    assert np.array_equal(abft.checked_matmul(one, other), right)
    assert abft.checked_matmul(one, other).dtype == right.dtype
    if a[-1] == 0:
        return  # nothing is multiplied, and nothing checked

    def multiply(a: Any, b: Any) -> Any:
        product = np.array(a @ b)
        product.reshape(-1)[-1:] += 1
        return product if product.ndim else product[()]

    monkeypatch.setattr(room, "multiply", multiply)
    found = abft.checked_matmul(one, other)
    assert found.shape == right.shape and np.allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.eye(2, dtype=int), np.eye(2), "a is of int64: products of float32, .*are checked"),
        (np.eye(2), [[True, False], [False, True]], "b is of bool"),
        (np.eye(2), np.eye(2, dtype=object), "b is of object"),
        (np.eye(2, dtype="float16"), np.eye(2), "a is of float16"),
        (np.eye(2), [[1.0], [1.0, 2.0]], "b is no array"),
        (np.ma.masked_array(np.eye(2)), np.eye(2), "a is a masked array"),
        (np.eye(2), np.eye(3), "a is 2 × 2 and b is 3 × 3: a must have as many columns"),
        (np.ones((2, 2, 2)), np.ones((3, 2, 2)), "their stacks do not fit"),
        (np.float64(3), np.eye(2), "a is a single number"),
        (np.array([[1, np.nan], [1, 1]]), np.eye(2), r"a\[0, 1\] is nan"),
        (np.eye(2), np.array([[1, 1], [1, -np.inf]]), r"b\[1, 1\] is -inf"),
        (np.eye(2), np.array([1, np.nan]), r"b\[1\] is nan"),
        (np.full((2, 2), 1e200), np.eye(2), "a has numbers whose squares overflow"),
        (np.full((2, 2), 1e30, "f4"), np.full((2, 2), 1e30, "f4"), r"the product overflows at \(0, 0\)"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_cannot_be_checked_is_refused(a: Any, b: Any, message: str) -> None:
    with pytest.raises(abft.InputError, match=message):
        abft.checked_matmul(a, b)


def test_every_rule_is_needed() -> None:
    """Without the comparison of suspects, equal numbers, whose roundings all go one way, would be an alarm."""
    a = np.full((200, 300), 0.1, dtype="float32")
    check = __import__("ckpt.abft.numbers.checked", fromlist=["_Check"])._Check(a, a.T, a @ a.T)
    rows, columns = check.suspects()
    assert rows.any() and columns.any() and not list(check.wrong())


class TestTensors:
    """torch is large: where it is not installed these are skipped."""

    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("kind", [*KINDS, "bfloat16", "float16"])
    def test_a_wrong_number_is_put_right_and_rounding_is_no_alarm(
        self, torch: Any, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        for m, k, n in [(1, 1, 1), (30, 40, 20), (5, 400, 7), (200, 64, 100)]:
            a = torch.randn(m, k, generator=generator).to(getattr(torch, kind))
            b = torch.randn(k, n, generator=generator).to(getattr(torch, kind))
            told: list[Any] = []
            right = abft.checked_matmul(a, b, told=told.append)
            assert torch.equal(right, a @ b) and not told

            def multiply(a: Any, b: Any) -> Any:
                product = a @ b
                product[-1, 0] += 1000
                return product

            with monkeypatch.context() as patch:
                patch.setattr(room, "multiply", multiply)
                found = abft.checked_matmul(a, b, told=told.append)
            assert [(each.what, each.place) for each in told] == [("corrected", (m - 1, 0))]
            assert torch.allclose(found, right, rtol=1e-2 if "float16" in kind else 1e-4, atol=1e-2)

    def test_gradients_pass_through(self, torch: Any) -> None:
        a, b = torch.ones(3, 4, requires_grad=True), torch.ones(2, 4, 5, requires_grad=True)
        abft.checked_matmul(a, b).sum().backward()
        assert a.grad.tolist() == [[10.0] * 4] * 3 and b.grad.shape == b.shape

    def test_what_cannot_be_checked_is_refused(self, torch: Any) -> None:
        eye = torch.eye(2)
        for a, b, message in [
            (eye.int(), eye, "a is of int32"),
            (eye, np.eye(2), "one factor is a tensor"),
            (eye, eye.double(), "a is torch.float32 on cpu, b is torch.float64 on cpu"),
            (eye, eye.to_sparse(), "b is a tensor of layout torch.sparse_coo"),
            (eye, eye * torch.nan, r"b[0, 0] is nan"),
            (eye, torch.ones(3, 2), "a must have as many columns"),
        ]:
            with pytest.raises(abft.InputError, match=re.escape(message)):
                abft.checked_matmul(a, b)

"""Combinations of several arrays at once: the bits are those of one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from ckpt.reduction import copies  # noqa: E402
from ckpt.reduction.body import OPERATIONS, Body  # noqa: E402
from ckpt.reduction.combining import Combining  # noqa: E402
from ckpt.reduction.copies import LEAST_BYTES, Memory  # noqa: E402
from ckpt.reduction.members import Computing  # noqa: E402
from ckpt.reduction.values import Combination  # noqa: E402


def one_after_the_other(op: str, left: Any, right: Any, more: Any) -> Any:
    function = OPERATIONS[op][0]
    value = function(left, right).astype(left.dtype)
    for each, is_left in more:
        value = (function(each, value) if is_left else function(value, each)).astype(left.dtype)
    return value


@pytest.mark.parametrize("op", OPERATIONS)
def test_several_at_once_have_the_bits_of_one_after_the_other(op: str) -> None:
    random = np.random.default_rng(1)
    dtype = "f8" if "f" in OPERATIONS[op][1] else "i2"
    for shape in ((20, 50), (1,), (0, 3), ()):
        arrays = [np.asarray(random.random(shape) * 9 - 4).astype(dtype) for _ in range(4)]
        more = ((arrays[2], True), (arrays[3], False))
        for some in ((), more[:1], more):
            out = np.empty_like(arrays[0])
            places = (None,) * (2 + len(some))
            assert Combination(op, arrays[0], arrays[1], some, out, places, Memory(0)).run() is None
            assert out.tobytes() == one_after_the_other(op, arrays[0], arrays[1], some).tobytes()


@pytest.mark.parametrize("which", range(4))
def test_the_one_that_was_taken_away_is_named(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "folder", lambda: tmp_path)
    owner, reader = Memory(0), Memory(1)
    pieces = [owner.put(np.full(LEAST_BYTES, each)) for each in range(4)]
    places = tuple(piece.where for piece in pieces if piece is not None)
    arrays = [reader.find(where) for where in places]
    more = ((arrays[2], True), (arrays[3], False))
    combination = Combination("MPI_SUM", arrays[0], arrays[1], more, np.empty_like(arrays[0]), places, reader)
    assert combination.run() is None and (combination.out == 6).all()
    pieces[which] = None
    assert combination.run() == which


def test_a_task_of_what_is_over_is_dropped() -> None:
    """It lay in the thread's queue when it was taken back, and others had ended the reduction: the job failed (KeyError)."""
    back: list[str] = []

    class Mine(Combining):
        def given_back(self) -> None:
            back.append("back")

    combining = Mine(0, 2, 0, 1)
    posted = combining._combine(Computing(("sum", 0), 1, Body(), Body()))
    posted.run(combining)  # type: ignore[arg-type]
    assert back == ["back"]

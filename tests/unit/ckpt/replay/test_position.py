"""Loops: where a program is, and how a new run gets back there."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ckpt.errors import LoopError
from ckpt.replay.position import Level, Tracker


def test_a_fresh_program_is_followed_through_its_loops() -> None:
    tracker = Tracker()
    outer = tracker.enter("outer")
    assert (outer.depth, outer.skip, outer.is_over, outer.restores) == (0, 0, False, False)
    tracker.step_done(0)
    inner = tracker.enter("inner")
    tracker.step_done(inner.depth)
    tracker.step_done(inner.depth)
    assert tracker.position() == [Level([], "outer", 1), Level([], "inner", 2), Level()]
    tracker.leave(inner.depth)
    assert tracker.position() == [Level([], "outer", 1), Level(["inner"])]
    tracker.step_done(0)
    assert tracker.position() == [Level([], "outer", 2), Level()]
    tracker.leave(0)
    assert tracker.position() == [Level(["outer"])]


def test_a_new_run_passes_over_what_was_done_and_restores_at_the_deepest_place() -> None:
    tracker = Tracker([Level(["warm"], "outer", 3), Level(["batch"], "check", 12), Level()])
    assert tracker.enter("warm").is_over
    outer = tracker.enter("outer")
    assert (outer.skip, outer.restores) == (3, False)
    assert tracker.enter("batch").is_over and tracker.is_replaying
    check = tracker.enter("check")
    assert (check.skip, check.restores) == (12, True) and not tracker.is_replaying
    assert tracker.position() == [Level(["warm"], "outer", 3), Level(["batch"], "check", 12), Level()]


def test_a_checkpoint_at_the_end_of_a_loop_is_restored_when_that_loop_is_met() -> None:
    tracker = Tracker([Level(["first", "second"])])
    first = tracker.enter("first")
    assert first.is_over and not first.restores
    second = tracker.enter("second")
    assert second.is_over and second.restores and not tracker.is_replaying


def test_another_loop_than_before_is_an_error_that_names_both() -> None:
    tracker = Tracker([Level([], "solve", 4), Level()])
    with pytest.raises(LoopError, match=r"came to the loop plot.*had come to solve"):
        tracker.enter("plot")


def test_going_on_without_the_inner_loop_is_an_error() -> None:
    tracker = Tracker([Level([], "outer", 4), Level([], "inner", 1), Level()])
    tracker.enter("outer")
    with pytest.raises(LoopError, match="without coming to the loop inner"):
        tracker.step_done(0)
    with pytest.raises(LoopError, match="without coming to the loop inner"):
        tracker.leave(0)


class _Saved(Exception):
    pass


def _program(
    tracker: Tracker, tree: list[object], boundaries: Iterator[bool], trace: list[str], path: str = ""
) -> None:
    """Loops and nested loops of any shape; raises _Saved at the boundary where `boundaries` says so."""
    for place, (name, steps, inside) in enumerate(tree):  # type: ignore[misc]
        entry = tracker.enter(name)
        if entry.restores:
            trace.clear()
        if entry.is_over:
            continue
        for step in range(entry.skip, steps + 1):
            if step > entry.skip:
                tracker.step_done(entry.depth)
            if step == steps:
                tracker.leave(entry.depth)
            if not tracker.is_replaying and next(boundaries):
                raise _Saved
            if step < steps:
                trace.append(f"{path}/{place}.{name}:{step}")
                _program(tracker, inside, boundaries, trace, f"{path}/{place}.{name}:{step}")


def _tree(rng: random.Random, depth: int = 0) -> list[object]:
    if depth == 3:
        return []
    return [(rng.choice("abc"), rng.randrange(3), _tree(rng, depth + 1)) for _ in range(rng.randrange(3))]


@pytest.mark.parametrize("seed", range(60))
def test_stopped_at_any_boundary_a_new_run_does_exactly_the_rest(seed: int) -> None:
    rng = random.Random(seed)
    tree = [("main", 2, _tree(rng)), *_tree(rng)]
    whole: list[str] = []
    _program(Tracker(), tree, iter(lambda: False, True), whole)
    for stop in range(200):
        first: list[str] = []
        tracker = Tracker()
        try:
            _program(tracker, tree, (at == stop for at in range(10_000)), first)
        except _Saved:
            rest: list[str] = []
            _program(Tracker(tracker.position()), tree, iter(lambda: False, True), rest)
            assert first + rest == whole, (seed, stop)
        else:
            assert first == whole
            break

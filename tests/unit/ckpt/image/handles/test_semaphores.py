"""What multiprocessing makes of semaphores comes back with the value that it had when the program stood still."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import resource_tracker, util
from pathlib import Path
from typing import Any

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.transient import refuse_transient
from tests.unit.ckpt.image.support import image_failure, resumed_output

PROGRAM = """
    import multiprocessing, sys
    context = multiprocessing.get_context({method!r})
    some, condition, ready, unready = context.Semaphore(3), context.Condition(), context.Event(), context.Event()
    some.acquire(), ready.set()
    number, numbers = context.Value("i", 7), context.Array("d", [1.5, 2.5])
    bare, point = context.RawArray("h", [5, 6]), context.Barrier(1)
    if __name__ == "__main__":
        driver_tick()
        print(some.get_value(), ready.is_set(), unready.is_set(), number.value, list(numbers), list(bare))
        with number.get_lock(), condition:
            number.value += 1
            numbers[1] = bare[0] = 9
            condition.notify_all()
        def change(number, numbers, bare, unready):
            number.value, numbers[0], bare[1] = number.value + 1, 4.5, 11
            unready.set()
        if {method!r} == "fork":
            process = context.Process(target=change, args=(number, numbers, bare, unready))
            process.start(), process.join()
        else:
            change(number, numbers, bare, unready)
        print(number.value, list(numbers), list(bare), unready.is_set(), point.wait())
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_values_and_events_come_back_and_are_shared_with_new_processes(tmp_path: Path, method: str) -> None:
    """A program that had made one of these got no checkpoint, also when its pools were over."""
    printed = resumed_output(tmp_path, PROGRAM.format(method=method)).splitlines()
    assert printed == ["2 True False 7 [1.5, 2.5] [5, 6]", "9 [4.5, 9.0] [9, 11] True 0"]


@pytest.mark.parametrize(
    ("kind", "remedy"), [("Semaphore(2)", "a BoundedSemaphore can"), ("Barrier(2)", "may wait at it")]
)
def test_what_child_processes_may_hold_is_refused_by_name(tmp_path: Path, kind: str, remedy: str) -> None:
    source = f"""
    import multiprocessing
    held = multiprocessing.{kind}
    with multiprocessing.Pool(1) as pool:
        driver_tick()
    """
    assert remedy in image_failure(tmp_path, source)


def _make() -> None:
    multiprocessing.get_context("spawn").Lock()


def _tell() -> None:
    for _ in range(2):
        resource_tracker.ensure_running()


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
@pytest.mark.parametrize(
    ("where", "name", "call", "reason"),
    [
        (
            resource_tracker.ResourceTracker,
            "_check_alive",
            _tell,
            "the resource tracker of multiprocessing is in use",
        ),
        (util, "register_after_fork", _make, "a semaphore of multiprocessing is being made"),
    ],
)
def test_no_image_is_taken_while_a_semaphore_is_made_or_the_tracker_told(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, call: Callable[[], object], reason: str
) -> None:
    """The call went on with the pipe to the tracker of the former process: BrokenPipeError in `multiprocessing.Lock()`."""
    said: list[str] = []
    plain = getattr(where, name)

    def looking(*args: Any) -> Any:
        try:
            refuse_transient(capture(at="call"))
        except Refused as refused:
            said.append(refused.reason)
        return plain(*args)

    monkeypatch.setattr(where, name, looking)
    run_base(call)
    assert said[0] == reason

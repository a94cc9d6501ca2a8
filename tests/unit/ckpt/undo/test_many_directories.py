"""A program makes, renames and removes thousands of directories: the work for each does not grow with their number.

Counted are instructions of the interpreter, not time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ckpt.undo.planning.plan import Clocks, Log, make_plan
from ckpt.undo.records import FileId, Moved, Name, Outcome, Record, Status
from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def instructions(run: Callable[[], object]) -> int:
    """How many instructions of ckpt.undo a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            if f"{os.sep}undo{os.sep}" not in frame.f_code.co_filename:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def renamings(count: int, *, to_and_fro: bool = False, tick: int = 0, at: str = "/w") -> list[Record]:
    """Directories are renamed into another one, or the same one there and back; a file is written in each."""
    found: list[Record] = []
    for number in range(count):
        time_ns = 10 * number + tick
        source, target = f"{at}/d{number}", f"{at}/done/d{number}"
        if to_and_fro:
            source, target = (f"{at}/d", f"{at}/done/d")[:: 1 if number % 2 == 0 else -1]
        file = FileId(1, 0 if to_and_fro else number, 0)
        directory = Status(file, 0o040755, 2, 0, 0, 0, 0)
        path = f"{at}/d" if to_and_fro else source
        found += [
            Name(source, directory, 0, time_ns),
            Name(target, None, 0, time_ns),
            Moved(path, file, source, target, 0, time_ns),
            Outcome(path, 1, time_ns + 1),
            Name(f"{path}/x{number}", None, 0, time_ns + 2),
        ]
    return found


def removals(count: int) -> list[Record]:
    found: list[Record] = []
    for number in range(count):
        file = FileId(1, number, 0)
        found += [
            Moved(f"/w/d{number}", file, f"/w/d{number}", "", 0, number),
            Outcome(f"/w/d{number}", 0, number),
        ]
    return found


def by_one(count: int) -> None:
    make_plan([Log("0", renamings(count))])


def by_two(count: int) -> None:
    """The other one writes in the same directories."""
    others: list[Record] = [Name(f"/w/done/d{number}/y", None, 0, 10 * number + 5) for number in range(count)]
    make_plan([Log("0", renamings(count)), Log("1", others)])


def to_and_fro_by_two(count: int) -> None:
    both = [renamings(count, to_and_fro=True, tick=tick) for tick in (0, 5)]
    make_plan([Log(str(rank), records) for rank, records in enumerate(both)])


def by_many(count: int) -> None:
    """On two hosts; each of the ranks has renamed its own."""
    logs = [
        Log(str(rank), renamings(5, tick=rank, at=f"/w/{rank}"), f"h{rank % 2}") for rank in range(count // 5)
    ]
    make_plan(logs, Clocks(1, 1))


def removed_in_vain(count: int) -> None:
    make_plan([Log("0", removals(count)), Log("1", renamings(count))])


@pytest.mark.parametrize("work_out", [by_one, by_two, to_and_fro_by_two, by_many, removed_in_vain])
def test_the_plan_of_a_restart_takes_twice_the_steps_for_twice_the_directories(
    work_out: Callable[[int], None],
) -> None:
    once, twice = (instructions(lambda count=count: work_out(count)) for count in (30, 60))  # type: ignore[misc]
    assert once > 1000
    assert twice < 2.3 * once, (once, twice)


def change(count: int) -> None:
    for number in range(count):
        os.mkdir(f"new-{number}")
        os.rename(f"old-{number}", f"new-{number}/d")
    for number in range(count):
        os.rename(f"new-{number}", f"last-{number}")
    for number in range(count):
        os.rename(f"last-{number}/d", f"d-{number}")
        os.rmdir(f"last-{number}")


def test_recording_takes_twice_the_steps_for_twice_the_directories(work: Watched) -> None:
    found = []
    for epoch, count in enumerate((20, 40)):
        for number in range(count):
            os.mkdir(f"old-{number}")
        if epoch:
            work.watch.cut(epoch, ())
        else:
            work.start()
        found.append(instructions(lambda count=count: change(count)))  # type: ignore[misc]
    once, twice = found
    assert once > 1000
    assert twice < 2.3 * once, (once, twice)


def test_a_directory_that_was_renamed_to_and_fro_goes_back_at_once(work: Watched) -> None:
    """All that was known of it was doubled each time: a restart behind forty renamings never came to its end."""
    os.makedirs("state/below")
    Path("state/below/x").write_text("then")
    work.start()
    tree = tree_of(str(work.root))
    for number in range(100):
        os.rename("state", "aside")
        os.mkdir("state")
        Path("state/x").write_text(f"{number}")
        os.rename("aside", "state/below")
        os.rename("state/below", "aside")
        Path("state/x").unlink()
        os.rmdir("state")
        os.rename("aside", "state")
        Path("state/below/x").write_text(f"{number}")
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree

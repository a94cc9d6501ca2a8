"""Ranks do not take their images of one line at the same moment: what one has written before its own, and after another one
had begun to change the same file, is put back, or named."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ckpt.undo import keeping
from ckpt.undo.keeping import Keeper, directory_of, look
from ckpt.undo.logs import read_log
from ckpt.undo.planning.plan import Clocks, Log, make_plan
from ckpt.undo.recorder import OpenFile
from ckpt.undo.records import CLOCK_NS, LastChange, Status
from ckpt.undo.restart.putting_back import put_back
from ckpt.undo.sealing import changes_of, last_changes
from tests.unit.ckpt.undo import test_sequences
from tests.unit.ckpt.undo.test_sequences import KEY, Rank, two_ranks

where = test_sequences.where

SEQUENCES = 600
CELL_BYTES = 4
FAR_NS = 5_000_000_000


class Pair(NamedTuple):
    """Two ranks that change the same files, and what each has changed last before its image."""

    ranks: tuple[Rank, Rank]
    before: list[tuple[str, LastChange]]

    def path(self, name: str) -> str:
        return os.path.join(self.ranks[0].root, name)

    def image(self, number: int, *opened: str) -> None:
        """A rank takes its image of the line, with these files open for writing."""
        rank = self.ranks[number]
        changes = last_changes(rank.recorder.changes, time.time_ns())
        if rank.keeper is not None:
            rank.keeper.close()
        directory = directory_of(rank.job, len(rank.directories), 1, number)
        rank.directories.append(directory)
        rank.keeper = Keeper(directory, KEY, rank.recorder, limit_bytes=1 << 30)
        files = [OpenFile(path, status_of(path), appends=False) for path in map(self.path, opened)]
        assert not rank.keeper.begin(files, is_line_whole=False)
        self.before.extend((os.path.basename(directory), each) for each in changes)

    def append(self, number: int, text: str, name: str = "log") -> None:
        self.ranks[number].tell("append", self.path(name))
        with open(self.path(name), "a") as file:
            file.write(text)

    def patch(self, number: int, cell: int, text: str, name: str = "cells") -> None:
        self.ranks[number].tell("rewrite", self.path(name))
        with open(self.path(name), "r+") as file:
            file.seek(cell * CELL_BYTES)
            file.write(text)

    def replace(self, number: int, text: str, name: str = "state") -> None:
        Path(self.path(name) + ".new").write_text(text)
        self.ranks[number].tell("rename", self.path(name) + ".new", self.path(name))
        os.rename(self.path(name) + ".new", self.path(name))

    def restart(self, clocks: Clocks | None = None) -> set[str]:
        """Back to the line. Returns the names of what is named."""
        logs = []
        for rank in self.ranks:
            assert rank.keeper is not None
            rank.keeper.close()
            if os.path.isdir(rank.directories[-1]):
                logs.append(Log(rank.directories[-1], list(read_log(rank.directories[-1], KEY))))
        plan = make_plan(logs, clocks, self.before)
        problems = put_back(plan, os.path.join(self.ranks[0].job, "undone"), {})
        return {os.path.basename(each.path) for each in problems}


def status_of(path: str) -> Status:
    found = look(path)
    assert found is not None
    return found


@pytest.fixture
def pair(where: str) -> Iterator[Pair]:
    with two_ranks(where) as ranks:
        os.mkdir(ranks[0].root)
        made = Pair(ranks, [])
        Path(made.path("log")).write_text("first\n")
        Path(made.path("cells")).write_text("0000" * 4)
        Path(made.path("state")).write_text("0")
        yield made


def begin(pair: Pair) -> None:
    """Both ranks change all files before the line: later openings need no record."""
    for number in range(2):
        pair.image(number)
        pair.append(number, "old\n")
        pair.patch(number, number, "old.")
        pair.replace(number, "old")
    del pair.before[:]


def test_a_line_appended_between_the_images_of_two_ranks_is_not_cut(pair: Pair) -> None:
    """It was, and nobody was told: a log that each rank opens for each line."""
    begin(pair)
    pair.image(0)
    pair.append(0, "after\n")
    pair.append(1, "before\n")
    pair.image(1)
    pair.append(1, "after, too\n")
    assert pair.restart() == {"log"}  # `after` will be there twice
    assert Path(pair.path("log")).read_text() == "first\nold\nold\nafter\nbefore\n"


def test_a_cell_written_between_the_images_of_two_ranks_is_named(pair: Pair) -> None:
    """It was missing, and nobody was told: each rank opens the file for each of its cells. No copy has it."""
    begin(pair)
    pair.image(0)
    pair.patch(0, 2, "new.")
    pair.patch(1, 3, "mine")
    pair.image(1)
    assert pair.restart() == {"cells"}


def test_a_cell_written_between_the_images_of_two_ranks_is_there_if_its_rank_has_kept_the_file_again(
    pair: Pair,
) -> None:
    """The copy that another rank had made before it counted: the cell was lost for good."""
    begin(pair)
    pair.image(0)
    pair.patch(0, 2, "new.")
    pair.patch(1, 3, "mine")
    pair.image(1)
    pair.patch(1, 1, "now.")
    assert pair.restart() == {"cells"}  # `new.` is there, too
    assert Path(pair.path("cells")).read_text() == "old.old.new.mine"


def test_a_file_replaced_between_the_images_of_two_ranks_is_named(pair: Pair) -> None:
    begin(pair)
    pair.image(0)
    pair.replace(0, "after")
    pair.replace(1, "before")
    pair.image(1)
    assert pair.restart() == {"state"}


@pytest.mark.parametrize("clocks", [None, Clocks(1, FAR_NS)], ids=["one-host", "hosts"])
def test_what_one_rank_changes_on_both_sides_of_its_own_image_comes_right(
    pair: Pair, clocks: Clocks | None
) -> None:
    """The other one has done nothing with it."""
    begin(pair)
    change_all(pair, 0)
    pair.image(0)
    pair.image(1)
    pair.before[:] = [(rank, each) for rank, each in pair.before if rank == "rank-00000"]
    then = contents(pair)
    change_all(pair, 0)
    assert pair.restart(clocks) == set()
    assert contents(pair) == then


def test_what_a_rank_changes_when_the_other_one_has_its_image_too_comes_right(pair: Pair) -> None:
    begin(pair)
    change_all(pair, 1)
    pair.image(0)
    pair.image(1)
    then = contents(pair)
    change_all(pair, 0)
    assert pair.restart() == set()
    assert contents(pair) == then


def test_what_the_other_rank_has_changed_long_before_its_image_comes_right(pair: Pair) -> None:
    begin(pair)
    pair.image(0)
    then = contents(pair)
    change_all(pair, 0)
    pair.image(1)
    pair.before[:] = [(rank, each._replace(time_ns=each.time_ns - FAR_NS)) for rank, each in pair.before]
    assert pair.restart() == set()
    assert contents(pair) == then


def test_a_file_that_nobody_has_written_to_between_the_images_comes_right(pair: Pair) -> None:
    """One rank holds it open."""
    begin(pair)
    time.sleep(3 * CLOCK_NS / 1e9)
    pair.image(0, "cells")
    pair.image(1)
    then = contents(pair)
    change_all(pair, 0)
    assert pair.restart() == set()
    assert contents(pair) == then


def test_a_file_that_both_ranks_have_open_at_their_images_comes_right(pair: Pair) -> None:
    begin(pair)
    pair.image(0, "cells")
    pair.image(1, "cells")
    # however long a loaded machine has held the ranks up: the files may have been written to between the images
    pair.before[:] = [
        (rank, each._replace(time_ns=each.image_ns, mtime_ns=each.image_ns)) for rank, each in pair.before
    ]
    then = contents(pair)
    change_all(pair, 0)
    assert pair.restart() == set()
    assert contents(pair) == then


def test_a_copy_that_is_whole_before_the_one_that_was_begun_first_has_nothing_of_the_other_rank(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rank changes the file only when its own copy is whole: the file was named."""
    begin(pair)
    copy_file = keeping.copy_file

    def slow(*given: object) -> object:
        monkeypatch.setattr(keeping, "copy_file", copy_file)
        pair.image(1, "cells")
        return copy_file(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping, "copy_file", slow)
    pair.image(0, "cells")
    then = contents(pair)
    change_all(pair, 0)
    assert pair.restart() == set()
    assert contents(pair) == then


def change_all(pair: Pair, number: int) -> None:
    pair.append(number, "now\n")
    pair.patch(number, 1, "now.")
    pair.replace(number, "now")


def contents(pair: Pair) -> dict[str, str]:
    return {name: Path(pair.path(name)).read_text() for name in ("log", "cells", "state")}


@pytest.mark.rotate(4)
@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_whatever_ranks_write_before_their_images_is_there_or_named(pair: Pair, seed: int) -> None:
    """What the line has: all lines that each rank has appended before its image, its cells, and, of a file that is replaced,
    something that no rank has written after its image."""
    choose = random.Random(seed)
    begin(pair)
    lines: list[str] = []
    cells: dict[int, str] = {}
    states, late = {"old"}, [False, False]
    images = [choose.randrange(8, 14) for _ in range(2)]
    for step in range(choose.randrange(16, 24)):
        number = choose.randrange(2)
        text = f"{number}{step:02}"
        match choose.randrange(3):
            case 0:
                pair.append(number, text + "\n")
                lines += [] if late[number] else [text]
            case 1:
                pair.patch(number, 2 + number, text + ".")
                cells |= {} if late[number] else {2 + number: text + "."}
            case 2:
                pair.replace(number, text)
                states |= set() if late[number] else {text}
        for number in range(2):
            if step == images[number]:
                pair.image(number)
                late[number] = True
    told = pair.restart()
    now = contents(pair)
    assert set(lines) <= set(now["log"].split()), (lines, now, told)
    assert "log" in told or now["log"].split() == ["first", "old", "old", *lines], (lines, now)
    assert "state" in told or now["state"] in states, (states, now)
    found = {at: now["cells"][at * CELL_BYTES : (at + 1) * CELL_BYTES] for at in cells}
    assert "cells" in told or found == cells, (cells, found)


def test_only_the_last_changes_before_an_image_are_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    minute_ns = 60_000_000_000
    changes = {
        str(tmp_path / "a"): 1,
        str(tmp_path / "gone"): minute_ns,
        str(tmp_path / "b"): minute_ns + 1,
        str(tmp_path / "c"): minute_ns + 2,
    }
    found = last_changes(changes, minute_ns + 2)
    assert [(Path(each.path).name, each.time_ns, each.nbytes) for each in found] == [
        ("c", minute_ns + 2, 1),
        ("b", minute_ns + 1, 1),
    ]
    status = status_of(str(tmp_path / "c"))
    assert (found[0].file, found[0].mtime_ns) == (status.file, status.mtime_ns)
    assert [Path(each.path).name for each in last_changes(changes, minute_ns + 2, 1)] == ["b"]
    assert last_changes(changes, minute_ns + 2, 0, 1) == found[:1]


def test_manifests_of_earlier_versions_tell_no_changes() -> None:
    assert changes_of({"log": "x", "uncovered": []}) == []

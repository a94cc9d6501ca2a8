"""Two ranks that rename each other's directories, and do not know it: what they then do is undone, or named."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.undo import keeping, recorder
from ckpt.undo.keeping import look
from ckpt.undo.logs import read_log
from ckpt.undo.planning import plan
from ckpt.undo.records import CLOCK_NS, Binding, Name
from tests.unit.ckpt.undo import test_sequences
from tests.unit.ckpt.undo.test_sequences import KEY, Rank, both_put_back, line_of, tree_of, two_ranks

where = test_sequences.where


def until_the_clock_has_gone_on(directory: str) -> None:
    """What is made from now on is certainly younger than what is there."""
    probe, first = os.path.join(directory, "probe"), 0
    while True:
        os.mkdir(probe)
        made = look(probe)
        os.rmdir(probe)
        assert made is not None
        first = first or made.file.born_ns
        if made.file.born_ns > first + 2 * CLOCK_NS:
            return


@pytest.mark.parametrize("is_known", [False, True])
def test_a_file_that_another_rank_makes_between_the_checkpoints_of_both_belongs_to_the_line(
    where: str, is_known: bool
) -> None:
    """Found by seed 840716: a rank took each file that was made after its own checkpoint for one of no line. It changed, and
    the restart left it so without a word."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        until_the_clock_has_gone_on(first.root)
        first.checkpoint(is_line_whole=False)
        until_the_clock_has_gone_on(first.root)
        path = os.path.join(first.root, "made")
        second.new(path, "")
        Path(path).write_text("of the line")
        until_the_clock_has_gone_on(first.root)
        second.checkpoint(is_line_whole=False)
        tree = tree_of(first.root)
        first.write(path, "")
        if is_known:
            until_the_clock_has_gone_on(first.root)
            for rank in (first, second):
                rank.recorder.settle(time.time_ns())
            until_the_clock_has_gone_on(first.root)
            first.new(os.path.join(first.root, "later"), "")
            first.write(os.path.join(first.root, "later"), "")
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree


def test_a_file_is_what_it_was_before_any_rank_changed_it(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one to begin a copy was late, and the other one changed the file meanwhile: that came back, and nobody was
    told."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        path = os.path.join(first.root, "shared")
        Path(path).write_text("of the line")
        tree = line_of(first, second)
        copy_file = keeping.copy_file

        def late(*given: object) -> object:
            monkeypatch.setattr(keeping, "copy_file", copy_file)
            second.tell("rewrite", path)
            Path(path).write_text("now, and longer than it was")
            return copy_file(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(keeping, "copy_file", late)
        first.tell("rewrite", path)
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree


@pytest.mark.parametrize("is_changed", [True, False])
def test_what_a_rank_wrote_between_the_image_of_another_one_and_its_own_is_there(
    where: str, is_changed: bool
) -> None:
    """It was missing, and nobody was told. What the other rank has changed after its own image may be there, too."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        path = os.path.join(first.root, "shared")
        Path(path).write_text("of the line")
        first.checkpoint()
        first.tell("rewrite", path)
        if is_changed:
            Path(path).write_text("by the second rank")
        tree = tree_of(first.root)
        second.checkpoint()
        assert second.keeper is not None
        status = look(path)
        assert status is not None
        second.keeper.begin([recorder.OpenFile(path, status, appends=False)])
        Path(path).write_text("now")
        problems = both_put_back(first, second, tree, 0, [])
        assert [(each.path, "after it may be there" in each.reason) for each in problems] == [
            (path, True)
        ] * is_changed
        assert tree_of(first.root) == tree


Change = Callable[[Rank, str], None]


def make(rank: Rank, directory: str) -> None:
    rank.new(os.path.join(directory, "x"), "")


def remove(rank: Rank, directory: str) -> None:
    rank.remove(os.path.join(directory, "old"), "")


def make_below(rank: Rank, directory: str) -> None:
    rank.new(os.path.join(directory, "below", "x"), "")


def nothing(rank: Rank, directory: str) -> None:
    pass


CHANGES = {make: "x", remove: "old", make_below: "below/x", nothing: ""}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_older", [True, False])
def test_a_directory_that_another_rank_has_put_in_the_place_of_a_new_one(
    where: str, change: Change, is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by seed 301109: what the rank made in it, for a directory of its own, was neither removed nor named.

    Told apart by their age, what is changed is named, and nothing else. Where that shows nothing, the directory is named.
    """
    with two_ranks(where) as (first, second):
        old, new = (os.path.join(first.root, name) for name in ("old", "new"))
        os.makedirs(os.path.join(old, "below"))
        Path(old, "old").write_text("then")
        tree = line_of(first, second)
        if is_older:
            until_the_clock_has_gone_on(where)
        else:
            for module in (recorder, plan):  # a clock that stands still for long
                monkeypatch.setattr(module, "CLOCK_NS", 10**12)
        first.mkdir(new, "")
        second.rename(old, new)
        change(first, new)
        named = {problem.path for problem in both_put_back(first, second, tree, 0, [])}
        changed = CHANGES[change]
        if is_older:
            assert named == ({f"{old}/{changed}", f"{new}/{changed}"} if changed else set())
        else:
            assert named >= {old}


@pytest.mark.parametrize("renames_last", [0, 1])
def test_a_new_directory_is_renamed_with_what_another_rank_has_put_there(
    where: str, renames_last: int
) -> None:
    with two_ranks(where) as (first, second):
        old, new, last = (os.path.join(first.root, name) for name in ("old", "new", "last"))
        os.makedirs(old)
        tree = line_of(first, second)
        until_the_clock_has_gone_on(where)
        first.mkdir(new, "")
        second.rename(old, os.path.join(new, "moved"))
        first.rename(new, last)
        (first, second)[renames_last].new(os.path.join(last, "moved", "x"), "")
        named = {problem.path for problem in both_put_back(first, second, tree, 0, [])}
        assert named >= {f"{old}/x", f"{last}/moved/x"}
        assert old not in named


def test_what_a_rank_makes_in_its_own_new_directories_is_not_recorded(where: str) -> None:
    """Also where it has moved an older one there."""
    with two_ranks(where) as (first, second):
        old, new = (os.path.join(first.root, name) for name in ("old", "new"))
        os.makedirs(old)
        tree = line_of(first, second)
        until_the_clock_has_gone_on(where)
        first.mkdir(new, "")
        first.mkdir(os.path.join(new, "below"), "")
        first.rename(old, os.path.join(new, "moved"))
        assert first.keeper is not None
        records = first.keeper.end.records
        first.new(os.path.join(new, "x"), "")
        first.mkdir(os.path.join(new, "below", "again"), "")
        with contextlib.suppress(FileExistsError):
            first.mkdir(os.path.join(new, "below"), "")
        assert first.keeper.end.records == records + 1  # whether the renaming has happened
        first.new(os.path.join(new, "moved", "x"), "")
        assert not both_put_back(first, second, tree, 0, [])


def test_a_file_whose_name_a_directory_of_another_rank_has_had_is_not_put_aside(where: str) -> None:
    """Found by seed 112944: a restart that was done again took it for that directory, and left it under another name."""
    for seed in range(20):  # of the kill
        with two_ranks(where) as (first, second):
            a = os.path.join(first.root, "a")
            x = os.path.join(a, "x")
            os.makedirs(a)
            for each in (x, x + "y"):
                Path(each).write_text("then")
            tree = line_of(first, second)
            first.remove(x, "")
            first.remove(x + "y", "")
            first.mkdir(x, "")
            second.rmdir(x, "")
            second.rmdir(a, "")
            both_put_back(first, second, tree, seed, [])
            assert tree_of(first.root) == tree, seed


def test_names_in_a_new_directory_where_a_rank_has_renamed_one_away_are_not_those_of_the_old_one(
    where: str,
) -> None:
    """Found by seed 1103520: both make sure that there is a directory `out`; one renames it, the other one makes it anew,
    and the first writes a file into it that the old one had, too. The restart silently took it out of the old one."""
    with two_ranks(where) as (first, second):
        out = os.path.join(first.root, "out")
        os.makedirs(out)
        Path(out, "result").write_text("then")
        tree = line_of(first, second)
        for rank in (first, second):
            with contextlib.suppress(FileExistsError):
                rank.mkdir(out, "")
        first.rename(out, os.path.join(first.root, "old"))
        second.mkdir(out, "")
        first.new(os.path.join(out, "result"), "")
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree


def test_a_directory_in_one_that_has_come_back_is_not_taken_for_new(where: str) -> None:
    """A rank renames a directory away, another one the directory above it; then the first puts a directory of the checkpoint
    there that has one of that name, too. All within a tick of the clock, so that no age shows it."""
    with two_ranks(where) as (first, second):
        c, x = (os.path.join(first.root, name) for name in ("c", "x"))
        os.makedirs(os.path.join(c, "d"))
        os.makedirs(os.path.join(x, "d"))
        Path(x, "d", "file").write_text("then")
        tree = line_of(first, second)
        first.rename(os.path.join(c, "d"), os.path.join(first.root, "e"))
        second.rename(c, os.path.join(first.root, "g"))
        first.rename(x, c)
        first.remove(os.path.join(c, "d", "file"), "")
        both_put_back(first, second, tree, 0, [])
        assert Path(x, "d", "file").read_text() == "then"


def test_a_name_is_recorded_again_in_a_directory_that_another_rank_has_put_there(where: str) -> None:
    """Found by seed 205904: the rank had recorded that name, of the directory before, and so it was not recorded."""
    with two_ranks(where) as (first, second):
        a, b = (os.path.join(first.root, name) for name in ("a", "b"))
        os.makedirs(a)
        os.makedirs(b)
        Path(b, "x").write_text("then")
        tree = line_of(first, second)
        first.rename(os.path.join(b, "x"), os.path.join(first.root, "x"))
        second.rename(a, b)
        first.new(os.path.join(b, "x"), "")
        named = {problem.path for problem in both_put_back(first, second, tree, 0, [])}
        assert named == {f"{a}/x", f"{b}/x"}
        assert Path(b, "x").read_text() == "then"


def test_a_directory_with_a_doubtful_name_goes_back_with_the_one_above_it(where: str) -> None:
    """Found by seed 523325: it was put aside, and stayed there."""
    with two_ranks(where) as (first, second):
        a, b = (os.path.join(first.root, name) for name in ("a", "b"))
        os.makedirs(os.path.join(a, "d", "e"))
        os.mkdir(b)
        Path(a, "d", "x").write_text("then")
        tree = line_of(first, second)
        second.rename(a, b)
        with contextlib.suppress(OSError):
            first.rename(os.path.join(b, "d", "e"), os.path.join(b, "d", "x"))  # a file
        named = {problem.path for problem in both_put_back(first, second, tree, 0, [])}
        assert tree_of(first.root) == tree and f"{a}/d/e" in named


def replace(rank: Rank, name: str) -> None:
    made = os.path.join(rank.root, f"{name}-{id(rank)}.tmp")
    rank.write(made, "")
    rank.rename(made, os.path.join(rank.root, name))


def take(rank: Rank, name: str) -> None:
    rank.rename(os.path.join(rank.root, name), os.path.join(rank.root, f"{name}-{id(rank)}.taken"))


def take_away(rank: Rank, name: str) -> None:
    rank.remove(os.path.join(rank.root, name), "")


def change_within(moment: int, change: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Make this change at the moment of this number while the next operation is recorded: after a look at a path, or before
    a hard link is made."""
    passed, is_within = 0, False

    def pass_one() -> None:
        nonlocal passed, is_within
        passed += not is_within
        if passed == moment and not is_within:
            is_within = True
            with contextlib.suppress(FileNotFoundError):
                change()
            is_within = False
            passed += 1

    def looked(path: str) -> Binding:
        found = look(path)
        pass_one()
        return found

    def linked(*names: str, follow_symlinks: bool) -> None:
        pass_one()
        link(*names, follow_symlinks=follow_symlinks)

    link = os.link
    patch.setattr(keeping, "look", looked)
    patch.setattr(os, "link", linked)


@pytest.mark.parametrize("moment", range(1, 12))
@pytest.mark.parametrize("other", [replace, take, take_away])
@pytest.mark.parametrize("own", [replace, take, take_away])
def test_two_ranks_compete_for_one_file(
    where: str, own: Change, other: Change, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not named: the other's record has it. Nor is a link kept to another file than the record says."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        Path(first.root, "state").write_text("then")
        tree = line_of(first, second)
        change_within(moment, lambda: other(second, "state"), monkeypatch)
        with contextlib.suppress(FileNotFoundError):
            own(first, "state")
        monkeypatch.undo()
        for rank in (first, second):
            links_are_right(rank)
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_that_a_rank_gives_another_name_and_another_rank_writes_to_by_that_name(
    where: str, is_removed: bool
) -> None:
    """Found by seed 3283958730096: once the new name was removed nothing said which file it had been. Its contents of the
    future stayed under the old name, without a word."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        path, other = (os.path.join(first.root, name) for name in ("old", "new"))
        Path(path).write_text("then")
        tree = line_of(first, second)
        first.link(path, other)
        second.write(other, "")
        if is_removed:
            first.remove(other, "")
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree


@pytest.mark.parametrize("goes", [True, False])
def test_a_directory_that_could_not_be_removed_is_as_new_as_before(where: str, goes: bool) -> None:
    """Found by seed 77114156. Whether it is there is known when something happens below it next, in a directory that another
    rank has made: that was a KeyError in the program."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        tree = line_of(first, second)
        new, below = (os.path.join(first.root, name) for name in ("new", "new/of/another"))
        first.mkdir(new, "")
        second.mkdir(os.path.dirname(below), "")
        second.mkdir(below, "")
        with contextlib.suppress(OSError):
            first.rename(new, os.path.join(first.root, "gone" if goes else "new/of/it"))
        with contextlib.suppress(OSError):
            first.rmdir(os.path.join(first.root, "gone" if goes else "new"), "")
        with contextlib.suppress(OSError):
            first.mkdir(os.path.join(below, "last"), "")
        problems = {problem.path for problem in both_put_back(first, second, tree, 0, [])}
        assert tree_of(first.root) == tree or problems


def links_are_right(rank: Rank) -> None:
    for record in read_log(rank.directories[-1], KEY):
        if isinstance(record, Name) and record.kept:
            linked = look(os.path.join(rank.directories[-1], str(record.kept)))
            assert linked is not None and record.binding is not None and linked.file == record.binding.file


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_name_that_another_rank_makes_while_it_is_renamed(
    where: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when it was looked at, and the renaming happens all the same: the new name was not recorded."""
    with two_ranks(where) as (first, second):
        os.mkdir(first.root)
        tree = line_of(first, second)
        change_within(moment, lambda: replace(second, "state"), monkeypatch)
        with contextlib.suppress(FileNotFoundError):
            take(first, "state")
        monkeypatch.undo()
        assert not both_put_back(first, second, tree, 0, [])
        assert tree_of(first.root) == tree

"""A checkpoint that could not be taken leaves the undo log as if nobody had tried.

Found by reading: the program's threads had stopped, the undo log was cut, no moment was found to fork. The next try made the
log of the same epoch again, which was there already. What was changed from then on was told as not covered, and a restart
went back to the moment of the try in vain.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.rank.files import _COPIED_AT_MOST_BYTES
from ckpt.undo import _watch, keeping
from ckpt.undo.records import Outcome, Uncovered
from tests.unit.ckpt.undo.test_sequences import tree_of
from tests.unit.ckpt.undo.test_watching import Watched, watched


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made


def test_the_fork_that_finds_no_moment(work: Watched) -> None:
    Path("x").write_text("0")
    work.start()
    with open("held", "w") as held:
        held.write("before\n")
        held.flush()
        work.cut_in_vain()
        Path("x").write_text("1")
        held.write("between\n")
        held.flush()
        work.cut_in_vain()
        Path("y").write_text("1")
        tree = tree_of(str(work.root))
        work.cut()
        Path("x").write_text("2")
        Path("y").unlink()
        held.write("after\n")
        held.flush()
        assert not work.back_to(1)
    assert not work.told
    assert tree_of(str(work.root)) == tree


def test_the_interval_before_goes_on(work: Watched) -> None:
    Path("x").write_text("0")
    work.start()
    tree = tree_of(str(work.root))
    os.mkdir("d")
    work.cut_in_vain()
    os.rename("d", "e")
    work.cut_in_vain()
    Path("e/y").write_text("1")
    Path("x").write_text("1")
    work.cut()
    Path("x").write_text("2")
    assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == tree


def test_nothing_is_left_of_it(work: Watched) -> None:
    work.start()
    with open("held", "w"):
        work.cut_in_vain()
    assert not os.path.exists(keeping.directory_of(str(work.job), 1, 1, 0))


def test_a_harmless_thread_that_has_changed_a_file_meanwhile_is_told(work: Watched) -> None:
    Path("x").write_text("0")
    work.start()
    work.watch.cut(1, ())
    Path("x").write_text("1")
    work.watch.uncut(1)
    assert [each.path for each in work.told] == [str(work.root / "x")]
    work.cut()
    assert str(work.root / "x") in [each.path for each in work.log(0).records if isinstance(each, Uncovered)]


def test_a_log_that_cannot_be_removed_says_that_it_is_of_no_use(
    work: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    work.start()
    with open("held", "w"):
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", refuse)
            work.cut_in_vain()
        assert [each.path for each in work.told] == [""]
        assert [each.path for each in work.log(1).records if isinstance(each, Uncovered)] == [""]


def test_an_epoch_that_has_begun_begins_once(work: Watched) -> None:
    """A round that is aborted while the image is written without fork: the rank takes the number of its epoch again."""
    Path("x").write_text("0")
    work.start()
    Path("x").write_text("1")
    with open("held", "w"):
        work.watch.cut(1, work.open_files())
        tree = tree_of(str(work.root))
        Path("x").write_text("2")
        work.watch.cut(1, ())
        work.epoch = 1
        Path("y").write_text("2")
        assert not work.back_to(1)
    assert not work.told
    assert tree_of(str(work.root)) == tree


def test_only_the_cut_in_vain_is_taken_back(work: Watched) -> None:
    """A try that fails before the cut leaves the checkpoint before it."""
    Path("x").write_text("0")
    work.start()
    Path("x").write_text("1")
    work.cut()
    tree = tree_of(str(work.root))
    assert work.watch.has_former
    work.watch.uncut(2)
    assert not work.watch.has_former
    Path("x").write_text("2")
    assert not work.back_to(1)
    assert tree_of(str(work.root)) == tree


def test_the_end_of_an_interval_is_known_once(work: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the checkpoint it could not be seen whether the last renaming had happened. The log was closed when the program had
    gone on and renamed the directory again, and then said that it had not."""

    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    os.mkdir("a")
    Path("a/x").write_text("0")
    work.start()
    tree = tree_of(str(work.root))
    os.rename("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "look", refuse)
        work.cut()
    os.rename("b", "c")
    records = work.log(0).records
    work.watch.close_former()
    assert work.log(0).records == records
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


@pytest.mark.parametrize("how", ["in vain", "rehearsed"])
def test_an_interval_that_goes_on_has_an_end_of_its_own(work: Watched, how: str) -> None:
    os.mkdir("a")
    Path("a/x").write_text("0")
    work.start()
    tree = tree_of(str(work.root))
    os.mkdir("log is open")
    if how == "in vain":
        work.cut_in_vain()
    else:
        work.watch.rehearse()
    os.rename("a", "b")
    work.cut()
    assert isinstance(work.log(0).records[-1], Outcome)
    assert not work.back_to(0)
    assert tree_of(str(work.root)) == tree


@pytest.mark.skipif(not _watch.LEADS, reason="another system: calls cannot be led elsewhere")
@pytest.mark.parametrize("how", ["in vain", "rehearsed"])
def test_an_interval_that_goes_on_knows_the_ends_of_its_files(work: Watched, how: str) -> None:
    """Of a large file that is open at its end only the length is kept, until the program writes before that end."""
    with open("large", "wb") as file:
        file.write(bytes(_COPIED_AT_MOST_BYTES + 1))
        file.flush()
        work.start()
        tree = tree_of(str(work.root))
        if how == "in vain":
            file.write(b"meanwhile")
            file.flush()
            work.cut_in_vain()
        else:
            work.watch.rehearse()
        os.pwrite(file.fileno(), b"now", _COPIED_AT_MOST_BYTES)
        work.cut()
        assert not work.back_to(0)
    assert not work.told
    assert tree_of(str(work.root)) == tree

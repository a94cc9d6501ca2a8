"""Changes of files that are not covered stay; all others are undone, also where one operation has a name of both kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.undo.selection.covering import absolute, covering
from ckpt.undo.selection.patterns import Patterns
from tests.unit.ckpt.undo.test_watching import Watched, watched


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Watched]:
    """`log*` is not covered."""
    with watched(tmp_path, covers=covering(["!log*"], str(tmp_path / "work"))) as made:
        yield made


def write(path: str, text: str, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write(text)


def read(path: str) -> str:
    return Path(path).read_text()


def test_what_is_not_covered_stays(work: Watched) -> None:
    write("log", "1")
    write("state", "1")
    work.start()
    write("log", "2", "a")
    write("state", "2")
    write("log.new", "3")
    write("new", "3")
    os.chmod("log", 0o600)
    assert not work.back_to(0)
    assert sorted(os.listdir()) == ["log", "log.new", "state"]
    assert (read("log"), read("state")) == ("12", "1")
    assert os.stat("log").st_mode & 0o777 == 0o600


def test_an_open_file_that_is_not_covered_is_not_recorded(work: Watched) -> None:
    with open("log", "w") as file:
        file.write("1")
        file.flush()
        work.start()
        file.write("2")
    assert not work.back_to(0)
    assert read("log") == "12"


def test_a_covered_file_that_replaces_one_that_is_not_comes_back_as_a_file_of_its_own(work: Watched) -> None:
    write("log", "old")
    write("log.tmp", "not covered")
    write("state", "what was")
    work.start()
    os.replace("state", "log")
    write("log", "what is")
    assert not work.back_to(0)
    assert (read("state"), read("log")) == ("what was", "what is")
    assert not os.path.samefile("state", "log")


def test_a_file_that_is_not_covered_and_gets_another_name_loses_that_name_only(work: Watched) -> None:
    write("log", "1")
    work.start()
    os.rename("log", "kept-log")
    write("log", "2")
    assert not work.back_to(0)
    assert os.listdir() == ["log"] and read("log") == "2"
    assert [path.read_text() for path in (work.job / "undone").iterdir()] == ["1"]


def test_a_directory_that_is_renamed_to_a_name_that_is_not_covered_is_named(work: Watched) -> None:
    os.mkdir("out")
    work.start()
    os.rename("out", "log.d")
    assert ["log.d" in each.reason for each in work.told] == [True]


def test_a_covered_file_in_a_new_directory_that_is_not_goes_away(tmp_path: Path) -> None:
    with watched(tmp_path, covers=covering(["*.csv"], str(tmp_path / "work"))) as work:
        work.start()
        os.mkdir("out")
        write("out/a.csv", "1")
        write("out/a.log", "1")
        assert not work.back_to(0)
        assert os.listdir("out") == ["a.log"]


def test_a_wish_to_keep_holds_for_changes_since_the_checkpoint_too(work_of_all: Watched) -> None:
    work = work_of_all
    write("log", "1")
    write("state", "1")
    work.start()
    for _ in range(3):  # what is settled in C, too
        write("log", "2", "a")
        write("state", "2", "a")
        write("log.new", "2")
    kept = Patterns([*absolute("log", os.getcwd()), *absolute("log.*", os.getcwd())])
    work.watch.keep(kept.texts, lambda path: not kept.match(path))
    write("log", "3", "a")
    write("log.later", "3")
    write("state", "3", "a")
    write("new", "3")
    assert not work.back_to(0)
    assert sorted(os.listdir()) == ["log", "log.later", "log.new", "state"]
    assert (read("log"), read("state")) == ("12223", "1")
    assert ".later" not in (work.job / "undo/epoch-00000000-00001/rank-00000/log").read_text()


@pytest.fixture
def work_of_all(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as made:
        yield made

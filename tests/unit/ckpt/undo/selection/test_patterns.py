"""Which files a pattern means, and what the words of `--files` choose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpt.undo.selection.covering import absolute, covering
from ckpt.undo.selection.patterns import Choices, Chosen, Patterns, chosen, is_recorded, text_of


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c/d", True),
        ("/a/b", "/a/bc", False),
        ("/a/*.log", "/a/x.log", True),
        ("/a/*.log", "/a/deep/x.log", True),
        ("/a/*.log", "/a/x.log.1", False),
        ("/a/?", "/a/b", True),
        ("/a/[!b]", "/a/b", False),
        ("/", "/a", True),
        ("/a/*", "/a/line\nfeed", True),
        ("/a/*", "/a/\udcff", True),
    ],
)
def test_a_pattern_matches_whole_paths_and_what_is_below_them(pattern: str, path: str, matches: bool) -> None:
    assert Patterns([pattern]).match(path) is matches


@pytest.mark.parametrize(
    "text", ["/w/log", "/w/d/", "/w/*.log", "/w/d/*", "/w*", "/w/[ab]", "/w/d?/x", "*", "/w"]
)
def test_a_pattern_that_divides_no_directory_says_the_same_of_all_names_in_it(text: str) -> None:
    patterns = Patterns([text])
    names = ("a", "b", "log", "x", "x.log", "d", "-")
    directories = ["", "/w", "/w/d", "/w/d/e", "/w/dd", "/w/log", "/w/log2", "/ww", "/v"]
    divided = {directory for directory in directories if patterns.divide(directory)}
    for directory in set(directories) - divided:
        assert len({patterns.match(f"{directory}/{name}") for name in names}) == 1, directory
    assert text == "*" or not divided.issuperset(directories)


def test_relative_patterns_begin_in_the_directory_whatever_its_name_is(tmp_path: Path) -> None:
    directory = tmp_path / "run[1]*"
    directory.mkdir()
    for pattern in ("log", "./log", "../run[[]1][*]/log", "l?g"):
        assert Patterns(absolute(pattern, str(directory))).match(f"{directory}/log"), pattern
        assert not Patterns(absolute(pattern, str(directory))).match(f"{tmp_path}/run1x/log"), pattern


def test_links_in_a_pattern_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "current").symlink_to("there/log.7")
    assert Patterns(absolute("here/*.log", str(tmp_path))).match(f"{tmp_path}/there/x.log")
    name_and_file = Patterns(absolute("current", str(tmp_path)))
    assert name_and_file.match(f"{tmp_path}/current") and name_and_file.match(f"{tmp_path}/there/log.7")


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (["auto"], "auto"),
        (["off"], "off"),
        (["off", "off"], "off"),
        (["out", "*.csv", "out"], ["out", "*.csv"]),
        (["auto", "!*.log"], ["auto", "!*.log"]),
        (["./off"], ["./off"]),
    ],
)
def test_words_make_a_choice(words: list[str], choice: object) -> None:
    assert chosen(words) == choice
    assert is_recorded(chosen(words)) is (choice != "off")


def test_a_choice_is_printed_as_it_was_given() -> None:
    assert text_of("auto") == "auto"
    assert text_of(["out", "!out/x"]) == "out !out/x"


@pytest.mark.parametrize(
    ("words", "said"),
    [([""], "''"), (["!"], "'!'"), (["a\0"], "a"), (["off", "out"], "off"), (["auto", "off"], "off"),
     (["auto", "out"], "auto covers all files, out among them")],
)  # fmt: skip
def test_words_that_make_no_sense_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        chosen(words)


@pytest.mark.parametrize(
    ("choice", "covered"),
    [
        (["out"], {"out/a.csv", "out/a.log"}),
        (["*.csv"], {"out/a.csv", "b.csv"}),
        (["out", "!*.log"], {"out/a.csv"}),
        (["!*.log"], {"out/a.csv", "b.csv"}),
        (["auto", "!*.log"], {"out/a.csv", "b.csv"}),
    ],
)
def test_what_is_covered(tmp_path: Path, choice: list[str], covered: set[str]) -> None:
    covers = covering(choice, str(tmp_path))
    assert covers is not None
    assert {each for each in ("out/a.csv", "out/a.log", "b.csv") if covers(f"{tmp_path}/{each}")} == covered


def test_auto_covers_everything() -> None:
    assert covering("auto", os.getcwd()) is None


def test_what_was_recorded_since_a_checkpoint_is_what_all_choices_cover() -> None:
    auto, out, logs = (Chosen([word], "/") for word in ("auto", "out", "logs"))
    choices = Choices(auto)
    assert choices.since(0) == choices.since(9) == [auto]
    choices = choices.go_on(3, out)
    assert (choices.since(2), choices.since(3), choices.since(5)) == ([auto, out], [out], [out])
    choices = choices.go_on(7, logs)
    assert (choices.since(1), choices.since(6), choices.since(7)) == ([auto, out, logs], [out, logs], [logs])
    assert choices.go_on(7, out).later == [(3, out)], "what was chosen there is undone"
    assert choices.go_on(2, auto).later == []

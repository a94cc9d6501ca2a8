"""regex: what its functions return goes on after a restart."""

from __future__ import annotations

import pytest

from tests.unit.ckpt.image.support import copy_of

regex = pytest.importorskip("regex")


def test_a_pattern_is_compiled_again() -> None:
    copy = copy_of(regex.compile(r"(?<word>\w+)", regex.IGNORECASE))
    assert (copy.pattern, copy.search("Two words")["word"]) == (r"(?<word>\w+)", "Two")


def test_a_match_keeps_its_groups() -> None:
    copy = copy_of(regex.search(r"(?<a>\d+)-(\d+)?", "x 12- y"))
    assert (copy.span(), copy.groups(), copy["a"]) == ((2, 5), ("12", None), "12")


def test_the_matches_that_are_left_are_found() -> None:
    found = regex.finditer(r"\d", "1 2 3")
    assert next(found)[0] == "1"
    assert [each[0] for each in copy_of(found, is_disposable=True)] == ["2", "3"]

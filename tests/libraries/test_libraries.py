"""No common package gets worse than docs/libraries.md says, at whatever moment its image is taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.libraries.catalogue import LIBRARIES, Library
from tests.libraries.driver import RANKS, attempt, promised, verdict_of
from tests.libraries.moments import tried_at_random

_BY_NAME = {library.name: library for library in LIBRARIES}


@pytest.mark.nightly
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_no_line_gets_worse(library: Library) -> None:
    result = attempt(library)
    if result.verdict == "missing":
        pytest.skip(f"{library.name} is not installed")
    said = verdict_of(promised()[library.name])
    assert result.verdict != "differs", result.reason
    assert RANKS[result.verdict] >= RANKS[said], result.reason


def test_the_page_has_a_line_for_every_library_and_none_that_differs() -> None:
    said = promised()
    assert set(said) == {library.name for library in LIBRARIES}
    assert {verdict_of(words) for words in said.values()} <= RANKS.keys() - {"differs"}


def test_the_page_has_a_hundred_packages() -> None:
    packages = {library.module.partition(".")[0] for library in LIBRARIES}
    assert len(packages - set(sys.stdlib_module_names)) >= 100


def test_names_are_given_once() -> None:
    assert len(_BY_NAME) == len(LIBRARIES)


def test_a_program_whose_image_is_wrong_at_a_moment_is_noticed(tmp_path: Path) -> None:
    """A program that knows its process prints something else after a restart."""
    source = (
        "import os\nme = os.getpid()\ndriver_start()\nfor k in range(2000): pass\nprint(os.getpid() == me)\n"
    )
    tried = tried_at_random(tmp_path, source, 2, "any")
    assert any(moment.wrong for moment in tried)

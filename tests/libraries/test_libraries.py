"""No common package gets worse than docs/libraries.md says."""

from __future__ import annotations

import pytest

from tests.libraries.catalogue import LIBRARIES, Library
from tests.libraries.driver import attempt, promised


@pytest.mark.nightly
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_what_is_said_to_work_works(library: Library) -> None:
    result = attempt(library)
    if result.verdict == "missing":
        pytest.skip(f"{library.name} is not installed")
    said = promised()[library.name]
    assert result.verdict != "differs", result.reason
    assert result.verdict == "works" or not said.startswith("works"), result.reason


def test_the_page_has_a_line_for_every_library_and_none_that_differs() -> None:
    said = promised()
    assert set(said) == {library.name for library in LIBRARIES}
    assert all(words.startswith(("works", "refused: ")) for words in said.values())

"""What a rank says of a program that still imports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpt.capture.places import _importer

INNER = """
import sys
from ckpt.capture.places import _importer

def found():
    return _importer(sys._getframe())

place = found()
"""


def test_the_place_of_the_import_in_the_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the innermost one: a program that imports numpy was said to be in some function of the import system, and to have
    come to no place between two instructions."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imports_deeply.py").write_text("import imported_inside as inner\n")
    (tmp_path / "imported_inside.py").write_text(INNER)
    try:
        from imports_deeply import inner  # type: ignore[import-not-found]

        assert inner.place.startswith(f"{__file__}:") and inner.place.endswith(
            test_the_place_of_the_import_in_the_program_is_named.__name__
        )
        assert inner.found() == "", "the import is over"
    finally:
        sys.modules.pop("imports_deeply", None)
        sys.modules.pop("imported_inside", None)
    assert _importer(None) == ""

"""coverage: a tracer in C is saved as its attributes."""

from __future__ import annotations

import pytest

from ckpt.image.interface.registry import libraries
from tests.unit.ckpt.image.support import copy_of

tracer = pytest.importorskip("coverage.tracer")


def test_the_attributes_of_a_disposition_are_kept() -> None:
    libraries.loaded()
    disposition = tracer.CFileDisposition()
    disposition.original_filename, disposition.trace = "a.py", True
    copy = copy_of(disposition)
    assert type(copy) is tracer.CFileDisposition
    assert (copy.original_filename, copy.trace) == ("a.py", True)


def test_its_variables_are_no_part_of_images() -> None:
    assert libraries.is_left_alone("coverage")

"""What would be lost in silence is refused by name."""

from __future__ import annotations

import os
import sys

import pytest

from ckpt.image import dumping
from ckpt.image.errors import Unpicklable
from ckpt.image.process import unsupported


def test_an_object_in_the_place_of_a_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported.check()
    monkeypatch.setitem(sys.modules, "shutil", object())
    with pytest.raises(Unpicklable, match=r"a builtins\.object stands in the place of the module") as raised:
        unsupported.check()
    assert raised.value.path == "sys.modules['shutil']"


def test_the_children_at_the_moment_count_not_those_when_the_image_is_written() -> None:
    """A child that was forked just after the image's own refused it (examinations by ``ckpt doctor``); one that was waited
    for just after was not noticed."""
    assert dumping.prepare(None, {}).forked is None
    child = os.fork()
    if not child:
        os._exit(0)
    prepared = dumping.prepare(None, {})
    os.waitpid(child, 0)
    assert prepared.forked is not None and prepared.forked.path == f"child process {child}"
    assert dumping.prepare(None, {}).forked is None

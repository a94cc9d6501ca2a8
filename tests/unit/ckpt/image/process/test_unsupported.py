"""What would be lost in silence is refused by name."""

from __future__ import annotations

import sys

import pytest

from ckpt.image.errors import Unpicklable
from ckpt.image.process import unsupported


def test_an_object_in_the_place_of_a_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported.check()
    monkeypatch.setitem(sys.modules, "shutil", object())
    with pytest.raises(Unpicklable, match=r"a builtins\.object stands in the place of the module") as raised:
        unsupported.check()
    assert raised.value.path == "sys.modules['shutil']"

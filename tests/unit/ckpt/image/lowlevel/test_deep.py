"""A function is called on a C stack of any size."""

from __future__ import annotations

import pytest

from ckpt.image.lowlevel import _deep


def test_the_result_is_that_of_the_function() -> None:
    assert _deep.call(lambda: 7, 1 << 20) == 7


def test_an_exception_passes_through() -> None:
    def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        _deep.call(fail, 1 << 20)


def test_calls_may_be_nested() -> None:
    assert _deep.call(lambda: _deep.call(lambda: "inner", 1 << 20), 1 << 20) == "inner"

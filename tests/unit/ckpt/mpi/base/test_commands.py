"""The arguments of Spawn and Spawn_multiple, as mpi4py takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpt.mpi.base.commands import commands_of
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.base.info import INFO_NULL, Info


def test_one_form_for_all() -> None:
    info = Info.Create({"wdir": "below"})
    assert commands_of([Path("a.py"), b"b"], [["x", b"y"], None], [1, 2], [info, INFO_NULL]) == [
        {"words": ["a.py", "x", "y"], "count": 1, "info": {"wdir": "below"}},
        {"words": ["b"], "count": 2, "info": {}},
    ]
    assert [each["count"] for each in commands_of(["a", "b"], None, None, INFO_NULL)] == [1, 1]
    assert [each["count"] for each in commands_of(["a", "b"], None, 3, info)] == [3, 3]
    assert [each["info"] for each in commands_of(["a", "b"], None, 3, info)] == [{"wdir": "below"}] * 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("a", None, 1, INFO_NULL), ValueError),
        ((["a"], "x", 1, INFO_NULL), ValueError),
        ((["a"], ["x"], 1, INFO_NULL), ValueError),
        ((["a"], [None, None], 1, INFO_NULL), ValueError),
        ((["a"], None, [1, 1], INFO_NULL), ValueError),
        ((["a"], None, [1], [INFO_NULL] * 2), ValueError),
        (([None], None, 1, INFO_NULL), TypeError),
        ((["a"], [[1]], 1, INFO_NULL), TypeError),
        ((["a"], None, 0, INFO_NULL), MpiException),
        ((["a"], None, [-1], INFO_NULL), MpiException),
        (([], None, None, INFO_NULL), MpiException),
    ],
)
def test_what_is_wrong_is_said(words: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        commands_of(*words)

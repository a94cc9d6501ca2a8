"""A string that is a constant of the program is the same object as that constant after a restart: so pickle, which writes an
object once, writes the same bytes as without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import loaded, pickled, resumed_output

PROGRAM = """
    import pickle
    def row(number):
        return {"name": number, "total": 2 * number, "kind": "step", "train loss": ("a b", "value"), "i": b"step"}
    rows = [row(1), row(2)]
    driver_tick()
    rows += [row(3), row(4)]
    print(pickle.dumps(rows) == pickle.dumps([row(number) for number in range(1, 5)]))
    print([key for key in rows[0] if len({id(each) for row in rows for each in row if each == key}) > 1])
    print(rows[0]["kind"] is rows[2]["kind"], rows[0]["train loss"] is rows[2]["train loss"])
"""


def test_a_list_that_grows_before_and_after_a_restart_is_pickled_as_without_one(tmp_path: Path) -> None:
    """The words ``name``, ``total`` and ``kind`` are also constants of the standard library: they were two objects each, and
    pickle wrote each twice."""
    assert resumed_output(tmp_path, PROGRAM) == "True\n[]\nTrue True\n"


class Text(str):
    pass


@pytest.mark.parametrize("text", ["name", "x", "a longer text, with spaces", "été", "日本", "\ud800"])
def test_an_interned_string_is_interned_again(text: str) -> None:
    interned = sys.intern("".join([text[:1], text[1:]]))
    one, other, key = loaded(pickled([interned, interned, {interned: 1}])[0])
    assert one is other is next(iter(key)) is interned


def test_a_string_that_was_not_interned_is_not() -> None:
    texts = ["na", "me"]
    one, other, own, interned = loaded(pickled(["".join(texts), "".join(texts), Text("name"), "name"])[0])
    assert one == other == own == interned
    assert len({id(one), id(other), id(own), id(interned)}) == 4
    assert type(own).__name__ == "Text"


def test_empty_strings_are_saved() -> None:
    assert loaded(pickled(["", {"": ""}])[0]) == ["", {"": ""}]

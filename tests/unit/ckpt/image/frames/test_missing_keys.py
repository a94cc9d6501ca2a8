"""Dictionaries whose class says what a missing key stands for."""

from __future__ import annotations

from pathlib import Path

from tests.unit.ckpt.image.support import resumed_output


def test_an_image_in_missing_after_it_has_added_the_key(tmp_path: Path) -> None:
    source = """
        class Table(dict):
            def __missing__(self, key):
                self[key] = value = [key]
                driver_tick()
                value.append(1)
                return value

        table = Table(b=2)
        print(table["a"] is table["a"], table, table["b"])
    """
    assert resumed_output(tmp_path, source) == "True {'b': 2, 'a': ['a', 1]} 2\n"

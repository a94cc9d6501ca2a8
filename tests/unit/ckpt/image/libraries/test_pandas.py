"""pandas: options, and a parser in the middle of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.image.libraries.pandas import Pandas
from tests.unit.ckpt.image.support import copy_of

pd = pytest.importorskip("pandas")


def test_a_table_is_kept() -> None:
    table = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=pd.Index([3, 4], name="n"))
    pd.testing.assert_frame_equal(copy_of(table), table)


def test_a_parser_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(10)))
    with pd.read_csv(path, chunksize=3) as parser:
        assert list(next(parser)["a"]) == [0, 1, 2]
        with copy_of(parser) as copy:
            assert [list(piece["a"]) for piece in copy] == [[3, 4, 5], [6, 7, 8], [9]]


def test_options_are_put_back() -> None:
    library = Pandas("pandas")
    noted, before = library.note_settings(), pd.get_option("display.max_rows")
    pd.set_option("display.max_rows", 7)
    library.apply_settings(noted)
    assert pd.get_option("display.max_rows") == before

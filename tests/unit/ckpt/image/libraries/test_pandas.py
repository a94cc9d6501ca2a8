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


def test_writing_to_one_of_several_tables_with_shared_memory_leaves_the_others_alone() -> None:
    table, numbers = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), pd.Series([1, 2, 3])
    dates, index = pd.DataFrame({"t": pd.date_range("2020", periods=2)}), pd.Index([7, 8])
    pairs = {
        "slice": (table, table[:]),
        "renamed": (table, table.rename(columns={"a": "c"})),
        "column": (table, table["a"]),
        "shallow copy": (table, table.copy(deep=False)),
        "part of a series": (numbers, numbers[:2]),
        "dates": (dates, dates[:]),
        "values of an index": (index, pd.Series(index)),
        "values of a range": (pd.RangeIndex(3), pd.Series(pd.RangeIndex(3))),
    }
    saved = {name: (before.copy(deep=True), copied) for name, (before, copied) in copy_of(pairs).items()}
    for name, (before, copied) in copy_of(pairs).items():
        copied.iloc[0] = copied.iloc[1]
        assert before.equals(saved[name][0]), name


def test_what_an_index_looks_up_its_values_with_is_made_again() -> None:
    assert [copy_of(pd.Index(values)._engine).get_loc(values[1]) for values in ([3, 1], ["a", "b"])] == [1, 1]


def test_the_places_of_blocks_are_kept() -> None:
    from pandas._libs.internals import BlockPlacement

    places = copy_of([BlockPlacement(slice(2, 8, 3)), BlockPlacement([5, 1])])
    assert [list(each) for each in places] == [[2, 5], [5, 1]]


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


def test_flags_of_a_table_were_copied() -> None:
    table = pd.DataFrame({"a": [1, 2]})
    table, flags = copy_of((table, table.flags), is_disposable=True)
    flags.allows_duplicate_labels = False
    assert not table.flags.allows_duplicate_labels

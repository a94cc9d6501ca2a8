"""Cursors of sqlite3 in the middle of their results."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ckpt.compat import referents
from ckpt.image.errors import ObjectRefused
from ckpt.image.handles.cursors import Cursors
from ckpt.image.interface import turn
from ckpt.image.interface.registry import libraries
from ckpt.image.interface.turn import Turn
from ckpt.image.stdlib import sqlite
from tests.unit.ckpt.image.support import copy_of, image_failure, resumed_output


@pytest.fixture
def library() -> Iterator[Cursors]:
    found = libraries.find("sqlite3.dbapi2")
    assert isinstance(found, Cursors)
    yield found
    found.let_copies_go()
    found._read.clear()


def copied(library: Cursors, obj: Any, is_in_time: Callable[[], bool] = lambda: True) -> Any:
    """What an image would hold of the object; its cursors give their rows away for that, as in the child."""
    library.copy_out(is_writing=False, available=lambda: None)
    if library.has_to_read():
        library.read_in_child(is_in_time)
    library.let_copies_go()
    return copy_of(obj, is_disposable=True)


def test_a_cursor_goes_on_with_the_rows_that_it_has_not_given(library: Cursors) -> None:
    """No checkpoint was possible in a loop over a cursor."""
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE t (a, b, "c ""d""")')
    values = [(1, "é\0x", None), (2**62, b"", -0.5), (-1, "", float("inf")), (4, b"\0\1", 1e-300)]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", values)
    connection.commit()
    cursor = connection.execute("SELECT * FROM t ORDER BY rowid")
    cursor.arraysize = 2
    assert next(cursor) == values[0]
    other, made = copied(library, (connection, cursor))
    assert (made.connection is other, made.arraysize, made.rowcount) == (True, 2, -1)
    assert made.description == cursor.description and made.description[2][0] == 'c "d"'
    assert next(made) == values[1]
    _, again = copied(library, (other, made))
    assert again.fetchall() == values[2:] and again.fetchone() is None
    assert made.execute("SELECT 7").fetchall() == [(7,)]


def test_rows_come_as_the_factories_of_the_program_make_them(library: Cursors) -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    cursor = connection.execute("SELECT 1 AS n, 'one' AS name UNION SELECT 2, 'two'")
    made = copied(library, cursor)
    assert [(row["n"], row["name"]) for row in made] == [(1, b"one"), (2, b"two")]
    assert made.row_factory is sqlite3.Row


def test_cursors_of_other_threads_and_of_derived_classes(library: Cursors, tmp_path: Path) -> None:
    class Own(sqlite3.Cursor):
        note = 0

    found = []

    def work() -> None:
        cursor = sqlite3.connect(tmp_path / "a.db").cursor(Own)
        cursor.note = 5
        found.append(cursor.execute("SELECT 1 UNION SELECT 2"))
        wait.acquire()

    wait = threading.Lock()
    wait.acquire()
    thread = threading.Thread(target=work)
    thread.start()
    while not found:
        time.sleep(0.001)
    library.copy_out(is_writing=False, available=lambda: None)
    child = os.fork()
    if not child:
        code = 1
        try:
            library.read_in_child(lambda: True)
            code = 0 if library._read[id(found[0])] == [(1,), (2,)] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    wait.release()
    thread.join()


def test_a_program_without_cursors_is_not_looked_through_for_each_image(
    library: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda *classes: looks.append(len(classes)) or look(*classes))

    class Own(sqlite3.Cursor):
        pass

    for _ in range(3):  # the first image makes tables that refer to the classes, too
        gc.collect()  # what other tests and each image have left refers to them
        assert copied(library, [1]) == [1]
    gc.collect()
    before = len(looks)
    copied(library, [1])
    assert len(looks) == before
    with closing(sqlite3.connect(":memory:")) as connection:
        for cls in (sqlite3.Cursor, Own):
            cursor = connection.cursor(cls).execute("SELECT 1 UNION SELECT 2")
            assert copied(library, (connection, cursor))[1].fetchall() == [(1,), (2,)]
            del cursor


def test_functions_that_give_rows_are_not_functions_of_the_program(library: Cursors) -> None:
    connection = sqlite3.connect(":memory:")
    _, made = copied(library, (connection, connection.execute("SELECT 1 UNION SELECT 2")))
    assert made.fetchall() == [(1,), (2,)]
    assert copied(library, made.connection).execute("SELECT 3").fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("statement", "options", "reason"),
    [
        ("WITH x AS (VALUES (1), (2)) INSERT INTO t SELECT * FROM x RETURNING a", {}, "changes the database"),
        ('SELECT 1 AS "a [half]" UNION SELECT 2', {"detect_types": sqlite3.PARSE_COLNAMES}, "are converted"),
        ("SELECT 1 UNION ALL SELECT Own()", {}, "may call 'own', a function of the program"),
        ("SELECT * FROM shown", {}, "may call 'own'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(
    library: Cursors,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    options: dict[str, Any],
    reason: str,
) -> None:
    """Functions of the program would be called by the copy, too: what they count or write came twice, or too early."""
    monkeypatch.setitem(sqlite3.converters, "HALF", lambda value: int(value) / 2 + 0j)
    with closing(sqlite3.connect(":memory:", isolation_level=None, **options)) as connection:
        connection.execute("CREATE TABLE t (a)")
        function = ("own", 0, lambda: called.append(1))
        connection.create_function(*function)
        recorded = {("own", 0): ("create_function", function, {})}
        monkeypatch.setitem(sqlite._definitions, id(connection), recorded)
        connection.execute("CREATE TEMP VIEW shown AS SELECT 1 UNION ALL SELECT own()")
        called: list[int] = []
        cursor = connection.cursor().execute(statement)
        so_far = len(called)
        with pytest.raises(ObjectRefused, match=rf"(?s){reason}.*fetchall"):
            copied(library, cursor)
        assert len(called) == so_far


def test_a_text_factory_of_the_program_is_refused(library: Cursors) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = lambda text: text.decode()[::-1]
        cursor = connection.execute("SELECT 'ab' UNION SELECT 'cd'")
        with pytest.raises(ObjectRefused, match="are converted"):
            copied(library, cursor)


def test_rows_that_are_read_too_late_are_not_used(library: Cursors) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        cursor = connection.execute(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
        )
        late = iter([True, True])
        with pytest.raises(ObjectRefused, match="than can be read within 2 s"):
            copied(library, cursor, lambda: next(late, False))
        short = connection.execute("SELECT 1 UNION SELECT 2")
        cursor.close()
        with pytest.raises(ObjectRefused, match="within 2 s"):
            copied(library, short, lambda: False)


def test_without_a_fork_the_rows_are_left_to_the_program(library: Cursors) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        cursor = connection.execute("SELECT 1 UNION SELECT 2")
        with pytest.raises(ObjectRefused, match="forked copy of the process only"):
            copy_of(cursor)
        assert cursor.fetchall() == [(1,), (2,)]


def test_a_statement_of_another_layout_counts_as_one_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referents, "_questions_to_sqlite", lambda: None)
    assert not referents.only_reads(object())


@pytest.mark.parametrize("end", ["reads", "dies", "hangs"])
def test_the_program_waits_until_the_child_has_read(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(turn, "LIMIT_S", 0.2 if end == "hangs" else 60.0)
    made = Turn()
    child = os.fork()
    if not child:
        time.sleep(0.05)
        if end == "reads":
            made.end()
        if end == "hangs":
            while made.is_in_time():
                time.sleep(0.01)
        os._exit(0)
    began = time.monotonic()
    made.wait(child)
    assert 0.04 < time.monotonic() - began < 30
    assert os.waitpid(child, 0)[1] == 0


LOOP = """
    import sqlite3
    connection = sqlite3.connect("a.db")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    connection.executemany("INSERT INTO t(b) VALUES (?)", [(n % 3,) for n in range(9)])
    connection.commit()

    def pairs():
        for a, b in connection.execute("SELECT a, b FROM t ORDER BY a DESC"):
            yield a, [c for c, in connection.execute("SELECT a FROM t WHERE b = ?", (b,))]

    for a, same in pairs():
        if a == 5:
            driver_tick()
        print(a, same)
"""


def test_a_loop_over_a_cursor_is_gone_on_with(tmp_path: Path) -> None:
    assert resumed_output(tmp_path, LOOP).startswith("5 [2, 5, 8]\n4 ")


def test_the_refusal_names_the_variable(tmp_path: Path) -> None:
    source = """
        import sqlite3
        connection = sqlite3.connect(":memory:")
        connection.text_factory = bytearray
        found = [connection.execute("SELECT 'a' UNION SELECT 'b'")]
        driver_tick()
    """
    assert "variable 'found'[0]: a cursor of sqlite3 in the middle of its results" in image_failure(
        tmp_path, source
    )

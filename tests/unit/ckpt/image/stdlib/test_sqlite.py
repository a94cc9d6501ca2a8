"""Connections of sqlite3: an image is taken between two transactions."""

from __future__ import annotations

import pickle
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.compat import threads, typeobjects
from ckpt.image.errors import ObjectRefused, Unpicklable
from ckpt.image.interface.registry import libraries
from ckpt.image.stdlib import sqlite
from tests.unit.ckpt.image.support import copy_of


def test_an_image_waits_for_the_end_of_a_transaction() -> None:
    library = libraries.find("sqlite3")
    assert library is not None and library.transient_types == ("sqlite3:Connection", "sqlite3:Cursor")
    connection = sqlite3.connect(":memory:")
    assert library.reason_against(connection) is None
    connection.execute("CREATE TABLE t (n)")
    connection.execute("INSERT INTO t VALUES (1)")
    assert library.reason_against(connection) == "a connection of sqlite3 is in a transaction"
    connection.commit()
    assert library.reason_against(connection) is None
    connection.close()
    assert library.reason_against(connection) is None


class Derived(sqlite3.Connection):
    pass


class Holder:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection


def test_connections_are_looked_for_in_variables_and_attributes() -> None:
    library = libraries.find("sqlite3")
    assert library is not None
    plain, derived = sqlite3.connect(":memory:"), sqlite3.connect(":memory:", factory=Derived)
    unmade = Derived.__new__(Derived)
    for connection in (plain, derived):
        connection.execute("CREATE TABLE t (n)")
        for values in ([connection], [1, Holder(connection)], [unmade, object(), Holder(connection)]):
            assert library.reason_now(values) is None
            connection.execute("INSERT INTO t VALUES (1)")
            assert library.reason_now(values) == "a connection of sqlite3 is in a transaction"
            connection.rollback()
        connection.close()
        assert library.reason_now([connection]) is None


@pytest.mark.parametrize("held", [lambda c: c, lambda c: c.cursor(), lambda c: c.__exit__, Holder])
def test_a_transaction_of_a_connection_that_is_held_in_another_way_is_waited_for(held: Any) -> None:
    """In module-level code, or as an attribute: the image failed, and its round with it."""
    library: Any = libraries.find("sqlite3")
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (n)")
    values = ["other", held(connection)]
    assert library.reason_now(values) is None
    connection.execute("INSERT INTO t VALUES (1)")
    assert library.reason_now(values) == "a connection of sqlite3 is in a transaction"
    connection.commit()
    assert library.reason_now(values) is None
    connection.close()
    assert library.reason_now(values) is None


class Row(sqlite3.Row):
    """With an attribute, and a method that hides the one of its base."""

    def keys(self) -> list[str]:  # type: ignore[override]
        raise AssertionError("code of the program must not run")


@pytest.mark.parametrize("cls", [sqlite3.Row, Row])
def test_rows_come_back_with_the_names_of_their_columns(cls: Any) -> None:
    """A program that had set ``row_factory = sqlite3.Row`` had no checkpoint while it held a row."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = cls
    row = connection.execute('SELECT 1 AS "a", NULL AS "b ""quoted"" [int]", \'x\' AS "a"').fetchone()
    if cls is Row:
        row.note = "mine"
    library: Any = libraries.find("sqlite3")
    make, arguments, state, *_, fill = reducer(library, cls)(SimpleNamespace(slots={}), row)
    made = make(*arguments)
    fill(made, state)
    assert type(made) is cls and made == row and hash(made) == hash(row)
    assert tuple(made) == (1, None, "x") and made["A"] == 1 and made['b "quoted" [int]'] is None
    assert sqlite3.Row.keys(made) == ["a", 'b "quoted" [int]', "a"]
    assert getattr(made, "note", "mine") == "mine"


def test_an_empty_database_in_memory_is_made_again() -> None:
    """The image failed: unable to serialize 'main'."""
    library: Any = libraries.find("sqlite3")
    pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=False)
    make, arguments, *_ = reducer(library, sqlite3.Connection)(pickler, sqlite3.connect(":memory:"))
    assert make(*arguments).execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_a_database_in_memory_is_in_memory_after_a_restart_too() -> None:
    """SQLite names one that was deserialized. Images taken after a restart looked for a file "x": none could be loaded."""
    library: Any = libraries.find("sqlite3")
    pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=False)
    made = sqlite3.connect(":memory:")
    made.executescript("CREATE TABLE t (n); INSERT INTO t VALUES (7)")
    for _ in range(3):
        make, arguments, *_rest = reducer(library, sqlite3.Connection)(pickler, made)
        made = make(*arguments)
    assert made.execute("SELECT n FROM t").fetchone() == (7,)


@pytest.mark.parametrize("setting", [0, 1])
def test_whether_like_heeds_case_is_as_before(setting: int) -> None:
    """Programs of pony got no checkpoint: the setting defines LIKE anew, which nobody had recorded."""
    library: Any = libraries.find("sqlite3")
    pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=False)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA case_sensitive_like = {setting}")
        make, arguments, state, _, _, fill = reducer(library, sqlite3.Connection)(pickler, connection)
    with closing(make(*arguments)) as made:
        fill(made, state)
        assert made.execute("SELECT 'a' LIKE 'A'").fetchone() == (1 - setting,)


class Spread:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def step(self, value: int) -> None:
        self.seen.append(value)

    def finalize(self) -> int:
        return max(self.seen) - min(self.seen)


@pytest.fixture
def recorded() -> Iterator[None]:
    """As in a rank, for the time of the test."""
    originals = {name: sqlite3.Connection.__dict__.get(name) for name in sqlite._DEFINING}
    sqlite.record_definitions()
    yield
    for name, original in originals.items():
        if original is not None:
            typeobjects.replace_method(sqlite3.Connection, name, original)


def test_what_a_program_has_defined_in_a_connection_is_defined_again(recorded: None) -> None:
    """Programs of sqlalchemy and peewee, which define functions in each connection, got no checkpoint."""
    factor = 3
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("Times", 1, lambda value: value * factor)
        connection.create_function("upper", narg=1, func=lambda text: text + "!", deterministic=True)
        connection.create_function("gone", 1, abs)
        connection.create_function("gone", 1, None)
        connection.create_aggregate("spread", 1, Spread)  # type: ignore[arg-type]
        connection.create_collation("backwards", lambda a, b: (a < b) - (a > b))
        connection.executescript("CREATE TABLE t (n); INSERT INTO t VALUES (1), (9), (4)")
        made = copy_of(copy_of(connection))
    with closing(made):
        ask = "SELECT times(7), upper('a'), (SELECT spread(n) FROM t)"
        assert made.execute(ask).fetchone() == (21, "a!", 8)
        rows = made.execute("SELECT n || '' AS s FROM t ORDER BY s COLLATE backwards").fetchall()
        assert rows == [("9",), ("4",), ("1",)]
        with pytest.raises(sqlite3.OperationalError):
            made.execute("SELECT gone(1)")


def test_what_a_cursor_tells_of_its_latest_statement_comes_back() -> None:
    """Silently None: a program that read `description` or `lastrowid` after a restart went on with nothing."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a, b)")
    latest = []
    for statement, value in (
        ("INSERT INTO t VALUES (?, 2)", 5),
        ("SELECT a, b AS c FROM t WHERE a < ?", 9),
        ("UPDATE t SET b = ?", 1),
    ):
        cursor = connection.execute(statement, (value,))
        cursor.fetchall()
        latest.append(cursor)
    made = copy_of(copy_of(latest))
    for cursor, other in zip(latest, made, strict=True):
        assert (cursor.description, cursor.lastrowid, cursor.rowcount) == (
            other.description,
            other.lastrowid,
            other.rowcount,
        )
    assert made[1].description[1][0] == "c" and made[0].lastrowid == 1 and made[2].rowcount == 1
    assert made[0].execute("SELECT count(*) FROM t").fetchall() == [(1,)] and made[0].rowcount == -1


def test_a_cursor_whose_connection_is_closed() -> None:
    """No image of a program that had closed its database could be loaded: Cannot operate on a closed database."""
    connection = sqlite3.connect(":memory:")
    cursor = connection.execute("SELECT 1 AS one")
    cursor.fetchall()
    connection.close()
    made = copy_of(cursor)
    assert made.description[0][0] == "one"
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        made.execute("SELECT 1")


def test_a_cursor_that_was_closed_is_closed_again() -> None:
    """The image failed: Cannot operate on a closed cursor."""
    with closing(sqlite3.connect(":memory:")) as connection:
        cursor = connection.execute("SELECT 1")
        cursor.close()
        library: Any = libraries.find("sqlite3.dbapi2")
        pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=True)
        make, arguments, state, _, _, fill = reducer(library, sqlite3.Cursor)(pickler, cursor)
        made = make(*arguments)
        fill(made, state)
        with pytest.raises(sqlite3.ProgrammingError, match="closed cursor"):
            made.fetchone()


@pytest.mark.parametrize("is_disposable", [True, False])
def test_no_statement_takes_a_step_for_an_image(is_disposable: bool) -> None:
    """A forked child asked the cursor for one more row: with the last one SQLite commits."""
    library: Any = libraries.find("sqlite3.dbapi2")
    pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=is_disposable)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a)")
        cursor = connection.execute("INSERT INTO t VALUES (1), (2) RETURNING a")
        assert cursor.fetchone() == (1,)
        with pytest.raises(ObjectRefused, match="in the middle of its results"):
            reducer(library, sqlite3.Cursor)(pickler, cursor)
        assert cursor.fetchall() == [(2,)]
        for statement in ("SELECT 1 WHERE 0", "INSERT INTO t VALUES (3)", "DELETE FROM t"):
            cursor.execute(statement)
            assert reducer(library, sqlite3.Cursor)(pickler, cursor)
        cursor.executemany("INSERT INTO t VALUES (?)", [(4,), (5,)])
        assert reducer(library, sqlite3.Cursor)(pickler, cursor)
        cursor.execute("SELECT a FROM t")
        cursor.fetchmany(2)
        assert reducer(library, sqlite3.Cursor)(pickler, cursor)


def test_what_another_connection_at_this_address_has_defined_is_not(
    recorded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        former = {("times", 1): ("create_function", ("times", 1, abs), {})}
        monkeypatch.setitem(sqlite._definitions, id(connection), former)
        made = copy_of(connection)
    with closing(made), pytest.raises(sqlite3.OperationalError):
        made.execute("SELECT times(1)")


def test_what_was_defined_in_a_way_that_was_not_seen_is_not_lost_without_a_word() -> None:
    """The restarted program failed: no such function."""
    library: Any = libraries.find("sqlite3")
    reduce = reducer(library, sqlite3.Connection)
    connection = sqlite3.connect(":memory:")
    pickler = SimpleNamespace(slots={}, owned=set(), has_restart_hooks=False, is_disposable=False)
    reduce(pickler, connection)
    connection.create_function("roll", 1, abs)
    with pytest.raises(pickle.PicklingError, match=r"\(roll\).*ckpt.on_restart"):
        reduce(pickler, connection)
    pickler.has_restart_hooks = True
    reduce(pickler, connection)


def reducer(library: Any, cls: type) -> Any:
    return library.reducers().get(cls) or library.reducer_by_base(cls)


def test_whether_other_threads_may_use_a_connection_comes_back() -> None:
    """One that was open to all threads refused all but one after a restart."""
    for is_checked in (True, False):
        with closing(sqlite3.connect(":memory:", check_same_thread=is_checked)) as connection:
            made = copy_of(connection)
            assert threads.sqlite_owner(made) == (threading.get_ident(), is_checked)
            made.close()


def test_a_connection_of_another_thread_is_that_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came back closed."""
    calls: list[Any] = []
    monkeypatch.setattr(sqlite, "call_later_in", lambda *call: calls.append(call))
    monkeypatch.setattr(sqlite, "_owners", {})
    made: list[sqlite3.Connection] = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(":memory:")))
    thread.start()
    thread.join()
    owner, _ = threads.sqlite_owner(made[0]) or (0, False)
    assert owner != threading.get_ident()
    with pytest.raises((Unpicklable, pickle.PicklingError), match="another thread"):
        copy_of(made[0])
    copy = copy_of(made[0], is_disposable=True)
    assert calls == [(owner, threads.own_sqlite, copy)]
    assert copy.execute("SELECT 1").fetchone() == (1,)
    for each in (copy, made[0]):
        each.close()


def test_a_loop_over_rows_is_refused_by_name() -> None:
    """The image was tried, and failed with an advice that was no help."""
    library: Any = libraries.find("sqlite3")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.execute("SELECT 1 UNION SELECT 2")
        assert library.reason_against(cursor) is None
        connection.execute("CREATE TABLE t (a)")
        cursor = connection.execute("INSERT INTO t VALUES (1), (2) RETURNING a")
        assert library.reason_against(cursor) == (
            "a cursor of sqlite3 is in the middle of its results, and its statement changes the database"
        )
        cursor.fetchall()
        assert library.reason_against(cursor) is None
    assert library.reason_against(cursor) is None

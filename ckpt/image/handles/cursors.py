"""Cursors of sqlite3, with the rows that they have not given yet.

A statement that is under way is in C. So the forked child reads the rows that are left, while the program stands still: its
lock on the database holds, and nothing changes there. Reading in the program itself would take the rows from it. After a
restart the cursor goes on over these rows: its statement is one that gets them from a function, as SQLite knows no other
source of rows of any type. Columns have the same names, and the row and text factories of the program do the same.

Such a cursor is refused by name where its statement changes the database (``RETURNING``: at its last step SQLite commits,
which a child must not do), where values are none of SQLite's own (``detect_types`` and converters, a text factory of the
program), where it calls functions of the program (the child would call them, too, and what they do would be in the image
before its time), and where more rows are left than can be read in time or kept.
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from ckpt.compat import referents, typeobjects
from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.interface.turn import LIMIT_S
from ckpt.image.reducers.raw_instances import attributes_of, set_attributes, slots_of
from ckpt.image.stdlib.sqlite import (
    REMAINING,
    function_in,
    has_more_rows,
    owner_of,
    transaction_of,
)

__all__ = ["Cursors", "fill_cursor", "make_cursor"]

_LATEST = [sqlite3.Cursor.__dict__[name] for name in ("description", "lastrowid", "rowcount")]
"""What a cursor tells of its latest statement."""
_PIECE = 500
_MOST_ROWS, _MOST_BYTES = 1_000_000, 128 << 20
_VALUES = (int, float, str, bytes, type(None))
_REMEDY = "fetch all rows first (fetchall), or read them in pieces (LIMIT), each with a statement of its own"
_numbers = count()
_Rows = list[tuple[Any, ...]]
_going_on: dict[int, tuple[Any, list[tuple[Any, ...] | None]]] = {}
"""After a restart, by the id of a cursor: its statement, and the rows from which that gets its own (None: it has been
given). The statement, of which there is one, tells whether the cursor is still at these."""


class Cursors(Library):
    """sqlite3.Cursor"""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._open: list[sqlite3.Cursor] = []
        self._without: list[int] = []
        """How many references there were to the classes of cursors when there was no cursor."""
        self._read: dict[int, _Rows | str] = {}
        """In the forked child, by the id of the cursor: the rows that were left, or why they could not be read."""

    def copy_out(self, *, is_writing: bool, available: Callable[[], int | None]) -> None:
        self._open = [each for each in self._all() if has_more_rows(each)]

    def _all(self) -> list[sqlite3.Cursor]:
        """An object refers to its class, when that is made at run time. Looking through all objects takes 14 ns for each,
        while the program stands still: not again, as long as nothing more refers to these classes."""
        classes: list[type] = [sqlite3.Cursor]
        for cls in classes:
            classes += type.__dict__["__subclasses__"](cls)
        references = [sys.getrefcount(cls) for cls in classes]
        if references == self._without:
            return []
        found = [each for each in gc.get_referrers(*classes) if type(each) in classes]
        self._without = [] if found else references
        return found

    def has_to_read(self) -> bool:
        return bool(self._open)

    def let_copies_go(self) -> None:
        self._open = []

    def read_in_child(self, is_in_time: Callable[[], bool]) -> None:
        for cursor in self._open:
            try:
                self._read[id(cursor)] = _rows_left(cursor, is_in_time)
            except Exception as failure:  # of SQLite, or of a function of the program that it calls
                self._read[id(cursor)] = f"{type(failure).__name__}: {failure}"

    def reducers(self) -> dict[type, Reducer]:
        return {sqlite3.Cursor: self._reduce}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return self._reduce if issubclass(cls, sqlite3.Cursor) else None

    def _reduce(self, saver: Any, cursor: sqlite3.Cursor) -> Any:
        """No statement takes a step here: at its last one SQLite commits what it has changed, perhaps in a forked
        process."""
        connection = sqlite3.Cursor.connection.__get__(cursor)
        owner_of(connection, is_disposable=saver.is_disposable)
        has_ended, rows = transaction_of(connection) is None, self._read.get(id(cursor))
        if not has_ended and has_more_rows(cursor) and rows is None:
            rows = "rows that are left are read by a forked copy of the process only"
        if isinstance(rows, str):
            raise ObjectRefused(
                cursor, f"a cursor of sqlite3 in the middle of its results: {rows}; {_REMEDY}"
            )
        if not has_ended and rows is None and referents.statement_of(cursor) is None:
            try:
                sqlite3.Cursor.fetchone(cursor)
            except sqlite3.ProgrammingError:  # the cursor alone is closed
                has_ended = True
        state = (
            cursor.arraysize,
            cursor.row_factory,
            has_ended,
            [each.__get__(cursor) for each in _LATEST],
            rows,
            attributes_of(cursor),
            slots_of(saver, cursor),
        )
        return make_cursor, (connection, type(cursor)), state, None, None, fill_cursor


def _rows_left(cursor: sqlite3.Cursor, is_in_time: Callable[[], bool]) -> _Rows | str:
    """Called in a forked child. A text: why they cannot be had."""
    statement = referents.statement_of(cursor)
    former, left = _going_on.get(id(cursor), (None, []))
    if former is statement:
        return [row for row in left if row is not None]
    if not referents.only_reads(statement):
        return "its statement changes the database"
    connection = sqlite3.Cursor.connection.__get__(cursor)
    owner_of(connection, is_disposable=True)
    if function := function_in(connection, referents.text_of_statement(statement)):
        return f"its statement may call {function!r}, a function of the program"
    factory, rows, length = cursor.row_factory, _Rows(), 0
    cursor.row_factory = None
    try:
        while piece := sqlite3.Cursor.fetchmany(cursor, _PIECE):
            rows += piece
            length += sum(len(value) for row in piece for value in row if type(value) in (str, bytes))
            if not is_in_time() or len(rows) > _MOST_ROWS or length > _MOST_BYTES:
                most = f"{_MOST_ROWS:,} rows, or {_MOST_BYTES >> 20} MiB, at most"
                return f"more rows are left than can be read within {LIMIT_S:.0f} s ({most})"
    finally:
        cursor.row_factory = factory
    if not is_in_time():
        return f"the rows that are left could not be read within {LIMIT_S:.0f} s"
    found = {type(value) for row in rows for value in row}
    own_texts = str in found and connection.text_factory is not str
    if own_texts or not found.issubset(_VALUES):
        return "its values are converted (by detect_types, or by a text_factory of the program)"
    return rows


# ---------------------------------------------------------------------- called while loading


def make_cursor(connection: sqlite3.Connection, cls: type[sqlite3.Cursor] = sqlite3.Cursor) -> sqlite3.Cursor:
    made = cls.__new__(cls)
    sqlite3.Cursor.__init__(made, connection)
    return made


def fill_cursor(cursor: sqlite3.Cursor, state: tuple[Any, ...]) -> None:
    cursor.arraysize, cursor.row_factory, is_closed, latest, rows, *attributes = state
    set_attributes(cursor, *attributes)
    if is_closed:
        with contextlib.suppress(sqlite3.ProgrammingError):  # its connection is closed, and so it is
            cursor.close()
    if rows:
        _go_on_over(cursor, rows, [name for name, *_ in latest[0]])
    for member, value in zip(_LATEST, latest, strict=True):
        typeobjects.set_member(cursor, member, value)


def _go_on_over(cursor: sqlite3.Cursor, rows: _Rows, names: list[str]) -> None:
    function = f"{REMAINING}{next(_numbers)}"
    left: list[tuple[Any, ...] | None] = [*rows]

    def value(row: int, column: int) -> Any:
        if column == 0 and row:
            left[row - 1] = None  # it has been given
        return left[row][column]  # type: ignore[index]

    connection = sqlite3.Cursor.connection.__get__(cursor)
    sqlite3.Connection.create_function(connection, function, 2, value)
    columns = ", ".join(f'{function}(n, {at}) AS "{_quoted(name)}"' for at, name in enumerate(names))
    numbers = f"WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < {len(rows) - 1})"
    sqlite3.Cursor.execute(cursor, f"{numbers} SELECT {columns} FROM r")
    _going_on[id(cursor)] = referents.statement_of(cursor), left


def _quoted(name: str) -> str:
    return name.replace('"', '""')

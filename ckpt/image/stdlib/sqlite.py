"""sqlite3: connections and rows. Cursors: :mod:`ckpt.image.handles.cursors`.

A connection to a file is opened again, with its attached databases, ``isolation_level``, ``row_factory``, ``text_factory``,
``detect_types`` and the pragmas below; one of a class derived from ``sqlite3.Connection`` with its attributes, too. A
database in memory is restored with its content. Functions, aggregates and collations that the program or a package has
defined are defined again: SQLite does not show what they call, so the calls that define them are recorded from the import
of ``sqlite3`` on (:func:`record_definitions`). Not kept: trace and authorizer callbacks; set them again in an
``on_restart`` hook.

Refused by name: a connection in a transaction that does not end (commit in an ``on_checkpoint`` hook), with temporary
tables, with functions of an extension where the program has no ``on_restart`` hook.

A connection that only the thread that has made it may use (``check_same_thread``) is that thread's afterwards, too; the
forked child makes it its own. A ``sqlite3.Row`` is made again with a cursor that has described columns of its names.

Not here: the file, which goes back with all others (:mod:`ckpt.undo`; not with ``--files off``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import sys
from _thread import get_ident
from collections.abc import Iterable
from pickle import PicklingError
from types import BuiltinFunctionType
from typing import Any

from ckpt.compat import referents, threads, typeobjects
from ckpt.image.errors import RestoreError
from ckpt.image.files.reopen import wait_for_files
from ckpt.image.frames import _frames
from ckpt.image.reducers.raw_instances import attributes_of, set_attributes, slots_of
from ckpt.image.threads.restart import call_later_in
from ckpt.transport.records import NamedTuple

__all__ = [
    "REMAINING",
    "are_in_transaction",
    "has_more_rows",
    "is_in_transaction",
    "is_still_changing",
    "owner_of",
    "record_definitions",
    "reduce_connection",
    "reduce_row",
    "transaction_of",
]

_PRAGMAS = [
    *("foreign_keys", "synchronous", "busy_timeout", "cache_size"),
    *("recursive_triggers", "temp_store", "query_only"),
]
_MOST_ATTRIBUTES = 1000


class _Owner(NamedTuple):
    """``ident``: of the thread that has made a connection (None: that saves it). ``is_checked``: no other may use it."""

    ident: int | None
    is_checked: bool


_owners: dict[int, tuple[sqlite3.Connection, _Owner]] = {}
"""In the forked child, by the id of the connection: those that were another thread's."""
_PROBE = "ckpt_probe"
REMAINING = "ckpt_remaining_"
"""How the names of functions begin from which cursors get the rows that are left: :mod:`ckpt.image.handles.cursors`."""
_SUFFIXES = ("-wal", "-shm", "-journal")
_DEFINING = ("create_function", "create_aggregate", "create_window_function", "create_collation")
_LISTS = (
    "SELECT name, builtin, narg FROM pragma_function_list",
    "SELECT name, 0, NULL FROM pragma_collation_list",
)
Definition = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method of :data:`_DEFINING`, and its arguments."""
_definitions: dict[int, dict[tuple[str, Any], Definition]] = {}
"""By the id of a connection (there are no weak references to one), name in small letters and number of arguments. What a
former connection at this address has defined is here, too: what counts is what SQLite lists."""


def record_definitions() -> None:
    """From now on, what connections define is recorded. A second time it does nothing."""
    for name in _DEFINING:
        original = sqlite3.Connection.__dict__.get(name)
        if original is not None and not hasattr(original, "is_recorded"):
            typeobjects.replace_method(sqlite3.Connection, name, _recorded(name, original))


def _recorded(kind: str, original: Any) -> Any:
    @functools.wraps(original)
    def method(connection: Any, /, *args: Any, **options: Any) -> Any:
        result = original(connection, *args, **options)
        name = args[0] if args else options["name"]
        counts = (*args[1:2], *(options[each] for each in ("narg", "n_arg") if each in options))
        key = name.lower(), None if kind == "create_collation" else counts[0]
        _definitions.setdefault(id(connection), {})[key] = kind, args, options
        return result

    method.is_recorded = True  # type: ignore[attr-defined]
    return method


def are_in_transaction(values: Iterable[Any]) -> bool:
    """Is one of these objects a connection in a transaction, or a variable of the main program, or an attribute of one of
    them? (A variable of a module that the program has imported is an attribute of the module.)"""
    main = sys.modules.get("__main__")
    values = [*values, *(() if main is None else vars(main).values())]
    methods = (each for each in values if type(each) is BuiltinFunctionType)  # "usual" ones, of any object
    held = [*_frames.unusual(values, {}, ()), *methods]
    for value in {id(each): each for each in held}.values():
        attributes = attributes_of(value) or {}
        if is_in_transaction(value) or (
            len(attributes) <= _MOST_ATTRIBUTES and any(map(is_in_transaction, attributes.values()))
        ):
            return True
    return False


def is_in_transaction(value: Any) -> bool:
    """Is this object a connection in a transaction? A cursor stands for its connection, and so does a method that is about
    to be called (``__exit__``)."""
    if type(value) is BuiltinFunctionType:
        value = value.__self__
    if issubclass(type(value), sqlite3.Cursor):
        value = sqlite3.Cursor.connection.__get__(value)
    if not issubclass(type(value), sqlite3.Connection):
        return False
    return transaction_of(value) is True


def has_more_rows(value: Any) -> bool:
    """Is it a cursor that has not given all its rows?"""
    is_cursor = issubclass(type(value), sqlite3.Cursor)
    return is_cursor and bool(
        referents.statement_of(value) and sqlite3.Cursor.__dict__["description"].__get__(value)
    )


def is_still_changing(value: Any) -> bool:
    """Is it a cursor that has not given all its rows, of a statement that changes the database when it ends?"""
    return has_more_rows(value) and not referents.only_reads(referents.statement_of(value))


def transaction_of(connection: sqlite3.Connection) -> bool | None:
    """Is the connection in a transaction? None: it is closed. From any thread."""
    try:
        return bool(sqlite3.Connection.in_transaction.__get__(connection))
    except sqlite3.ProgrammingError:
        return None


def owner_of(connection: sqlite3.Connection, *, is_disposable: bool) -> _Owner:
    """Afterwards this thread can use the connection. Raises PicklingError: it cannot."""
    if id(connection) in _owners:
        return _owners[id(connection)][1]
    found = threads.sqlite_owner(connection)
    if found is None:
        return _Owner(None, True)
    ident, is_checked = found
    if ident == get_ident():
        return _Owner(None, is_checked)
    if is_checked:
        if not is_disposable:
            raise PicklingError("a connection that another thread has made is saved by a forked process only")
        _owners[id(connection)] = connection, _Owner(ident, True)
        threads.own_sqlite(connection)
    return _Owner(ident, is_checked)


def reduce_connection(pickler: Any, connection: sqlite3.Connection) -> Any:
    owner = owner_of(connection, is_disposable=pickler.is_disposable)
    try:
        in_transaction = connection.in_transaction
        listed = _ask(connection, "PRAGMA database_list")
    except sqlite3.ProgrammingError as failure:
        if "thread" in str(failure):  # its owner could not be read
            raise PicklingError(f"a connection of another thread: {failure}") from None
        return make_closed, ()
    # a database that was deserialized in memory has the path "x"
    databases = [(name, path if os.path.isabs(path) else "") for _, name, path in listed]
    main = next(path for name, path in databases if name == "main")
    if in_transaction:
        raise PicklingError(
            f"the connection to {main or 'a database in memory'} is in a transaction; end it within a minute, or commit it "
            "before each image: ckpt.on_checkpoint(lambda epoch: connection.commit())"
        )
    if _ask(connection, "SELECT count(*) FROM sqlite_temp_master")[0][0]:
        raise PicklingError(
            f"the connection to {main or 'a database in memory'} has temporary tables: not saved"
        )
    definitions = _definitions_of(pickler, connection, main)
    attached = [(name, path) for name, path in databases if name not in ("main", "temp")]
    if any(not path for _, path in attached):
        raise PicklingError("a connection with an attached database in memory cannot be saved")
    for path in filter(None, [main, *(place for _, place in attached)]):
        for file in (path, *(path + suffix for suffix in _SUFFIXES)):
            with contextlib.suppress(OSError):
                status = os.stat(file)
                pickler.owned.add((status.st_dev, status.st_ino))
    is_empty = main or not _ask(connection, "PRAGMA page_count")[0][0]  # nothing that SQLite could serialize
    content = None if is_empty else connection.serialize()
    settings = {name: _ask(connection, f"PRAGMA {name}")[0][0] for name in _PRAGMAS}
    settings |= {"case_sensitive_like": 1} if _heeds_case(connection) else {}
    level = connection.isolation_level
    state = (
        connection.row_factory,
        connection.text_factory,
        settings,
        getattr(connection, "autocommit", None),
        owner.ident,
        definitions,
        attributes_of(connection),
        slots_of(pickler, connection),
    )
    return (
        make_connection,
        (main, attached, content, level, _detected_types(connection), type(connection), owner.is_checked),
        state,
        None,
        None,
        fill_connection,
    )


def _definitions_of(pickler: Any, connection: sqlite3.Connection, path: str) -> list[Definition]:
    """What is to be defined again. Raises PicklingError: SQLite lists something that was not recorded, and the program has
    no hook that may define it. What another connection does not list is the program's, or a package's. (What has been
    removed stays in the list. An SQLite without these pragmas lists nothing.)"""
    known = _definitions.get(id(connection), {})
    with contextlib.closing(sqlite3.connect(":memory:")) as usual:
        usually = {row for statement in _LISTS for row in _ask_if_possible(usual, statement)}
        usual.execute(f"PRAGMA case_sensitive_like = {int(_heeds_case(connection))}")  # defines LIKE anew
        usually.update(row for statement in _LISTS for row in _ask_if_possible(usual, statement))
    listed = {row for statement in _LISTS for row in _ask_if_possible(connection, statement)} - usually
    names = {(name.lower(), count) for name, _, count in listed if not name.lower().startswith(REMAINING)}
    found = {name: known.get(name) for name in names}
    lost = sorted({name for (name, _), definition in found.items() if definition is None})
    if lost and not pickler.has_restart_hooks:
        raise PicklingError(
            f"the connection to {path or 'a database in memory'} has functions, aggregates or collations that were not "
            f"defined by its methods ({', '.join(lost[:5])}), and SQLite does not give them back; define them again in a "
            "function that you register with ckpt.on_restart"
        )
    return [definition for definition in found.values() if definition is not None]


def _heeds_case(connection: sqlite3.Connection) -> bool:  # of a LIKE that is not the program's
    has_own = any(name == "like" for name, _ in _definitions.get(id(connection), {}))
    return not has_own and _ask(connection, "SELECT 'a' LIKE 'A'")[0][0] == 0


def function_in(connection: sqlite3.Connection, text: str) -> str | None:
    """A function or aggregate of the program that a statement may call: itself, or by what it names, such as a view."""
    defined = _definitions.get(id(connection), {}).items()
    names = {
        name for (name, _), (kind, *_) in defined if kind != "create_collation" and REMAINING not in name
    }
    if not names:
        return None
    made: dict[str, str] = {}
    for _, database, _ in _ask(connection, "PRAGMA database_list"):
        quoted = database.replace('"', '""')
        rows = _ask_if_possible(connection, f'SELECT tbl_name, sql FROM "{quoted}".sqlite_master')
        for name, definition in rows:
            made[name.lower()] = made.get(name.lower(), "") + (definition or "")
    words, texts = set[str](), [text]
    while texts:
        fresh = {*re.findall(r"\w+", texts.pop().lower())} - words
        words |= fresh
        texts += [made[word] for word in fresh & made.keys()]
    return min(names & words, default=None)


def _ask_if_possible(connection: sqlite3.Connection, statement: str) -> list[tuple[Any, ...]]:
    try:
        return _ask(connection, statement)
    except sqlite3.OperationalError:
        return []


def _ask(connection: sqlite3.Connection, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, made without the program's row and text factories."""
    factory = connection.text_factory
    connection.text_factory = str
    try:
        cursor = sqlite3.Cursor(connection)
        cursor.row_factory = None
        return cursor.execute(statement).fetchall()
    finally:
        connection.text_factory = factory


def _detected_types(connection: sqlite3.Connection) -> int:
    """``detect_types``, which has no attribute: found by its effect on the names and values of columns."""
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    cursor.execute(f'SELECT 1 AS "a [{_PROBE}]"')
    by_name = cursor.description[0][0] == "a"
    cursor.fetchall()
    before = sqlite3.converters.get("TEXT")
    sqlite3.register_converter("TEXT", lambda value: 7)
    try:
        row = cursor.execute("SELECT type FROM sqlite_master LIMIT 1").fetchone()
    finally:
        if before is None:
            del sqlite3.converters["TEXT"]
        else:
            sqlite3.converters["TEXT"] = before
    by_type = row is not None and row[0] == 7
    return sqlite3.PARSE_COLNAMES * by_name | sqlite3.PARSE_DECLTYPES * by_type


def reduce_row(pickler: Any, row: sqlite3.Row) -> Any:
    arguments = tuple(sqlite3.Row.keys(row)), tuple(sqlite3.Row.__iter__(row)), type(row)
    attributes = attributes_of(row), slots_of(pickler, row)
    return make_row, arguments, attributes, None, None, fill_row


# ---------------------------------------------------------------------- called while loading


def make_connection(
    path: str,
    attached: list[tuple[str, str]],
    content: bytes | None,
    level: Any,
    detect_types: int,
    cls: type[sqlite3.Connection] = sqlite3.Connection,
    is_checked: bool = True,
) -> sqlite3.Connection:
    databases = [database for database in (path, *(place for _, place in attached)) if database]
    if databases:
        wait_for_files()  # a connection remembers what it has read, and one that was removed since comes back
    for database in databases:
        if not os.path.exists(database):
            raise RestoreError(f"the database {database!r} is gone")
    made = cls.__new__(cls)  # a class of the program has been through its own __init__
    sqlite3.Connection.__init__(
        made,
        path or ":memory:",
        isolation_level=level,
        detect_types=detect_types,
        check_same_thread=is_checked,
    )
    if content:
        made.deserialize(content)
    for name, place in attached:
        made.execute(f'ATTACH DATABASE ? AS "{name}"', (place,))
    return made


def fill_connection(connection: sqlite3.Connection, state: tuple[Any, ...]) -> None:
    row_factory, text_factory, settings, autocommit, owner, definitions, *attributes = state
    for name, value in settings.items():
        connection.execute(f"PRAGMA {name} = {int(value)}")
    if autocommit is not None:
        connection.autocommit = autocommit  # type: ignore[attr-defined]  # since Python 3.12
    connection.row_factory, connection.text_factory = row_factory, text_factory
    for kind, args, options in definitions:
        getattr(sqlite3.Connection, kind)(connection, *args, **options)
    if owner is not None:
        call_later_in(owner, threads.own_sqlite, connection)
    set_attributes(connection, *attributes)


def make_closed() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.close()
    return made


def make_row(names: tuple[str, ...], values: tuple[Any, ...], cls: type[sqlite3.Row]) -> sqlite3.Row:
    return sqlite3.Row.__new__(cls, _describing(names), values)


def fill_row(row: sqlite3.Row, attributes: tuple[Any, ...]) -> None:
    set_attributes(row, *attributes)


@functools.lru_cache
def _describing(names: tuple[str, ...]) -> sqlite3.Cursor:
    """A cursor whose last result had columns of these names; its connection is closed."""
    columns = ", ".join('0 AS "{}"'.format(name.replace('"', '""')) for name in names)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return connection.execute(f"SELECT {columns}")

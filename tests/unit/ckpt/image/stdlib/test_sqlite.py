"""Connections of sqlite3: an image is taken between two transactions."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from ckpt.image.interface.registry import libraries


def test_an_image_waits_for_the_end_of_a_transaction() -> None:
    library = libraries.find("sqlite3")
    assert library is not None and library.transient_types == ("sqlite3:Connection",)
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

"""Functions that a program may call for objects of a library, for more than images do by themselves
(:mod:`ckpt.image.interface.registry`)."""

from __future__ import annotations

import sqlite3
from typing import Any

import ckpt

__all__ = ["roll_back"]


def roll_back(connection: Any) -> None:
    """Make the content of a small sqlite3 database part of every image: a restart writes this content into the file.

    The program stands still while the database is read, so this is for databases of megabytes. Other processes must not
    use the file. Raises TypeError for anything but a sqlite3 connection.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise TypeError(f"roll_back takes a sqlite3 connection, not {connection!r}")
    keeper = _Keeper(connection)
    ckpt.on_checkpoint(keeper.save)
    ckpt.on_restart(keeper.put_back)


class _Keeper:
    """Hooks that keep the content of one database file with the program's image."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.content = b""

    def save(self, epoch: int) -> None:
        if self.connection.in_transaction:
            raise sqlite3.OperationalError(
                "the database is in a transaction: commit it before the checkpoint"
            )
        self.content = self.connection.serialize()

    def put_back(self, epoch: int) -> None:
        saved = sqlite3.connect(":memory:")
        if self.content:
            saved.deserialize(self.content)
        saved.backup(self.connection)
        saved.close()

"""Copies of originals that outlive their process: files in the host's memory. (driver)

    stored     the owner has written its original, before anybody else is told of it: one copy in memory
    known      other ranks (`copies` of them) have its name: they have it as an item, and read it when it is used
    removed    by the owner when all that live have the result; by those who knew it if the owner is dead

So a contribution is lost only if its owner dies before a short message is out. Small originals are sent in that message.
After a restart the owner writes again what it had stored. A file that is gone nevertheless is an item that nobody holds
(`Vanished`). What a job that was killed as a whole has left is removed by later ones.

Source of two copies, and of their placement: Li, Zhao, Yan et al. (2018), section 3, there on the disks of two nodes.

Not here: who is to hold copies (recovery.py), when one is used (member.py).
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ckpt.reduction.body import Body, Packed

LEAST_BYTES = 64 << 10
"""Smaller originals are sent themselves."""

PREFIX = "ckpt-reduction-"
_STALE_S = 3600.0


class Gone(Exception):
    """The file of a copy is not there, or not whole."""


class Stored(NamedTuple):
    """A copy in a file. `dtype`: of an array; empty: it is a pickled body of `shape[0]` bytes."""

    path: str
    dtype: str
    shape: tuple[int, ...]

    def load(self) -> Any:
        """The array, or the packed body. Raises Gone."""
        dtype = np.dtype(self.dtype or "u1")
        try:
            data = np.fromfile(self.path, dtype)
        except OSError as error:
            raise Gone(f"{self.path}: {error}") from error
        if data.size != int(np.prod(self.shape)):
            raise Gone(f"{self.path}: {data.size} items of {self.shape}")
        return data.reshape(self.shape) if self.dtype else Packed(data.tobytes())

    def remove(self) -> None:
        """It is not needed any more."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def folder() -> Path:
    """Where copies lie: the host's memory, if that is there."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def pattern() -> str:
    """Of the names of all copies: they are no files of the program's."""
    return str(folder() / f"{PREFIX}*")


class Store:
    """The copies that one rank writes."""

    def __init__(self) -> None:
        self._stem = f"{PREFIX}{os.getppid()}-{secrets.token_hex(8)}"
        self._count = 0

    def store(self, value: Any, again: Stored | None = None) -> Stored | None:
        """Write a value; None: it is small, or there is no room, so it is to be sent itself. `again`: after a restart."""
        if isinstance(value, Body):
            value = Packed.of(value)
        data = value.data if isinstance(value, Packed) else value
        nbytes = data.nbytes if isinstance(data, np.ndarray) else len(data)
        if nbytes < LEAST_BYTES:
            return None
        self._count += 1
        path = str(folder() / f"{self._stem}-{self._count}") if again is None else again.path
        stored = (
            Stored(path, data.dtype.str, data.shape)
            if isinstance(data, np.ndarray)
            else Stored(path, "", (nbytes,))
        )
        try:
            stored.remove()
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
            ) as file:
                file.write(memoryview(data).cast("B"))
        except OSError:  # no room
            stored.remove()
            return None
        return stored


def remove_stale() -> None:
    """Remove what jobs have left that were killed as a whole: their agent is dead, and the file is an hour old."""
    for path in folder().glob(f"{PREFIX}*"):
        try:
            agent = int(path.name[len(PREFIX) :].partition("-")[0])
            if not os.path.exists(f"/proc/{agent}") and time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
        except (OSError, ValueError):
            continue  # another user's, or removed by another rank

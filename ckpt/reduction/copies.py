"""Memory of the host in which ranks put what others read: originals and intermediate results. (driver)

    piece      one value, in a file of the host's memory that its owner has mapped. Other ranks map it, too, and read it
               without the owner's program or helper: it may compute, sleep, be stopped, or be dead, since the file outlives
               the process. So the piece that others read is at the same time the copy that a death leaves
    where      the file's name and a random number, the *mark* at its beginning. It stands there for as long as the piece
               does. Readers compare it before and after they have read: what they get is what was told, or Gone
    free       a piece that nobody here refers to any more: its mark is taken away, and the memory is used again, since new
               memory costs far more (2 µs a page) than what is done with it. Not if an image was taken since it was last
               used: images are written by a copy of the process, which shares this memory
    retired    there are too many free pieces: the file is removed, and readers unmap it

An image has the content of pieces, not the pieces. After a restart an owner writes again the originals that others count on,
under the same name and mark; all else is asked for by message. What a job that was killed as a whole has left is removed by
later ones, what a dead rank has left by the living.

Source of two copies, and of their placement: Li, Zhao, Yan et al. (2018), section 3, there on the disks of two nodes.

Not here: who is to hold copies (recovery.py), when a piece is read (member.py, service.py).
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import ckpt
from ckpt.reduction.body import Packed
from ckpt.reduction.keeping.mapping import Mapping

LEAST_BYTES: Final = 64 << 10
"""Smaller values are sent in messages."""
KEPT_BYTES: Final = 512 << 20
"""So much memory of one rank is kept to be used again."""
OWN_BYTES: Final = 256 << 20
"""So much memory of results is kept to be used again."""
PREFIX: Final = "ckpt-reduction-"
_STALE_S = 3600.0
_HEAD = mmap.PAGESIZE  # before the content: the mark, and a number that is 1 when the file is retired
_STEP = 1 << 16  # sizes of pieces are multiples of it, so that one fits the next value of about the same size


class Gone(Exception):
    """What was to be read is not there any more."""


class Where(NamedTuple):
    """Where a value lies. `dtype`: of an array; empty: it is a pickled body of `shape[0]` bytes."""

    path: str
    mark: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype or "u1").itemsize


class Piece:
    """A value of this rank in the host's memory; used again when nobody refers to it. In an image it is its content.

    `source`: the program's own value, of which it is a copy."""

    __slots__ = ("_mapping", "_memory", "source", "value", "where")

    def __init__(self, memory: Memory, mapping: Mapping, where: Where, source: Any) -> None:
        self._memory, self._mapping, self.where, self.source = memory, mapping, where, source
        self.value = _value_of(mapping, where)

    @property
    def nbytes(self) -> int:
        return self.where.nbytes

    def publish(self) -> None:
        """The value is there: others may read it."""
        self._mapping.head[0] = self.where.mark

    def content(self) -> Any:
        """A copy: an array, or a packed body."""
        return self._memory.own.copy_of(self.value, self.where)

    def __reduce__(self) -> Any:
        return _as_it_is, (self.content() if self.source is None else self.source,)

    def __del__(self) -> None:
        self._memory.take_back(self._mapping)


def _value_of(mapping: Mapping, where: Where) -> np.ndarray[Any, Any]:
    """What lies in it: the array, or the bytes of a pickled body."""
    memory = np.asarray(mapping)[_HEAD : _HEAD + where.nbytes]
    return memory.view(where.dtype or "u1").reshape(where.shape)


def _as_it_is(value: Any) -> Any:
    return value


def _references_of_one_alone() -> int:
    """Versions of Python differ in what a call counts."""
    block = np.empty(1, "u1")
    return sys.getrefcount(block)


_ALONE: Final = _references_of_one_alone()


class OwnMemory:
    """Of arrays that the program gets: used again when it has let go of them, since new memory takes twice the time of what
    is copied into it. Called by any thread, without a lock, which an image could be taken under: who has taken a block out
    of the queue has it alone.

    An array is a view of a block, as are all that are made of it; so a block that only its queue refers to is free."""

    def __init__(self) -> None:
        self._blocks: dict[int, deque[np.ndarray[Any, Any]]] = {}
        self._kept = 0

    def __reduce__(self) -> Any:
        return OwnMemory, ()

    def empty(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """A new array."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if not LEAST_BYTES <= nbytes <= OWN_BYTES:
            return np.empty(shape, dtype)
        blocks = self._blocks.setdefault(nbytes, deque())
        for _ in range(len(blocks)):
            try:
                block = blocks.popleft()
            except IndexError:
                break
            found = block.view(dtype).reshape(shape) if sys.getrefcount(block) == _ALONE else None
            blocks.append(block)
            if found is not None:
                return found
        if self._kept + nbytes > OWN_BYTES:
            self._blocks, self._kept = {}, 0
            blocks = self._blocks.setdefault(nbytes, deque())
        block = np.empty(nbytes, "u1")
        self._kept += nbytes
        blocks.append(block)
        return block.view(dtype).reshape(shape)

    def copy_of(self, value: np.ndarray[Any, Any], where: Where) -> Any:
        """A copy of what lies there: an array, or a packed body."""
        if not where.dtype:
            return Packed(value.tobytes())
        array = self.empty(where.dtype, where.shape)
        np.copyto(array, value)
        return array


class Memory:
    """The pieces of one rank, and those of others that it has mapped. Needs the lock of the channel, but where it says so.

    After a restart it is empty: an image has no memory of the host."""

    def __init__(self, rank: int, number: int = 0) -> None:
        """`rank`: in the world. `number`: tells several of one rank apart, after a restart too."""
        self.process, self.rank, self.number = os.getpid(), rank, number
        self._stem = f"{stem(rank)}{number}-{secrets.token_hex(8)}"
        self._count = 0
        self._free: dict[int, list[tuple[Mapping, int]]] = {}
        """By size: mappings, each with the epoch in which it was last taken."""
        self._taken: dict[str, int] = {}
        """Of each piece: the epoch in which it was taken."""
        self._kept = 0
        self._others: dict[str, Mapping] = {}
        self.own = OwnMemory()
        self.is_full = False

    def __reduce__(self) -> Any:
        return Memory, (self.rank, self.number)

    # -- of this rank

    def take(self, dtype: str, shape: tuple[int, ...], source: Any = None) -> Piece | None:
        """A piece for a value to come; None: it is small, or there is no room."""
        where = Where("", secrets.randbits(63) | 1, dtype, shape)
        if where.nbytes < LEAST_BYTES or self.is_full:
            return None
        size = _HEAD + -(-where.nbytes // _STEP) * _STEP
        epoch, free = ckpt.epoch(), self._free.get(size)
        while free:
            mapping, taken_in = free.pop()
            self._kept -= size
            if taken_in == epoch:
                break
            self._retire(mapping)
        else:
            self._count += 1
            made = self._make(f"{folder()}/{self._stem}-{self._count}", size)
            if made is None:
                return None
            mapping = made
        self._taken[mapping.path] = epoch
        return Piece(self, mapping, where._replace(path=mapping.path), source)

    def put(self, value: Any, again: Where | None = None) -> Piece | None:
        """A piece with a value, an array or a packed body, which others may read. `again`: after a restart, as it was."""
        data = np.frombuffer(value.data, "u1") if isinstance(value, Packed) else value
        dtype = "" if isinstance(value, Packed) else value.dtype.str
        if again is None:
            piece = self.take(dtype, data.shape, value)
        else:
            remove(again.path)
            made = self._make(again.path, _HEAD + -(-again.nbytes // _STEP) * _STEP)
            piece = None if made is None else Piece(self, made, again, value)
        if piece is not None:
            np.copyto(piece.value, data)
            piece.publish()
        return piece

    def _make(self, path: str, size: int) -> Mapping | None:
        try:
            return Mapping(path, size)
        except OSError:  # no room, or no such directory: messages do it
            self.is_full = True
            return None

    def take_back(self, mapping: Mapping) -> None:
        """Nobody refers to a piece any more. Called by any thread, and by copies of the process, which must not touch it."""
        if os.getpid() != self.process:
            return
        mapping.head[0] = 0
        taken_in = self._taken.pop(mapping.path, -1)
        if taken_in < 0 or self._kept + mapping.nbytes > KEPT_BYTES:
            self._retire(mapping)
        else:
            self._kept += mapping.nbytes
            self._free.setdefault(mapping.nbytes, []).append((mapping, taken_in))
        self.is_full = False

    def _retire(self, mapping: Mapping) -> None:
        mapping.head[1] = 1
        remove(mapping.path)

    def remove_former(self) -> None:
        """After a restart, before there is anything: remove what the killed processes of this rank have left of it."""
        _remove(f"{stem(self.rank)}{self.number}-*")

    def close(self) -> None:
        """Remove what nobody uses; what is used is removed when it is taken back."""
        if os.getpid() == self.process:
            for free in self._free.values():
                for mapping, _ in free:
                    self._retire(mapping)
            self._free.clear()
            self._taken.clear()
            self._others.clear()

    def remove(self) -> None:
        """The program ends: remove all of this rank."""
        if os.getpid() == self.process:
            self.close()
            remove_of(self.rank)

    # -- of others

    def find(self, where: Where) -> Any:
        """What lies there, mapped: it must not be written to. Raises Gone. `check` says whether it has stayed. Called by any
        thread."""
        mapping = self._others.get(where.path)
        if mapping is None or mapping.head[0] != where.mark:  # perhaps it was made anew
            self._others.pop(where.path, None)
            for path, each in list(self._others.items()):  # a copy, made at once: the worker may be here, too
                if each.head[1]:
                    self._others.pop(path, None)
            try:
                mapping = Mapping(where.path)
            except OSError as error:
                raise Gone(f"{where.path}: {error}") from error
            if mapping.nbytes < _HEAD + where.nbytes:
                raise Gone(f"{where.path}: {mapping.nbytes} bytes")
            self._others[where.path] = mapping
        if mapping.head[0] != where.mark:
            raise Gone(f"{where.path}: something else lies there")
        return _value_of(mapping, where)

    def check(self, where: Where) -> bool:
        """Is it still there? Called by any thread."""
        mapping = self._others.get(where.path)
        return mapping is not None and mapping.head[0] == where.mark

    def load(self, where: Where, place: Any = None) -> Any:
        """A copy of what lies there: an array, or a packed body. `place`: an array to be written to. Raises Gone."""
        if place is None:
            loaded = self.own.copy_of(self.find(where), where)
        else:
            loaded = place
            np.copyto(loaded, self.find(where))
        if not self.check(where):
            raise Gone(f"{where.path}: it was taken away while it was read")
        return loaded


def folder() -> Path:
    """Where pieces lie: the host's memory, if that is there."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def pattern() -> str:
    """Of the names of all pieces: they are no files of the program's."""
    return str(folder() / f"{PREFIX}*")


def stem(rank: int) -> str:
    """What the names of all pieces of one rank of this job begin with."""
    return f"{PREFIX}{os.getppid()}-{rank}-"


def table_of(rank: int, channel: tuple[int, int]) -> str:
    """The name of the table of a rank's calls (keeping/calls.py). It is not removed with the pieces of the rank."""
    return str(folder() / f"{PREFIX}{os.getppid()}-calls-{rank}-{channel[0]}-{channel[1]}")


def remove_of(rank: int) -> None:
    """Remove the files of a rank that is dead, or of this one before it was started again. Who needs one has mapped it."""
    _remove(f"{stem(rank)}*")


def _remove(names: str) -> None:
    for path in folder().glob(names):
        remove(str(path))


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_stale() -> None:
    """Remove what jobs have left that were killed as a whole: their agent is dead, and the file is an hour old."""
    for path in folder().glob(f"{PREFIX}*"):
        try:
            agent = int(path.name[len(PREFIX) :].partition("-")[0])
            if not os.path.exists(f"/proc/{agent}") and time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
        except (OSError, ValueError):
            continue  # another user's, or removed by another rank

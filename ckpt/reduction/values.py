"""The forms of an item at a rank, and how it becomes what is combined, sent or given to the program. (driver)

    array, body    in this process's own memory
    Piece          an array in the host's memory: others read it there
    Shared         a body, and its pickled contents in the host's memory
    Packed         a body that came in a message, pickled
    Where          another rank's, read where it lies
    Joined         the result of a reduction in parts, put together when the program asks for it

Not here: that memory (copies.py), when any of it happens (service.py).
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from ckpt.reduction.body import OPERATIONS, Body, Packed, bounds
from ckpt.reduction.copies import Memory, Piece, Where


class Shared(NamedTuple):
    """A body of this rank, and what others read. `contents`: a Piece; after a restart the body again."""

    body: Body
    contents: Any


def nbytes_of(value: Any) -> int:
    """Bytes of data in a message with this value."""
    return len(value.data) if isinstance(value, Packed) else getattr(value, "nbytes", 0)


def apart(value: Any) -> Any:
    """The same as an item that does not change when the program writes to what it gave."""
    if isinstance(value, Piece):
        value.source = None
        return value
    if isinstance(value, Shared):
        return value.contents.content() if isinstance(value.contents, Piece) else Packed.of(value.body)
    return Packed.of(value) if isinstance(value, Body) else copy.deepcopy(value)


class Joined:
    """The result of a reduction in parts."""

    __slots__ = ("kind", "out", "places", "values")

    def __init__(self, value: Any, count: int) -> None:
        """`value`: what this rank gave. The memory is taken when something is written to it."""
        self.kind: type[Body] | None = type(value) if isinstance(value, Body) else None
        self.out: Any = None if self.kind else np.empty_like(value)
        self.values: list[Any] = [None] * count
        """Of each part: its value, if that is not in `out`."""
        self.places: dict[int, Any] = {}
        """Parts of `out` that were given to be written to, perhaps by another thread, which may not have ended."""

    def _slice(self, part: int) -> Any:
        first, last = bounds(self.out.size, len(self.values))[part]
        return self.out.reshape(-1)[first:last]

    def place(self, part: int) -> Any:
        """Where the array of a part may be written to; None: there is no such place."""
        if self.kind is not None:
            return None
        if part in self.places:
            self._leave()
        self.places[part] = self._slice(part)
        return self.places[part]

    def put(self, part: int, value: Any) -> None:
        """The value of a part. It stays as it is until `join`."""
        if part in self.places and value is not self.places[part]:
            self._leave()
        self.values[part] = value

    def _leave(self) -> None:
        """Somebody may still write to `out`, what nobody wants any more: go on with another array."""
        self.out, self.places = np.empty_like(self.out), {}

    def join(self) -> Any:
        """The array, or the body: the program's own."""
        if self.kind is not None:
            return self.kind.join([_body(value) for value in self.values])
        for part, value in enumerate(self.values):
            if value is not self.places.get(part, self):
                np.copyto(self._slice(part), value.value if isinstance(value, Piece) else value)
        return self.out


def _body(value: Any) -> Body:
    """A part's body, which is kept for nobody else."""
    if isinstance(value, Packed):
        return value.body()
    body: Body = value.body if isinstance(value, Shared) else value
    return copy.deepcopy(body)


class Values:
    """The values of one rank. Needs the lock of the channel."""

    def __init__(self, world_rank: int, number: int, size: int) -> None:
        self.memory = Memory(world_rank, number)
        self.is_alone = size == 1

    def shared(self, value: Any) -> tuple[Any, Where | None]:
        """The value as an item, and where others can read it; None: it is small, or there is no room.

        Raises what the body's `pack` and pickle raise."""
        if isinstance(value, Piece):
            return value, value.where
        if self.is_alone:
            return value, None
        if isinstance(value, Body):
            piece = self.memory.put(Packed.of(value))
            return (value, None) if piece is None else (Shared(value, piece), piece.where)
        piece = self.memory.put(value)
        return (value, None) if piece is None else (piece, piece.where)

    def again(self, value: Any, where: Where) -> Piece | None:
        """After a restart: what others count on, where it was. None: no room, or a body is packed differently now."""
        value = value.body if isinstance(value, Shared) else value
        value = Packed.of(value) if isinstance(value, Body) else value
        return self.memory.put(value, where) if nbytes_of(value) == where.nbytes else None

    def outgoing(self, value: Any) -> Any:
        """What is sent in a message: the content. Who asks cannot read it where it lies, and this rank may have it mapped.
        Raises Gone."""
        if isinstance(value, Where):
            return self.memory.load(value)
        if isinstance(value, Piece):
            return value.content()
        if isinstance(value, Shared):
            return value.contents.content() if isinstance(value.contents, Piece) else Packed.of(value.body)
        return Packed.of(value) if isinstance(value, Body) else value

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        """An array to be read, where it lies. Raises Gone."""
        if isinstance(value, Where):
            value = self.memory.find(value)
        found: np.ndarray[Any, Any] = value.value if isinstance(value, Piece) else value
        return found

    def own(self, value: Any) -> Any:
        """An array or body in this process's own memory, for the program's operation. Raises Gone."""
        if isinstance(value, Where):
            return self.memory.load(value)
        if isinstance(value, Piece):
            return value.content()
        return value.body if isinstance(value, Shared) else value

    def room(self, like: np.ndarray[Any, Any]) -> tuple[Any, np.ndarray[Any, Any]]:
        """Where a result is to be: the item, and its array."""
        piece = None if self.is_alone else self.memory.take(like.dtype.str, like.shape)
        if piece is not None:
            return piece, piece.value
        array = np.empty_like(like)
        return array, array


class Combination(NamedTuple):
    """Two arrays, `out` for what is made of them and then with each of `more` (the array, and whether it is the left one);
    where all of them lie, if not here."""

    op: str
    left: np.ndarray[Any, Any]
    right: np.ndarray[Any, Any]
    more: tuple[tuple[np.ndarray[Any, Any], bool], ...]
    out: np.ndarray[Any, Any]
    places: tuple[Where | None, ...]
    memory: Memory

    def run(self) -> int | None:
        """Combine; None, or which of them was taken away meanwhile: 0 is the left one. Blocks that fit into the processor's
        cache are no faster than whole arrays (8 MB, measured), and take the interpreter's lock back as often."""
        function, out = OPERATIONS[self.op][0], self.out
        function(self.left, self.right, out=out, casting="unsafe")
        for each, is_left in self.more:
            both = (each, out) if is_left else (out, each)
            function(*both, out=out, casting="unsafe")
        for place, where in enumerate(self.places):
            if where is not None and not self.memory.check(where):
                return place
        return None

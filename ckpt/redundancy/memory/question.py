"""A replica tells what it holds in memory, at a place of its program that the controller names. (driver)

    ask(epoch, 0)       tell how many operations the program has started
    ask(epoch, place)   tell what the program holds when it starts operation `place`; at once the count if it is there

The process is forked at that place, as for an image, and the child computes the digests and tells them: the program waits
for the fork only. Packets: ``memory``: the epoch; ``place``; ``at``: the count; or ``blocks``, in `parts`; or ``none``: why
there will be nothing to compare, with ``by`` "program" where no later place would help.

Not here: what is looked at (search.py, arrays.py), the comparison (comparison.py).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ckpt.layer import Below, Engine
from ckpt.redundancy.memory import arrays
from ckpt.redundancy.memory.comparison import VALUE, Record
from ckpt.redundancy.memory.search import Found, find

__all__ = ["MemoryQuestion"]

PART_BYTES = 16_000
NAME_MAX = 200
FUNCTIONS_MAX = 40


class MemoryQuestion:
    """The open question of one process; `places`: operations that its program has started."""

    def __init__(self, below: Below, *, with_values: bool = True) -> None:
        self.below = below
        self.with_values = with_values
        """Are single values told, too, and not arrays alone?"""
        self.engine: Engine | None = None
        self.places = 0
        self._epoch = self._place = 0
        self._has_ended = False

    def ask(self, epoch: int, place: int) -> None:
        """See above. The lock is held."""
        self._epoch, self._place = epoch, 0
        if self._has_ended:
            self._tell(place, none="the program has ended", by="program")
        elif self.places >= place:
            self._tell(place, at=self.places)
        else:
            self._place = place

    def started(self) -> None:
        """The program starts an operation."""
        self.places += 1
        if self.places == self._place:
            self._place = 0
            self._look()

    def end(self) -> None:
        """The program has ended."""
        self._has_ended = True
        if self._place:
            self._tell(self._place, none="the program has ended", by="program")
            self._place = 0

    def _look(self) -> None:
        place = self.places
        if others := _other_threads():
            self._tell(place, none=f"the program has threads: {', '.join(others)}", by="program")
            return
        try:
            pid = self.below.fork()
        except Exception as failure:
            self._tell(place, none=f"no process could be forked: {failure}")
            return
        if pid == 0:
            self._tell_all(place)

    def _tell_all(self, place: int) -> None:
        """In the child; does not return."""
        try:
            gc.disable()
            frame = sys._getframe()
            found = find(frame)
            if not self.with_values:
                found = Found(found.arrays, [], [])
            assert self.engine is not None
            opened = arrays.open_memory(self.engine)
            pieces = list(_parts(arrays.digests(found, opened)))
            where = " ".join(_functions(frame))
            for piece in pieces:
                self._tell(place, where=where, parts=len(pieces), blocks=piece)
        except BaseException as failure:
            self._tell(place, none=f"{type(failure).__name__}: {failure}")
        finally:
            os._exit(0)

    def _tell(self, place: int, **fields: Any) -> None:
        self.below.report({"memory": self._epoch, "place": place, **fields})


def _other_threads() -> list[str]:
    """The program's threads beside its main thread. What they change has no place in its order. Those of ckpt and of its
    transport (zmq) change nothing of the program."""
    main = threading.main_thread()
    if threading.current_thread() is not main:
        return [threading.current_thread().name]
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not main and not type(thread).__module__.startswith(("ckpt.", "zmq."))
    ]


def _functions(frame: Any) -> Iterator[str]:
    """The functions of the program that are running, each with the number of its instruction."""
    count = 0
    while frame is not None and count < FUNCTIONS_MAX:
        if not str(frame.f_globals.get("__name__")).startswith("ckpt."):
            count += 1
            yield f"{frame.f_code.co_name}:{frame.f_lasti}"
        frame = frame.f_back


def _parts(records: Iterable[tuple[str, Record]]) -> Iterator[dict[str, Record | str]]:
    """The records in pieces that fit into a packet; at least one, which may be empty. Of a single value its text alone."""
    piece: dict[str, Record | str] = {}
    size = 0
    for name, record in records:
        if len(name) > NAME_MAX:
            continue
        length = len(ascii(name)) + len(record.form) + 4 * len(record.opened) + 40
        length += sum(map(len, record.digests)) + 4 * len(record.digests)
        if size + length > PART_BYTES:
            yield piece
            piece, size = {}, 0
        piece[name] = record.digests[0] if record.form == VALUE else record
        size += length
    yield piece

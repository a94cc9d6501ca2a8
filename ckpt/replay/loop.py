"""``ckpt.loop``: an iterable whose steps can be resumed.

In a job that was started with ``--explicit``, each step begins with a boundary (:mod:`ckpt.replay.program`). Everywhere else
(under plain ``python``, and in jobs that save whole processes) ``ckpt.loop`` returns the iterable itself.

After a restart the new run of the script makes the iterable again, and the loop skips the steps that were finished before
the checkpoint: it slices a range, and reads and drops the items of any other iterable. So the iterable must give the same
items each time.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ckpt.errors import LoopError

if TYPE_CHECKING:
    from ckpt.replay.program import Replay

__all__ = ["Loop", "name_of_caller"]

T = TypeVar("T")


def name_of_caller(depth: int) -> str:
    """``file:line`` of the frame ``depth`` calls above this one (of the stack): the default name of a loop."""
    frame = sys._getframe(depth)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class Loop(Generic[T]):
    """The iterable of an explicit program. It can be iterated over once.

    The loop ends when its iterable ends, or when the loop object is deleted (after ``break``). ``program``: the rank's
    :class:`Replay`. Raises LoopError when iterated over twice, in another thread than the main one, or when the
    iterable has fewer items than before the restart.
    """

    def __init__(self, program: Replay, items: Iterable[T], name: str) -> None:
        self._program = program
        self._iterable = items
        self._name = name
        self._items: Iterator[T] | None = None
        self._depth: int | None = None
        self._is_first = True

    def __iter__(self) -> Iterator[T]:
        if self._items is not None:
            raise LoopError(f"the loop {self._name} is iterated over twice: call ckpt.loop each time")
        if threading.current_thread() is not threading.main_thread():
            thread = threading.current_thread().name
            raise LoopError(f"the loop {self._name} runs in the thread {thread!r}, not in the main one")
        entry = self._program.enter(self._name)
        self._items = iter(()) if entry.is_over else self._skipped(entry.skip)
        self._program.restore_at(entry)
        self._depth = None if entry.is_over else entry.depth
        return self

    def _skipped(self, steps: int) -> Iterator[T]:
        if isinstance(self._iterable, range):
            return iter(cast("Iterable[T]", self._iterable[steps:]))
        items = iter(self._iterable)
        passed = sum(1 for _ in itertools.islice(items, steps))
        if passed < steps:
            raise LoopError(
                f"the loop {self._name} was in step {steps} at the checkpoint, and gives {passed} items only "
                "after the restart"
            )
        return items

    def __next__(self) -> T:
        if self._items is None:
            iter(self)
        assert self._items is not None
        if self._depth is None:
            raise StopIteration
        if self._is_first:
            self._is_first = False
        else:
            self._program.tracker.step_done(self._depth)
        self._program.boundary()
        try:
            return next(self._items)
        except StopIteration:
            self._leave()
            self._program.boundary()
            raise

    def _leave(self) -> None:
        depth, self._depth = self._depth, None
        if depth is not None:
            self._program.tracker.leave(depth)

    def __del__(self) -> None:
        # The program has left the loop by break, return or an exception. If an outer loop has gone on meanwhile, the
        # tracker has removed this level already.
        levels = self._program.tracker.levels
        if self._depth is None or self._program.tracker.is_replaying:
            return
        if len(levels) > self._depth and levels[self._depth].running == self._name:
            self._leave()

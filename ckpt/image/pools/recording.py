"""A recorder between a pool of ``multiprocessing`` and its pipes: it keeps each task, pickled, until the result is there.

``multiprocessing.Pool`` forgets a task as soon as it is in the pipe. So a pool of a program under ckpt has one of these in
place of the two functions by which its threads send tasks and receive results. A result of a task that is not open (it has
been sent twice) is dropped.

The threads of the pool are never captured between two lines here: an image is taken before a task is kept or when it is in
the pipe or on the way into it, and when no result has been received or when it has left here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NOTHING", "Tasks"]

NOTHING: tuple[Any, ...] = (None, 0)
"""In place of a task: only the tasks that are to be sent again are sent. As a result: nothing has come."""


class Tasks:
    """The open tasks of one pool. ``open``: (job, number of the task) → the task, pickled. ``again``: tasks that are to be
    sent before the next one."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader = reader
        self.writer = writer
        self.open: dict[Any, Any] = {}
        self.again: list[Any] = []

    def put(self, task: Any) -> None:
        """In place of ``Connection.send`` of the pipe of tasks. ``None`` tells a worker to end."""
        from multiprocessing.reduction import ForkingPickler

        pickled = ForkingPickler.dumps(task)
        if task is not None and task[0] is not None:
            self.open[task[:2]] = pickled
        while self.again:
            self.writer.send_bytes(self.again[-1])
            self.again.pop()
        if task is None or task[0] is not None:
            self.writer.send_bytes(pickled)

    def get(self) -> Any:
        """In place of ``Connection.recv`` of the pipe of results."""
        while True:
            result = self.reader.recv()
            if result is None or self.open.pop(result[:2], None) is not None:
                return result

    def send_all_again(self) -> None:
        """In a forked copy: all that is open is to be sent again."""
        self.open = {key: bytes(pickled) for key, pickled in self.open.items()}
        self.again = list(self.open.values())[::-1]

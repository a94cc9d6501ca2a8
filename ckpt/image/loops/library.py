"""The class (:class:`ckpt.image.interface.library.Library`) that serves asyncio."""

from __future__ import annotations

import sys
import types
from pickle import PicklingError
from typing import Any

from ckpt.compat import asyncio_names, asyncio_objects
from ckpt.image.interface.library import Library, Reducer
from ckpt.image.loops import event_loops, tasks
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["AsyncIO"]


class AsyncIO(Library):
    """asyncio: loops, tasks, futures, asynchronous generators."""

    transient_functions = asyncio_names.AT_THE_ENDS

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._moment: event_loops.Moment | None = None
        self._is_disposable = False

    def before_image(self) -> None:
        self._moment = event_loops.note_moment()

    def before_saving(self, *, is_disposable: bool) -> None:
        self._is_disposable = is_disposable

    def reducers(self) -> dict[type, Reducer]:
        kinds = asyncio_objects.asyncio_types()
        if not kinds:
            return {}
        return {
            kinds["FutureIter"]: tasks.reduce_future_iterator,
            kinds["Step"]: tasks.reduce_step,
            types.BuiltinFunctionType: tasks.reduce_wakeup,
            tasks.TaskTables: tasks.reduce_tables,
            _Running: self._reduce_running,
        }

    def reducer_by_base(self, cls: type) -> Reducer | None:
        kinds = asyncio_objects.asyncio_types()
        if issubclass(cls, (kinds.get("Future", ()), kinds.get("Task", ()))):
            return tasks.reduce_future
        if issubclass(cls, asyncio_names.loop_types()):
            return self._reduce_loop
        transport = getattr(sys.modules.get("asyncio.transports"), "BaseTransport", ())
        server = getattr(sys.modules.get("asyncio.events"), "AbstractServer", ())
        if issubclass(cls, asyncio_names.socket_transports()):
            return reduce_raw
        return _refuse_transport if issubclass(cls, (transport, server)) else None

    def _reduce_loop(self, saver: Any, loop: Any) -> Any:
        return event_loops.reduce_loop(saver, loop, self._moment or event_loops.note_moment())

    def _reduce_running(self, saver: Any, obj: _Running) -> Any:
        saver.defer(tasks.put_tables, tasks.TaskTables(obj.numbers))
        return event_loops.Running, tuple(obj.running)

    def note_settings(self) -> Any:
        if self._moment is None or not asyncio_objects.asyncio_types():
            return None
        numbers = asyncio_names.next_numbers(may_use=self._is_disposable)
        return _Running(event_loops.note_running(self._moment), numbers)

    def apply_settings(self, saved: event_loops.Running) -> None:
        event_loops.go_on_running(saved)


class _Running:
    """A placeholder in the pickle stream, for :class:`event_loops.Running`; the tables of tasks are saved with it."""

    def __init__(self, running: event_loops.Running, numbers: tuple[int, Any]) -> None:
        self.running = running
        self.numbers = numbers


def _refuse_transport(saver: Any, obj: Any) -> Any:
    cls = type(obj)
    raise PicklingError(
        f"{cls.__module__}.{cls.__qualname__}: a transport of asyncio over a pipe or a child process cannot be saved; "
        "close it before a checkpoint, and open it again in on_restart"
    )

"""loky, the pools of processes of joblib. An image may be taken while they are idle: they are no part of it, and joblib
makes a new pool for the next ``Parallel``. A pool at work is refused by name, and one that the program holds.
"""

from __future__ import annotations

import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = ["Loky"]

_BACKENDS = "joblib._parallel_backends"
_POOLS = ("_workers", "_pool")
"""The attributes of a backend in which it keeps its pool while there is one."""
_AT_WORK = "processes of joblib (loky) are at work, and cannot be part of an image"


class Loky(Library):
    """``joblib.externals.loky.process_executor``, ``loky.process_executor``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._package = name.rpartition(".")[0] + "."
        self._names = (f"{name}._ExecutorManagerThread", f"{self._package}backend.queues.Queue._feed")

    @property
    def left_out_threads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._names

    def reason_against_leaving_out(self, thread: Any) -> str | None:
        return _AT_WORK if getattr(thread, "pending_work_items", None) else None

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if issubclass(cls, getattr(self.module, "ProcessPoolExecutor", ())):
            return refuse_executor
        if issubclass(cls, getattr(sys.modules.get(_BACKENDS), "ParallelBackendBase", ())):
            return reduce_backend
        is_tracker = cls.__name__ == "ResourceTracker" and cls.__module__.startswith(self._package)
        return refuse_tracker if is_tracker else None


def reduce_backend(saver: Any, backend: Any) -> Any:
    """A backend of ``Parallel``: its own ``__reduce__`` would leave the pool out in silence."""
    for name in _POOLS:
        if vars(backend).get(name) is not None:
            return refuse_executor(saver, backend)
    return NotImplemented


def refuse_executor(saver: Any, executor: Any) -> Any:
    raise PicklingError(
        "a pool of joblib that the program holds cannot be part of an image: call Parallel outside of `with`, use "
        "concurrent.futures.ProcessPoolExecutor, or end the pool before a checkpoint"
    )


def refuse_tracker(saver: Any, tracker: Any) -> Any:
    """What it holds is a pipe to a process that removes what workers leave. A new process makes another one when needed."""
    raise PicklingError("the resource tracker of joblib (loky) belongs to one process")

"""loky, the pools of processes of joblib.

``Parallel`` gives work to an executor, which keeps each piece until its result is there. A thread of the executor, its
manager, sends work to the processes and receives results; it hands a result to ``Parallel``, which then takes the next
pieces of work from the program's generator, in that thread. In an image

- the executor is what it was made of, and the pieces of work whose results have not been handed out;
- the manager and the thread that feeds the queue are left out. No image is taken while the manager hands a result out, or
  while the program gives work to the executor.

A new process makes a new executor, whose attributes the object gets, and gives it the open work again: what a piece of work
does outside of its result happens at least once. The results go to the futures that the program has.

An executor that joblib has not made (loky by itself) is refused by name; while it is idle, it is no part of images.
"""

from __future__ import annotations

import atexit
import sys
from pickle import PicklingError
from typing import Any

from ckpt.compat.children import tracker_in_use
from ckpt.compat.worker_pools import idle_workers, in_use_by_executor
from ckpt.image.handles.shared_copies import note_idle_workers
from ckpt.image.interface.library import Library, Reducer, merged
from ckpt.image.pools import plumbing
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import reduce_raw
from ckpt.image.threads.restart import call_at_last
from ckpt.transport.records import NamedTuple

__all__ = ["Joblib", "Loky"]

_BACKENDS = "joblib._parallel_backends"
_AT_WORK = "processes of loky are at work, and only those that joblib has started can be part of an image"
_MADE = "_ckpt_made"
"""The attribute of an executor that says what it was made of."""


class Made(NamedTuple):
    """The arguments of ``MemmappingExecutor.get_memmapping_executor``."""

    n_jobs: int
    keywords: dict[str, Any]


class Loky(Library):
    """The class that serves loky, as part of joblib and by itself: ``joblib.externals.loky.process_executor``,
    ``loky.process_executor``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._package = name.rpartition(".")[0] + "."
        self._names = (f"{name}._ExecutorManagerThread", f"{self._package}backend.queues.Queue._feed")
        given = "work is being given to processes of joblib"
        manager, executor = f"{name}:_ExecutorManagerThread", f"{name}:ProcessPoolExecutor"
        self._moments = (
            (f"{manager}.process_result_item", "a result of joblib is being handed out"),
            (f"{manager}.terminate_broken", "processes of joblib are being given up"),
            (f"{manager}.join_executor_internals", "processes of joblib are being ended"),
            (f"{executor}.submit", given),
            (f"{executor}._adjust_process_count", "processes of joblib are being started"),
            (f"{executor}.__init__", "a pool of joblib is being made"),
            (f"{executor}.shutdown", "processes of joblib are being ended"),
            (f"{self._package}reusable_executor:_ReusablePoolExecutor._resize", given),
        )

    @property
    def rebound_variables(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        return ((f"{self._package}reusable_executor", "_executor"),)

    @property
    def left_out_threads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._names

    @property
    def transient_functions(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        return self._moments

    def when_imported(self) -> None:
        note_idle_workers(lambda: idle_workers(_managers(self.module)))

    def reason_against_leaving_out(self, thread: Any) -> str | None:
        if not getattr(thread, "pending_work_items", None) or not hasattr(thread, "executor_reference"):
            return None
        executor = thread.executor_reference()
        return None if hasattr(executor, _MADE) else _AT_WORK

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if issubclass(cls, getattr(self.module, "ProcessPoolExecutor", ())):
            return reduce_executor
        if issubclass(cls, getattr(sys.modules.get(_BACKENDS), "ParallelBackendBase", ())):
            return reduce_raw  # its own __reduce__ would leave the pool out in silence
        is_tracker = cls.__name__ == "ResourceTracker" and cls.__module__.startswith(self._package)
        return refuse_tracker if is_tracker else None

    def coming_back(self) -> tuple[set[int], set[int]]:
        tracker = tracker_in_use(f"{self._package}backend.resource_tracker")
        return merged([tracker, *map(in_use_by_executor, _managers(self.module))])


class Joblib(Library):
    """joblib.executor: executors remember what they were made of."""

    def when_imported(self) -> None:
        cls = self.module.MemmappingExecutor
        plain = cls.get_memmapping_executor.__func__

        def get_memmapping_executor(cls: Any, /, n_jobs: int, **keywords: Any) -> Any:
            executor = plain(cls, n_jobs, **keywords)
            setattr(executor, _MADE, Made(n_jobs, keywords))
            return executor

        cls.get_memmapping_executor = classmethod(get_memmapping_executor)


def _managers(module: Any) -> list[Any]:
    return [thread for thread in list(module._threads_wakeups) if thread.is_alive()]


def reduce_executor(saver: Any, executor: Any) -> Any:
    made = vars(executor).get(_MADE)
    if made is None:
        raise PicklingError(
            "a pool of loky that the program holds cannot be part of an image: use joblib.Parallel or "
            "concurrent.futures.ProcessPoolExecutor, or end the pool before a checkpoint"
        )
    flags = executor._flags
    if flags.shutdown or flags.broken:
        raise PicklingError("a pool of joblib that has been ended or has broken cannot be part of an image")
    work = [
        (item.future, item.fn, item.args, item.kwargs)
        for _, item in sorted(executor._pending_work_items.items())
    ]
    at_exit = list(getattr(vars(executor).get("_temp_folder_manager"), "_finalizers", {}).values())
    return rebuild.make_instance, (type(executor),), (made, work, at_exit), None, None, fill_executor


def refuse_tracker(saver: Any, tracker: Any) -> Any:
    """What it holds is a pipe to a process that removes what workers leave. A new process makes another one when needed."""
    raise PicklingError("the resource tracker of joblib (loky) belongs to one process")


# ---------------------------------------------------------------------- called while loading


def fill_executor(executor: Any, state: tuple[Any, ...]) -> None:
    call_at_last(renew, executor, *state)


def renew(executor: Any, made: Made, work: list[tuple[Any, ...]], at_exit: list[Any]) -> None:
    """In a new process: another executor in place of this one, with the open work. ``at_exit``: what the former one has
    registered to remove its temporary folders, which went with its process."""
    for function in at_exit:
        atexit.unregister(function)
    cls = type(executor)
    reusable: Any = sys.modules[cls.__mro__[1].__module__]
    names: Any = sys.modules[cls.__mro__[2].__module__]
    with plumbing.starting_workers():
        reusable._executor = None
        fresh = cls.get_memmapping_executor(made.n_jobs, **made.keywords)
        vars(executor).clear()
        vars(executor).update(vars(fresh))
        reusable._executor = executor
        for future, *call in work:
            if future.running():
                future._state = "PENDING"
            number = executor._queue_count
            executor._pending_work_items[number] = names._WorkItem(future, *call)
            executor._work_ids.put(number)
            executor._queue_count += 1
        if work:
            executor._executor_manager_thread_wakeup.wakeup()
            executor._ensure_executor_running()

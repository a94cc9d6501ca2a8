"""Private names of ``concurrent.futures.process`` and ``multiprocessing``: what a pool of processes is made of.

A pool has *plumbing*: pipes (two ``Connection``), semaphores, worker processes. None of it exists in a new process. Here it
is taken away from a pool's objects in a forked copy of the process, and made anew, in place, in a new one.

For a new minor version: do ``_ExecutorManagerThread`` and ``Pool`` still keep all their plumbing in the attributes named
here, and do their threads loop as before (:mod:`ckpt.image.pools`)?
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ckpt.compat.children import register_finalizers

__all__ = [
    "CALL_QUEUE",
    "FEEDER",
    "POOL_CACHE",
    "POOL_MOMENTS",
    "POOL_WAIT",
    "RECEIVE",
    "SEND",
    "adopt",
    "call_in_children",
    "call_queue_state",
    "close_end",
    "connections_of",
    "count_jobs",
    "ends",
    "executor_moments",
    "executor_of",
    "executor_wait",
    "fill_queue",
    "fill_wakeup",
    "forget_managers",
    "has_processes",
    "idle_workers",
    "instances_of",
    "in_use_by_executor",
    "in_use_by_pool",
    "is_manager",
    "job_count",
    "make_connection",
    "is_child",
    "managers",
    "open_work",
    "pool_threads",
    "pools",
    "queues_of_cache",
    "queues_of_executor",
    "queues_of_pool",
    "renew_executor",
    "renew_pool",
    "sender_of",
    "take_apart_executor",
    "take_apart_pool",
    "workers_of_pool",
    "wrap_setup",
]

# ---------------------------------------------------------------------- moments

_SUBMITTED = "a task is being submitted to a pool of processes"
_PROCESSES = (
    ("multiprocessing.process:BaseProcess.start", "a process is being started"),
    ("multiprocessing.process:BaseProcess.join", "the program waits for the end of a process"),
)
FEEDER = "multiprocessing.queues.Queue._feed"
"""The thread that puts what a ``Queue`` holds into its pipe."""

CALL_QUEUE = "_SafeQueue"
"""The class of the queue from which the workers of an executor take tasks."""

POOL_CACHE = "_PoolCache"
"""The class of the table of a pool's open tasks."""

_POOL = "multiprocessing.pool:Pool"
_CONNECTION = "multiprocessing.connection:_ConnectionBase"
RECEIVE, SEND = f"{_CONNECTION}.recv", f"{_CONNECTION}.send_bytes"
POOL_WAIT = f"{_POOL}._wait_for_updates"
"""The thread that looks after the workers of a pool waits for a change."""
POOL_MOMENTS = (
    (f"{_POOL}.__init__", "a pool of processes is being made"),
    (f"{_POOL}._maintain_pool", "workers of a pool have ended"),
    (f"{_POOL}._get_worker_sentinels", "workers of a pool have ended"),
    (f"{_POOL}._terminate_pool", "a pool of processes is being terminated"),
    ("multiprocessing.queues:SimpleQueue.put", "a thread of a pool of processes is told of a change"),
    *_PROCESSES,
)
"""Functions during which a pool of processes cannot be saved, and what they do."""


def executor_wait(module: str) -> str:
    """The manager thread of an executor waits for a result, the end of a worker, or a wakeup."""
    return f"{module}:_ExecutorManagerThread.wait_result_broken_or_wakeup"


def executor_moments(module: str) -> tuple[tuple[str, str], ...]:
    """Functions during which an executor of that module cannot be saved, and what they do."""
    manager, executor = f"{module}:_ExecutorManagerThread", f"{module}:ProcessPoolExecutor"
    return (
        (f"{executor}.__init__", "a pool of processes is being made"),
        (f"{executor}.submit", _SUBMITTED),
        (f"{executor}._adjust_process_count", "a process is being started"),
        (f"{manager}.add_call_item_to_queue", _SUBMITTED),
        (f"{manager}.terminate_broken", "a pool of processes is being given up, because a process has died"),
        (f"{manager}.join_executor_internals", "a pool of processes is being shut down"),
        (f"{module}:_ThreadWakeup.wakeup", _SUBMITTED),
        (f"{module}:_SafeQueue._on_queue_feeder_error", "a task cannot be pickled"),
        *_PROCESSES,
    )


# ---------------------------------------------------------------------- processes


def is_child(process: Any) -> bool:
    """Is that ``multiprocessing.Process``, started or not, one of the program itself? The main process is not."""
    return process._parent_pid is not None


def adopt(process: Any) -> None:
    """A ``multiprocessing.Process`` of a former process counts as a child of this one: all its methods ask for that."""
    process._parent_pid = os.getpid()


def instances_of(cls: type) -> list[Any]:
    """The objects of this class that the collector of garbage knows."""
    return [obj for obj in gc.get_objects() if type(obj) is cls]


# ---------------------------------------------------------------------- pipes and queues


def make_connection(cls: Any, readable: bool, writable: bool) -> Any:
    """A ``Connection`` that is closed."""
    made = cls.__new__(cls)
    made._handle, made._readable, made._writable = None, readable, writable
    return made


def connections_of(part: Any) -> tuple[Any, ...]:
    """The two ends of the pipe of a queue or of a ``_ThreadWakeup``."""
    return part._reader, part._writer


def close_end(connection: Any) -> None:
    """Close a ``Connection``, if it is open."""
    if not connection.closed:
        connection.close()


def _take_over(connection: Any, made: Any) -> None:
    """Give a closed connection what a new one has opened."""
    connection._handle, made._handle = made._handle, None


def ends(queue: Any) -> dict[str, Any]:
    """Its attributes that are the ends of its pipe."""
    return dict(zip(("_reader", "_writer"), connections_of(queue), strict=True))


def fill_queue(queue: Any, context: Any) -> None:
    """Give a ``SimpleQueue`` whose pipe is closed a new pipe and new locks. The connections stay the objects that they
    are."""
    made = context.SimpleQueue()
    for connection, new in zip(connections_of(queue), connections_of(made), strict=True):
        _take_over(connection, new)
    queue.__dict__.update(vars(made) | ends(queue))
    queue._poll = queue._reader.poll


def fill_wakeup(wakeup: Any) -> None:
    """Make the pipe of a ``_ThreadWakeup`` anew, in place."""
    from multiprocessing import connection

    for end, new in zip(connections_of(wakeup), connection.Pipe(duplex=False), strict=True):
        _take_over(end, new)


def call_in_children(owner: Any, function: Callable[[Any], object]) -> None:
    """As long as ``owner`` lives, processes that multiprocessing forks call ``function(owner)`` first of all."""
    from multiprocessing import util

    util.register_after_fork(owner, function)


# ---------------------------------------------------------------------- concurrent.futures


def forget_managers(_: object = None) -> None:
    """In a worker: there are no manager threads, for whose end the process would wait at its own."""
    names = sys.modules.get("concurrent.futures.process")
    if names is not None:
        names._threads_wakeups.clear()


def executor_of(manager: Any) -> Any:
    """The executor that a manager thread serves; None: nobody refers to it any more."""
    return manager.executor_reference()


def queues_of_executor(executor: Any) -> list[Any]:
    """The queues of tasks and of results of an executor that has not been shut down."""
    return [part for part in (executor._call_queue, executor._result_queue) if part is not None]


def is_manager(module: str, thread: Any) -> bool:
    """Is the thread the manager of an executor of that module?"""
    return isinstance(thread, sys.modules[module]._ExecutorManagerThread)


def idle_workers(managers: Iterable[Any]) -> list[Any]:
    """The workers of executors, of these manager threads, all of whose tasks are answered."""
    idle = [manager for manager in managers if not manager.pending_work_items]
    return [worker for manager in idle for worker in list(manager.processes.values())]


def open_work(manager: Any) -> Iterator[tuple[int, Any]]:
    """(number, work item) of the tasks that have been handed to the workers or are on the way, and not answered yet."""
    waiting = set(manager.work_ids_queue.queue)
    for number, item in manager.pending_work_items.items():
        if number not in waiting:
            yield number, item


def _watched_by(processes: Iterable[Any]) -> set[int]:
    """The descriptors by which workers are watched."""
    found: set[int] = set()
    for process in processes:
        finalizer = getattr(process._popen, "finalizer", None)  # None: the worker has ended
        found.update((finalizer and finalizer._args) or ())
    return found


def _leave(processes: Iterable[Any]) -> None:
    """Close these descriptors: their numbers are not the program's."""
    for fd in _watched_by(processes):
        with contextlib.suppress(OSError):
            os.close(fd)


def in_use_by(processes: Iterable[Any], parts: Iterable[Any]) -> tuple[set[int], set[int]]:
    """The ids of workers, and descriptors: those by which they are watched, and those of these queues."""
    workers = list(processes)
    ends = [end for part in parts for end in connections_of(part) if not end.closed]
    sentinels = {worker._popen.sentinel for worker in workers if hasattr(worker._popen, "sentinel")}
    return {worker.pid for worker in workers}, _watched_by(workers) | sentinels | {
        end.fileno() for end in ends
    }


def in_use_by_executor(manager: Any) -> tuple[set[int], set[int]]:
    """Ids of workers, and descriptors."""
    parts = manager.call_queue, manager.result_queue, manager.thread_wakeup
    return in_use_by(manager.processes.values(), parts)


def managers(module: str) -> list[Any]:
    """The manager threads of the executors of that module that run."""
    return [thread for thread in threading.enumerate() if is_manager(module, thread)]


def take_apart_executor(manager: Any, again: list[int]) -> int:
    """In a forked copy of the process: these tasks are the next ones, and there are no workers. Returns how many there
    were."""
    manager.work_ids_queue.queue.extendleft(reversed(again))
    count = len(manager.processes)
    _leave(manager.processes.values())
    manager.processes.clear()
    return count


def call_queue_state(queue: Any) -> dict[str, Any]:
    """What a ``_SafeQueue`` is made anew of."""
    names = ("_maxsize", "pending_work_items", "shutdown_lock", "thread_wakeup")
    return {name: queue.__dict__[name] for name in names if name in queue.__dict__}


def renew_executor(module: str, executor: Any, manager: Any, count: int) -> None:
    """In a new process: pipes, semaphores and ``count`` workers."""
    names, context = sys.modules[module], executor._mp_context
    call_queue, results, wakeup = manager.call_queue, manager.result_queue, manager.thread_wakeup
    fill_wakeup(wakeup)
    fill_queue(results, context)
    state = dict(vars(call_queue))
    call_queue.__init__(state.pop("_maxsize"), ctx=context, **state)
    call_queue._ignore_epipe = True
    names._threads_wakeups[manager] = wakeup
    arguments = [call_queue, results, executor._initializer, executor._initargs]
    if hasattr(executor, "_max_tasks_per_child"):
        arguments.append(executor._max_tasks_per_child)
    for _ in range(count):
        process = context.Process(target=names._process_worker, args=tuple(arguments))
        process.start()
        manager.processes[process.pid] = process


# ---------------------------------------------------------------------- multiprocessing.pool


def pools() -> list[Any]:
    """The pools of ``multiprocessing.pool`` that have not been terminated, those of threads included."""
    end = sys.modules["multiprocessing.pool"].Pool._terminate_pool
    found = []
    for finalizer in list(sys.modules["multiprocessing.util"]._finalizer_registry.values()):
        if getattr(finalizer._callback, "__func__", None) is end.__func__:
            pool = finalizer._weakref()
            if pool is not None:
                found.append(pool)
    return found


def pool_threads(pool: Any) -> list[Any]:
    """The three threads that serve a pool; fewer: it is being started."""
    names = ("_worker_handler", "_task_handler", "_result_handler")
    return [pool.__dict__[name] for name in names if name in pool.__dict__]


def queues_of_pool(pool: Any) -> list[Any]:
    """Its queues that are pipes."""
    names = ("_inqueue", "_outqueue", "_change_notifier")
    return [pool.__dict__[name] for name in names if _is_queue(pool.__dict__.get(name))]


def queues_of_cache(cache: Any) -> list[Any]:
    """The queue by which the table of a pool's open tasks tells that it is empty."""
    return [cache.notifier] if _is_queue(getattr(cache, "notifier", None)) else []


def _is_queue(part: Any) -> bool:
    return type(part) is sys.modules["multiprocessing.queues"].SimpleQueue


def has_processes(pool: Any) -> bool:
    """Are the workers processes, not threads?"""
    return not isinstance(pool, sys.modules["multiprocessing.pool"].ThreadPool)


def sender_of(pool: Any) -> Any:
    """The object whose method hands tasks to the workers."""
    return getattr(pool._quick_put, "__self__", None)


def wrap_setup(wrap: Callable[[Any, Any], Any]) -> None:
    """From now on, ``wrap(reader, writer)`` makes what puts tasks and gets results of each new pool of processes; the
    connections are the pipe of results and that of tasks."""
    cls = sys.modules["multiprocessing.pool"].Pool
    plain = cls._setup_queues

    def _setup_queues(self: Any) -> None:
        plain(self)
        made = wrap(self._outqueue._reader, self._inqueue._writer)
        self._quick_put, self._quick_get = made.put, made.get

    cls._setup_queues = _setup_queues


def in_use_by_pool(pool: Any) -> tuple[set[int], set[int]]:
    """Ids of workers, and descriptors."""
    return in_use_by(pool._pool if has_processes(pool) else (), queues_of_pool(pool))


def workers_of_pool(pool: Any) -> list[Any]:
    return list(pool._pool)


def take_apart_pool(pool: Any) -> None:
    """In a forked copy of the process: there are no workers."""
    _leave(pool._pool)
    pool._pool.clear()


def renew_pool(pool: Any, nothing: Any) -> None:
    """In a new process: pipes and workers. ``nothing``: a task by which open ones are sent; None: there are none."""
    for queue in queues_of_pool(pool):
        fill_queue(queue, pool._ctx)
    if nothing is not None:
        pool._repopulate_pool()
        pool._taskqueue.put(((nothing,), None))
    register_finalizers([pool._terminate])


def job_count() -> int:
    """The number of the next job of all pools."""
    return int(sys.modules["multiprocessing.pool"].job_counter.__reduce__()[1][0])


def count_jobs(first: int) -> None:
    """Number jobs from here."""
    vars(sys.modules["multiprocessing.pool"])["job_counter"] = itertools.count(first)

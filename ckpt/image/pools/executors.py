"""``concurrent.futures.ProcessPoolExecutor``.

The executor keeps each task until its future has the result (its pending work items). Its manager thread gives tasks to the
workers through a queue, and waits for results, for the end of a worker and for a wakeup. In an image

- the thread has its stack, as every thread of the program; where it waits, the wait says "woken up" after a restart
  (``answered_calls``), and its loop goes on;
- the thread that feeds the queue is left out, and the queue is empty;
- a task that is running, or on its way to a worker or back, is the next one to be given to a worker. Its future stays what
  it is: running. A result that the thread has received already is not asked again.

After a restart there are as many workers as before, with the same initializer. No image is taken while a task is being
submitted or put into the queue, or while the workers are being told to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ckpt.compat import worker_pools
from ckpt.image.errors import Unpicklable
from ckpt.image.handles.shared_copies import note_idle_workers
from ckpt.image.interface.library import Library, Reducer, by_name, merged
from ckpt.image.pools import plumbing
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Executors"]

_NAME = "concurrent.futures.process"


class Executors(Library):
    """concurrent.futures.process"""

    left_out_threads = (worker_pools.FEEDER,)
    answered_calls = ((worker_pools.executor_wait(_NAME), (None, False, None), ""),)
    transient_functions = worker_pools.executor_moments(_NAME)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._running: list[tuple[Any, Any, int]] = []  # executor, its manager thread, number of workers
        self._renewed: list[tuple[Any, Any, int]] = []

    def when_imported(self) -> None:
        note_idle_workers(lambda: worker_pools.idle_workers(worker_pools.managers(self.name)))

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {worker_pools.CALL_QUEUE: reduce_call_queue})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if not issubclass(cls, getattr(self.module, "ProcessPoolExecutor", ())):
            return None
        return self._reduce_executor

    def note_threads(self, threads: Sequence[Any], *, is_disposable: bool) -> None:
        self._running = []
        for captured in threads:
            manager = captured.thread
            if not worker_pools.is_manager(self.name, manager):
                continue
            executor = worker_pools.executor_of(manager)
            if executor is None:
                raise Unpicklable(
                    f"thread {manager.name!r}",
                    "it serves a ProcessPoolExecutor that the program has dropped while its tasks run: keep the executor in "
                    "a variable until then",
                )
            plumbing.require_copy("a ProcessPoolExecutor", is_disposable=is_disposable)
            for part in (manager.call_queue, manager.result_queue, manager.thread_wakeup):
                plumbing.own(part)
            again = list(_mark_again(manager, set(_received(captured))))
            self._running.append((executor, manager, worker_pools.take_apart_executor(manager, again)))

    def _reduce_executor(self, saver: Any, executor: Any) -> Any:
        if all(executor is not running for running, _, _ in self._running):
            for part in worker_pools.queues_of_executor(executor):
                plumbing.keep(part)
        return reduce_raw(saver, executor)

    def coming_back(self) -> tuple[set[int], set[int]]:
        return merged(map(worker_pools.in_use_by_executor, worker_pools.managers(self.name)))

    def note_settings(self) -> Any:
        return self._running

    def apply_settings(self, saved: Any) -> None:
        self._renewed += saved

    def after_restart(self) -> None:
        renewed, self._renewed = self._renewed, []
        with plumbing.starting_workers():
            for executor, manager, count in renewed:
                worker_pools.renew_executor(self.name, executor, manager, count)


def _received(captured: Any) -> Iterator[int]:
    """The numbers of the results that the manager thread has in its hands."""
    for record in captured.stack.frames:
        for name, value in zip(record.code.co_varnames, record.locals, strict=False):
            number = getattr(value, "work_id", None) if name == "result_item" else None
            if number is not None:
                yield number


def _mark_again(manager: Any, received: set[int]) -> Iterator[int]:
    """The numbers of the tasks that are to be given to a worker again; in a forked copy, their work items are told so."""
    for number, item in worker_pools.open_work(manager):
        if number not in received:
            if type(item.future) is not Running:
                item.future = Running(item.future)
            yield number


class Running:
    """Stands for the future of a task that has been given to a worker, and is given to one again: the executor would refuse
    a future that is running already."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        self.future.set_result(result)

    def set_exception(self, exception: Any) -> None:
        self.future.set_exception(exception)


def reduce_call_queue(saver: Any, queue: Any) -> Any:
    if not plumbing.owned(queue):
        return reduce_raw(saver, queue)
    return plumbing.reduce_bare(type(queue), worker_pools.call_queue_state(queue))

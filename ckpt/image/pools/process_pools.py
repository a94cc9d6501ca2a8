"""``multiprocessing.Pool`` and ``multiprocessing.pool.ThreadPool``.

Three threads serve a pool: one looks after the workers, one sends tasks, one receives results. In an image they have their
stacks, as all threads of the program; where they wait for a pipe, the wait says "nothing has come" after a restart
(``answered_calls``), and their loops go on. The tasks that are open, which the pool itself does not keep, are in its
:class:`~ckpt.image.pools.recording.Tasks`. After a restart workers are started, with the same initializer, and the open
tasks are sent again, before any other.

No image is taken while a pool is being made, or being closed and terminated: some of its threads have ended then, not all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ckpt.compat import worker_pools
from ckpt.image.errors import Unpicklable
from ckpt.image.handles.shared_copies import note_idle_workers
from ckpt.image.interface.library import Library, Reducer, by_name, merged
from ckpt.image.pools import plumbing
from ckpt.image.pools.recording import NOTHING, Tasks
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["ProcessPools"]

_TASKS = "ckpt.image.pools.recording:Tasks"


class ProcessPools(Library):
    """multiprocessing.pool"""

    answered_calls = (
        (worker_pools.POOL_WAIT, None, ""),
        (f"{_TASKS}.put", None, worker_pools.SEND),
        (f"{_TASKS}.get", (None, 0, None), worker_pools.RECEIVE),
    )
    transient_functions = worker_pools.POOL_MOMENTS
    transient_types = ("multiprocessing.pool:Pool",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._running: list[tuple[Any, bool]] = []  # pools that are not closed; is it one of processes?
        self._renewed: list[tuple[Any, bool]] = []

    def when_imported(self) -> None:
        worker_pools.wrap_setup(Tasks)
        note_idle_workers(_idle_workers)

    def reason_against(self, obj: Any) -> str | None:
        alive = [thread.is_alive() for thread in worker_pools.pool_threads(obj)]
        return "a pool of processes is being closed" if any(alive) and not all(alive) else None

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {worker_pools.POOL_CACHE: reduce_cache})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return self._reduce_pool if issubclass(cls, getattr(self.module, "Pool", ())) else None

    def note_threads(self, threads: Sequence[Any], *, is_disposable: bool) -> None:
        captured = {id(each.thread) for each in threads}
        self._running = []
        for pool in worker_pools.pools():
            are_there = [id(thread) in captured for thread in worker_pools.pool_threads(pool)]
            if not any(are_there):
                continue
            if not all(are_there) or len(are_there) < 3:
                raise Unpicklable(repr(pool), "it is being closed: some of its threads have ended")
            plumbing.require_copy(repr(pool), is_disposable=is_disposable)
            has_processes = worker_pools.has_processes(pool)
            for queue in worker_pools.queues_of_pool(pool):
                plumbing.own(queue)
            if has_processes:
                tasks = worker_pools.sender_of(pool)
                if type(tasks) is not Tasks:
                    raise Unpicklable(
                        repr(pool), "its class sends tasks in a way of its own, so open tasks are not known"
                    )
                tasks.send_all_again()
                worker_pools.take_apart_pool(pool)
            self._running.append((pool, has_processes))

    def _reduce_pool(self, saver: Any, pool: Any) -> Any:
        for queue in worker_pools.queues_of_pool(pool):
            if not plumbing.owned(queue):
                plumbing.keep(queue)
        return reduce_raw(saver, pool)

    def coming_back(self) -> tuple[set[int], set[int]]:
        return merged(map(worker_pools.in_use_by_pool, worker_pools.pools()))

    def note_settings(self) -> Any:
        return self._running, worker_pools.job_count()

    def apply_settings(self, saved: Any) -> None:
        pools, count = saved
        self._renewed += pools
        worker_pools.count_jobs(count)

    def after_restart(self) -> None:
        renewed, self._renewed = self._renewed, []
        with plumbing.starting_workers():
            for pool, has_processes in renewed:
                worker_pools.renew_pool(pool, NOTHING if has_processes else None)


def _idle_workers() -> list[Any]:
    """Of a pool that sends its tasks in another way, nobody knows."""
    pools = [pool for pool in worker_pools.pools() if worker_pools.has_processes(pool)]
    senders = [(pool, worker_pools.sender_of(pool)) for pool in pools]
    idle = [pool for pool, sender in senders if type(sender) is Tasks and not sender.open]
    return [worker for pool in idle for worker in worker_pools.workers_of_pool(pool)]


def reduce_cache(saver: Any, cache: Any) -> Any:
    """The table of a pool's open tasks. Results (``apply_async``, ``map_async``) hold it, also when the pool is over."""
    for queue in worker_pools.queues_of_cache(cache):
        if not plumbing.owned(queue):
            plumbing.keep(queue)
    return NotImplemented

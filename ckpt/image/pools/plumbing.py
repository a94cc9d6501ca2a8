"""The plumbing of pools in an image: pipes and queues that belong to a pool come back closed, as the objects that they are,
and are filled anew when the pool is (:mod:`ckpt.compat.worker_pools`). Those of a pool that has no workers (yet, or any
more) come back as they are. Pipes that no pool owns are left to others; a queue that no pool owns is refused.

Contexts of ``multiprocessing`` are saved by their names.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from ckpt.compat import worker_pools
from ckpt.compat.children import (
    children_started,
    finalizers_of_queue,
    forget_fork_server,
    has_state_after_fork,
    is_served,
    register_queue,
)
from ckpt.image.errors import ObjectRefused, Unpicklable
from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.process.signals import program_mask
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import reduce_raw
from ckpt.image.threads.restart import locks_set_free

__all__ = [
    "Connections",
    "Contexts",
    "ForkServers",
    "Queues",
    "keep",
    "own",
    "owned",
    "reduce_bare",
    "require_copy",
    "starting_workers",
]

_LEADS_OUT = (
    "a queue of multiprocessing leads to other processes, of which an image of this one has nothing; delete it before a "
    "checkpoint, or use multiprocessing.Pool or concurrent.futures, whose open tasks are part of it"
)
_owned: dict[int, Any] = {}
_idle: dict[int, Any] = {}


def own(part: Any) -> None:
    """In a forked copy of the process: a queue, or what wakes a thread, belongs to a pool at work, with its pipe."""
    _owned[id(part)] = part
    for end in worker_pools.connections_of(part):
        worker_pools.close_end(end)
        _owned[id(end)] = end


def keep(part: Any) -> None:
    """The part belongs to a pool without workers: it comes back as it is, and its pipe as every pipe within the program."""
    _idle[id(part)] = part


def owned(part: Any) -> bool:
    return id(part) in _owned


def require_copy(where: str, *, is_disposable: bool) -> None:
    """Raise Unpicklable if the image is not written by a forked copy of the process: a pool is taken apart for it."""
    if not is_disposable:
        raise Unpicklable(where, "a pool of processes that is at work can be saved with fork only")


def _begin_worker(_: object) -> None:
    worker_pools.forget_managers()


class _Start:
    """Is alive while workers are started."""


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """A context in which a new process starts its workers, before its threads run: with the program's signal mask, with no
    lock held, and without what a worker would wait for at its end."""
    start = _Start()
    worker_pools.call_in_children(start, _begin_worker)
    with locks_set_free(), program_mask():
        yield
    del start


class Connections(Library):
    """multiprocessing.connection"""

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, {"Connection": reduce_connection})


def reduce_connection(saver: Any, connection: Any) -> Any:
    if not owned(connection):
        return NotImplemented
    return worker_pools.make_connection, (type(connection), connection.readable, connection.writable)


class Queues(Library):
    """multiprocessing.queues"""

    def before_saving(self, *, is_disposable: bool) -> None:
        _owned.clear()  # of the image before, where that was written in this process
        _idle.clear()

    def reducers(self) -> dict[type, Reducer]:
        return by_name(self.name, dict.fromkeys(("Queue", "JoinableQueue", "SimpleQueue"), reduce_queue))


def reduce_queue(saver: Any, queue: Any) -> Any:
    is_alone = not children_started() and is_served(
        queue, saver.threads
    )  # a pool's library leaves such threads out
    if id(queue) in _idle or (is_alone and not owned(queue)):
        if has_state_after_fork(queue):
            saver.defer(register_queue, queue, finalizers_of_queue(queue))
        return reduce_raw(saver, queue)
    if not owned(queue):
        raise ObjectRefused(queue, _LEADS_OUT)
    return reduce_bare(type(queue), worker_pools.ends(queue))


def reduce_bare(cls: type, attributes: dict[str, Any]) -> Any:
    """An instance with these attributes, whatever ways its class has for other processes."""
    return rebuild.make_instance, (cls,), attributes, None, None, rebuild.fill_instance


class Contexts(Library):
    """multiprocessing.context"""

    def reducers(self) -> dict[type, Reducer]:
        names = ("ForkContext", "SpawnContext", "ForkServerContext")
        return by_name(self.name, dict.fromkeys(names, reduce_context))

    # a start method that the program has set is an attribute of an object of the standard library, which images have


class ForkServers(Library):
    """multiprocessing.forkserver: pools, and the program itself, start another server when they need it."""

    def after_restart(self) -> None:
        forget_fork_server(self.module)


class Spawned(Library):
    """multiprocessing.spawn: a process that is started anew finds the packages that this one is offered."""

    def when_imported(self) -> None:
        if self.module.get_preparation_data is not preparation_data:
            _ways["get_preparation_data"] = self.module.get_preparation_data
            self.module.get_preparation_data = preparation_data


_ways: dict[str, Any] = {}
"""The module's own functions."""


def preparation_data(name: str) -> Any:
    """In place of multiprocessing's: with the finders of this process that are for its children, too. They are in force when
    the child has unpickled the data, before it imports the program."""
    data = _ways["get_preparation_data"](name)
    offered = [finder.for_children for finder in sys.meta_path if hasattr(finder, "for_children")]
    if offered:
        data["ckpt_finders"] = offered
        # A fork server is not given them: it leaves the import of the program to its children
        if name == "ignore":
            data.pop("init_main_from_path", None)
    return data


def reduce_context(saver: Any, context: Any) -> Any:
    return context_of, (context.get_start_method(),)


def context_of(method: str) -> Any:
    import multiprocessing

    return multiprocessing.get_context(method)

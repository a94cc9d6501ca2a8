"""The class that serves ``torch.utils.data``: iterators over a ``DataLoader``, without workers and with.

Without workers, the iterator is an object like others, though its class forbids to pickle it. With workers, queues, events
and processes are made anew in a new process (:func:`renew`); the new workers begin where those of the former process were
(:mod:`ckpt.image.pytorch.orders`). The worker that makes a batch does not delay an image.

What a data set changes of itself in a worker, but for its generators of random numbers, is not part of an image: a new
worker gets the data set as the main process has it, as every worker does at its begin.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.compat import worker_pools
from ckpt.image.errors import ObjectRefused
from ckpt.image.handles.shared_copies import note_idle_workers
from ckpt.image.interface.library import Library, Reducer, merged
from ckpt.image.pools import plumbing
from ckpt.image.pytorch import orders, shared_memory, workers
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Loaders"]

_ITERATOR = "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter"
_WORKERS = "the workers of a DataLoader are being"
_PLUMBING = (
    *("_worker_result_queue", "_index_queues", "_workers", "_workers_done_event", "_data_queue"),
    "_worker_pids_set",
)
_PINNED = ("_base_seed", "_shared_seed")
"""What an iterator draws when it is made, and that stays what it was."""


class Loaders(Library):
    """torch.utils.data.dataloader"""

    left_out_threads = (worker_pools.FEEDER,)
    answered_calls = (("ckpt.image.pytorch.orders:receive", None, ""),)
    transient_functions = (
        (f"{_ITERATOR}.__init__", f"{_WORKERS} started"),
        (f"{_ITERATOR}._reset", f"{_WORKERS} told to begin again"),
        (f"{_ITERATOR}._try_put_index", "a batch is being ordered of a worker of a DataLoader"),
        (f"{_ITERATOR}._mark_worker_as_unavailable", f"{_WORKERS} ended"),
        (f"{_ITERATOR}._shutdown_workers", f"{_WORKERS} ended"),
    )

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loaded: list[Any] = []
        self._is_known = True  # this version of torch

    def when_imported(self) -> None:
        self._is_known = workers.is_known()
        if not self._is_known:
            return
        cls = self.module._MultiProcessingDataLoaderIter
        note_idle_workers(orders.idle_workers)
        orders.put_between(cls, sys.modules["torch"].utils.data._utils.MP_STATUS_CHECK_INTERVAL)
        workers.put_between()
        shared_memory.put_between()

    def reducer_by_base(self, cls: type) -> Reducer | None:
        if not issubclass(cls, getattr(self.module, "_BaseDataLoaderIter", ())):
            return None
        has_workers = issubclass(cls, self.module._MultiProcessingDataLoaderIter)
        return self._reduce_iterator if has_workers else reduce_raw

    def _reduce_iterator(self, saver: Any, iterator: Any) -> Any:
        if not self._is_known:
            version = sys.modules["torch"].__version__
            reason = f"torch {version} has workers of a DataLoader that are not known here; use num_workers=0"
            raise ObjectRefused(iterator, reason)
        if not saver.is_disposable and not iterator._shutdown:
            raise ObjectRefused(
                iterator, "a DataLoader whose workers are at work can be saved with fork only"
            )
        if iterator._pin_memory:
            raise ObjectRefused(
                iterator,
                "a DataLoader with pin_memory is in use, which no image can hold; set pin_memory=False",
            )
        state = {name: value for name, value in vars(iterator).items() if name not in _PLUMBING}
        return rebuild.make_instance, (type(iterator),), state, None, None, fill_iterator

    def coming_back(self) -> tuple[set[int], set[int]]:
        cls = self.module._MultiProcessingDataLoaderIter
        return merged(in_use(obj) for obj in worker_pools.instances_of(cls) if not obj._shutdown)

    def note_loaded(self, iterator: Any) -> None:
        self._loaded.append(iterator)

    def after_restart(self) -> None:
        loaded, self._loaded = self._loaded, []
        with plumbing.starting_workers():
            for iterator in loaded:
                renew(iterator)


def in_use(iterator: Any) -> tuple[set[int], set[int]]:
    """The worker processes, and the descriptors of their queues."""
    queues = [iterator._worker_result_queue, *iterator._index_queues]
    return worker_pools.in_use_by(iterator._workers, queues)


# ---------------------------------------------------------------------- called while loading


def fill_iterator(iterator: Any, state: dict[str, Any]) -> None:
    from ckpt.image.interface.registry import libraries

    vars(iterator).update(state)
    iterator._index_queues, iterator._workers, iterator._worker_pids_set = [], [], False
    library = libraries.find("torch.utils.data.dataloader")
    if not iterator._shutdown and isinstance(library, Loaders):
        library.note_loaded(iterator)


def renew(iterator: Any) -> None:
    """In a new process: queues, workers, open orders."""
    known = iterator._ckpt_orders
    known.held.clear()  # they are open orders
    orders.note_iterator(iterator)
    fresh = _made_like(iterator)
    torch: Any = sys.modules["torch"]
    signals = torch.utils.data._utils.signal_handling
    signals._remove_worker_pids(id(fresh))
    for name in _PLUMBING:
        vars(iterator)[name] = vars(fresh)[name]
    fresh._shutdown, fresh._worker_pids_set = True, False
    signals._set_worker_pids(id(iterator), tuple(worker.pid for worker in iterator._workers))
    for worker, queue in enumerate(iterator._index_queues):
        answered = known.answered.get(worker, orders.BEGUN)
        has_ended = not iterator._workers_status[worker] and not iterator._persistent_workers
        queue.put(workers.Begin(answered.states, () if has_ended else answered.again, has_ended))
    for number, info in sorted(iterator._task_info.items()):
        if known.is_open(number, info):
            iterator._index_queues[info[0]].put((number, known.indices[number]))


def _made_like(iterator: Any) -> Any:
    """An iterator like this one that orders nothing: its workers and queues are what is wanted of it."""
    torch: Any = sys.modules["torch"]
    loader = iterator._ckpt_orders.loader
    like = object.__new__(type(loader))
    vars(like).update(vars(loader))
    vars(like).update(
        sampler=[],
        batch_sampler=None if loader.batch_sampler is None else [],
        generator=torch.Generator(),
        dataset=iterator._dataset,
    )
    cls = type(iterator)
    pinned = {name: vars(iterator)[name] for name in _PINNED if name in vars(iterator)}
    made = type(cls.__name__, (cls,), {name: _pinned(value) for name, value in pinned.items()})
    return made(like)


def _pinned(value: Any) -> property:
    return property(lambda _: value, lambda _, __: None)

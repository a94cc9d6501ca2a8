"""Between a ``DataLoader`` and its worker processes: what has been ordered of each worker and how far the workers are.

torch forgets an order as soon as it is in the queue of a worker, and does not know the workers' generators of random
numbers. So each iterator over a loader has one of :class:`Orders`, and its workers send with each batch the state of
their generators (:mod:`ckpt.image.pytorch.workers`). After a restart new workers begin where the main process has got
the last batch of each, and the open orders are sent again (:mod:`ckpt.image.pytorch.loaders`). A batch that comes twice
is dropped.

Batches are ordered ahead of need, so workers are at work at all times, and there would be no image where the program has a
file mapped for shared writing (:mod:`ckpt.image.handles.shared_copies`). While such an image waits, orders are *held*: the
iterator has made them, in the same order and with the same random numbers, but no worker has them. When all that was
ordered has come, they are given out one at a time, each when the program needs it; between two of them an image is taken. A
held order is open, so a restart sends it like the others.

A worker answers in the order in which it was asked. So one entry, which is replaced as a whole, says all of a worker; an
image may be taken between any two lines here.

=================  =========================================================================================================
kind of data set   a new worker begins
=================  =========================================================================================================
map-style          with the generators' states after the last batch
iterable           with the states at the begin of the epoch, and makes again, unseen, the batches that have been received
=================  =========================================================================================================
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from ckpt.compat.threads import captured_in_threads
from ckpt.image.handles import shared_copies
from ckpt.image.pytorch import shared_memory
from ckpt.transport.records import NamedTuple

__all__ = [
    "BEGUN",
    "Answered",
    "Carried",
    "Orders",
    "idle_workers",
    "note_iterator",
    "put_between",
    "receive",
]

_iterators: weakref.WeakSet[Any] = weakref.WeakSet()

Repeated = tuple[tuple[Any, int], ...]
"""Indices in their order, each with how often it follows itself."""


class Answered(NamedTuple):
    """How far the main process has come with one worker in this epoch. ``number``: of the last batch, -1: none. ``states``:
    of the worker's generators, with which a new worker begins; None: as every worker of that number begins. ``last``: those
    after the last batch. ``again``: see the table."""

    number: int
    states: Any
    last: Any
    again: Repeated


BEGUN = Answered(-1, None, None, ())


class Carried(NamedTuple):
    """What a worker sends in place of a batch. ``states``: None: as they were with the batch before."""

    data: Any
    worker: int
    states: Any


class Orders:
    """The orders of one iterator over a ``DataLoader``. ``loader``: whose iterator it is. ``indices``: number of an order →
    what was ordered. ``answered``: worker → how far. ``held``: (worker, order), of those that no worker has yet."""

    def __init__(self, loader: Any, is_iterable: bool) -> None:
        self.loader = loader
        self.is_iterable = is_iterable
        self.indices: dict[int, Any] = {}
        self.answered: dict[int, Answered] = {}
        self.held: deque[tuple[int, Any]] = deque()

    def begin_epoch(self, carried: Carried) -> None:
        """A worker that lives on has begun another epoch."""
        last = self._last(carried)
        self.answered[carried.worker] = Answered(-1, last, last, ())

    def note(self, number: int, carried: Carried) -> None:
        """The batch of that number has come."""
        known, last = self.answered.get(carried.worker, BEGUN), self._last(carried)
        if self.is_iterable:
            again = _with(known.again, self.indices[number])
            self.answered[carried.worker] = Answered(number, known.states, last, again)
        else:
            self.answered[carried.worker] = Answered(number, last, last, ())
        self.indices.pop(number, None)

    def _last(self, carried: Carried) -> Any:
        if carried.states is not None:
            return carried.states
        return self.answered.get(carried.worker, BEGUN).last

    def is_open(self, number: int, info: tuple[Any, ...] | None) -> bool:
        """``info``: what the iterator knows of that order: (worker,), (worker, batch), or nothing."""
        return info is not None and len(info) == 1 and number > self.answered.get(info[0], BEGUN).number


class _Held:
    """In place of the queue of a worker: an order is held."""

    def __init__(self, held: deque[tuple[int, Any]], worker: int) -> None:
        self._held, self._worker = held, worker

    def put(self, order: Any) -> None:
        self._held.append((self._worker, order))


def idle_workers() -> Iterator[Any]:
    """The workers of all iterators that have sent all that they were asked for."""
    for iterator in list(_iterators):
        orders, workers = iterator._ckpt_orders, getattr(iterator, "_workers", ())
        busy = _busy(iterator)
        yield from (each for worker, each in enumerate(workers) if worker in orders.answered.keys() - busy)


def note_iterator(iterator: Any) -> None:
    _iterators.add(iterator)


def _busy(iterator: Any) -> set[int]:
    """The workers that have been given an order and have not sent the batch, nor the end of their data."""
    orders = iterator._ckpt_orders
    held = {number for _, (number, _) in list(orders.held)}
    given = [each for each in list(getattr(iterator, "_task_info", {}).items()) if each[0] not in held]
    busy = {info[0] for number, info in given if orders.is_open(number, info)}
    return {worker for worker in busy if iterator._workers_status[worker]}


def _give_out(iterator: Any) -> None:
    """Give out held orders: all of them, or while an image waits, one, if the workers have no other."""
    held = iterator._ckpt_orders.held
    while held:
        is_waiting = shared_copies.is_image_waiting()
        if is_waiting and _busy(iterator):
            return
        worker, order = held.popleft()
        iterator._index_queues[worker].put(order)
        if is_waiting:
            return


def _with(again: Repeated, index: Any) -> Repeated:
    if again and again[-1][0] == index:
        return (*again[:-1], (index, again[-1][1] + 1))
    return (*again, (index, 1))


def receive(plain: Any, iterator: Any, timeout: Any) -> Any:
    """``_try_get_data`` of an iterator: (has a batch come?, (number, batch)). Images answer this call with None: what it has
    received is ordered again."""
    with shared_memory.receiving():
        return plain(iterator, timeout)


def put_between(cls: Any, wait_s: float) -> None:
    """From now on, iterators of the class ``_MultiProcessingDataLoaderIter`` have ``Orders``. ``wait_s``: for how long torch
    waits for a batch before it looks whether the workers live."""
    init, next_index, reset = cls.__init__, cls._next_index, cls._reset
    get_data, try_get_data, try_put = cls._get_data, cls._try_get_data, cls._try_put_index

    def __init__(self: Any, loader: Any) -> None:
        self._ckpt_orders = Orders(loader, loader._dataset_kind != 0)
        note_iterator(self)
        init(self, loader)

    def _next_index(self: Any) -> Any:
        index = self._ckpt_orders.indices[self._send_idx] = next_index(self)
        return index

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        self._ckpt_orders.indices.clear()
        self._ckpt_orders.held.clear()
        reset(self, loader, first_iter)

    def _try_put_index(self: Any) -> None:
        held, queues = self._ckpt_orders.held, self._index_queues
        if not shared_copies.is_image_waiting():
            _give_out(self)
            try_put(self)
            return
        self._index_queues = [_Held(held, worker) for worker in range(len(queues))]
        try:
            try_put(self)
        finally:
            self._index_queues = queues

    def _try_get_data(self: Any, timeout: float = wait_s) -> Any:
        _give_out(self)
        while True:
            found = receive(try_get_data, self, timeout)
            if found is not None:
                return found

    def _get_data(self: Any) -> Any:
        orders = self._ckpt_orders
        while True:
            number, carried = get_data(self)
            if type(carried) is not Carried:
                return number, carried
            if type(number) is not int:
                orders.begin_epoch(carried)
                return number, carried.data
            if orders.is_open(number, self._task_info.get(number)):
                orders.note(number, carried)
                return number, carried.data

    for function in (__init__, _next_index, _reset, _try_put_index, _try_get_data, _get_data):
        setattr(cls, function.__name__, captured_in_threads(function))

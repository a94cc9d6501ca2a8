"""Between a ``DataLoader`` and its worker processes: what has been ordered of each worker and how far the workers are.

torch forgets an order as soon as it is in the queue of a worker, and does not know the workers' generators of random
numbers. So each iterator over a loader has one of :class:`Orders`, and its workers send with each batch the state of
their generators (:mod:`ckpt.image.pytorch.workers`). After a restart new workers begin where the main process has got
the last batch of each, and the open orders are sent again (:mod:`ckpt.image.pytorch.loaders`). A batch that comes twice
is dropped.

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

from typing import Any

from ckpt.compat.threads import captured_in_threads
from ckpt.image.pytorch import shared_memory
from ckpt.transport.records import NamedTuple

__all__ = ["BEGUN", "Answered", "Carried", "Orders", "put_between", "receive"]

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
    what was ordered. ``answered``: worker → how far."""

    def __init__(self, loader: Any, is_iterable: bool) -> None:
        self.loader = loader
        self.is_iterable = is_iterable
        self.indices: dict[int, Any] = {}
        self.answered: dict[int, Answered] = {}

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
    get_data, try_get_data = cls._get_data, cls._try_get_data

    def __init__(self: Any, loader: Any) -> None:
        self._ckpt_orders = Orders(loader, loader._dataset_kind != 0)
        init(self, loader)

    def _next_index(self: Any) -> Any:
        index = self._ckpt_orders.indices[self._send_idx] = next_index(self)
        return index

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        self._ckpt_orders.indices.clear()
        reset(self, loader, first_iter)

    def _try_get_data(self: Any, timeout: float = wait_s) -> Any:
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

    for function in (__init__, _next_index, _reset, _try_get_data, _get_data):
        setattr(cls, function.__name__, captured_in_threads(function))

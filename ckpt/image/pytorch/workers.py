"""In a worker process of a ``DataLoader``: what stands between torch's loop and its two queues.

The loop takes orders from one queue and puts batches into another. With each batch goes the state of the generators of
random numbers: the global ones, and those that the data set and the function that makes batches hold. A new worker first
gets :class:`Begin`.
"""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ckpt.image.pytorch.orders import Carried, Repeated
from ckpt.transport.records import NamedTuple

__all__ = ["Begin", "is_known", "put_between", "run"]

_UNSEEN = -1
"""The number of an order whose batch nobody gets."""
_WORKER = "torch.utils.data._utils.worker"
_MOST_OBJECTS = 10_000


class Begin(NamedTuple):
    """The first order of a worker that takes the place of one of a former process. ``states``, ``again``: see
    :class:`ckpt.image.pytorch.orders.Answered`. ``has_ended``: the former one had ended."""

    states: Any
    again: Repeated
    has_ended: bool


class Generators:
    """The generators of random numbers that a worker uses."""

    def __init__(self, *holders: Any) -> None:
        self._own = list(_generators_in(holders))
        self._sent: Any = None

    def states(self) -> Any:
        torch: Any = sys.modules["torch"]
        numpy = sys.modules.get("numpy")
        return (
            random.getstate(),
            torch.get_rng_state().numpy().tobytes(),
            None if numpy is None else _plain(numpy.random.get_state()),
            [get() for get, _ in self._own],
        )

    def news(self) -> Any:
        """The states; None: they are as they were when they were asked for the last time."""
        states = self.states()
        if states == self._sent:
            return None
        self._sent = states
        return states

    def apply(self, states: Any) -> None:
        torch: Any = sys.modules["torch"]
        of_random, of_torch, of_numpy, own = states
        random.setstate(of_random)
        torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
        if of_numpy is not None:
            importlib.import_module("numpy").random.set_state(of_numpy)
        for (_, put), state in zip(self._own, own, strict=True):
            put(state)


def _plain(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """The state of numpy's global generator, as values that can be compared."""
    name, key, *rest = state
    return name, tuple(key.tolist()), *rest


def _generators_in(holders: Any) -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """(function that reads the state, function that sets it) of each generator that these objects hold."""
    torch: Any = sys.modules["torch"]
    of_numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    waiting, seen = deque(holders), list[Any]()
    known: set[int] = set()
    while waiting and len(seen) < _MOST_OBJECTS:
        obj = waiting.popleft()
        if id(obj) in known or isinstance(obj, (str, bytes, int, float, type, type(None), torch.Tensor)):
            continue
        known.add(id(obj))
        seen.append(obj)  # so that no id is used twice
        if isinstance(obj, random.Random):
            yield obj.getstate, obj.setstate
        elif isinstance(obj, torch.Generator):
            yield _of_torch(torch, obj)
        elif of_numpy is not None and isinstance(obj, (of_numpy.Generator, of_numpy.RandomState)):
            waiting.append(obj.bit_generator if hasattr(obj, "bit_generator") else obj._bit_generator)
        elif of_numpy is not None and isinstance(obj, of_numpy.BitGenerator):
            yield _of_numpy(obj)
        elif isinstance(obj, dict):
            waiting.extend(obj.values())
        elif isinstance(obj, (list, tuple, set)):
            waiting.extend(list(obj)[:_MOST_OBJECTS])
        else:
            waiting.extend(getattr(obj, "__dict__", {}).values())


def _of_torch(torch: Any, generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    def put(state: bytes) -> None:
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    return lambda: generator.get_state().numpy().tobytes(), put


def _of_numpy(bits: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    def get() -> Any:
        state = dict(bits.state)
        inner = dict(state["state"])
        if "key" in inner:  # MT19937: an array, which could not be compared
            inner["key"] = tuple(int(part) for part in inner["key"])
        return state | {"state": inner}

    def put(state: Any) -> None:
        bits.state = state

    return get, put


class _Orders:
    """In place of the queue of orders."""

    def __init__(self, queue: Any, generators: Generators) -> None:
        self._queue, self._generators = queue, generators
        self._again: deque[Any] = deque()

    def get(self, timeout: float | None = None) -> Any:
        if not self._again:
            order = self._queue.get(timeout=timeout)
            if type(order) is not Begin:
                return order
            if order.has_ended:
                raise KeyboardInterrupt  # at which torch's loop ends, as a former worker of that number has
            if order.states is not None:
                self._generators.apply(order.states)
            self._again.extend((_UNSEEN, index) for index, count in order.again for _ in range(count))
            return self.get(timeout)
        return self._again.popleft()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Batches:
    """In place of the queue of batches."""

    def __init__(self, queue: Any, generators: Generators, worker: int) -> None:
        self._queue, self._generators, self._worker = queue, generators, worker

    def put(self, item: Any) -> None:
        number, data = item
        if type(number) is int and number == _UNSEEN:
            return
        self._queue.put((number, Carried(data, self._worker, self._generators.news())))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


_plain_loop: Any = None
_DATA_SET, _HOLDER = "dataset", "dataset_holder"
"""The argument of torch's loop with the data set; since 2.14 a list with it, from which the loop takes it."""


def is_known() -> bool:
    """Does torch's loop have the arguments that :func:`run` asks for?"""
    loop: Any = importlib.import_module(_WORKER)._worker_loop
    names = inspect.signature(_plain_loop if loop is run else loop).parameters.keys()
    needed = {"collate_fn", "index_queue", "data_queue", "worker_id"}
    return needed <= names and not names.isdisjoint((_DATA_SET, _HOLDER))


def put_between() -> None:
    """From now on, new workers run :func:`run`."""
    global _plain_loop
    module: Any = importlib.import_module(_WORKER)
    if module._worker_loop is not run:
        _plain_loop, module._worker_loop = module._worker_loop, run


def run(*args: Any) -> None:
    """In place of torch's ``_worker_loop``, with the same arguments."""
    if _plain_loop is None:  # a process that was spawned
        put_between()
    bound = inspect.signature(_plain_loop).bind(*args)
    given = bound.arguments
    generators = Generators(given.get(_DATA_SET, given.get(_HOLDER)), given["collate_fn"])
    given["index_queue"] = _Orders(given["index_queue"], generators)
    given["data_queue"] = _Batches(given["data_queue"], generators, given["worker_id"])
    _plain_loop(*bound.args)

"""What a new worker of a DataLoader gets: the generators' states after the last batch that has come, and what is open."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.image.handles import shared_copies
from ckpt.image.pytorch.orders import BEGUN, Carried, Orders, idle_workers, put_between

MAP, ITERABLE = 0, 1


def test_a_batch_is_open_until_it_has_come() -> None:
    orders = Orders(None, is_iterable=False)
    orders.indices.update({0: [4, 1], 1: [2, 3], 2: [0, 5]})
    assert [orders.is_open(n, info) for n, info in enumerate([(0,), (1,), (0,)])] == [True] * 3
    orders.note(0, Carried("data", 0, "after 0"))
    assert not orders.is_open(0, (0,))
    assert orders.is_open(2, (0,)), "ordered of the same worker later"
    assert not orders.is_open(1, (1, "a batch that waits for its turn"))
    assert not orders.is_open(7, None), "handed out already"


def test_a_worker_of_a_map_style_data_set_begins_with_the_states_after_its_last_batch() -> None:
    orders = Orders(None, is_iterable=False)
    orders.indices.update({0: [1], 1: [2]})
    assert orders.answered.get(0, BEGUN).states is None
    orders.note(0, Carried("data", 0, "first"))
    orders.note(1, Carried("data", 0, None))
    assert orders.answered[0].states == "first", "None stands for: as with the batch before"
    assert orders.answered[0].again == ()


def test_a_worker_of_an_iterable_data_set_makes_its_batches_of_the_epoch_again() -> None:
    orders = Orders(None, is_iterable=True)
    orders.indices.update({0: [None, None], 2: [None, None], 4: [None]})
    for number in (0, 2, 4):
        orders.note(number, Carried("data", 0, f"after {number}"))
    assert orders.answered[0].states is None, "those of the begin of the epoch"
    assert orders.answered[0].again == (([None, None], 2), ([None], 1))


def test_an_epoch_begins_with_the_states_after_the_last_batch_of_the_one_before() -> None:
    """Workers that live on drew the numbers of the first epoch again in the second one after a restart."""
    orders = Orders(None, is_iterable=True)
    orders.indices[0] = None
    orders.note(0, Carried("data", 0, "after the last"))
    orders.begin_epoch(Carried(None, 0, None))
    assert orders.answered[0] == BEGUN._replace(states="after the last", last="after the last")


class Queue(list[Any]):
    def put(self, order: Any) -> None:
        self.append(order)


class Plain:
    """In place of torch's class of iterators: what its methods do with orders, without processes."""

    def __init__(self, loader: Any) -> None:
        self._send_idx, self._task_info = 0, {}
        self.found: list[Any] = []
        self._workers, self._workers_status = ["first", "second"], [True, True]
        self._index_queues: list[Any] = [Queue(), Queue()]

    def _try_put_index(self) -> None:
        order = self._send_idx, self._next_index()
        self._index_queues[self._send_idx % 2].put(order)
        self._task_info[self._send_idx] = (self._send_idx % 2,)
        self._send_idx += 1

    def _next_index(self) -> Any:
        return [self._send_idx]

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._send_idx = 0

    def _try_get_data(self, timeout: float = 0) -> Any:
        return self.found.pop(0)

    def _get_data(self) -> Any:
        return self._try_get_data()[1]


class Loader:
    _dataset_kind = MAP


@pytest.fixture
def iterator() -> Any:
    cls: Any = type(
        "Iterator", (Plain,), {name: vars(Plain)[name] for name in vars(Plain) if callable(vars(Plain)[name])}
    )
    put_between(cls, 5.0)
    made = cls(Loader())
    for number in range(3):
        made._next_index()
        made._task_info[number] = (0,)
        made._send_idx += 1
    return made


def test_a_batch_that_comes_twice_is_dropped(iterator: Any) -> None:
    iterator.found = [
        (True, (0, Carried("a", 0, "s0"))),
        (True, (0, Carried("a", 0, "s0"))),
        (True, (1, Carried("b", 0, "s1"))),
    ]
    assert iterator._get_data() == (0, "a")
    del iterator._task_info[0]
    assert iterator._get_data() == (1, "b")
    assert iterator._ckpt_orders.answered[0].states == "s1"
    assert list(iterator._ckpt_orders.indices) == [2]


def test_a_call_that_an_image_has_answered_is_made_again(iterator: Any) -> None:
    iterator.found = [None, (True, (0, Carried("a", 0, "s0")))]
    assert iterator._get_data() == (0, "a")


def test_a_new_epoch_forgets_what_was_ordered_in_the_last_one(iterator: Any) -> None:
    iterator._reset(None)
    assert iterator._ckpt_orders.indices == {}


def test_while_an_image_waits_for_the_workers_they_get_no_more_than_the_program_needs(
    iterator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a file mapped for writing there was no checkpoint while an epoch was under way: batches are ordered ahead."""

    def given() -> list[int]:
        return sorted(number for queue in iterator._index_queues for number, _ in queue)

    def get(number: int) -> None:
        iterator.found.append((True, (number, Carried("batch", number % 2, None))))
        assert iterator._get_data()[0] == number
        del iterator._task_info[number]

    def idle() -> list[str]:
        return [worker for worker in idle_workers() if worker in iterator._workers]

    iterator._task_info.clear()
    iterator._workers = ["one of two", "the other"]
    iterator._send_idx = 0
    for _ in range(2):
        iterator._try_put_index()
    assert given() == [0, 1] and idle() == []
    monkeypatch.setattr(shared_copies, "is_image_waiting", lambda: True)
    for _ in range(3):
        iterator._try_put_index()
    assert given() == [0, 1] and list(iterator._ckpt_orders.indices)[-1] == 4, "made in time, held"
    get(0)
    assert idle() == ["one of two"]
    get(1)
    assert idle() == ["one of two", "the other"] and given() == [0, 1], "the moment for an image"
    get(2)
    assert idle() == ["one of two", "the other"] and given() == [0, 1, 2]
    monkeypatch.setattr(shared_copies, "is_image_waiting", lambda: False)
    get(3)
    assert given() == [0, 1, 2, 3, 4] and idle() == ["the other"]
    iterator._try_put_index()
    assert given()[-1] == 5 and all(queue == sorted(queue) for queue in iterator._index_queues)


def test_a_worker_that_has_ended_holds_no_order_up(iterator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    iterator._task_info.clear()
    iterator._try_put_index()
    iterator._workers_status[iterator._task_info[iterator._send_idx - 1][0]] = False
    monkeypatch.setattr(shared_copies, "is_image_waiting", lambda: True)
    iterator._try_put_index()
    number = iterator._send_idx - 1
    iterator.found.append((True, (number, Carried("batch", number % 2, None))))
    assert iterator._get_data()[0] == number
    assert not iterator._ckpt_orders.held


def test_an_image_waits_until_it_is_taken_or_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(shared_copies, "time", type("time", (), {"monotonic": lambda: now[0]}))
    monkeypatch.setattr(shared_copies, "_askers", [])
    monkeypatch.setattr(shared_copies, "_refused_at", None)
    monkeypatch.setattr(shared_copies.children, "children_started", list)
    assert not shared_copies.are_children_at_work() and not shared_copies.is_image_waiting()
    child = object()
    monkeypatch.setattr(shared_copies.children, "children_started", lambda: [child])
    assert shared_copies.are_children_at_work() and shared_copies.is_image_waiting()
    now[0] += 60
    assert not shared_copies.is_image_waiting(), "nobody looks for it any more"
    assert shared_copies.are_children_at_work() and shared_copies.is_image_waiting()
    shared_copies.note_idle_workers(lambda: [child])
    assert not shared_copies.are_children_at_work() and shared_copies.is_image_waiting()
    shared_copies.note_image_over()
    assert not shared_copies.is_image_waiting()

"""The tasks of a pool between its threads and its pipes: kept until they are answered, sent again, answered once."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

import pytest

from ckpt.image.pools.recording import NOTHING, Tasks


class Ends:
    """The pool's and the worker's ends of both pipes."""

    def __init__(self) -> None:
        self.tasks_out, tasks_in = Pipe(duplex=False)
        results_out, self.results_in = Pipe(duplex=False)
        self.tasks = Tasks(results_out, tasks_in)

    def received(self) -> list[Any]:
        found = []
        while self.tasks_out.poll():
            found.append(self.tasks_out.recv())
        return found

    def answer(self, job: int, number: int) -> None:
        self.results_in.send((job, number, (True, job * number)))


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    for end in (made.tasks_out, made.results_in, made.tasks.reader, made.tasks.writer):
        end.close()


def task(job: int, number: int, *args: Any) -> tuple[Any, ...]:
    return job, number, max, args, {}


def test_a_task_is_open_from_when_it_is_sent_until_its_result_is_received(ends: Ends) -> None:
    ends.tasks.put(task(1, 0, 5))
    ends.tasks.put(task(1, 1, 6))
    assert list(ends.tasks.open) == [(1, 0), (1, 1)]
    ends.answer(1, 0)
    assert ends.tasks.get() == (1, 0, (True, 0))
    assert list(ends.tasks.open) == [(1, 1)]


def test_open_tasks_are_sent_again_first_as_they_were_when_they_were_sent(ends: Ends) -> None:
    numbers = [5]
    ends.tasks.put(task(1, 0, numbers))
    ends.tasks.put(task(1, 1))
    assert ends.received() == [task(1, 0, [5]), task(1, 1)]
    numbers.append(6)
    ends.tasks.send_all_again()
    ends.tasks.put(task(2, 0))
    assert ends.received() == [task(1, 0, [5]), task(1, 1), task(2, 0)]


def test_a_task_that_stands_for_nothing_sends_the_open_ones_only(ends: Ends) -> None:
    ends.tasks.put(task(1, 0))
    ends.received()
    ends.tasks.send_all_again()
    ends.tasks.put(NOTHING)
    ends.tasks.put(NOTHING)
    assert ends.received() == [task(1, 0)] and list(ends.tasks.open) == [(1, 0)]


def test_a_task_that_was_sent_twice_is_answered_once(ends: Ends) -> None:
    ends.tasks.put(task(1, 0))
    ends.tasks.put(task(1, 1))
    for number in (0, 0, 1):
        ends.answer(1, number)
    assert [ends.tasks.get()[1] for _ in range(2)] == [0, 1]


def test_the_ends_of_workers_and_of_the_results_are_passed_on(ends: Ends) -> None:
    ends.tasks.put(None)
    ends.results_in.send(None)
    assert ends.received() == [None] and ends.tasks.get() is None and not ends.tasks.open


def test_a_task_that_cannot_be_pickled_is_not_open(ends: Ends) -> None:
    with pytest.raises(Exception, match="pickle"):
        ends.tasks.put(task(1, 0, lambda: 0))
    assert not ends.tasks.open

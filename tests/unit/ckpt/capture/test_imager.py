"""When a rank whose program waits in the library gives an image up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ckpt.capture import imager as module
from ckpt.capture.imager import Imager


class Search:
    is_refused = True


class Places:
    """``has_time``: is there time left to look? ``is_there``: is the obstacle of the last look on the stack?"""

    def __init__(self, *, has_time: bool, is_there: bool) -> None:
        self.has_time, self.is_there = has_time, is_there

    def is_blocked(self) -> bool:
        return self.is_there or not self.has_time

    def has_obstacle(self) -> bool:
        return self.is_there

    def makes_no_calls(self) -> bool:
        return False


def looked(places: Places, *, is_stalled: bool) -> list[str]:
    """What a rank does that waits, and whose last look was refused."""
    imager: Any = Imager.__new__(Imager)
    done: list[str] = []
    imager.search, imager.places, imager.epoch, imager.wanted, imager.asked = Search(), places, 1, 2, 0
    imager._stall = lambda waits: ("it waits", 0) if is_stalled else None
    imager.give_up = lambda *stall: done.append("given up")
    imager.take = lambda at: done.append("looked") or True
    imager.look("call")
    return done


def test_an_image_is_given_up_at_an_obstacle_that_is_still_there() -> None:
    assert looked(Places(has_time=True, is_there=True), is_stalled=True) == ["given up"]


def test_without_time_to_look_it_is_not_given_up_for_an_obstacle_that_the_program_has_left() -> None:
    """A look on a busy machine took all of the time for looks. The rank then waited in its checkpoint, and gave the image up
    because of an import that had been over for long."""
    assert looked(Places(has_time=False, is_there=False), is_stalled=True) == ["looked"]


@pytest.mark.parametrize("is_there", [True, False])
def test_while_nothing_is_held_up_no_time_is_spent(is_there: bool) -> None:
    assert looked(Places(has_time=False, is_there=is_there), is_stalled=False) == []


class Runtime:
    """The lock of the library, which another thread has, and gives back when somebody asks for it."""

    in_hook = False

    def __init__(self) -> None:
        self.lock = self
        self._real, self._asked = threading.Lock(), threading.Event()
        self._real.acquire()
        self._other = threading.Thread(target=self._give_back)
        self._other.start()

    def _give_back(self) -> None:
        self._asked.wait()
        self._real.release()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._asked.set()
        return self._real.acquire(blocking, timeout)

    def release(self) -> None:
        self._real.release()
        self._other.join()


def test_a_look_at_a_check_waits_for_a_thread_that_is_in_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that computed and called the library all the time had it at each check: no checkpoint for minutes."""
    monkeypatch.setattr(module, "LOCK_WAIT_S", 60)
    imager: Any = Imager.__new__(Imager)
    done: list[str] = []
    imager._runtime, imager.epoch, imager.wanted, imager.asked = Runtime(), 1, 2, 0
    imager.places = Places(has_time=True, is_there=False)
    imager.look = lambda at: done.append(at) or True
    assert imager._at_check() is False
    assert done == ["check"]


class Told(list[str]):
    """The undo log and the port of a rank: what they are told, in order. A label tells the log the end of a line, too."""

    def label(self, epoch: int) -> None:
        self.append(f"label {epoch}")

    def aborted(self, epoch: int) -> None:
        self.append(f"aborted {epoch}")

    def advance(self, epoch: int) -> None:
        self.append(f"advance {epoch}")


@pytest.mark.parametrize(
    ("epoch", "wanted", "told"),
    [(1, 2, ["label 2", "advance 2"]), (2, 2, ["aborted 2"]), (1, 1, ["aborted 2"])],
)
def test_the_undo_log_is_told_once_of_a_line_that_will_not_be(
    epoch: int, wanted: int, told: list[str]
) -> None:
    """Before its image, after it, and where the round had not come here yet."""
    imager: Any = Imager.__new__(Imager)
    imager._runtime = runtime = Runtime.__new__(Runtime)
    runtime.files = runtime.port = heard = Told()  # type: ignore[attr-defined]
    imager.epoch, imager.wanted, imager.asked = epoch, wanted, 0
    imager._awaited_epoch, imager.awaited_round_failed = 0, False
    imager.abort(2)
    assert heard == told

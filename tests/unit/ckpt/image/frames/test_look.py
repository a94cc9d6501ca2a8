"""Looks at the main thread's checks: where they are made, and that a frame in the way makes them a comparison."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from ckpt.image import Refused, capture
from ckpt.image.frames import _frames, stack
from ckpt.image.frames.running import run_base
from ckpt.image.tools import greenlet

pytestmark = pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")


def spin(steps: int) -> int:
    done = 0
    for step in range(steps):
        done += step & 1
    return done


def refusal_at(make: Callable[[Callable[[], None]], Any]) -> tuple[Refused, list[bool]]:
    """The refusal of a capture inside of what `make` does with a callback; is its frame on the stack there, and after?"""
    refused: list[Refused] = []
    seen: list[bool] = []

    def look() -> bool:
        try:
            capture(at="check")
        except Refused as found:
            refused.append(found)
        return False

    def inside() -> None:
        _frames.look(look, 0, 0, 1)
        spin(10)
        seen.append(_frames.on_stack(*refused[0].obstacle))

    def program() -> None:
        make(inside)
        seen.append(_frames.on_stack(*refused[0].obstacle))

    run_base(program)
    return refused[0], seen


def test_a_refusal_names_the_frame_in_the_way() -> None:
    refused, seen = refusal_at(lambda inside: sorted([1], key=functools.cache(lambda _: inside() or 1)))
    assert "sorted()" in refused.reason and refused.obstacle != (0, 0)
    assert seen == [True, False]


def test_a_frame_that_has_left_its_instruction_is_not_in_the_way() -> None:
    at: list[tuple[int, int]] = []
    seen = []

    def inside() -> int:
        def look() -> bool:
            try:
                capture(at="check")
            except Refused as found:
                at.append(found.obstacle)
            return False

        if not at:
            _frames.look(look, 0, 0, 1)
            spin(10)
        seen.append(_frames.on_stack(*at[0]))
        return 1

    def program() -> None:
        sorted([1], key=functools.cache(lambda _: inside()))
        inside()
        sorted([1], key=functools.cache(lambda _: inside()))  # the same frame, at another instruction

    run_base(program)
    assert seen == [True, False, False]


def test_a_look_goes_on_at_other_places_while_it_says_so() -> None:
    places = []

    def look() -> bool:
        frame = sys._getframe(1)
        places.append((id(frame), frame.f_lasti))
        return True

    _frames.look(look, 0, 0, 5)
    for _ in range(20):
        spin(3)
    assert 2 <= len(places) <= 5
    assert all(one != other for one, other in itertools.pairwise(places))


def test_a_look_that_says_no_is_the_last() -> None:
    calls = []
    _frames.look(lambda: bool(calls.append(1)), 0, 0, 100)
    for _ in range(20):
        spin(3)
    assert calls == [1]


def test_nothing_is_called_while_the_obstacle_is_there_and_something_once_it_has_gone() -> None:
    obstacle: list[tuple[int, int]] = []
    called: list[str] = []
    where = ""

    def find() -> bool:
        try:
            capture(at="check")
        except Refused as found:
            obstacle.append(found.obstacle)
        return False

    def note() -> bool:
        called.append(where)
        return False

    def inside() -> int:
        if not obstacle:
            _frames.look(find, 0, 0, 1)
            spin(10)
            _frames.look(note, *obstacle[0], 1000)
        spin(10)
        return 1

    def program() -> None:
        nonlocal where
        where = "inside"
        sorted([1, 2, 3], key=functools.cache(lambda _: inside()))
        where = "behind"
        for _ in range(1000):
            spin(2)
            if called:
                break

    run_base(program)
    assert called == ["behind"]


def test_a_traced_program_goes_on_after_looks() -> None:
    """On 3.11 what is queued at the beginning of a traced function is looked for again and again."""
    calls = []

    def look() -> bool:
        calls.append(1)
        return True

    sys.settrace(lambda *_: None)
    try:
        _frames.look(look, 0, 0, 50)
        for _ in range(100):
            spin(2)
    finally:
        sys.settrace(threading.gettrace())
    assert calls


def test_what_a_look_raises_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = []
    monkeypatch.setattr(sys, "unraisablehook", noted.append)

    def fault() -> bool:
        raise ValueError("ours")

    _frames.look(fault, 0, 0, 5)
    spin(100)
    assert len(noted) == 1


def test_a_second_look_takes_the_place_of_the_one_that_waits() -> None:
    calls = []
    ready = threading.Event()

    def ask() -> None:
        calls.append(_frames.look(lambda: bool(calls.append("first")), 0, 0, 1))
        calls.append(_frames.look(lambda: bool(calls.append("second")), 0, 0, 1))
        ready.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # the main thread comes to no check between the two
    try:
        thread = threading.Thread(target=ask)
        thread.start()
        ready.wait()
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    spin(10)
    assert calls in ([True, False, "second"], [True, "first", True, "second"])


def test_where_a_frame_is_is_what_a_look_waits_for() -> None:
    places: list[tuple[int, int]] = []
    seen: list[bool] = []

    def inner(caller: FrameType) -> None:
        places.append(_frames.frame_place(caller))
        seen.append(_frames.on_stack(*places[0]))

    def program() -> None:
        inner(sys._getframe())
        inner(sys._getframe())  # at another instruction
        seen.append(_frames.on_stack(*places[0]))

    run_base(program)
    assert seen == [True, False, False]
    with pytest.raises(LookupError):
        _frames.frame_place(ended())
    with pytest.raises(TypeError):
        _frames.frame_place(None)  # type: ignore[arg-type]


def ended() -> FrameType:
    return sys._getframe()


def looks_between_long_calls(calls: int, checks: int) -> list[int]:
    """How often sorted() has returned before each look: so many checks are looked at. ``calls``: of functions in Python, by
    each sorted()."""
    obstacles: list[tuple[int, int]] = []
    rounds: list[int] = []
    looked: list[int] = []

    def first() -> bool:
        try:
            capture(at="check")
        except Refused as found:
            obstacles.append(found.obstacle)
        return False

    def look() -> bool:
        looked.append(len(rounds))
        return False

    def slow(_: int) -> int:
        if not obstacles:
            _frames.look(first, 0, 0, 1)
            spin(10)
            _frames.look(look, *obstacles[0], checks)
        return spin(20_000)

    def program() -> None:
        for _ in range(5):
            sorted(range(calls), key=functools.cache(slow))
            rounds.append(calls)

    run_base(program)
    return looked


@pytest.mark.parametrize("calls", [1, 3], ids=["one function", "several functions"])
def test_a_look_comes_between_two_long_calls_in_c(calls: int) -> None:
    """Each of them is in the way while it calls functions in Python, at many more checks than are looked at; between two of
    them are some nanoseconds. Such a loop had no checkpoint at all."""
    looked = looks_between_long_calls(calls, 20)
    assert looked and looked[0] <= 1


def test_where_few_checks_are_looked_at_no_call_of_a_function_brings_another_look() -> None:
    """An import calls functions in Python by the thousand; what that cost doubled its time."""
    assert not looks_between_long_calls(3, 4)


def test_a_program_in_a_greenlet_is_refused_by_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried by a stranger, with eventlet: "the program is not running under run_base" was said."""
    greenlets: Any = ModuleType("greenlet")
    greenlets.getcurrent = lambda: SimpleNamespace(parent=object())
    monkeypatch.setitem(sys.modules, "greenlet", greenlets)
    monkeypatch.setattr(stack, "on_other_stacks", list[Callable[[], str]]())
    monkeypatch.setattr(greenlet, "on_other_stacks", stack.on_other_stacks)
    greenlet.Greenlet("greenlet")
    with pytest.raises(Refused, match="runs in a greenlet"):
        capture(at="call")  # there is no base frame, as in a greenlet

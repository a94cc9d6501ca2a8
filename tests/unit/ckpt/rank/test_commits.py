"""A call waits for the commit of an image that holds its request, and has the same key whenever it is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import ckpt
from ckpt.errors import NotEnabled, RegistrationError
from ckpt.image.frames import _frames
from ckpt.image.frames.running import run_base
from ckpt.rank.commits import Commits, CommitsAtOnce


def commits(explicit: object = None) -> Commits:
    interrupts = SimpleNamespace(running=0)
    runtime: Any = SimpleNamespace(
        rank=3, spec={"job_id": "abc"}, lock=threading.Lock(), engine=None, pid=os.getpid(), explicit=explicit,
        in_hook=False, layer=None, port=SimpleNamespace(interrupts=interrupts),
    )  # fmt: skip
    return Commits(runtime)


class Told:
    def __init__(self) -> None:
        self.calls: list[tuple[object, str]] = []

    def __call__(self, what: object, *, key: str) -> None:
        self.calls.append((what, key))


def test_a_call_waits_for_the_commit_of_its_image() -> None:
    waiting, told = commits(), Told()
    assert waiting.ask(told, ("first",), None) == "abc-3-1"
    waiting.taken(1)
    waiting.ask(told, ("second",), None)
    waiting.taken(2)
    assert not waiting.is_due
    waiting.committed(1)
    waiting.call()
    assert told.calls == [("first", "abc-3-1")]
    waiting.committed(2)
    waiting.call()
    assert told.calls == [("first", "abc-3-1"), ("second", "abc-3-2")]
    assert waiting.taken(3) == (2, [])


def test_no_call_for_the_commit_of_an_image_from_before_the_request() -> None:
    waiting, told = commits(), Told()
    waiting.taken(1)
    waiting.ask(told, (1,), None)
    waiting.committed(1)
    waiting.call()
    assert not told.calls
    waiting.taken(2)
    waiting.committed(1)
    waiting.call()
    assert not told.calls


def test_an_image_that_fails_costs_nothing_but_time() -> None:
    waiting, told = commits(), Told()
    waiting.ask(told, (1,), None)
    waiting.taken(1)
    waiting.taken(2)
    waiting.committed(2)
    waiting.call()
    assert len(told.calls) == 1


def test_when_nothing_goes_back_any_more_all_calls_are_made() -> None:
    waiting, told = commits(), Told()
    waiting.ask(told, (1,), None)
    waiting.taken(5)  # is not committed
    waiting.ask(told, (2,), None)
    waiting.call()
    assert not told.calls
    waiting.call(all_requests=True)
    assert [what for what, _ in told.calls] == [1, 2]


def test_after_a_restart_the_requests_of_the_line_are_due_with_their_keys() -> None:
    before, told = commits(), Told()
    before.ask(told, (1,), None)
    before.ask(told, (2,), "mine")
    held = before.taken(4)
    before.ask(told, (3,), None)  # not in the image: the program makes this request again
    after = commits()
    after.load(held, 4)
    after.call()
    assert told.calls == [(1, "abc-3-1"), (2, "mine")]
    assert after.ask(told, (3,), None) == "abc-3-3"
    after.call()
    assert len(told.calls) == 2


def test_an_exception_names_the_function_and_its_key_and_the_request_is_gone() -> None:
    waiting = commits()

    def fail(*, key: str) -> None:
        raise ConnectionError("no route")

    waiting.ask(fail, (), "k7")
    waiting.taken(1)
    with pytest.raises(ConnectionError) as caught:
        waiting.committed(1)  # the call is made as soon as this one is over
        waiting.call()
    assert "fail" in caught.value.__notes__[0] and "'k7'" in caught.value.__notes__[0]
    assert not waiting.is_due
    assert not waiting._runtime.in_hook


def test_a_call_is_made_while_the_program_waits_in_the_library_without_the_lock() -> None:
    waiting = commits()
    locked = []
    waiting.ask(lambda *, key: locked.append(waiting._runtime.lock.locked()), (), None)
    waiting.taken(1)
    waiting.committed(1)
    with waiting._runtime.lock:
        assert waiting.in_call()
        assert waiting._runtime.lock.locked()
        assert not waiting.in_call()
    assert locked == [False]


def effect(*arguments: Any, key: str) -> None:
    pass


class Effect:
    async def __call__(self, *, key: str) -> None:
        pass

    async def send(self, *, key: str) -> None:
        pass


async def coroutine(*, key: str) -> None:
    pass


def generator(*, key: str) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [coroutine, generator, partial(coroutine), Effect(), Effect().send, lambda key: (yield key)]
)
@pytest.mark.parametrize("kind", [commits, CommitsAtOnce])
def test_a_call_that_would_do_nothing_is_refused(kind: Any, function: Any) -> None:
    with pytest.raises(RegistrationError, match="its call does nothing by itself"):
        kind().ask(function, (), None)


@pytest.mark.parametrize("kind", [commits, CommitsAtOnce])
def test_what_does_not_take_the_arguments_or_the_key_is_refused_when_it_is_asked_for(kind: Any) -> None:
    for function, arguments in ((lambda a: None, (1,)), (effect_of_two, (1,)), (print, ("x",))):
        with pytest.raises(
            RegistrationError, match="with these arguments and key=…, and it does not take them"
        ):
            kind().ask(function, arguments, None)

    @wraps(print)
    def logged(*arguments: Any, key: str) -> None:
        pass

    for good in (logged, effect, partial(effect, 1), dict, Mock()):  # dict does not say what it takes
        assert kind().ask(good, (), None)


def effect_of_two(one: int, other: int, *, key: str) -> None:
    pass


def test_bad_requests_are_refused() -> None:
    waiting = commits()
    with pytest.raises(RegistrationError, match="takes a function"):
        waiting.ask("no function", (), None)  # type: ignore[arg-type]
    for key in ("", 7):
        with pytest.raises(RegistrationError, match="is a text"):
            waiting.ask(effect, (), key)  # type: ignore[arg-type]
    with pytest.raises(NotEnabled, match="--explicit"):
        commits(explicit=object()).ask(effect, (), None)
    refused: list[BaseException] = []

    def other() -> None:
        with pytest.raises(RegistrationError, match="main thread") as caught:
            waiting.ask(effect, (), None)
        refused.append(caught.value)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert refused
    waiting._runtime.pid += 1
    with pytest.raises(RegistrationError, match="children"):
        waiting.ask(effect, (), None)


def test_outside_of_a_job_the_call_is_made_at_once() -> None:
    told, at_once = Told(), CommitsAtOnce()
    keys = [at_once.ask(told, (1,), None), at_once.ask(told, (2,), None), at_once.ask(told, (3,), "mine")]
    assert told.calls == list(zip((1, 2, 3), keys, strict=True))
    assert len(set(keys)) == 3 and keys[2] == "mine"
    with pytest.raises(RegistrationError):
        ckpt.when_committed(7)  # type: ignore[arg-type]


LIBRARY = """
def call(waiting):
    waiting.committed(1)
    for n in range(300):  # more checks than the queued call has at one place
        helper()

def helper():
    pass
"""


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_a_call_that_is_due_inside_a_library_call_is_made_after_it() -> None:
    """A rank that calls the library between long calls in C, and never waits there, made its calls seconds later: each check
    came where a call had just begun."""
    waiting, where, made = commits(), "", []
    waiting.ask(lambda *, key: made.append(where), (), None)
    waiting.taken(1)
    library: dict[str, Any] = {"__name__": "ckpt.any"}
    exec(LIBRARY, library)

    def program() -> None:
        nonlocal where
        where = "inside"
        library["call"](waiting)
        where = "after"
        for _ in range(3):
            pass

    run_base(program)
    assert made == ["after"]

"""Futures and tasks in C, apart and together again: every field, and nothing scheduled by it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import warnings
from pathlib import Path

import pytest

from ckpt.compat import asyncio_names, asyncio_objects, awaitables
from ckpt.image.reducers.contexts import has_decimal_context
from ckpt.image.stdlib.standard import Decimal
from tests.unit.ckpt.image.support import copy_of, resumed_output

depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth")


class Loop:
    """Calls what is ready when it is told to."""

    def __init__(self):
        self.ready = []

    def get_debug(self):
        return False

    def call_soon(self, callback, *args, context=None):
        self.ready.append((callback, args, context))

    def call_exception_handler(self, context):
        self.ready.append(("exception handler", context["message"]))

    def turn(self):
        ready, self.ready = self.ready, []
        for callback, args, context in ready:
            context.run(callback, *args)


def test_the_structs_are_as_they_are_known():
    assert asyncio_objects.misfit() == ""


@pytest.mark.parametrize("name", asyncio_objects._WHOLE_TASK_FIELDS)
def test_a_struct_that_is_not_as_it_is_known_is_found(monkeypatch, name):
    """Each field is missed by the self-test, but for one that a test cannot set."""
    for layout in (asyncio_objects._FUTURE_FIELDS, asyncio_objects._WHOLE_TASK_FIELDS):
        if name in layout:
            monkeypatch.delitem(layout, name)
    found = asyncio_objects.misfit.__wrapped__()
    assert bool(found) == (name != "source_tb")


def test_a_pending_future_keeps_callbacks_contexts_and_attributes():
    loop, context = Loop(), contextvars.Context()
    context.run(depth.set, 3)
    future = asyncio.Future(loop=loop)
    future.note = "mine"
    future.add_done_callback(print, context=context)
    future.add_done_callback(len, context=context)
    future._asyncio_future_blocking = True
    again, its_loop = copy_of((future, loop))
    assert again.get_loop() is its_loop and its_loop.ready == [] and again.note == "mine"
    assert [callback for callback, _ in again._callbacks] == [print, len]
    assert [list(found.values()) for _, found in again._callbacks] == [[3], [3]]
    assert again._asyncio_future_blocking and not again.done()
    again.set_result(4)
    assert [callback for callback, _, _ in its_loop.ready] == [print, len]


def test_futures_that_are_done():
    loop = Loop()
    result, failed, cancelled = (asyncio.Future(loop=loop) for _ in range(3))
    result.set_result([1])
    failed.set_exception(KeyError("k"))
    cancelled.cancel("enough")
    copies = copy_of([result, failed, cancelled])
    assert copies[0].result() == [1] and repr(copies[1].exception()) == "KeyError('k')"
    with pytest.raises(asyncio.CancelledError, match="enough"):
        copies[2].result()
    assert copies[0].get_loop().ready == []
    failed.exception()


def test_an_exception_that_nobody_has_seen_is_told_once():
    future = asyncio.Future(loop=Loop())
    future.set_exception(KeyError("unseen"))
    again = copy_of(future)
    loop = again.get_loop()
    assert again._log_traceback
    again.exception()
    assert not again._log_traceback
    del again
    gc.collect()
    assert loop.ready == []
    future.exception()


class Named(asyncio.Task):
    __slots__ = ("extra",)


async def waits(future, log):
    log.append("begun")
    try:
        log.append(await future)
    except asyncio.CancelledError as error:
        log.append(error.args)
    return "done"


def task_of(loop, coroutine, kind=asyncio.Task, **options):
    return kind(coroutine, loop=loop, name="one", **options)


def test_a_task_whose_first_step_is_to_come_takes_it_once():
    loop, log = Loop(), []
    future = asyncio.Future(loop=loop)
    context = contextvars.Context()
    task = task_of(loop, waits(future, log), Named, context=context)
    task.extra = 7
    again, its_loop, its_future, its_log = copy_of((task, loop, future, log))
    assert type(again) is not Named or again.extra == 7
    assert again.get_name() == "one" and again.get_loop() is its_loop and len(its_loop.ready) == 1
    its_loop.turn()
    assert its_log == ["begun"] and log == [] and again._fut_waiter is its_future
    its_future.set_result(5)
    its_loop.turn()
    assert again.result() == "done" and its_log == ["begun", 5] and its_loop.ready == []
    loop.turn()
    future.set_result(6)
    loop.turn()
    assert log == ["begun", 6]


def test_a_task_that_waits_is_woken_once_and_can_be_cancelled():
    loop, log = Loop(), []
    future = asyncio.Future(loop=loop)
    task = task_of(loop, waits(future, log))
    loop.turn()
    for end in ("result", "cancel"):
        again, its_loop, its_future, its_log = copy_of((task, loop, future, log))
        assert again._fut_waiter is its_future and its_loop.ready == []
        ((wakeup, _),) = its_future._callbacks
        assert asyncio_objects.task_of(wakeup) is again
        if end == "result":
            its_future.set_result(1)
        else:
            assert again.cancel("now") and its_future.cancelled() and again.cancelling() == 1
        its_loop.turn()
        assert its_log == ["begun", 1 if end == "result" else ("now",)] and again.result() == "done"
    future.set_result(0)
    loop.turn()


def test_a_task_that_is_to_be_cancelled():
    loop, log = Loop(), []
    task = task_of(loop, waits(asyncio.Future(loop=loop), log))
    task.cancel("first")
    task.cancel("second")
    again, its_loop, its_log = copy_of((task, loop, log))
    assert again.cancelling() == 2 and again._must_cancel
    its_loop.turn()
    assert again.cancelled() and its_log == []
    loop.turn()
    assert task.cancelled()


def test_iterators_over_futures_and_awaitables_of_asynchronous_generators():
    loop = Loop()
    future = asyncio.Future(loop=loop)
    waiting, ended = future.__await__(), None
    again, its_future = copy_of((waiting, future))
    assert next(again) is its_future
    future.set_result(3)
    with pytest.raises(StopIteration):
        next(waiting)
    ended = copy_of(waiting)
    with pytest.raises(StopIteration):
        next(ended)


async def numbers():
    got = yield 1
    yield got


async def nothing():
    return "nothing"


@pytest.mark.parametrize("kind", awaitables.TYPES.values())
def test_every_awaitable_that_has_not_begun(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that are never awaited
        generator, coroutine = numbers(), nothing()
        makers = {
            "asend": lambda: generator.asend(None),
            "athrow": lambda: generator.athrow(KeyError("thrown")),
            "anext": lambda: anext(generator, "ended"),
            "coroutine": lambda: coroutine.__await__(),
        }
        again = copy_of(makers[kind]())
        expected = {"asend": "1", "athrow": "KeyError('thrown')", "anext": "1", "coroutine": "nothing"}[kind]
        try:
            again.__next__() if kind == "coroutine" else again.send(None)
        except StopIteration as end:
            assert str(end.value) == expected
        except KeyError as error:
            assert repr(error) == expected
        coroutine.close()


def test_numbers_of_tasks_go_on():
    last, counter = asyncio_names.next_numbers(may_use=True)
    asyncio_names.set_next_numbers(last + 20, counter)
    assert asyncio_names.next_numbers(may_use=True)[0] == last + 20


def test_a_context_of_decimal_that_nobody_has_made_is_not_made() -> None:
    """Tasks in copies of the context that the restart had made shared it: the precision of one was that of all."""
    import decimal

    library = Decimal("decimal")
    own = decimal.Context(prec=7)

    def noted() -> object:
        return library.note_settings()[0]

    assert not contextvars.Context().run(noted)
    context = contextvars.Context()
    context.run(decimal.setcontext, own)
    assert context.run(noted) is own

    def applied() -> bool:
        library.apply_settings((False, {}))
        return has_decimal_context()

    assert not contextvars.Context().run(applied)
    assert copy_of(context).run(decimal.getcontext).prec == 7


def test_coroutines_that_are_run_without_asyncio(tmp_path: Path) -> None:
    """As trio runs them: with hooks of its own for asynchronous generators, in which it waits."""
    source = """
        import sys, types
        sys.modules.pop("asyncio", None)
        begun = []
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=begun.append)

        @types.coroutine
        def wait(value):
            return (yield value)

        async def numbers():
            for n in range(3):
                yield await wait(n)

        async def main():
            async for n in numbers():
                print("got", n)
            print(await anext(numbers(), None))

        coroutine = main()
        coroutine.send(None)
        driver_tick()
        for n in range(10, 13):
            coroutine.send(n)
            driver_tick()
        try:
            coroutine.send(20)
        except StopIteration:
            print(len(begun), before == (None, None), sys.get_asyncgen_hooks().firstiter == begun.append)
    """
    assert resumed_output(tmp_path, source) == "got 10\ngot 11\ngot 12\n20\n2 True True\n"

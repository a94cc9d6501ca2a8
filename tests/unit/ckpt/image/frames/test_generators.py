"""Generators and coroutines: as records, and imaged while they run."""

import sys
import types

import pytest

from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames.generators import GenRecord, gen_fill, gen_info, gen_make

pytestmark = pytest.mark.turns(6)


def copied(gen):
    """The generator taken apart and put together again; the original goes on independently."""
    info = gen_info(gen)
    made = gen_make(*info.make)
    gen_fill(made, info.record)
    return made


def counting(start, *, step=1):
    total = start
    while total < 10:
        got = yield total
        total += got or step


def test_a_suspended_generator_goes_on():
    gen = counting(1, step=2)
    next(gen)
    next(gen)
    again = copied(gen)
    assert list(again) == [5, 7, 9]
    assert next(gen) == 5


def test_a_generator_that_has_not_begun():
    again = copied(counting(8))
    with pytest.raises(TypeError, match="just-started"):
        again.send(1)
    assert list(again) == [8, 9]


def test_a_finished_generator_keeps_its_names():
    gen = counting(10)
    assert list(gen) == []
    gen.__name__ = "mine"
    again = copied(gen)
    assert (list(again), again.__name__, again.__qualname__) == ([], "mine", "counting")
    assert again.gi_code is gen.gi_code
    assert gen_info(again).record.state == "finished"


def test_delegation_is_part_of_it():
    def outer(inner):
        yield "first"
        yield from inner

    gen = outer(counting(7))
    assert [next(gen), next(gen)] == ["first", 7]
    again = copied(gen)  # shares the inner one, which a pickler copies as well
    assert next(again) == 8
    assert next(gen) == 9
    assert again.gi_yieldfrom is gen.gi_yieldfrom


def test_cells_and_unset_variables():
    def make(n):
        def gen():
            nonlocal n
            if n > 5:
                unset = 1
            yield n
            n += 1
            yield n
            yield unset

        return gen, lambda: n

    function, read = make(1)
    gen = function()
    next(gen)
    again = copied(gen)
    assert next(again) == 2
    assert read() == 2  # the cell is the same one
    with pytest.raises(UnboundLocalError):
        next(again)


def test_an_exception_being_handled():
    def gen():
        try:
            raise KeyError("kept")
        except KeyError:
            yield 1
            raise

    original = gen()
    next(original)
    record = gen_info(original).record
    assert isinstance(record.exc, KeyError)
    again = copied(original)
    with pytest.raises(KeyError, match="kept"):
        next(again)


def test_generator_expressions_and_coroutines():
    expression = (n * n for n in [1, 2, 3])
    next(expression)
    assert next(copied(expression)) == 4

    class Pause:
        def __await__(self):
            return (yield "paused")

    async def coroutine(n):
        return n + await Pause()

    original = coroutine(1)
    original.send(None)
    with pytest.raises(StopIteration) as stop:
        copied(original).send(5)
    assert stop.value.value == 6


def test_a_running_generator_must_be_in_the_stack():
    def gen():
        yield gen_info(me[0], [me[0]]).record.state
        with pytest.raises(Refused, match="outside of the captured stack"):
            gen_info(me[0], [])
        yield "refused"

    me = [gen()]
    assert next(me[0]) == "running"
    assert next(me[0]) == "refused"


def steps(awaitable):
    """What an awaitable yields, and its result."""
    found = []
    try:
        while True:
            found.append(awaitable.send(None))
    except StopIteration as end:
        return found, end.value
    except StopAsyncIteration:
        return found, "ended"


@types.coroutine
def pause(value):
    yield value


async def pausing(n):
    await pause(n)
    got = yield n + 1
    await pause(got)
    yield n + 2


def test_an_asynchronous_generator_goes_on_in_a_copy():
    agen = pausing(10)
    assert steps(agen.__anext__()) == ([10], 11)
    again = copied(agen)
    for each in (agen, again):
        assert steps(each.asend("given")) == (["given"], 12)
        assert steps(each.__anext__()) == ([], "ended")


def test_an_asynchronous_generator_that_has_not_begun_or_has_ended_is_so_in_a_copy():
    assert steps(copied(pausing(1)).__anext__()) == ([1], 2)
    ended = pausing(1)
    assert steps(ended.aclose()) == ([], None)
    again = copied(ended)
    assert steps(again.__anext__()) == ([], "ended") and again.ag_frame is None


def test_the_finalizer_of_an_asynchronous_generator_is_kept():
    hooks, first, finalized = sys.get_asyncgen_hooks(), [], []
    sys.set_asyncgen_hooks(first.append, finalized.append)
    try:
        agen = pausing(1)
        steps(agen.__anext__())
    finally:
        sys.set_asyncgen_hooks(*hooks)
    gen_fill(again := gen_make(*gen_info(agen).make), gen_info(agen).record)
    steps(again.asend(None))  # begun already: no hook is called
    assert first == [agen]
    del again
    assert len(finalized) == 1


def test_content_that_does_not_fit_is_refused():
    gen = counting(1)
    with pytest.raises(ValueError, match="does not fit"):
        gen_fill(gen, GenRecord("suspended", [1], [], 5, None))
    with pytest.raises(ValueError, match="does not fit"):
        gen_fill(gen, GenRecord("suspended", [_frames.NULL] * 4, [], 10_000, None))
    gen.close()
    with pytest.raises(ValueError, match="cannot be filled"):
        gen_fill(gen, GenRecord("suspended", [_frames.NULL] * 4, [], 5, None))
    with pytest.raises(TypeError):
        gen_fill([], GenRecord("suspended", [], [], 0, None))


# ---------------------------------------------------------------------------------- imaged while running

GENERATORS = """
import contextlib, itertools
def numbers(n):
    for i in range(n):
        work(i)
        yield i
def delegating(n):
    if n:
        result = yield from delegating(n - 1)
        emit((n, result))
    else:
        yield from numbers(2)
    yield work(n)
    return n
@contextlib.contextmanager
def managed(name):
    emit(("enter", name, work(1)))
    try:
        yield name
    finally:
        emit(("exit", name, work(2)))
def echo():
    reply = None
    while True:
        try:
            with managed("echo"):
                reply = yield reply
        except ValueError as error:
            emit(("caught", error.args, work(1)))
            try:
                raise TypeError("inner")
            except TypeError as inner:
                emit((repr(inner.__context__), work(2)))
            reply = "error"
        except GeneratorExit:
            emit(("closing", work(3)))
            raise
        else:
            reply = work(reply)
class Tree:
    def __init__(self, left, value, right):
        self.left, self.value, self.right = left, value, right
    def __iter__(self):
        if self.left:
            yield from self.left
        yield work(self.value)
        if self.right:
            yield from self.right
async def coroutine(n):
    return (await coroutine(n - 1) if n else 0) + work(n)
def handling():
    try:
        raise ValueError("in the generator")
    except ValueError:
        yield work(1)
        try:
            raise
        except ValueError as error:
            emit(error.args)
        yield work(2)
begun, unbegun, finished = numbers(3), numbers(1), numbers(0)
next(begun)
list(finished)
for x in delegating(4):
    emit(x)
e = echo()
next(e)
emit((e.send(3), e.throw(ValueError(1)), e.send(4)))
e.close()
for x in Tree(Tree(None, 1, None), 2, Tree(None, 3, None)):
    emit(x)
try:
    coroutine(2).send(None)
except StopIteration as stop:
    emit(stop.value)
try:
    raise KeyError("outside")
except KeyError:
    for x in handling():
        emit(x)
    try:
        raise
    except KeyError as error:
        emit((error.args, work(1)))
for i, x in enumerate(numbers(2)):
    emit((i, x))
for x in zip(numbers(2), numbers(2)):
    emit(x)
for x in itertools.islice(itertools.chain(numbers(2), numbers(2)), 1, 3):
    emit(x)
for x in filter(None, numbers(3)):
    emit(x)
emit((any(work(x) > 1 for x in range(3)), all(x < 1 for x in numbers(3)), [*numbers(2)], {*numbers(2)}))
emit((next(begun), list(unbegun), list(finished), next(numbers(1)), next(numbers(0), "none")))
"""


def test_running_generators_are_resumed_where_they_were(sweep):
    report = sweep(GENERATORS, every=3)
    assert report["failures"] == []
    assert report["unpicklable"] == []
    assert report["restored"] >= 100
    assert any("RRRRR" in modes for modes in report["modes"])  # five generators deep


def test_running_generators_through_generations_of_images(sweep):
    report = sweep(GENERATORS, every=12, generations=3)
    assert report["failures"] == []
    assert report["restored"] >= 25


def test_finalised_generators_are_never_mistaken_for_running_ones(sweep):
    program = """
def careful(name):
    try:
        yield name
        yield work(1)
    finally:
        emit((name, work(2)))
def swallowing():
    try:
        yield 1
    except GeneratorExit:
        pass
    emit(("swallowed", work(3)))
for x in careful("break"):
    break
emit(next(careful("next")))
emit(any(careful("any")))
emit(next(swallowing()))
gen = careful("variable")
next(gen)
gen = None
x, *_ = careful("unpacked")
emit("end")
"""
    report = sweep(program)
    assert report["failures"] == []
    assert report["restored"] >= 15
    assert any("next() is running" in reason for reason in report["refused"])


def test_a_generator_thrown_into_through_its_delegator_is_refused(sweep):
    program = """
def inner():
    try:
        yield 1
    except ValueError:
        yield work(1)
def outer():
    yield from inner()
gen = outer()
emit(next(gen))
emit(gen.throw(ValueError))
emit(work(1))
"""
    report = sweep(program)
    assert report["failures"] == []
    assert any("thrown into" in reason or "context" in reason for reason in report["refused"])


def test_delegation_goes_on_after_a_restart(sweep):
    """gi_yieldfrom, cr_await, throw(), send() and close() reach the delegate; also that of a suspended generator."""
    program = """
def inner(log):
    try:
        while True:
            try:
                got = yield work(1)
                log.append(got)
            except KeyError as error:
                log.append(("caught", error.args, work(2)))
                yield "thrown"
    finally:
        log.append(("closed", work(3)))
def middle(log):
    result = yield from inner(log)
    return result
def top(log):
    yield from middle(log)
async def co(log):
    await sub(log)
    return 5
class Aw:
    def __await__(self):
        got = yield work(7)
        return got
async def sub(log):
    log.append(await Aw())
    log.append((await Aw(), work(1)))
for i in range(12):
    log = []
    g = top(log)
    emit((next(g), g.gi_yieldfrom.__name__, g.gi_yieldfrom.gi_yieldfrom.__name__))
    work(1)
    emit((g.send(1), g.throw(KeyError(5)), next(g), g.gi_yieldfrom.__name__))
    if i % 2:
        g.close()
    else:
        try:
            g.throw(ValueError(3))
        except ValueError as error:
            tb, lines = error.__traceback__, []
            while tb:
                lines.append(tb.tb_lineno)
                tb = tb.tb_next
            emit((error.args, lines))
    emit((log, g.gi_frame, g.gi_yieldfrom))
    c = co(log)
    emit((c.send(None), c.cr_await.__name__))
    work(2)
    emit((c.send(3), c.cr_await.__name__))
    work(2)
    try:
        c.send(4)
    except StopIteration as stop:
        emit((stop.value, log, work(3)))
"""
    report = sweep(program, every=23)
    assert report["failures"] == []
    assert report["restored"] >= 25
    assert sweep(program, every=101, generations=3)["failures"] == []

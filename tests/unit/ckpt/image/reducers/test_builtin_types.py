"""Objects of the interpreter that pickle refuses, or does not save exactly."""

from __future__ import annotations

import contextvars
import csv
import functools
import gc
import importlib
import io
import multiprocessing
import random
import subprocess
import threading
import traceback
import types
import typing
import weakref
from pickle import PicklingError
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.registry import libraries
from ckpt.image.stdlib.processes import reduce_lock
from ckpt.image.stdlib.rebuild_c_objects import refill_lru_cache
from tests.unit.ckpt.image.support import copy_of

pytestmark = pytest.mark.turns(2)


class Thing:
    pass


@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_dictionary_iterators_go_on_over_the_same_dictionary(view: str, is_reversed: bool) -> None:
    mapping = {i: str(i) for i in range(6)}
    iterator = (reversed if is_reversed else iter)(getattr(mapping, view)())
    next(iterator), next(iterator)
    again, copy = copy_of((mapping, iterator))
    again[3] = "changed"
    mapping[3] = "changed"
    assert list(copy) == list(iterator)


def test_a_finished_dictionary_iterator_and_a_view() -> None:
    mapping = {1: 2}
    finished = iter(mapping)
    assert list(finished) == [1]
    again, view, copy = copy_of((mapping, mapping.keys(), finished))
    again[5] = 6
    assert list(view) == [1, 5]
    assert list(copy) == []


def test_exceptions_with_their_relations() -> None:
    class Own(ValueError):
        def __init__(self, a: int, *, must: int) -> None:
            super().__init__(a)
            self.must = must

    try:
        try:
            {}["missing"]
        except KeyError as first:
            raise Own(1, must=2) from first
    except Own as caught:
        caught.add_note("note")
        caught_tb = caught.__traceback__
        copy = copy_of(caught)
    assert (copy.args, copy.must, copy.__notes__) == ((1,), 2, ["note"])
    assert type(copy.__cause__) is KeyError
    assert copy.__cause__ is copy.__context__
    assert copy.__suppress_context__ is True
    assert traceback.format_tb(copy.__traceback__) == traceback.format_tb(caught_tb)


class Shadowing(Exception):
    """As pyparsing's: a slot with the name of what every exception has."""

    __slots__ = ("args", "place")


def test_an_exception_that_is_just_being_made() -> None:
    begun, made = Shadowing("text", 3), Shadowing("other")
    made.args, made.place = ("other", 5), 5
    begun2, made2 = copy_of((begun, made))
    assert not hasattr(begun2, "args") and str(begun2) == str(begun)
    assert (made2.args, made2.place, str(made2)) == (("other", 5), 5, str(made))


def test_exceptions_with_fields_in_c() -> None:
    group = BaseExceptionGroup("g", [OSError(2, "no", "name"), StopIteration(5), SystemExit(3)])
    copy = copy_of(group)
    missing, stop, leave = copy.exceptions
    assert (missing.errno, missing.filename, type(missing)) == (2, "name", FileNotFoundError)
    assert (stop.value, leave.code, copy.message) == (5, 3, "g")
    decode = copy_of(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))
    assert str(decode) == str(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))


def test_views_of_the_attributes_of_a_class() -> None:
    """typing asks protocols for them, whose dictionaries hold what no image can: they are those of the class again."""
    gc.unfreeze()  # as dump() does: the tests are frozen (tests/conftest.py)
    cls = typing.SupportsIndex
    names, rest = cls.__dict__.keys(), iter(cls.__dict__.items())
    first = next(rest)
    names2, rest2, copy = copy_of((names, rest, cls))
    assert copy is cls and names2 == names and first not in (after := list(rest2)) and after == list(rest)


def square(number: int) -> int:
    return number * number


def test_a_cache_that_has_no_name_yet() -> None:
    """`functools.lru_cache` names what it has made last."""
    cached: Any = functools._lru_cache_wrapper(square, 4, False, functools._CacheInfo)  # type: ignore[call-arg]
    cached.cache_parameters = lambda: {"maxsize": 4, "typed": False}
    assert not hasattr(cached, "__qualname__")
    cached(3)
    again = copy_of(cached)
    assert again(3) == 9 and again.cache_info().hits == 1


def test_locks_of_multiprocessing() -> None:
    held, free, twice, several = (
        multiprocessing.Lock(),
        multiprocessing.Lock(),
        multiprocessing.RLock(),
        multiprocessing.BoundedSemaphore(3),
    )
    held.acquire()
    twice.acquire(), twice.acquire()
    several.acquire(), several.acquire()
    held2, free2, twice2, several2 = copy_of((held, free, twice, several))
    assert not held2.acquire(block=False)
    assert free2.acquire(block=False) and free.acquire(block=False), "a copy is a lock of its own"
    twice2.release(), twice2.release()
    with pytest.raises(AssertionError):
        twice2.release()
    assert several2.acquire(block=False) and not several2.acquire(block=False)


def test_a_lock_of_multiprocessing_that_the_program_gives_back_while_the_child_writes() -> None:
    """The semaphore is shared with the child: with its value of then, two threads of the new process had tqdm's lock."""
    lock = multiprocessing.RLock()
    lock.acquire()
    inner = lock._semlock
    stale = types.SimpleNamespace(
        kind=inner.kind, maxvalue=1, _count=lambda: 1, _is_mine=lambda: True, _get_value=lambda: 1
    )
    pickler = types.SimpleNamespace(is_disposable=True)
    shown = object.__new__(type(lock))
    shown.__dict__["_semlock"] = stale
    make, arguments = reduce_lock(pickler, shown)
    copy = make(*arguments)
    assert copy._semlock._get_value() == 0
    copy.release()
    assert copy._semlock._get_value() == 1


def test_a_child_process() -> None:
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child,
        pytest.raises(
            ObjectRefused, match=rf"child process {child.pid} \(\['cat'\]\) is running.*register_child"
        ),
    ):
        copy_of(child)
    ended = subprocess.Popen(["false"])
    ended.wait()
    assert copy_of(ended).returncode == 1


def test_a_process_of_multiprocessing_that_has_ended() -> None:
    process = multiprocessing.get_context("fork").Process(target=print, name="worker")
    process.start()
    with pytest.raises(ObjectRefused, match=f"child process {process.pid} .*; .*multiprocessing.Pool"):
        copy_of(process)
    process.join()
    assert (copy_of(process).exitcode, copy_of(process).name) == (0, "worker")


def test_a_reentrant_lock_whose_thread_has_ended_is_held_by_nobody() -> None:
    """As a plain lock is. It came back free: who could not have it before the restart had it then."""
    lost = threading.RLock()
    thread = threading.Thread(target=lambda: (lost.acquire(), lost.acquire()))
    thread.start()
    thread.join()
    for copy in (copy_of(lost), copy_of(copy_of(lost))):
        assert not copy.acquire(blocking=False)
        with pytest.raises(RuntimeError):
            copy.release()


def test_locks() -> None:
    held, free, twice, other = threading.Lock(), threading.Lock(), threading.RLock(), threading.RLock()
    held.acquire()
    twice.acquire(), twice.acquire()
    held2, free2, twice2, other2 = copy_of((held, free, twice, other))
    assert held2.locked()
    assert not free2.locked()
    twice2.release(), twice2.release()
    with pytest.raises(RuntimeError):
        twice2.release()
    assert other2.acquire(blocking=False)
    condition = copy_of(threading.Condition())
    with condition:
        condition.notify()


def test_weak_references() -> None:
    thing, gone = Thing(), Thing()
    called: list[Any] = []
    refs = (weakref.ref(thing), weakref.ref(gone), weakref.ref(thing, called.append), weakref.proxy(thing))
    table = weakref.WeakValueDictionary({"a": thing})
    keyed = weakref.WeakKeyDictionary({thing: 1})
    thing.name = "thing"  # type: ignore[attr-defined]
    del gone
    copy, (ref, dead, back, proxy), table2, keyed2, called2 = copy_of((thing, refs, table, keyed, called))
    assert ref() is copy
    assert dead() is None
    assert proxy.name == "thing"
    assert table2["a"] is copy
    assert keyed2[copy] == 1
    del copy
    gc.collect()
    assert (ref(), back(), len(called2), dict(table2), len(keyed2)) == (None, None, 1, {}, 0)


@pytest.mark.parametrize("library", ["re", "regex"])
def test_regular_expressions(library: str) -> None:
    pattern = importlib.import_module(library).compile(r"(\w)(\d)?")
    for match in (
        pattern.search("..a1b"),
        pattern.match("a"),
        pattern.fullmatch("b2"),
        list(pattern.finditer("a1b2c"))[1],
    ):
        assert match is not None
        copy = copy_of(match)
        assert (copy.groups(), copy.span(), copy.string) == (match.groups(), match.span(), match.string)
        assert (copy.re.pattern, copy.re.flags) == (pattern.pattern, pattern.flags)
        assert copy.re == pattern or library == "regex"  # whose patterns are equal to themselves only


def test_what_finditer_of_the_package_regex_has_left() -> None:
    regex = importlib.import_module("regex")
    reduce = libraries.reducers()[type(regex.finditer("", ""))]
    found = regex.finditer(r"(\w)(\d)?", "a1b2c")
    next(found)
    make, arguments = reduce(SimpleNamespace(is_disposable=True), found)
    assert [copy_of(match).span() for match in make(*arguments)] == [(2, 4), (4, 5)]
    with pytest.raises(PicklingError, match="without fork"):
        copy_of(regex.finditer("a", "ab"))


@pytest.mark.parametrize("maxsize", [None, 3])
def test_caches_keep_their_contents(maxsize: int | None) -> None:
    calls: list[Any] = []

    @functools.lru_cache(maxsize=maxsize)
    def cached(a: int, *, b: int = 0) -> int:
        calls.append((a, b))
        return a + b

    for argument in range(5):
        cached(argument)
    cached(4, b=1)
    cached(3)
    copy, calls2 = copy_of((cached, calls))
    before = len(calls2)
    assert (copy(4, b=1), copy(3)) == (5, 3)
    assert len(calls2) == before
    copy(0)
    assert len(calls2) == before + (maxsize is not None)
    assert copy.__wrapped__.__name__ == "cached"
    assert copy.cache_info().currsize == cached.cache_info().currsize


def test_typed_caches_and_caches_over_closures() -> None:
    calls = []

    @functools.lru_cache(maxsize=10, typed=True)
    def cached(*args: Any, **kwargs: Any) -> int:
        calls.append(args)
        return len(calls)

    first = [cached(1, k=2), cached(1.0, k=2), cached("a")]
    copy = copy_of(cached)
    assert [copy(1, k=2), copy(1.0, k=2), copy("a")] == first


class Key:
    """Its hash asks a cache, as expressions of sympy do."""

    def __init__(self, n: int, ask: Any) -> None:
        self.n, self.ask = n, ask

    def __hash__(self) -> int:
        return hash(self.ask(-self.n))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.n == other.n


@pytest.mark.parametrize("maxsize", [None, 9])
def test_a_cache_that_loading_has_used_gets_each_result_under_its_own_key(maxsize: int | None) -> None:
    @functools.lru_cache(maxsize=maxsize)
    def cached(n: Any, *, by: int = 1) -> Any:
        return n, by

    keys = [Key(n, cached) for n in range(3)]
    cached(5)
    cached(6)
    entries = [(5, "five"), *(((key,), f"key {key.n}") for key in keys), (6, "six")]
    refill_lru_cache(cached, entries, (7, 8))
    assert cached.cache_info().misses == 8
    assert [cached(5), *map(cached, keys), cached(6)] == ["five", "key 0", "key 1", "key 2", "six"]
    assert cached(7, by=2) == (7, 2)


def test_descriptors_and_proxies() -> None:
    proxy = types.MappingProxyType({"a": 1})
    thing_dict, plain, method, bound = copy_of((Thing.__dict__, proxy, list.append, [1].__len__))
    assert thing_dict["__module__"] == Thing.__module__
    assert plain["a"] == 1
    assert method is list.append
    assert bound() == 1


def test_super_objects_and_partials() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Derived(Base):
        def f(self) -> int:
            return 2

    derived = Derived()
    sup, partial, method = copy_of(
        (super(Derived, derived), functools.partial(derived.f), super(Derived, derived).f)
    )
    assert (sup.f(), partial(), method()) == (1, 2, 1)


def test_generators_in_every_state() -> None:
    def squares(n: int) -> Any:
        for i in range(n):
            yield i * i

    fresh, begun, finished = squares(3), squares(5), squares(0)
    next(begun), list(finished)
    mapped = map(str, squares(4))
    next(mapped)
    copies = copy_of((fresh, begun, finished, mapped))
    assert [list(copy) for copy in copies] == [[0, 1, 4], [1, 4, 9, 16], [], ["1", "4", "9"]]


def test_contexts() -> None:
    var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=7)
    bare: contextvars.ContextVar[int] = contextvars.ContextVar("bare")
    context = contextvars.Context()
    context.run(var.set, 8)
    var2, bare2, context2 = copy_of((var, bare, context))
    assert (var2.get(), context2[var2], var2.name) == (7, 8, "var")
    with pytest.raises(LookupError):
        bare2.get()


def test_csv_readers_and_writers_go_on() -> None:
    source = io.StringIO("a;b\n1;2\n3;4\n")
    reader = csv.reader(source, delimiter=";")
    next(reader)
    target = io.StringIO()
    writer = csv.writer(target, delimiter="|")
    writer.writerow([1, 2])
    reader2, target2, writer2 = copy_of((reader, target, writer))
    assert (list(reader2), reader2.line_num) == ([["1", "2"], ["3", "4"]], 3)
    writer2.writerow([3, 4])
    assert target2.getvalue() == "1|2\r\n3|4\r\n"


def test_memoryviews() -> None:
    memory = bytearray(range(16))
    copy, part, words, fixed = copy_of(
        (memory, memoryview(memory)[4:8], memoryview(memory).cast("I"), memoryview(b"abcdef")[2:4])
    )
    part[0] = 99
    assert copy[4] == 99
    assert words[1] & 0xFF == 99
    assert (bytes(fixed), fixed.readonly) == (b"cd", True)


def test_frames_are_refused_and_tracebacks_keep_no_variables() -> None:
    import sys

    with pytest.raises(PicklingError, match="frame object"):
        copy_of(sys._getframe())
    secret = object()
    try:
        raise ValueError(secret)
    except ValueError as caught:
        (copy,) = copy_of([caught.__traceback__])
    assert traceback.extract_tb(copy)[0].line == "raise ValueError(secret)"
    assert copy.tb_frame.f_locals == {}
    copy.tb_frame.clear()


@pytest.mark.parametrize("allows", [True, False])
def test_the_json_encoder_made_in_c(allows: bool) -> None:
    """A local of json.encoder while it encodes; object.__new__() may not make one."""
    import _json

    made = _json.make_encoder({}, repr, _json.encode_basestring_ascii, None, ":", ";", True, False, allows)
    copy = copy_of(made)
    assert copy({"b": [1, 2.5], "a": "ä"}, 0) == made({"b": [1, 2.5], "a": "ä"}, 0)
    if allows:
        assert copy(float("inf"), 0) == made(float("inf"), 0)
    else:
        with pytest.raises(ValueError, match="Out of range"):
            copy(float("inf"), 0)


class Dice(random.Random):
    sides = 6

    def roll(self) -> int:
        return self.randint(1, self.sides)


@pytest.mark.parametrize("cls", [random.Random, Dice])
def test_generators_of_random_numbers_go_on(cls: type[random.Random]) -> None:
    made = cls(3)
    made.mark = "x"  # type: ignore[attr-defined]
    made.gauss(0, 1)
    copy = copy_of(made)
    assert copy.mark == "x" and [copy.gauss(0, 1) for _ in range(3)] == [made.gauss(0, 1) for _ in range(3)]


@pytest.mark.parametrize("cls", [random.Random, Dice])
def test_a_generator_of_random_numbers_that_is_just_being_made(cls: type[random.Random]) -> None:
    """Its `__new__` has returned and its `__init__` has not run: its own way to be saved fails (adventure_game)."""
    made = cls.__new__(cls)
    copy = copy_of(made)
    assert "gauss_next" not in copy.__dict__
    copy.__init__(3)  # type: ignore[misc]
    assert copy.random() == random.Random(3).random()


@pytest.mark.parametrize("name", ["with a space", "a> at 0x12>", "line\nbreak", "NoneType", "dead"])
def test_a_weak_proxy_of_a_class_of_any_name_leads_to_its_object_and_keeps_its_callback(name: str) -> None:
    cls: Any = type(name, (), {"__call__": lambda self: None})
    target = cls()
    target.number = 7
    gone: list[Any] = []
    again, proxy, watched, list_of_gone = copy_of(
        (target, weakref.proxy(target), weakref.proxy(target, gone.append), gone)
    )
    again.number = 8
    assert (proxy.number, watched.number) == (8, 8)
    del again
    assert len(list_of_gone) == 1
    with pytest.raises(ReferenceError):
        _ = proxy.number
    assert target.number == 7 and gone == []

"""The pickler itself: sharing, references, out-of-band buffers, depth, cost, and who runs while it works."""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
import threading
from typing import Any

import pytest

from ckpt.image.modules.references import References
from ckpt.image.pickling.pickler import ImagePickler, Stream, on_deep_stack, register_reducer
from ckpt.image.reducers.by_value import reduce_simple_instance
from tests.unit.ckpt.image.support import MemorySink, copy_of, pickled


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_one_memo_keeps_identity_and_cycles() -> None:
    shared = [1, 2]
    plain = Plain(a=shared, b=shared)
    plain.me = plain
    copy = copy_of({"first": plain, "second": plain, "list": shared})
    assert copy["first"] is copy["second"] is copy["first"].me
    assert copy["first"].a is copy["first"].b is copy["list"]


def test_attributes_of_library_modules_stay_references() -> None:
    assert copy_of([random._inst, os.environ, sys.path, random.random.__self__]) == [
        random._inst,
        os.environ,
        sys.path,
        random._inst,
    ]
    assert copy_of(random.randrange).__self__ is random._inst


def test_modules_and_their_dictionaries_stay_references() -> None:
    copy = copy_of([os, os.__dict__, sys.modules[__name__]])
    assert copy[0] is os
    assert copy[1] is os.__dict__
    assert copy[2] is sys.modules[__name__]


def test_live_objects_are_replaced_by_name() -> None:
    lock = threading.Lock()
    copy = copy_of({"lock": lock, "other": threading.Lock()}, live={"runtime.lock": lock})
    assert copy["lock"] is lock
    assert copy["other"] is not lock


def test_a_plain_instance_goes_the_way_of_c() -> None:
    _, pickler = pickled(Plain(a=1))
    assert pickler._reducers[Plain] is reduce_simple_instance


def test_a_dictionary_held_twice_stays_shared() -> None:
    plain = Plain(a=1)
    copy, attributes = copy_of((plain, plain.__dict__))
    attributes["b"] = 2
    assert copy.b == 2
    assert copy.__dict__ is attributes


@pytest.mark.rotate(2)
def test_deep_structures_do_not_overflow() -> None:
    head: Any = None
    for _ in range(100_000):
        head = Plain(next=head)
    copy, depth = copy_of(head), 0
    while copy is not None:
        copy, depth = copy.next, depth + 1
    assert depth == 100_000
    while head is not None:  # release one by one
        head = head.next


def test_the_recursion_limit_and_signals_are_as_before() -> None:
    limit, mask = sys.getrecursionlimit(), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    seen = on_deep_stack(lambda: (sys.getrecursionlimit(), signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    assert seen[0] > 50_000
    assert signal.SIGTERM in seen[1]
    assert (sys.getrecursionlimit(), signal.pthread_sigmask(signal.SIG_BLOCK, [])) == (limit, mask)
    assert threading.active_count() == len(threading.enumerate())


def test_what_runs_on_the_deep_stack_runs_in_the_same_thread() -> None:
    assert on_deep_stack(threading.get_ident) == threading.get_ident()


def test_a_failure_on_the_deep_stack_is_raised_by_the_caller() -> None:
    def work() -> None:
        raise KeyError("deep")

    with pytest.raises(KeyError, match="deep"):
        on_deep_stack(work)


def test_thread_locals_of_the_main_thread_are_saved() -> None:
    local = threading.local()
    local.value = [1]
    copy = copy_of(local)
    assert copy.value == [1]


def test_large_buffers_leave_out_of_band_and_small_ones_do_not() -> None:
    numpy = pytest.importorskip("numpy")
    small, large = numpy.arange(10), numpy.arange(100_000)
    sink, _ = pickled([small, large])
    assert [len(raw) for raw in sink.raw] == [large.nbytes]
    assert len(sink.data) < 10_000
    copy = copy_of([small, large])
    assert (copy[0] == small).all()
    assert (copy[1] == large).all()


def test_the_stream_comes_in_large_pieces_and_a_failing_sink_is_told_apart() -> None:
    class Full(MemorySink):
        def write(self, data: bytes | memoryview) -> None:
            raise OSError(28, "No space left on device")

    stream = Stream(Full())
    stream.write(b"x" * 1000)
    assert stream.total_bytes == 1000
    with pytest.raises(OSError, match="No space") as failure:
        stream.write(b"x" * (1 << 20))
    assert stream.failure is failure.value


class Handle:
    def __reduce__(self) -> Any:
        raise TypeError("no")


def test_a_registered_reducer_comes_first() -> None:
    register_reducer(Handle, lambda pickler, obj: (str, ("a handle",)))
    assert copy_of([Handle()]) == ["a handle"]


def test_nothing_of_the_program_runs_while_saving() -> None:
    class Touchy:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("__eq__")

        def __hash__(self) -> int:
            raise AssertionError("__hash__")

        def __bool__(self) -> bool:
            raise AssertionError("__bool__")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __getstate__(self) -> Any:
            raise AssertionError("__getstate__")

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise AssertionError("__reduce_ex__")

    touchy = Touchy()
    touchy.__dict__["value"] = 1
    assert copy_of([touchy])[0].__dict__ == {"value": 1}


def test_an_instance_costs_one_call_of_a_python_function() -> None:
    """That is two to three times the time of plain pickle."""
    references = References()
    references.refresh()

    def calls(instances: int) -> int:
        data = [Plain(a=number, b=str(number), c=[number]) for number in range(instances)]
        seen: list[str] = []
        pickler = ImagePickler(Stream(MemorySink()), references)
        sys.setprofile(lambda frame, event, argument: seen.append(event))
        try:
            pickler.dump(data)
        finally:
            sys.setprofile(None)
        return seen.count("call")

    calls(1)  # what is looked up once
    assert calls(2000) - calls(1000) <= 1000 + 10


def test_a_pickler_that_has_forgotten_exports_no_memory() -> None:
    """After an image without fork, closing shared memory failed: the pickler was garbage that referred to itself."""
    mapped = mmap.mmap(-1, 100)
    _, pickler = pickled([mapped, memoryview(mapped)])
    pickler.forget()
    mapped.close()

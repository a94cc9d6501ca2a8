"""Other threads: where they can be captured, how they stop together, and what may happen while they stand."""

from __future__ import annotations

import operator
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ckpt.compat import threads as private
from ckpt.image import dumping
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.running import run_base
from ckpt.image.frames.stack import Stack, capture, capture_thread
from ckpt.image.ipc.library import Sockets
from ckpt.image.threads import captured, waking
from ckpt.image.threads.captured import LeftOut, StoppedThreads, capture_threads, is_waiting
from ckpt.image.threads.places import has_only_ended_its_wait, place_of


@contextmanager
def running(
    function: Callable[..., Any], *args: Any, end: Callable[[], object]
) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=function, args=args, name="other", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        end()
        thread.join()


def wait_until(look: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.0005)
    return found


def acquire(lock: Any) -> None:
    lock.acquire()
    lock.release()


def enter(lock: Any) -> None:
    with lock:
        pass


def acquire_named(lock: Any) -> None:
    lock.acquire(blocking=True, timeout=60)
    lock.release()


@pytest.mark.parametrize("function", [acquire, enter, acquire_named])
@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_thread_that_waits_for_a_lock_makes_the_call_again(function: Any, make: Any) -> None:
    lock = make()
    lock.acquire()
    with running(function, lock, end=lock.release) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
        innermost = capture_thread(thread.ident or 0).frames[-1]
        assert innermost.mode == "L" and any(entry is lock for entry in innermost.stack)
        assert innermost.lasti < _frames.walk((), (), False, thread.ident or 0)[0][0][3]


def test_what_a_thread_waits_for_in_other_c_code_is_named() -> None:
    """A file object over a pipe takes what has come before it is whole."""
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as stream,
        running(lambda: stream.readline(), end=lambda: os.close(writing)) as thread,
    ):
        wait_until(lambda: c_waits.running(thread.ident or 0))
        assert c_waits.running(thread.ident or 0) == "BufferedReader.readline() is running"
        with pytest.raises(Refused, match=r"thread 'other'.*readline"):
            capture_threads([thread])


def test_a_loop_over_the_lines_of_a_pipe_is_named() -> None:
    def lines() -> None:
        for _ in stream:
            pass

    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as stream,
        running(lines, end=lambda: os.close(writing)) as thread,
        pytest.raises(Refused, match=r"BufferedReader.__next__\(\) is running"),
    ):
        wait_until(lambda: c_waits.running(thread.ident or 0))
        capture_threads([thread])


def test_a_thread_that_reads_from_a_pipe_makes_the_call_again() -> None:
    reading, writing = os.pipe()
    left, right = socket.socketpair()
    server, limited = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    accepted.settimeout(600)  # with a limit, it waits before it takes something
    limited.settimeout(600)
    Sockets("socket")
    clients: list[socket.socket] = []
    for function, descriptor, put in (
        (lambda: os.read(reading, 1), reading, lambda: os.write(writing, b".")),
        (lambda: left.recv(1), left.fileno(), lambda: right.send(b".")),
        (lambda: accepted.recv(1), accepted.fileno(), lambda: client.send(b".")),
        (
            lambda: limited._accept(),  # type: ignore[attr-defined]
            limited.fileno(),
            lambda: clients.append(socket.create_connection(limited.getsockname())),
        ),
    ):
        with running(function, end=put) as thread:
            ident = thread.ident or 0
            wait_until(lambda ident=ident: is_waiting(ident))
            assert c_waits.reads_from(ident) == descriptor
            wait_until(lambda thread=thread: _is_captured(thread))
            innermost = capture_thread(ident).frames[-1]
            assert innermost.code is function.__code__ and innermost.mode == "L"
            assert innermost.lasti < _frames.walk((), (), False, ident)[0][0][3]
    for fd in (reading, writing):
        os.close(fd)
    for each in (left, right, server, limited, client, accepted, *clients):
        each.close()


def _is_captured(thread: threading.Thread) -> bool:
    try:
        capture_threads([thread])
    except Refused:  # it is on its way into the kernel's call
        return False
    return True


def test_a_thread_that_may_have_read_something_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has read would be in no image: it is out of the pipe, and not in the program yet."""
    reading, writing = os.pipe()
    with running(lambda: os.read(reading, 1), end=lambda: os.write(writing, b".")) as thread:
        wait_until(lambda: _is_captured(thread))
        call = _frames.system_call(thread.native_id or 0)
        for other in (
            "running",
            "202 0x7f00 0x189 0x0 0x0 0x0 0x0 0x7f01 0x7f02",
            call.replace(hex(reading), "0x0", 1),
        ):
            monkeypatch.setattr(_frames, "system_call", lambda number, other=other: other)
            with pytest.raises(Refused, match="just read"):
                capture_threads([thread])
        monkeypatch.setattr(_frames, "system_call", lambda number: call)
        assert _is_captured(thread)
    os.close(reading)
    os.close(writing)


def test_a_queue_and_a_sleep_are_waits() -> None:
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    with running(lambda: simple.get(), end=lambda: simple.put(1)) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
    stop = threading.Event()

    def sleep() -> None:
        while not stop.is_set():
            time.sleep(0.01)

    with running(sleep, end=stop.set) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))


def test_a_call_queued_for_the_main_thread_inside_of_a_wait_does_not_take_the_wait_for_over() -> None:
    """A signal wakes `acquire`, which makes the queued calls and waits on. The capture took the wait for a call that is
    over: after a restart the lock would have been taken for acquired, and the method for its result."""
    lock, begun, found = threading.Lock(), threading.Event(), []
    lock.acquire()

    def look() -> None:
        found.append(capture(at="check"))
        lock.release()

    def wait_here() -> None:
        begun.set()
        acquire(lock)

    def wake() -> None:
        begun.wait()
        ident = threading.main_thread().ident or 0
        wait_until(lambda: c_waits.waits_for(ident) is lock)  # not the lock inside of the event
        _frames.request(look)
        # One that comes between the release of the interpreter's lock and the wait itself wakes nobody
        while not found:
            waking.wake(ident)
            time.sleep(0.01)

    waking.prepare()
    waker = threading.Thread(target=wake)
    waker.start()
    run_base(wait_here)
    waker.join()
    innermost = found[0].frames[-1]
    assert any(entry is lock for entry in innermost.stack) and found[0].recursion_depth == 0


def test_a_frame_that_a_thread_has_left_is_not_read() -> None:
    """The helper thread looks whether the main thread waits. Between two of its looks the main thread may go on: the memory
    of the frame was read all the same, which ended ranks by SIGSEGV."""
    lock, left, end = threading.Lock(), threading.Event(), threading.Event()
    lock.acquire()

    def work() -> None:
        acquire(lock)
        left.set()
        end.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ident = thread.ident or 0
    wait_until(lambda: c_waits.waits_for(ident) is lock)
    frames = _frames.walk((), (), False, ident)[0]
    assert frames is not None
    address, code = frames[0][:2]
    assert lock in _frames.slots(address, code.co_stacksize, True, code, ident)
    lock.release()
    left.wait()
    with pytest.raises(LookupError):
        _frames.slots(address, code.co_stacksize, True, code, ident)
    end.set()
    thread.join()
    with pytest.raises(LookupError):
        _frames.slots(address, code.co_stacksize, True, code, ident)


def count(totals: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        totals[0] += 1
        totals[1] += 1


def test_stopped_threads_change_nothing_while_the_interpreter_is_free() -> None:
    totals, stop = [0, 0], threading.Event()
    with running(count, totals, stop, end=stop.set) as thread:
        wait_until(lambda: totals[0] > 1000)
        others = StoppedThreads(Stack(), lambda: [thread])
        wait_until(lambda: _stops(others))
        try:
            before = list(totals)
            time.sleep(0.05)
            others.capture()
            assert totals == before
        finally:
            others.go_on()
        wait_until(lambda: totals[0] > before[0] + 1000)


def _stops(others: StoppedThreads) -> bool:
    try:
        others.stop()
    except Refused:
        return False
    return True


def test_a_thread_that_takes_no_rest_in_c_does_not_stop_and_nobody_stays_stopped() -> None:
    totals, stop = [0, 0], threading.Event()
    with (
        running(count, totals, stop, end=stop.set) as counting,
        running(
            lambda: operator.countOf((i for i in iter(stop.is_set, True)), True), end=stop.set
        ) as summing,
    ):
        wait_until(lambda: totals[0] > 1000)
        others = StoppedThreads(Stack(), lambda: [counting, summing])
        found: list[str] = []
        for _ in range(3):
            try:
                others.stop()
                others.capture()
            except Refused as refused:
                found.append(refused.reason)
            finally:
                others.go_on()
        before = totals[0]
        wait_until(lambda: totals[0] > before + 1000)
    assert all("thread 'other'" in reason for reason in found)


def test_a_thread_whose_c_code_calls_python_all_the_time_is_refused_after_so_many_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line that it went on to counted as progress: the main thread waited for minutes, its image never ended."""
    stop, lines = threading.Event(), 0
    step = _frames.step

    def counted(ident: int) -> None:
        nonlocal lines
        lines += 1
        step(ident)

    monkeypatch.setattr(captured._frames, "step", counted)
    with running(
        lambda: operator.countOf((i for i in iter(stop.is_set, True)), True), end=stop.set
    ) as summing:
        others = StoppedThreads(Stack(), lambda: [summing])
        with pytest.raises(Refused, match="thread 'other'"):
            others.stop()
    assert lines <= captured._STEPS + 1


def store(lock: Any, log: list[Any], stop: threading.Event) -> None:
    got = lock.acquire()
    log.append(got)
    stop.wait()


def use_at_once(lock: Any, log: list[Any], stop: threading.Event) -> None:
    log.append(lock.acquire())
    stop.wait()


@pytest.mark.parametrize(("function", "is_harmless"), [(store, True), (use_at_once, False)])
def test_a_wait_that_ends_meanwhile_may_store_its_result_and_no_more(
    function: Any, is_harmless: bool
) -> None:
    lock, log, stop = threading.Lock(), [], threading.Event()
    lock.acquire()
    with running(function, lock, log, stop, end=stop.set) as thread:
        ident = thread.ident or 0
        wait_until(lambda: is_waiting(ident))
        others = StoppedThreads(Stack(), lambda: [thread])
        others.stop()
        before = place_of(ident)
        lock.release()
        wait_until(lambda: _frames.has_stopped(ident))
        try:
            assert log == ([] if is_harmless else [True])
            assert has_only_ended_its_wait(before, place_of(ident)) == is_harmless
        finally:
            others.go_on()


def sort(stop: threading.Event) -> None:
    def key(n: int) -> int:
        value = n
        for _ in range(3):
            value = value * 7 % 13
        return value

    class Key:
        def __call__(self, n: int) -> int:
            return key(n)

    while not stop.is_set():
        list(range(5)).sort(key=Key())


def test_a_thread_goes_on_to_a_line_where_it_can_be_captured() -> None:
    """It stopped at its next line, in a function that C code had called, as `open` calls codecs: there was no image ever."""
    stop = threading.Event()
    with running(sort, stop, end=stop.set) as thread:
        for _ in range(5):
            others = StoppedThreads(Stack(), lambda: [thread])
            wait_until(lambda others=others: _stops(others))
            try:
                others.capture()
                code = place_of(thread.ident or 0).frames[0].code
                assert code in (sort.__code__, threading.Event.is_set.__code__)
            finally:
                others.go_on()


class Held:
    """What no image can have for the moment, as a connection in a transaction."""


def refuse_held(stack: Stack) -> None:
    for thread in stack.threads:
        refuse_held(thread.stack)
    if any(isinstance(value, Held) for record in stack.frames for value in record.locals):
        raise Refused("it holds something")


def hold_for_a_moment(totals: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        held: Held | None = Held()
        for _ in range(30):
            totals[0] += held is not None
        held = None


def hold(totals: list[int], stop: threading.Event) -> None:
    held = Held()
    while not stop.is_set():
        totals[0] += held is not None


def test_a_thread_goes_on_to_a_line_where_it_holds_nothing_that_no_image_can_have() -> None:
    """It stood in its transaction, and others that waited for its end did not stop in time: of a program whose threads write
    to one database there was hardly any checkpoint."""
    totals, stop = [0], threading.Event()
    with running(hold_for_a_moment, totals, stop, end=stop.set) as thread:
        wait_until(lambda: totals[0] > 100)
        for _ in range(20):
            others = StoppedThreads(Stack(), lambda: [thread], refuse_held)
            others.stop()
            others.go_on()


def test_a_thread_that_goes_on_holding_it_is_refused_after_so_many_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    totals, stop, lines = [0], threading.Event(), 0
    step = _frames.step

    def counted(ident: int) -> None:
        nonlocal lines
        lines += 1
        step(ident)

    monkeypatch.setattr(captured._frames, "step", counted)
    reasons = []
    with running(hold, totals, stop, end=stop.set) as thread:
        wait_until(lambda: totals[0] > 100)
        while "it holds something" not in reasons:  # on a busy machine the next line may come too late
            lines = 0
            others = StoppedThreads(Stack(), lambda: [thread], refuse_held)
            with pytest.raises(Refused) as refused:
                others.stop()
            reasons.append(refused.value.reason)
    assert lines <= captured._STEPS_OUT + captured._STEPS


def test_no_thread_stops_while_it_holds_the_table_of_threads() -> None:
    """It would keep the main thread, which asks for the threads, from going on: both waited for ever."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            threading.enumerate()

    with running(look, end=stop.set) as first, running(look, end=stop.set) as second:
        others = StoppedThreads(Stack(), lambda: [first, second])
        for _ in range(50):
            if _stops(others):
                assert not private.is_registry_locked() and len(threading.enumerate()) >= 3
                others.go_on()


@pytest.mark.skipif(
    not hasattr(threading, "_maintain_shutdown_locks"),
    reason="another Python: until 3.12 there is such a lock",
)
def test_a_thread_that_holds_a_lock_of_threading_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart it released the lock of the new process, which nobody held: `join` raised RuntimeError."""
    entered, go = threading.Event(), threading.Event()

    def maintain() -> None:
        entered.set()
        go.wait()

    monkeypatch.setattr(threading, "_maintain_shutdown_locks", maintain)
    with running(threading.Thread()._stop, end=go.set) as thread:  # type: ignore[attr-defined]
        wait_until(entered.is_set)
        with pytest.raises(Refused, match="a table of threads is being used"):
            StoppedThreads(Stack(), lambda: [thread]).stop()


def test_the_main_thread_is_not_captured_while_it_holds_a_lock_of_threading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = []

    class Table(dict[int, threading.Thread]):
        def values(self) -> Any:
            with pytest.raises(Refused) as refused:
                capture(at="call")
            reasons.append(refused.value.reason)
            return super().values()

    def program() -> None:
        threading.enumerate()
        capture(at="call")

    monkeypatch.setattr(threading, "_active", Table(threading._active))  # type: ignore[attr-defined]
    run_base(program)
    assert reasons == ["a table of threads is being used"]


def test_the_program_is_not_changed_where_a_thread_of_it_is_traced() -> None:
    stop, events = threading.Event(), []

    def traced() -> None:
        import sys

        sys.settrace(lambda frame, event, argument: events.append(event))
        stop.wait()

    with running(traced, end=stop.set) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
        others = StoppedThreads(Stack(), lambda: [thread])
        with pytest.raises(Refused):
            others.stop()


def from_pipe(reading: int) -> bytes:
    found = os.read(reading, 1)
    return found + b""


def serve(reading: int, log: list[bytes], stop: threading.Event) -> None:
    while not stop.is_set():
        got = from_pipe(reading)
        log.append(got)


@contextmanager
def serving() -> Iterator[tuple[threading.Thread, int, list[bytes]]]:
    """A thread that waits in `from_pipe` of `serve`, the end of the pipe to write to, and its log."""
    log: list[bytes] = []
    stop, (reading, writing) = threading.Event(), os.pipe()

    def end() -> None:
        stop.set()
        os.write(writing, b".")

    with running(serve, reading, log, stop, end=end) as thread:
        wait_until(lambda: _frames.walk((), (), False, thread.ident or 0)[0][0][1] is from_pipe.__code__)
        yield thread, writing, log
    for fd in (reading, writing):
        os.close(fd)


def test_a_thread_inside_of_a_call_that_is_answered_has_no_frames_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be anywhere in there, and even have got something: in a new process the call says that nothing has come."""
    monkeypatch.setattr(c_waits, "_answers", {})
    with serving() as (thread, writing, log):
        ident = thread.ident or 0
        assert capture_thread(ident).frames[-1].code is from_pipe.__code__
        c_waits.declare(c_waits.Answer(from_pipe.__code__, b"nothing", None))
        others = StoppedThreads(Stack(), lambda: [thread])
        others.stop()
        try:
            os.write(writing, b"x")
            wait_until(lambda: _frames.has_stopped(ident))
            innermost = capture_thread(ident).frames[-1]
            assert (innermost.code, innermost.mode, innermost.value) == (serve.__code__, "L", b"nothing")
            assert log == []
        finally:
            others.go_on()
        wait_until(lambda: log)


def test_a_call_is_answered_only_after_it_has_entered_what_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_waits, "_answers", {})
    with serving() as (thread, _, _):
        ident = thread.ident or 0
        c_waits.declare(c_waits.Answer(serve.__code__, None, acquire.__code__))
        assert not c_waits.is_answered(ident)
        c_waits.declare(c_waits.Answer(serve.__code__, None, from_pipe.__code__))
        assert c_waits.is_answered(ident)


def test_a_loop_over_a_queue_is_a_wait() -> None:
    """`for task in iter(queue.get, None)`, as pools take their tasks: no image was ever taken of one."""
    tasks: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def work() -> None:
        for task in iter(tasks.get, None):
            assert task

    with running(work, end=lambda: tasks.put(None)) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
        innermost = capture_thread(thread.ident or 0).frames[-1]
        assert innermost.mode == "L" and innermost.code is work.__code__


def test_a_process_forked_by_a_thread_that_is_to_stop_does_not_stop() -> None:
    """The child waited for ever for the parent to have it go on."""
    gate, stop = threading.Lock(), threading.Event()
    gate.acquire()

    def fork() -> None:
        gate.acquire(), child.append(os.fork())  # fmt: skip
        if not child[0]:
            os._exit(7)
        stop.wait()

    child: list[int] = []
    with running(fork, end=stop.set) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
        others = StoppedThreads(Stack(), lambda: [thread])
        others.stop()
        try:
            gate.release()
            # Functions that are called before a fork
            wait_until(lambda: child or _frames.step(thread.ident or 0))
            status = wait_until(lambda: [s for p, s in [os.waitpid(child[0], os.WNOHANG)] if p])[0]
            assert os.waitstatus_to_exitcode(status) == 7
            assert _frames.has_stopped(thread.ident or 0)
        finally:
            others.go_on()


def test_a_thread_that_is_left_out_stops_and_is_not_captured() -> None:
    totals, stop = [0, 0], threading.Event()
    seen: list[str] = []
    left_out = LeftOut(lambda thread: thread.name == "other", lambda thread: seen.append(thread.name))
    with running(count, totals, stop, end=stop.set) as thread:
        wait_until(lambda: totals[0] > 1000)
        stack = Stack()
        others = StoppedThreads(stack, lambda: [thread], left_out=left_out)
        others.stop()
        try:
            assert others.are_there and stack.threads == [] and seen == ["other"]
            wait_until(lambda: _frames.has_stopped(thread.ident or 0))
        finally:
            others.go_on()


def test_a_thread_that_has_been_given_an_item_of_a_queue_is_not_taken_for_one_that_waits() -> None:
    """From Python 3.13 on, `put` gives the item to the thread that waits: the image had it neither here nor there."""
    simple: queue.SimpleQueue[int] = queue.SimpleQueue()
    with running(lambda: simple.get(), end=lambda: simple.put(2)) as thread:
        wait_until(lambda: is_waiting(thread.ident or 0))
        wait_until(lambda: _is_captured(thread))
        simple.put(1)
        assert not _is_captured(thread) or simple.qsize() == 1


def _is_captured(thread: threading.Thread) -> bool:
    try:
        capture_threads([thread])
    except Refused:
        return False
    return True


class _ManyThreads:
    """Stands for threads whose stacks take 30 ms to capture, as those of two hundred do."""

    are_there = True

    def capture(self) -> int:
        switches = int(_frames.switches())
        end_s = time.perf_counter() + 0.03
        while time.perf_counter() < end_s:
            pass
        return switches


@pytest.mark.parametrize("interval_s", [0.005, 0.000019])
def test_no_other_thread_gets_the_lock_while_many_stacks_are_captured(interval_s: float) -> None:
    """Who waits for the lock is given it after 5 ms, so no try to fork was in time."""
    before_s = sys.getswitchinterval()
    is_over = threading.Event()

    def asks_for_the_lock() -> None:
        while not is_over.is_set():
            time.sleep(0)

    with running(asks_for_the_lock, end=is_over.set):
        sys.setswitchinterval(interval_s + 0.5e-6)
        try:
            found_s = sys.getswitchinterval()
            pid = dumping.fork(b"", _ManyThreads())  # type: ignore[arg-type]
            if pid == 0:
                os._exit(sys.getswitchinterval() == found_s)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, "the child's is the program's"
            assert sys.getswitchinterval() == found_s
        finally:
            sys.setswitchinterval(before_s)


def test_a_thread_inside_of_compiled_code_is_refused_with_the_line_that_called_it() -> None:
    """The message named the thread alone (a thread of grpc, a socket of zmq)."""
    thread = threading.Thread(target=lambda: time.sleep(0.5))
    thread.start()
    time.sleep(0.05)
    refused = captured._running(thread)
    thread.join()
    assert "has not come to the beginning of a line" in refused.reason
    assert refused.where.startswith(f"{__file__}:") and "sleep" not in refused.reason

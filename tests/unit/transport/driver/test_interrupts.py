"""Signals wait while a library call holds the lock, are never lost, and programs do not see who made them wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ckpt.transport.driver.interrupts import InterruptGate


def _raise(number: int, frame: object) -> None:
    assert frame is not None
    raise KeyboardInterrupt(number)


def _signal(number: int = signal.SIGUSR1) -> None:
    os.kill(os.getpid(), number)


def _nothing() -> None:
    pass


@pytest.fixture
def gate() -> Iterator[InterruptGate]:
    """One that finds a handler of the program's, and Python's own."""
    # whoever starts something in the background has it begin with SIGINT ignored
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    former = signal.signal(signal.SIGUSR1, _raise)
    gate = InterruptGate(threading.Lock(), _nothing, _nothing)
    gate.install()
    yield gate
    gate.uninstall()
    assert signal.getsignal(signal.SIGUSR1) is _raise
    signal.signal(signal.SIGUSR1, former)
    signal.signal(signal.SIGINT, interrupt)
    gate.uninstall()  # nothing happens


def test_raises_at_once_while_the_lock_is_free(gate: InterruptGate) -> None:
    with pytest.raises(KeyboardInterrupt):
        _signal()


def test_waits_while_the_lock_is_held(gate: InterruptGate) -> None:
    with gate._lock:
        _signal()
        _signal()
        assert list(gate.pending) == [signal.SIGUSR1], "one is enough"
        with pytest.raises(KeyboardInterrupt):
            gate.fire()
        gate.fire()  # nothing left


def test_raises_at_once_while_wait_sleeps(gate: InterruptGate) -> None:
    """Also while another thread has the lock, which the one that sleeps has let go of."""
    gate.sleeping = True
    with pytest.raises(KeyboardInterrupt):
        _signal()
    with gate._lock, pytest.raises(KeyboardInterrupt):
        _signal()
    gate.sleeping = False


def test_what_a_program_sends_to_itself_is_handled_at_once_while_the_helper_has_the_lock(
    gate: InterruptGate,
) -> None:
    """Some milliseconds later the KeyboardInterrupt had left the ``try`` that was to catch it."""
    gate.held_beside = True
    with gate._lock, pytest.raises(KeyboardInterrupt):
        _signal()
    # About to take the lock, perhaps
    in_ckpt = eval("lambda send: send()", {"__name__": "ckpt.rank.runtime"})
    with gate._lock:
        in_ckpt(functools.partial(os.kill, os.getpid(), signal.SIGUSR1))
        assert list(gate.pending) == [signal.SIGUSR1]
        gate.held_beside = False
        with pytest.raises(KeyboardInterrupt):
            gate.fire()
        _signal()
        assert list(gate.pending) == [signal.SIGUSR1]
        with pytest.raises(KeyboardInterrupt):
            gate.fire()


def test_waits_while_the_lock_is_taken_again(gate: InterruptGate) -> None:
    """An exception in between would leave the call without the lock, and it would let go of another thread's."""
    gate.returning = True
    _signal()
    gate.returning = False
    assert list(gate.pending) == [signal.SIGUSR1]
    with gate._lock, pytest.raises(KeyboardInterrupt):
        gate.fire()


def test_only_the_main_thread_calls_handlers(gate: InterruptGate) -> None:
    with gate._lock:
        _signal()
        thread = threading.Thread(target=gate.fire)
        thread.start()
        thread.join()
        assert list(gate.pending) == [signal.SIGUSR1]
        with pytest.raises(KeyboardInterrupt):
            gate.fire()


@pytest.mark.parametrize("sleeping", [True, False])
def test_the_lock_is_free_for_a_handler(sleeping: bool) -> None:
    """A handler that asked for a checkpoint waited for the lock that its own thread held, for ever."""
    told: list[int] = []
    gate = InterruptGate(threading.Lock(), _nothing, lambda: told.append(gate.running))
    seen: list[tuple[bool, bool, int]] = []

    def handler(number: int, frame: object) -> None:
        with gate._lock:
            seen.append((gate._lock.locked(), gate.sleeping, gate.running))
            if len(seen) == 1:
                _signal()  # within the handler: it waits, as in any call

    former = signal.signal(signal.SIGUSR1, handler)
    gate.install()
    with contextlib.nullcontext() if sleeping else gate._lock:
        gate.sleeping = sleeping
        _signal()
        gate.fire()
        assert gate.sleeping == sleeping and gate._lock.locked() == (not sleeping) and not gate.running
    assert seen == [(True, False, 1)] * 2
    assert told == [1, 0] * 2, "who waits must look again"
    gate.uninstall()
    signal.signal(signal.SIGUSR1, former)


def test_another_thread_delivers_it_again(gate: InterruptGate) -> None:
    with gate._lock:
        _signal()
    with pytest.raises(KeyboardInterrupt):
        thread = threading.Thread(target=gate.redeliver)
        thread.start()
        thread.join()
        signal.sigtimedwait([], 0)  # a place to notice it
    thread.join()
    assert not gate.pending


def test_a_loop_of_asyncio_gets_a_signal_once(gate: InterruptGate) -> None:
    """Its number was written into the pipe of the loop a second time, when the signal was sent again."""
    loop, called = asyncio.new_event_loop(), []
    try:
        loop.add_signal_handler(signal.SIGUSR2, called.append, 1)
        with gate._lock:
            _signal(signal.SIGUSR2)
            assert not gate.pending
        thread = threading.Thread(target=gate.redeliver)
        thread.start()
        thread.join()
        loop.run_until_complete(asyncio.sleep(0.01))
        assert called == [1]
    finally:
        loop.close()


def test_handlers_set_later_wait_too(gate: InterruptGate) -> None:
    seen: list[int] = []
    assert signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number)) is _raise
    assert signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number)) is signal.SIG_DFL
    with gate._lock:
        _signal()
        _signal(signal.SIGUSR2)
        assert seen == []
        gate.fire()
    assert seen == [signal.SIGUSR1, signal.SIGUSR2]
    signal.signal(signal.SIGUSR1, _raise)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_programs_see_their_own_handlers_only(gate: InterruptGate) -> None:
    assert signal.getsignal(signal.SIGUSR1) is _raise
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is _raise
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    _signal()  # ignored
    assert signal.signal(signal.SIGUSR1, _raise) is signal.SIG_IGN


def test_what_cannot_be_set_changes_nothing(gate: InterruptGate) -> None:
    with pytest.raises(OSError):
        signal.signal(signal.SIGKILL, _raise)
    with pytest.raises(TypeError):
        signal.signal(signal.SIGUSR1, "no handler")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        signal.signal(4711, _raise)
    failures: list[ValueError] = []

    def elsewhere() -> None:
        try:
            signal.signal(signal.SIGUSR1, lambda number, frame: None)
        except ValueError as error:
            failures.append(error)
        gate.uninstall()  # nothing happens
        with pytest.raises(ValueError, match="main thread"):
            InterruptGate(threading.Lock(), _nothing, _nothing).install()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert failures and signal.getsignal(signal.SIGUSR1) is _raise
    with pytest.raises(KeyboardInterrupt):
        _signal()


def test_a_signal_whose_handler_is_gone_is_forgotten(gate: InterruptGate) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    with gate._lock:
        _signal()
        assert list(gate.pending) == [signal.SIGUSR1]
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        gate.fire()  # neither the handler, nor the end of the process, which is what SIG_DFL would be
        assert not gate.pending and not heard
        signal.signal(signal.SIGUSR1, _raise)
        gate.fire()  # nor the next handler
        assert not gate.running


def test_nothing_waits_in_a_forked_child(gate: InterruptGate) -> None:
    with gate._lock:
        child = os.fork()
        if child == 0:
            try:
                _signal()
            except KeyboardInterrupt:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_handlers_that_are_not_python_are_left_alone() -> None:
    gate = InterruptGate(threading.Lock(), _nothing, _nothing)
    former = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    gate.install()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    with gate._lock:
        _signal(signal.SIGUSR2)
        assert not gate.pending
    gate.uninstall()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    signal.signal(signal.SIGUSR2, former)


def test_without_a_main_thread_nobody_is_sent_anything() -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        gate = InterruptGate(threading.Lock(), _nothing, _nothing)
        gate.pending.append(signal.SIGUSR1)
        gate.redeliver()
        assert list(gate.pending) == [signal.SIGUSR1], "kept for the one who installs it"
        signal.sigtimedwait([], 0)  # a place where a signal would be noticed
        assert not heard
    finally:
        signal.signal(signal.SIGUSR1, former)

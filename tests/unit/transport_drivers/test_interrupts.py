"""Signals wait while a library call holds the lock, and are never lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from transport.interrupts import InterruptGate


@pytest.fixture
def gate() -> Iterator[InterruptGate]:
    former = signal.signal(signal.SIGUSR1, _raise)
    gate = InterruptGate(threading.Lock(), lambda: None)
    gate.install(signal.SIGUSR1)
    yield gate
    gate.uninstall()
    assert signal.getsignal(signal.SIGUSR1) is _raise
    signal.signal(signal.SIGUSR1, former)


def _raise(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


def _signal() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_raises_at_once_while_the_lock_is_free(gate: InterruptGate) -> None:
    with pytest.raises(KeyboardInterrupt):
        _signal()


def test_waits_while_the_lock_is_held(gate: InterruptGate) -> None:
    with gate._lock:
        _signal()
        _signal()
        assert gate.pending == [signal.SIGUSR1], "one is enough"
        with pytest.raises(KeyboardInterrupt):
            gate.fire()
        gate.fire()  # nothing left


def test_raises_at_once_while_wait_sleeps(gate: InterruptGate) -> None:
    with gate._lock:
        gate.sleeping = True
        with pytest.raises(KeyboardInterrupt):
            _signal()
        gate.sleeping = False


def test_another_thread_delivers_it_again(gate: InterruptGate) -> None:
    with gate._lock:
        _signal()
    with pytest.raises(KeyboardInterrupt):
        thread = threading.Thread(target=gate.redeliver)
        thread.start()
        thread.join()
        signal.sigtimedwait([], 0)  # a place to notice it
    thread.join()
    assert gate.pending == []


def test_handlers_that_are_not_python_are_left_alone() -> None:
    gate = InterruptGate(threading.Lock(), lambda: None)
    former = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    gate.install(signal.SIGUSR2)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    signal.signal(signal.SIGUSR2, former)

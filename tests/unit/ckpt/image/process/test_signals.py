"""Handlers, the mask and timers come back, and nothing is delivered before the program runs again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.image.process import signals
from tests.unit.ckpt.image.support import resumed_output

NOT_YET = ((0.0, 0.0),) * 3


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGUSR1)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signals.start_timers()
    signal.signal(signal.SIGUSR1, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_an_alarm_that_is_due_waits_for_the_program(tmp_path: Path) -> None:
    # It used to be raised within the restart, which ended the rank: `test_interrupts` failed now and then.
    source = """
        import os, signal
        from ckpt.image.process import moment, signals

        class Interrupted(Exception):
            pass

        def interrupt(number, frame):
            raise Interrupted(frame.f_code.co_name)

        def wait(original):
            driver_tick()
            if os.getpid() == original:
                signal.raise_signal(signal.SIGALRM)
            while True:
                pass

        soon = signals.Timing(((1e-6, 0.0), (0.0, 0.0), (0.0, 0.0)), ())
        read = moment.read
        moment.read = lambda noted: read(noted)._replace(timing=soon)  # as if right before the alarm
        signal.signal(signal.SIGALRM, interrupt)
        try:
            wait(os.getpid())
        except Interrupted as failure:
            print("interrupted in", failure)
    """
    assert resumed_output(tmp_path, source) == "interrupted in wait\n"


def test_the_mask_and_every_timer_come_back(tmp_path: Path) -> None:
    source = """
        import os, signal
        signal.signal(signal.SIGUSR1, lambda number, frame: print("heard", number))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGRTMIN})
        for kind, seconds in ((signal.ITIMER_REAL, 500), (signal.ITIMER_VIRTUAL, 600), (signal.ITIMER_PROF, 700)):
            signal.setitimer(kind, seconds, 10)
        driver_tick()
        os.kill(os.getpid(), signal.SIGUSR1)
        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        for kind in range(3):
            left, interval = signal.getitimer(kind)
            print(400 < left < 800, interval)
    """
    expected = f"{[signal.SIGUSR1, signal.SIGRTMIN]}\nheard {int(signal.SIGUSR1)}\n" + "True 10.0\n" * 3
    assert resumed_output(tmp_path, source) == expected


def test_code_of_the_program_that_runs_before_it_has_its_mask() -> None:
    heard: list[int] = []
    handlers = {int(signal.SIGUSR1): lambda number, frame: heard.append(number)}
    signals.set_handlers({"handlers": handlers, "timers": NOT_YET, "blocked": (int(signal.SIGUSR2),)})
    signal.raise_signal(signal.SIGUSR1)
    assert not heard
    with signals.program_mask():
        assert heard == [signal.SIGUSR1]
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGUSR2}
    signal.raise_signal(signal.SIGUSR1)
    assert len(heard) == 1
    blocked = signals.start_timers()
    assert blocked == (signal.SIGUSR2,)
    assert len(heard) == 1
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert len(heard) == 2


def test_where_nothing_is_held_nothing_changes() -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with signals.program_mask():
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert signals.start_timers() is None


def test_a_signal_that_has_arrived_and_has_not_been_handled_comes_back(tmp_path: Path) -> None:
    """A one-shot timer was over while a look at the program went on: after a restart the program waited for it for ever."""
    source = """
        import os, signal
        from ckpt.image.process import signals

        arrived = []
        signal.signal(signal.SIGALRM, lambda number, frame: arrived.append(number))
        signal.signal(signal.SIGUSR1, lambda number, frame: arrived.append(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        original = os.getpid()
        signals.declare_deferred(lambda: (signal.SIGALRM, signal.SIGTERM))  # as the gate of the port defers them
        driver_tick()
        if os.getpid() == original:
            signal.raise_signal(signal.SIGALRM)
        print(sorted(number.name for number in signal.sigpending()), arrived == [signal.SIGALRM])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        print(arrived == [signal.SIGALRM, signal.SIGUSR1])
    """
    assert resumed_output(tmp_path, source) == "['SIGUSR1', 'SIGUSR2'] True\nTrue\n"


def test_the_descriptor_that_signals_are_written_to_comes_back(tmp_path: Path) -> None:
    """trio and twisted wait for it: they slept on, whatever signal had come."""
    source = """
        import os, signal, socket
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        driver_tick()
        os.kill(os.getpid(), signal.SIGUSR1)
        reading.settimeout(10)
        print(signal.SIGUSR1 in reading.recv(100), signal.set_wakeup_fd(-1) == writing.fileno())
        driver_tick()
        print(signal.set_wakeup_fd(-1))
    """
    assert resumed_output(tmp_path, source) == "True True\n-1\n"

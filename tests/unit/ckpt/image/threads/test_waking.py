"""The main thread is woken from calls that only wait, by a signal that nobody sees."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ckpt.compat.accelerators import signal as signal_in_c
from ckpt.compat.signals import signal_handlers
from ckpt.image.frames import _frames
from ckpt.image.threads import waking
from ckpt.transport.driver.interrupts import InterruptGate


@pytest.fixture
def number() -> Iterator[int]:
    waking.prepare()
    [(number, _)] = waking._prepared
    yield number
    signal.signal(number, signal.SIG_DFL)


def woken_while(wait: Callable[[], object], until: Callable[[], None]) -> int:
    """How many queued calls the main thread has made while it waited; `until` ends the wait."""
    made: list[float] = []
    ident = threading.main_thread().ident or 0

    def wake() -> None:
        while len(made) < 3:
            _frames.request(lambda: made.append(time.monotonic()))
            waking.wake(ident)
            time.sleep(0.01)
        until()

    waker = threading.Thread(target=wake)
    waker.start()
    wait()
    ended = time.monotonic()
    waker.join()
    return sum(each < ended for each in made)


def test_calls_that_are_queued_are_made_in_a_wait_which_goes_on(number: int) -> None:
    reading, writing = os.pipe()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    waits: list[Callable[[], object]] = [lambda: select.select([reading], [], []), poll.poll]
    for wait in waits:
        assert woken_while(wait, lambda: os.write(writing, b"x") and None) >= 3
        os.read(reading, 1)
    assert woken_while(lambda: os.read(reading, 1), lambda: os.write(writing, b"x") and None) >= 3
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler])
def test_where_the_program_has_set_the_signal_nothing_is_sent(
    number: int, handler: signal.Handlers | Callable[..., object]
) -> None:
    """The default of such a signal ends the process."""
    signal.signal(number, handler)
    sent: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "pthread_kill", lambda ident, number: sent.append(number))
        waking.wake(threading.main_thread().ident or 0)
    assert not sent


def test_neither_the_program_nor_an_image_sees_the_handler(number: int) -> None:
    assert number not in signal_handlers()
    gate = InterruptGate(threading.Lock(), lambda: None, lambda: None)
    gate.install()
    try:
        assert signal_in_c.getsignal(number) is _frames.make_queued_calls
        assert signal.getsignal(number) == signal.SIG_DFL
        assert signal.signal(number, signal.SIG_IGN) == signal.SIG_DFL
    finally:
        gate.uninstall()

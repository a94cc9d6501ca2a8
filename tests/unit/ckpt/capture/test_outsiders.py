"""A thread that waits for the library while another one waits inside of it is named."""

from __future__ import annotations

import threading
import time
from typing import Any

from ckpt.capture.threads import LONG_NS, Outsiders

INSIDE_OF_THE_LIBRARY = {"__name__": "ckpt.sample"}
exec("def call(lock):\n    lock.acquire()\n", INSIDE_OF_THE_LIBRARY)


def test_a_thread_that_waits_outside_for_ten_seconds_is_named_once() -> None:
    lock = threading.Lock()
    told: list[dict[str, Any]] = []
    outsiders = Outsiders(lambda name, **fields: told.append({"event": name, **fields}))

    def listen() -> None:
        INSIDE_OF_THE_LIBRARY["call"](lock)  # type: ignore[operator]

    with lock:
        thread = threading.Thread(target=listen, name="listener", daemon=True)
        thread.start()
        now_ns, deadline = 0, time.monotonic() + 60
        while not told and time.monotonic() < deadline:  # it may be on its way to the lock
            outsiders.look(now_ns)
            outsiders.look(now_ns + LONG_NS - 1)
            assert told == []
            outsiders.look(now_ns + LONG_NS)
            now_ns += 3 * LONG_NS
        outsiders.look(now_ns)
    thread.join(60)
    (packet,) = told
    assert (packet["event"], packet["thread"], packet["inside"]) == ("threads-wait", "listener", "MainThread")
    assert packet["where"].endswith("listen") and __file__ in packet["where"] and packet["seconds"] == 10


def test_nothing_is_said_of_threads_that_are_not_in_the_library() -> None:
    end = threading.Event()
    told: list[str] = []
    outsiders = Outsiders(lambda name, **fields: told.append(name))
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    for now_ns in (0, LONG_NS, 2 * LONG_NS):
        outsiders.look(now_ns)
    end.set()
    thread.join(60)
    assert told == []

"""Whom a host reaches: it knocks at their doors, at those that do not answer twice."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator

import pytest

from ckpt.controller.hosts.routes import errors_of, twice


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """Listens, and its queue is full: a connection is not answered until some are accepted."""
    waiting = []
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(server.getsockname())
        yield server
        for each in waiting:
            each.close()


def door(server: socket.socket) -> str:
    return "127.0.0.1:{1}".format(*server.getsockname())


def test_who_answers_refuses_and_is_silent(full: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        gone = door(other)
        other.close()
        doors = {"there": door(server), "gone": gone, "silent": door(full)}
        assert twice(doors, 0.1) == {"gone": errno.ECONNREFUSED, "silent": None}


def test_a_first_packet_that_is_lost_is_not_the_last_word(full: socket.socket) -> None:
    assert errors_of({"x": door(full)}, 0.1) == {"x": None}

    is_over = threading.Event()

    def accept() -> None:
        full.settimeout(0.05)
        while not is_over.wait(0.05):
            with contextlib.suppress(TimeoutError):
                full.accept()[0].close()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        assert twice({"x": door(full)}, 0.9) == {}
    finally:
        is_over.set()
        accepting.join()


def test_what_came_while_this_process_slept_counts() -> None:
    """On a busy machine: the time is over before it looks for the first time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert errors_of({"x": door(server)}, 1e-9) == {}

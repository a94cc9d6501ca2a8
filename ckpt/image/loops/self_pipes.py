"""The self-pipe of an event loop, and the epoll or poll object that watches it, are made anew under the same numbers.

What was in the self-pipe is in it again, and one byte more: the loop wakes up once and looks at its timers, because the call
in which it waits is made again with the time limit that it had. Other descriptors that the loop watches belong to sockets,
pipes or the program: they are refused by name.
"""

from __future__ import annotations

import gc
import os
import select
import socket
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat import asyncio_names
from ckpt.image.errors import RestoreError
from ckpt.image.files import numbers

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "NOTHING",
    "POLLERS",
    "closed_poller",
    "is_of_loop",
    "make",
    "make_poller",
    "reduce_poller",
    "watch",
]

POLLERS = (select.epoll, type(select.poll()))
NOTHING = b"\0"
"""What wakes a loop and tells it nothing: no number of a signal."""
_SHARED = "loops"


def make(saved: tuple[int, int, bytes] | None) -> tuple[Any, Any]:
    """The ends of a self-pipe, the reading one first. ``saved``: their numbers, and the bytes that were in it; None: the
    loop is closed."""
    if saved is None:
        return None, None
    *places, unread = saved
    ends = []
    for end, number in zip(socket.socketpair(), places, strict=True):
        ends.append(socket.socket(fileno=_placed(end.detach(), number)))
        ends[-1].setblocking(False)
    ends[1].send(unread + NOTHING)
    return ends[0], ends[1]


def _placed(fd: int, number: int) -> int:
    if numbers.place(fd, number) != number:
        raise RestoreError(f"descriptor {number} of an event loop is in use in this process")
    return number


# ---------------------------------------------------------------------- selectors


def reduce_poller(saver: Saver, poller: Any) -> Any:
    """The reducer for ``select.epoll`` and ``select.poll`` objects of the selectors of loops."""
    loop, selector = _owner(saver, poller)
    is_epoll = type(poller) is select.epoll
    if is_epoll and poller.closed:
        return closed_poller, ()
    if selector is None:
        raise PicklingError(
            f"a select.{type(poller).__name__} object that is of no event loop cannot be saved: make it where it is used, "
            "or close it before a checkpoint"
        )
    reading = asyncio_names.self_pipe(loop)[0]
    watched = {key.fd: key.events for key in (selector.get_map() or {}).values()}
    others = [fd for fd in watched if reading is None or fd != reading.fileno()]
    if others:
        raise PicklingError(
            f"an event loop watches descriptor {others[0]} (a socket, a pipe, a child process, loop.add_reader), which "
            "cannot be saved: close what belongs to it before a checkpoint (loop.remove_reader), and open it again in "
            "on_restart"
        )
    saver.defer(watch, poller, list(watched))
    return make_poller, (poller.fileno() if is_epoll else None,)


def _owner(saver: Saver, poller: Any) -> tuple[Any, Any]:
    """The loop and the selector that the poller belongs to; None, None: there are none."""
    loops = saver.shared.get(_SHARED)
    if loops is None:
        kinds = asyncio_names.loop_types()
        loops = saver.shared[_SHARED] = [obj for obj in gc.get_objects() if issubclass(type(obj), kinds)]
    for loop in loops:
        selector = asyncio_names.selector_of(loop)
        if selector is not None and asyncio_names.poller_of(selector) is poller:
            return loop, selector
    return None, None


def is_of_loop(selector: Any) -> bool:
    """Does a selector watch the self-pipe of an event loop? Be quick."""
    watched = selector.get_map() or {}
    return any(asyncio_names.reads_self_pipe(key.data) for key in watched.values())


def closed_poller() -> Any:
    made = select.epoll()
    made.close()
    return made


def make_poller(number: int | None) -> Any:
    """``number``: of the epoll descriptor; None: for a poll object."""
    if number is None:
        return select.poll()
    with select.epoll() as made:
        fd = os.dup(made.fileno())
    return select.epoll.fromfd(_placed(fd, number))


def watch(poller: Any, fds: list[int]) -> None:
    """Called when everything is loaded: the descriptors are there. They are those of self-pipes, which are read."""
    for fd in fds:
        poller.register(fd, select.EPOLLIN if type(poller) is select.epoll else select.POLLIN)

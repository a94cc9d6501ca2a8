"""Event loops over a selector: what belongs to this process is made anew, all else are attributes.

::

    self-pipe          two sockets by which other threads and signals wake the loop. It comes back with what was in it
                       (:mod:`ckpt.image.ipc`), and gets one byte more: the loop wakes up once and looks at its timers,
                       because the call in which it waits is made again with the time limit that it had
    time()             goes on from where it was: what is left of each timer when the image is taken is left when the
                       program goes on. A loop with a clock of its own keeps that
    thread             the loop runs in the thread in which it ran; there it is the running loop, and gets the asynchronous
                       generators that begin
    Unix servers       the inodes of the files that are their addresses: those of the files that are there now
    signals            the interpreter writes the numbers of signals for which the loop has handlers into its self-pipe

Not here: tasks (:mod:`ckpt.image.loops.tasks`), epoll objects and sockets (:mod:`ckpt.image.ipc`). Private names:
:mod:`ckpt.compat.asyncio_names`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from ckpt.compat import asyncio_names
from ckpt.image.frames import _frames, c_waits
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import attributes_of, slots_of
from ckpt.image.threads.restart import call_at_last, call_later_in, set_ident_later
from ckpt.transport.records import NamedTuple

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "LoopClock",
    "Moment",
    "Running",
    "fill_loop",
    "go_on_running",
    "make_loop",
    "note_moment",
    "note_running",
    "reduce_loop",
    "run_in_this_thread",
    "wake_loop",
]

_MOST_FRAMES = 4
_POLLERS = (select.epoll, type(select.poll()))
_NOTHING = b"\0"
"""What wakes a loop and tells it nothing: no number of a signal."""

# ---------------------------------------------------------------------- before an image


class Moment(NamedTuple):
    """What the loops of a process have in common when an image is taken. ``time_s``: of the monotonic clock. ``running``:
    the loop that runs in the main thread, or None."""

    time_s: float
    running: Any


def note_moment() -> Moment:
    """Called in the main thread of the program's process. A forked child has no running loop."""
    return Moment(time.monotonic(), asyncio_names.running_loop())


def wake_loop(ident: int) -> bool:
    """From another thread: if this thread waits in the selector of its event loop, wake it, so that it comes to an
    instruction. Does it wait there?"""
    if type(c_waits.waits_for(ident)) not in _POLLERS:
        return False
    for frame in (_frames.walk((), (), False, ident)[0] or ())[1:_MOST_FRAMES]:
        if frame[1] is asyncio_names.run_once_code():
            _wake(frame[7][0])
            return True
    return False


def _wake(loop: Any) -> None:
    writing = asyncio_names.self_pipe(loop)[1]
    if writing is not None:
        with contextlib.suppress(OSError):  # it is full, so the loop will wake up
            writing.send(_NOTHING)


# ---------------------------------------------------------------------- the thread of a loop


class Running(NamedTuple):
    """What belongs to the main thread while a loop runs there. ``hooks``: of ``sys.set_asyncgen_hooks``. ``depth``: of
    ``sys.set_coroutine_origin_tracking_depth``."""

    loop: Any
    hooks: tuple[Any, ...]
    depth: int


def note_running(moment: Moment) -> Running:
    """Called in the main thread, also of a forked child."""
    hooks = tuple(sys.get_asyncgen_hooks())
    return Running(moment.running, hooks, sys.get_coroutine_origin_tracking_depth())


def go_on_running(saved: Running) -> None:
    """Called in the main thread when everything is loaded."""
    sys.set_asyncgen_hooks(*saved.hooks)
    sys.set_coroutine_origin_tracking_depth(saved.depth)
    if saved.loop is not None:
        asyncio_names.set_running_loop(saved.loop)


def run_in_this_thread(loop: Any) -> None:
    """In another thread, before its frames are made: the loop runs here."""
    asyncio_names.set_running_loop(loop)
    sys.set_asyncgen_hooks(*asyncio_names.generator_hooks(loop))
    sys.set_coroutine_origin_tracking_depth(asyncio_names.tracking_depth(loop))


class LoopClock:
    """Replaces ``loop.time`` of a loop that an image has brought into this process. Stands still until :meth:`start`."""

    __slots__ = ("_offset_s", "_time_s")

    def __init__(self, time_s: float) -> None:
        self._time_s: float | None = time_s
        self._offset_s = 0.0

    def start(self) -> None:
        if self._time_s is not None:
            self._offset_s, self._time_s = self._time_s - time.monotonic(), None

    def at(self, monotonic_s: float) -> float:
        """The time of the loop, in seconds, when the monotonic clock shows ``monotonic_s``."""
        return self._time_s if self._time_s is not None else monotonic_s + self._offset_s

    def __call__(self) -> float:
        return self.at(time.monotonic())


# ---------------------------------------------------------------------- loops


class _SavedLoop(NamedTuple):
    """What an image holds of one loop beside its attributes. ``time_s``: what ``loop.time()`` returns; None: the loop has a
    clock of its own. ``ident``: of the thread in which it runs, or None; ``is_elsewhere``: that is another one than the
    main thread. ``signals``: for which it has handlers."""

    attributes: dict[str, Any]
    slots: Any
    time_s: float | None
    ident: int | None
    is_elsewhere: bool
    signals: tuple[int, ...]


def reduce_loop(saver: Saver, loop: Any, moment: Moment) -> Any:
    """The reducer for loops of classes derived from ``BaseSelectorEventLoop``."""
    attributes = dict(attributes_of(loop) or {})
    ident = attributes.pop(asyncio_names.THREAD, None)
    if ident != saver.main_thread_id and ident not in saver.threads:
        ident = None  # the thread is harmless: it is no part of the image
    clock, time_s = attributes.get("time"), None
    if type(clock) is LoopClock or (clock is None and asyncio_names.has_usual_clock(type(loop))):
        attributes.pop("time", None)
        time_s = moment.time_s if clock is None else clock.at(moment.time_s)
    handled = tuple(int(number) for number in attributes.get(asyncio_names.SIGNALS) or ())
    elsewhere = ident is not None and ident != saver.main_thread_id
    state = _SavedLoop(attributes, slots_of(saver, loop), time_s, ident, elsewhere, handled)
    return make_loop, (type(loop),), state, None, None, fill_loop


def make_loop(cls: type) -> Any:
    return object.__new__(cls)


def fill_loop(loop: Any, saved: _SavedLoop) -> None:
    attributes: dict[str, Any] = loop.__dict__
    attributes.update(saved.attributes)
    rebuild.fill_slots(loop, (None, saved.slots))
    attributes[asyncio_names.THREAD] = None
    if saved.time_s is not None:
        attributes["time"] = clock = LoopClock(saved.time_s)
        call_at_last(clock.start)
    if saved.ident is not None:
        set_ident_later(loop, asyncio_names.THREAD, saved.ident)
        if saved.is_elsewhere:
            call_later_in(saved.ident, run_in_this_thread, loop)
    call_at_last(_wake, loop)
    if attributes.get(asyncio_names.UNIX_SERVERS):
        call_at_last(_know_addresses_again, attributes[asyncio_names.UNIX_SERVERS])
    if saved.signals:
        call_at_last(_watch_signals, loop, saved.signals)


def _know_addresses_again(servers: dict[Any, int]) -> None:
    """A server over a Unix socket removes its address when it closes, if the file there is the one that it has made (since
    Python 3.13): the loop knows the file by its inode, and the sockets of a restart have made other files."""
    for server in servers:
        with contextlib.suppress(OSError):  # the program has closed the socket, or removed the file
            servers[server] = os.stat(server.getsockname()).st_ino


def _watch_signals(loop: Any, handled: tuple[int, ...]) -> None:
    """As ``loop.add_signal_handler`` has done."""
    signal.set_wakeup_fd(asyncio_names.self_pipe(loop)[1].fileno())
    for number in handled:
        signal.siginterrupt(number, False)

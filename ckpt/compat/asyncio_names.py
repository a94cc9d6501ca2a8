"""Private names of ``asyncio``: tables of tasks, and what an event loop over a selector keeps in its attributes.

For a new minor version: do ``Lib/asyncio/base_events.py``, ``selector_events.py``, ``unix_events.py``, ``events.py`` and
``tasks.py`` still have them? The structs of tasks: :mod:`ckpt.compat.asyncio_objects`.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from ckpt.compat.asyncio_objects import Catcher, await_it, coroutine_of

__all__ = [
    "carrier_of",
    "AT_THE_ENDS",
    "PIPE",
    "SIGNALS",
    "THREAD",
    "UNIX_SERVERS",
    "current_tasks",
    "does_nothing",
    "generator_hooks",
    "has_usual_clock",
    "loop_types",
    "make_hooks",
    "next_numbers",
    "run_once_code",
    "running_loop",
    "self_pipe",
    "set_next_numbers",
    "set_running_loop",
    "socket_transports",
    "suspended_frames",
    "task_tables",
    "tracking_depth",
]

# ---------------------------------------------------------------------- tables


def task_tables() -> dict[str, Any]:
    """The tables of ``asyncio.tasks`` by name: sets of all tasks, by weak references. ``_all_tasks`` until 3.11,
    ``_scheduled_tasks`` and ``_eager_tasks`` since 3.12."""
    names = ("_all_tasks", "_scheduled_tasks", "_eager_tasks")
    tasks = sys.modules["asyncio.tasks"].__dict__
    return {name: tasks[name] for name in names if name in tasks}


def suspended_frames() -> Iterator[types.FrameType]:
    """The frames of all tasks, of what each awaits, too."""
    tables = task_tables().values() if "asyncio.tasks" in sys.modules else ()
    for task in [task for table in tables for task in list(table)]:
        part = coroutine_of(task)
        while part is not None:
            prefix = next((p for p in ("cr", "gi", "ag") if hasattr(part, f"{p}_frame")), None)
            if prefix is None:
                break
            frame = getattr(part, f"{prefix}_frame")
            if frame is not None:
                yield frame
            part = getattr(part, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")


def current_tasks() -> dict[Any, Any]:
    """Event loop → the task that takes a step in it now."""
    found: dict[Any, Any] = sys.modules["asyncio.tasks"]._current_tasks
    return found


# ---------------------------------------------------------------------- loops


PIPE, SIGNALS, THREAD = ("_ssock", "_csock"), "_signal_handlers", "_thread_id"
"""Attributes of a loop: the ends of its self-pipe, the reading one first; signal → handler; the identifier of its thread."""
UNIX_SERVERS = "_unix_server_sockets"
"""Attribute of a loop, since Python 3.13: socket of a server → inode of the file that is its address."""


AT_THE_ENDS = (
    ("asyncio.base_events:BaseEventLoop._run_forever_setup", "an event loop begins"),
    ("asyncio.base_events:BaseEventLoop._run_forever_cleanup", "an event loop ends"),
    ("asyncio.selector_events:BaseSelectorEventLoop._make_self_pipe", "an event loop is being made"),
    ("asyncio.selector_events:BaseSelectorEventLoop._close_self_pipe", "an event loop is being closed"),
)
"""Functions in which a loop is half begun or half ended, and what is going on."""


def loop_types() -> tuple[type, ...]:
    """``BaseSelectorEventLoop``, the base of event loops over a selector; nothing if ``asyncio`` is not imported."""
    module = sys.modules.get("asyncio.selector_events")
    return () if module is None else (module.BaseSelectorEventLoop,)


def carrier_of(protocol: Any) -> Any:
    """The socket below an ``asyncio.sslproto.SSLProtocol``; None: there is none, or none any more. All versions."""
    return getattr(getattr(protocol, "_transport", None), "_sock", None)


def run_once_code() -> types.CodeType:
    """The code of the method of a loop that waits once, and calls what is ready; its first variable is the loop."""
    found: types.CodeType = sys.modules["asyncio.base_events"].BaseEventLoop._run_once.__code__
    return found


def running_loop() -> Any:
    """The event loop that runs in this thread, or None. A forked child has none."""
    return sys.modules["asyncio.events"]._get_running_loop()


def does_nothing(handler: object) -> bool:
    """Is this the handler that a loop of asyncio sets, which is woken by the number of the signal
    (``signal.set_wakeup_fd``)?"""
    unix = sys.modules.get("asyncio.unix_events")
    return unix is not None and handler is getattr(unix, "_sighandler_noop", None)


def set_running_loop(loop: Any) -> None:
    """Until the loop ends, it is the one that runs in this thread."""
    sys.modules["asyncio.events"]._set_running_loop(loop)


def self_pipe(loop: Any) -> tuple[Any, Any]:
    """The sockets by which a loop is woken, the reading one first; (None, None): it is closed."""
    return getattr(loop, PIPE[0], None), getattr(loop, PIPE[1], None)


def generator_hooks(loop: Any) -> tuple[Any, Any]:
    """What a running loop gives to ``sys.set_asyncgen_hooks``."""
    return loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook


def tracking_depth(loop: Any) -> int:
    """What a running loop gives to ``sys.set_coroutine_origin_tracking_depth``: 0 but in debug mode."""
    depth: int = sys.modules["asyncio.constants"].DEBUG_STACK_DEPTH
    return depth if loop._coroutine_origin_tracking_enabled else 0


def has_usual_clock(cls: Any) -> bool:
    """Is ``time`` of this class of loops that of ``BaseEventLoop``: the monotonic clock?"""
    usual: bool = cls.time is sys.modules["asyncio.base_events"].BaseEventLoop.time
    return usual


def make_hooks(*hooks: Any) -> Any:
    """What ``sys.get_asyncgen_hooks`` returns when these hooks are set."""
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(*hooks)
    try:
        return sys.get_asyncgen_hooks()
    finally:
        sys.set_asyncgen_hooks(*before)


# ---------------------------------------------------------------------- numbers of tasks

_NUMBER = re.compile(r"Task-(\d+)\Z")


def next_numbers(*, may_use: bool) -> tuple[int, Any]:
    """The number of the last task in C that was named by its number, and the counter of those in Python. ``may_use``: a
    number may be used to find the first one; else it is the highest of the tasks that are there."""
    module = sys.modules["_asyncio"]
    counter = sys.modules["asyncio.tasks"]._task_name_counter
    if may_use:
        last = int(_NUMBER.match(_numbered(module)[1])[1]) - 1  # type: ignore[index]
    else:
        names = [task.get_name() for table in task_tables().values() for task in list(table)]
        last = max([0, *(int(found[1]) for name in names if (found := _NUMBER.match(str(name))))])
    return last, getattr(counter, "__self__", None)


def set_next_numbers(last: int, counter: Any) -> None:
    """What :func:`next_numbers` has returned. Each number is used up: a program takes longer for a task than this does."""
    module, tasks = sys.modules["_asyncio"], sys.modules["asyncio.tasks"]
    if last:
        task, name = _numbered(module)
        number = int(_NUMBER.match(name)[1])  # type: ignore[index]
        loop, coroutine = Catcher(), task.get_coro()
        for _ in range(last - number):
            module.Task.__init__(task, coroutine, loop=loop)
        task._log_destroy_pending = False
        module._unregister_task(task)
    if counter is not None:
        tasks._task_name_counter = counter.__next__  # type: ignore[attr-defined]


def _numbered(module: Any) -> tuple[Any, str]:
    """A task of no loop that is named by its number, and this name."""
    loop = Catcher()
    coroutine = await_it(loop)
    task = module.Task(coroutine, loop=loop)
    coroutine.close()
    module._unregister_task(task)
    task._log_destroy_pending = False
    return task, task.get_name()


def socket_transports() -> tuple[type, ...]:
    """The classes of transports over sockets, and of servers, of loops over a selector: what they are is in their
    attributes, and the descriptors in the selector."""
    found = []
    for module, name in (
        ("asyncio.selector_events", "_SelectorTransport"),
        ("asyncio.base_events", "Server"),
        ("asyncio.trsock", "TransportSocket"),
    ):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None:
            found.append(cls)
    return tuple(found)

"""Trace and profile functions of the captured thread: what watches a program goes on watching it after a restart.

``note`` records what is set, and which frames have a trace function of their own; it refuses by name what is known to C code
only. ``begin`` sets it again in the new process. The rebuild calls ``begin`` when all frames are there and the program is
about to go on, so that nothing watches the rebuild itself.

Known are functions and methods written in Python (``sys.settrace``, ``sys.setprofile``, the module ``trace``),
``cProfile.Profile``, and trace functions in C of libraries (:data:`tracers`). After a restart the latter two are told again
which functions run. C functions between these functions count as called, and their time ends at the image.

What a program may notice: if an image is taken exactly where a loop goes back, the line to which the loop goes back may be
reported once less. No return is reported for the library functions in which the program waits.

Not here: that no function of ckpt is traced (``_frames.untraced``), and what profilers have counted
(:mod:`ckpt.image.stdlib.profilers`).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from ckpt.compat.stdlib import begin_call, profiler_type
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.transport.records import dataclass

__all__ = [
    "Tracing",
    "begin",
    "c_method",
    "captured_codes",
    "is_profile",
    "note",
    "running_calls",
    "tracers",
]

_PROFILER_TOOL = 2  # sys.monitoring.PROFILER_ID
_TOOLS = 6  # numbers of sys.monitoring that any tool may use


@dataclass(slots=True)
class Tracing:
    """The trace and profile functions of the captured thread, and ``threads``: those for new threads.

    frames: of each frame, outermost first, its own trace function with ``f_trace_lines`` and ``f_trace_opcodes``.
    """

    trace: Any
    profile: Any
    threads: Any
    frames: list[tuple[Any, bool, bool]]


tracers: list[tuple[Callable[[type], bool], Callable[[Any, list[FrameType]], None]]] = []
"""Trace functions that libraries have written in C, as pairs: a function that tells whether a type is that of the trace
function; and a function that starts it again, with the running frames, outermost first."""

captured_codes: list[CodeType] = []  # of the captured frames, outermost first
running_calls: dict[
    int, int
] = {}  # id of a loaded profile -> number of innermost frames whose call the profile has counted

# ---------------------------------------------------------------------------------- noting


def note(codes: Sequence[CodeType], bases: Sequence[CodeType]) -> Tracing:
    """Record the functions that are set. codes: of the captured frames, outermost first; bases: codes of the frame below
    the outermost one. Raises Refused."""
    captured_codes[:] = codes
    frames = _frames_above(sys._getframe(1), bases)[: len(codes)]
    if [frame.f_code for frame in frames] != list(codes):
        raise Refused("a traced call is being set up or torn down")
    trace, profile = sys.gettrace(), sys.getprofile() or _profiler()
    for watcher in (trace, profile):
        if not _is_known(watcher):
            name = f"{type(watcher).__module__}.{type(watcher).__qualname__}"
            raise Refused(f"the program is being traced or profiled by a {name}, which lives in C")
    return Tracing(
        trace,
        profile,
        (threading.gettrace(), threading.getprofile()),
        [(frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes) for frame in frames],
    )


def _frames_above(frame: FrameType | None, bases: Sequence[CodeType]) -> list[FrameType]:
    """The frames from the one below a base (outermost) to this one."""
    found: list[FrameType] = []
    while frame is not None and frame.f_code not in bases:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _profiler() -> Any:
    """The profiler behind ``sys.monitoring``, where that exists; other tools are refused by name."""
    monitoring: Any = getattr(sys, "monitoring", None)
    found = None
    for tool in range(_TOOLS) if monitoring is not None else ():
        name = monitoring.get_tool(tool)
        if name is None:
            continue
        if tool == _PROFILER_TOOL and name == "cProfile":
            event = monitoring.events.PY_START
            method = monitoring.register_callback(tool, event, None)
            monitoring.register_callback(tool, event, method)
            found = getattr(method, "__self__", None)
        if found is None:
            raise Refused(f"the program is being traced or profiled by the tool {name!r} of sys.monitoring")
    return found


def _is_known(watcher: Any) -> bool:
    if watcher is None or type(watcher) in (FunctionType, MethodType, functools.partial):
        return True
    if is_profile(type(watcher)) or _tracer(watcher) is not None:
        return True
    return type(_frames.lookup(type(watcher), "__call__")) is FunctionType


def is_profile(cls: type) -> bool:
    return issubclass(cls, profiler_type() or ())


def _tracer(watcher: Any) -> Callable[[Any, list[FrameType]], None] | None:
    return next((start for is_tracer, start in tracers if is_tracer(type(watcher))), None)


# ---------------------------------------------------------------------------------- setting again


def begin(tracing: Tracing, bases: Sequence[CodeType], release: Callable[[], object] | None = None) -> None:
    """Set again what was noted; called by the rebuild, above the innermost frame. ``release`` is called first."""
    if release is not None:
        release()
    frames = _frames_above(sys._getframe(1), bases)
    for frame, (trace, lines, opcodes) in zip(frames, tracing.frames, strict=True):
        frame.f_trace_lines, frame.f_trace_opcodes = lines, opcodes
        if trace is not None:
            frame.f_trace = trace
    threading.settrace(tracing.threads[0])
    threading.setprofile(tracing.threads[1])
    if tracing.profile is not None:
        if is_profile(type(tracing.profile)):
            c_method(tracing.profile, "enable")()
            _call_again(tracing.profile, frames)
        else:
            sys.setprofile(tracing.profile)
    if tracing.trace is not None:
        start = _tracer(tracing.trace)
        if start is not None:
            start(tracing.trace, frames)
        else:
            sys.settrace(tracing.trace)
    tracing.trace = tracing.profile = tracing.threads = None  # the image must not keep these objects alive
    tracing.frames.clear()


def _call_again(profile: Any, frames: list[FrameType]) -> None:
    running = running_calls.pop(id(profile), 0)
    for frame in frames[len(frames) - running :]:
        if not begin_call(profile, frame.f_code):
            _frames.profile_call(frame)


def c_method(profile: Any, name: str) -> Any:
    return functools.partial(getattr(profiler_type(), name), profile)

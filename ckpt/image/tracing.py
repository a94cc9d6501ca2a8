"""Trace and profile functions of the captured thread: what watches a program goes on watching it after a restart.

``note`` says what is set, and which frames have a trace function of their own, or refuses by name what only C knows.
``begin`` sets it again in the new process: the rebuild calls it when all frames are there and the program is about to go on,
so that nothing watches the rebuild itself.

What is known: functions and methods written in Python (``sys.settrace``, ``sys.setprofile``, the module ``trace``),
``cProfile.Profile`` and coverage's ``CTracer``. The latter two keep what they know in C. A profile is taken as it is
reported, and what was counted before the image is added to what is counted after it (`Earlier`). Both are told of the
functions again that run; C functions between them count as called, their time ends at the image.

Events: where a loop goes back at the very place of an image, the line it goes back to may be reported once less. Of
functions of the library that the program waits in, no return is reported.

Not here: that nothing of ours is traced (``_frames.untraced``).
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from pickle import PicklingError
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

from ckpt.image import _frames
from ckpt.image.errors import Refused
from transport.lean import dataclass

if TYPE_CHECKING:
    from ckpt.image.pickler import ImagePickler

__all__ = ["Earlier", "Tracing", "begin", "kind_by_base", "make_profile", "note"]

_PROFILER_TOOL = 2  # sys.monitoring.PROFILER_ID
_TOOLS = 6  # of sys.monitoring that are anybody's
_TRACER = "coverage.tracer"


@dataclass(slots=True)
class Tracing:
    """What ``sys.settrace`` and ``sys.setprofile`` have been given, and what new threads will be.

    frames: of each frame, outermost first, its own trace function with ``f_trace_lines`` and ``f_trace_opcodes``.
    """

    trace: Any
    profile: Any
    threads: Any
    frames: list[tuple[Any, bool, bool]]


_codes: list[CodeType] = []  # of the captured frames, outermost first
_running: dict[
    int, int
] = {}  # id of a loaded profile: how many of the innermost frames it has seen the beginning of

# ---------------------------------------------------------------------------------- noting


def note(codes: Sequence[CodeType], bases: Sequence[CodeType]) -> Tracing:
    """codes: of the captured frames, outermost first, above the frame of one of bases. Raises Refused."""
    _codes[:] = codes
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
    if _is_profile(type(watcher)) or _is_tracer(type(watcher)):
        return True
    return type(_frames.lookup(type(watcher), "__call__")) is FunctionType


def _is_profile(cls: type) -> bool:
    module = sys.modules.get("_lsprof")
    return module is not None and issubclass(cls, module.Profiler)


def _is_tracer(cls: type) -> bool:
    return cls is getattr(sys.modules.get(_TRACER), "CTracer", None)


# ---------------------------------------------------------------------------------- setting again


def begin(tracing: Tracing, bases: Sequence[CodeType]) -> None:
    """Set again what was noted; called by the rebuild, above the innermost frame."""
    frames = _frames_above(sys._getframe(1), bases)
    for frame, (trace, lines, opcodes) in zip(frames, tracing.frames, strict=True):
        frame.f_trace_lines, frame.f_trace_opcodes = lines, opcodes
        if trace is not None:
            frame.f_trace = trace
    threading.settrace(tracing.threads[0])
    threading.setprofile(tracing.threads[1])
    if tracing.profile is not None:
        if _is_profile(type(tracing.profile)):
            _c_method(tracing.profile, "enable")()
            _call_again(tracing.profile, frames)
        else:
            sys.setprofile(tracing.profile)
    if tracing.trace is not None:
        if _is_tracer(type(tracing.trace)):
            _enter_again(tracing.trace, frames)
        else:
            sys.settrace(tracing.trace)
    tracing.trace = tracing.profile = tracing.threads = None  # lifetimes are the program's own from here on
    tracing.frames.clear()


def _call_again(profile: Any, frames: list[FrameType]) -> None:
    running = _running.pop(id(profile), 0)
    for frame in frames[len(frames) - running :]:
        if hasattr(profile, "_pystart_callback"):
            profile._pystart_callback(frame.f_code, 0)
        else:
            _frames.profile_call(frame)


def _enter_again(tracer: Any, frames: list[FrameType]) -> None:
    """Tell a CTracer of the functions that run, beginning with the first one it has been told of before."""
    collector = getattr(tracer.lock_data, "__self__", None)
    collectors = getattr(
        type(collector), "_collectors", None
    )  # the package, compiled, starts as after its import
    if type(collectors) is list and collector not in collectors:
        collectors.append(collector)
    tracer.start()
    known = [index for index, frame in enumerate(frames) if frame.f_trace is tracer]
    for frame in frames[known[0] :] if known else ():
        tracer(frame, "call", None)


# ---------------------------------------------------------------------------------- what they have seen so far


class Place:
    """Stands for a code object in what a profiler reports."""

    __slots__ = ("co_filename", "co_firstlineno", "co_name")

    def __init__(self, key: tuple[str, int, str]) -> None:
        self.co_filename, self.co_firstlineno, self.co_name = key


Counts = tuple[int, int, float, float]
_NONE: Counts = (0, 0, 0.0, 0.0)
Entries = list[tuple[Any, Counts, list[tuple[Any, Counts]]]]


def _key(code: Any) -> Any:
    return code if isinstance(code, str) else (code.co_filename, code.co_firstlineno, code.co_name)


class Earlier:
    """What a profile had counted before a restart: takes the place of ``getstats``, and adds what C has counted since."""

    def __init__(self, profile: Any, entries: Entries) -> None:
        self._profile, self._entries = profile, entries

    def __call__(self) -> list[Any]:
        return merged(self._entries, entries_of(_c_method(self._profile, "getstats")()))

    def clear(self) -> None:
        """The program begins again."""
        self._entries = []
        _c_method(self._profile, "clear")()

    @property
    def entries(self) -> Entries:
        return self._entries


def _c_method(profile: Any, name: str) -> Any:
    return functools.partial(getattr(sys.modules["_lsprof"].Profiler, name), profile)


def entries_of(stats: list[Any]) -> Entries:
    """What ``getstats`` returns, as plain content."""
    return [
        (_key(one[0]), tuple(one[1:5]), [(_key(sub[0]), tuple(sub[1:5])) for sub in one[5] or ()])
        for one in stats
    ]


def sum_of(*parts: Entries) -> Entries:
    """Entries of several times, one for each function."""
    totals: dict[Any, Counts] = {}
    callees: dict[Any, dict[Any, Counts]] = {}
    for entries in parts:
        for key, counts, below in entries:
            totals[key] = _added(totals.get(key), counts)
            for other, more in below:
                inner = callees.setdefault(key, {})
                inner[other] = _added(inner.get(other), more)
    return [(key, counts, list(callees.get(key, {}).items())) for key, counts in totals.items()]


def _added(a: Counts | None, b: Counts) -> Counts:
    return b if a is None else (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])


def merged(*parts: Entries) -> list[Any]:
    """The sum, as ``getstats`` returns it; each function is one object there."""
    module = sys.modules["_lsprof"]
    places: dict[Any, Any] = {}

    def place(key: Any) -> Any:
        return places.setdefault(key, key if isinstance(key, str) else Place(key))

    return [
        module.profiler_entry(
            (
                place(key),
                *counts,
                [module.profiler_subentry((place(other), *more)) for other, more in below] or None,
            )
        )
        for key, counts, below in sum_of(*parts)
    ]


# ---------------------------------------------------------------------------------- in images


def kind_by_base(cls: type) -> Callable[[ImagePickler, Any], Any] | None:
    if _is_profile(cls):
        return reduce_profile
    is_disposition = cls is getattr(sys.modules.get(_TRACER), "CFileDisposition", None)
    return reduce_members if is_disposition or _is_tracer(cls) else None


def reduce_profile(pickler: ImagePickler, obj: Any) -> Any:
    attributes = getattr(obj, "__dict__", None)
    if attributes is None:
        raise PicklingError("a profiler without attributes cannot be saved: use cProfile.Profile")
    earlier = attributes.get("getstats")
    now, running = entries_of(_c_method(obj, "getstats")()), 0
    if pickler.is_disposable:
        _c_method(obj, "disable")()  # which counts what runs as if it had returned
        now, running = _without_running(now, entries_of(_c_method(obj, "getstats")()))
    is_again = type(earlier) is Earlier
    entries = sum_of(earlier.entries, now) if is_again else now
    kept = {
        key: value for key, value in attributes.items() if not is_again or key not in ("getstats", "clear")
    }
    return make_profile, (type(obj),), (kept, entries, running), None, None, fill_profile


def _without_running(before: Entries, ended: Entries) -> tuple[Entries, int]:
    """The times of `ended`, without the calls of the captured functions that run, and how many these are; the same before
    they have been ended."""
    counts = {key: (calls, dict(below)) for key, calls, below in before}
    active = {key: calls[0] - counts[key][0][0] if key in counts else calls[0] for key, calls, _ in ended}
    running: list[Any] = []
    for code in reversed(_codes):
        key = _key(code)
        if active.get(key, 0) < 1:
            break
        active[key] -= 1
        running.append(key)
    inner = [(caller, callee) for callee, caller in itertools.pairwise(running)]
    found = []
    for key, calls, below in ended:
        known, known_below = counts.get(key, (_NONE, {}))
        rest = [
            (other, _less(more, known_below.get(other, _NONE), inner.count((key, other))))
            for other, more in below
        ]
        found.append((key, _less(calls, known, running.count(key)), rest))
    return found, len(running)


def _less(ended: Counts, before: Counts, running: int) -> Counts:
    """As ended, with so many calls less; those of them that were calls within another one are not told apart."""
    recursive = max(before[1], ended[1] - running)
    return (ended[0] - running, recursive, ended[2], ended[3])


def make_profile(cls: Any) -> Any:
    profile = cls.__new__(cls)
    _c_method(profile, "__init__")()
    return profile


def fill_profile(profile: Any, state: tuple[dict[str, Any], Entries, int]) -> None:
    attributes, entries, _running[id(profile)] = state
    profile.__dict__.update(attributes)
    if entries:
        earlier = Earlier(profile, entries)
        profile.__dict__.update(getstats=earlier, clear=earlier.clear)


def reduce_members(pickler: ImagePickler, obj: Any) -> Any:
    """An object in C whose attributes are its whole state, but for what runs."""
    names = [name for name, found in type(obj).__dict__.items() if type(found) is MemberDescriptorType]
    state = {
        name: getattr(obj, name) for name in names
    }  # what is not set reads as None, which C takes for no less
    return type(obj), (), state, None, None, fill_members


def fill_members(obj: Any, members: dict[str, Any]) -> None:
    for name, value in members.items():
        setattr(obj, name, value)

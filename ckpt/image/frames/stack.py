"""The Python call stack as data: capture it, describe it.

A program runs under `run_base`; the frames outside of that belong to the launcher and are never captured. `capture` turns
the frames inside into a `Stack` of `FrameRecord`s, which are plain picklable content. There are two situations:

    at="call"   the program has called a function of the library, which calls `capture`. The library's own innermost frames
                (`skip`) are left out; the innermost frame of the program resumes as if that call returned `value`.
    at="check"  the interpreter calls `capture` at its own check between two instructions, where `_frames.request()` has
                queued the call. That may be anywhere in the program.

The mode of a frame says how it goes on (`c_calls` says which frame has which mode):

    L  the innermost frame: it simply goes on
    V  the result of the inner frame is pushed, and the frame goes on behind its instruction
    I  as V, but the new object is pushed whose `__init__` the inner frame runs
    R  the instruction is repeated, and enters the inner frame again

What cannot be captured raises Refused with reason and place; the program goes on, and the caller tries again later. A record
refers to the program's live objects, so a capture takes microseconds; they are pickled later (in a forked child). In the
running program, records must not outlive that, because they keep its objects alive.

Limits
- The rebuilt outer frames nest on the C stack (about 0.5 KiB each) until they return: see `ckpt.image.lowlevel.c_stack`.
- If the function of `map` raises StopIteration after a restart, the program gets that exception instead of the end of its
  loop.
- From CPython 3.13 on, a call of a class that is called often counts one level of recursion more than other calls. The calls
  of a resumed program begin as the latter, so RecursionError may come some levels later.
- Not captured: threads that C code has started.

Other threads have stacks of their own (`capture_thread`), which are read while these threads stand still. Their outermost
frame is that with which `threading` begins, so no base frame is looked for.

Not here: which frames no image can have (`unrecordable`), where the innermost frame goes on (`c_waits`), how a stack runs
again (`running`), how the frames are read and made in C (`_frames`).
"""

from __future__ import annotations

import gc
import threading
from _thread import get_ident
from collections.abc import Callable, Collection
from types import CellType, CodeType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any, Literal

from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import NULL
from ckpt.image.frames.c_calls import classify, inlined
from ckpt.image.frames.c_waits import innermost, take_off
from ckpt.image.frames.opcodes import CO_OPTIMIZED, GENERATOR_FLAGS, code_map, may_be_operand
from ckpt.image.frames.running import BASES
from ckpt.image.frames.suspended import CachedCall, ContextRun, Mode, Suspended, cell_contents, location
from ckpt.image.frames.unrecordable import (
    CODE_REPLACED,
    ENTRY,
    EXTRA_LEVEL,
    STOPPED,
    UNUSABLE,
    WAITING,
    check_frame,
    check_hash,
    check_library,
    check_locks,
    is_of_library,
)
from ckpt.image.lowlevel import c_stack
from ckpt.transport.records import dataclass, field

if TYPE_CHECKING:
    import threading
    from contextvars import Context

    from ckpt.image.frames.tracing import Tracing

__all__ = [
    "CapturedThread",
    "FrameRecord",
    "Refused",
    "Stack",
    "capture",
    "capture_thread",
]


on_other_stacks: list[Callable[[], str]] = []
"""Of other modules: why the main thread runs on another stack than that of its first function; "": it does not."""


@dataclass(slots=True)
class FrameRecord:
    """One frame as picklable content. Lists may hold `_frames.NULL` (an empty slot), a singleton pickled by
    reference.

    func is None exactly for module-level code, which is given by globals_ and locals_ns instead; of a function that is what
    `locals()` has handed out, where somebody would miss it. code: what runs; func may have been given another meanwhile, or
    have another in a new process.
    """

    func: FunctionType | None
    code: CodeType
    globals_: dict[str, Any] | None
    locals_ns: Any
    locals: list[Any]  # variables, cells included
    stack: list[Any]  # evaluation stack
    lasti: int  # code unit before the next instruction
    mode: Mode
    value: Any  # L: pushed when it resumes, unless NULL; I: the object being initialised; R: CachedCall, ContextRun, or NULL
    gen: Any  # the generator or coroutine whose frame this is
    exc: BaseException | None  # gen only: the exception it is handling
    until: int = 0  # R: end of the repeated instruction, in code units; V, I: levels of recursion in between
    kept: list[Any] | None = None  # V, I: operands that the call keeps alive until it returns


@dataclass(slots=True)
class Stack:
    """A captured call stack, outermost frame first; exc: the exception handled by frames that are no
    generator's. ident: the thread's identifier when it was captured."""

    frames: list[FrameRecord] = field(default_factory=list)
    exc: BaseException | None = None
    recursion_depth: int = 0  # of the innermost frame, as counted against the limit
    recursion_limit: int = 1000
    tracing: Tracing | None = None  # what traces or profiles the program
    threads: list[CapturedThread] = field(default_factory=list)  # the program's other threads
    ident: int = 0

    def all_frames(self) -> list[FrameRecord]:
        """The frames of all threads, those of this one first."""
        return [*self.frames, *(record for thread in self.threads for record in thread.stack.frames)]

    def describe(self) -> list[dict[str, Any]]:
        """[{"file", "line", "function"}], outermost first."""
        rows = []
        for record in self.frames:
            code = record.code
            file, _, rest = location(code, max(0, record.lasti + (record.mode == "R"))).rpartition(":")
            rows.append({"file": file, "line": int(rest.split(" ", 1)[0]), "function": code.co_qualname})
        return rows

    def generators(self) -> list[Any]:
        """The generators and coroutines whose frames are in the stack, outermost first."""
        return [record.gen for record in self.all_frames() if record.gen is not None]

    def cached_calls(self) -> list[CachedCall]:
        """The calls of a ``functools.lru_cache`` that will be made again, outermost first."""
        return [
            record.value
            for record in self.all_frames()
            if record.mode == "R" and type(record.value) is CachedCall
        ]

    def context_runs(self) -> list[ContextRun]:
        """The calls of ``Context.run`` of this thread that will be made again, outermost first."""
        return [
            record.value for record in self.frames if record.mode == "R" and type(record.value) is ContextRun
        ]

    def stepping_tasks(self) -> list[Any]:
        """The tasks of asyncio, made in C, that take a step which will be begun again."""
        stacks = [self, *(thread.stack for thread in self.threads)]
        return [run.task for stack in stacks for run in stack.context_runs() if run.task is not None]

    def receivers(self) -> list[Any]:
        """First arguments of the functions in the stack: the objects whose methods are running, among others."""
        found = []
        for record in self.all_frames():
            if record.locals and record.code.co_argcount:
                first = record.locals[0]
                found.append(cell_contents(first) if type(first) is CellType else first)
        return found

    def entered(self) -> list[Any]:
        """Objects in whose ``with`` block the program is, as far as their ``__exit__`` is written in Python."""
        return [
            value.__self__
            for record in self.all_frames()
            for value in record.stack
            if type(value) is MethodType and value.__func__.__name__ in ("__exit__", "__aexit__")
        ]

    def entered_receivers(self) -> list[Any]:
        """First arguments of the generators that such ``with`` blocks have entered (``@contextmanager``)."""
        found = []
        for manager in self.entered():
            generator = getattr(manager, "gen", None)
            if type(generator) is GeneratorType and generator.gi_frame and generator.gi_code.co_argcount:
                found.append(generator.gi_frame.f_locals.get(generator.gi_code.co_varnames[0]))
        return found


@dataclass(slots=True)
class CapturedThread:
    """One of the program's other threads, with what belongs to it alone.

    blocked: the signals that its mask holds back. queue: of the thread pool to
    which it belongs, or None. local_key: see `ckpt.compat.threads.values_of`; an image has none.
    """

    thread: threading.Thread
    stack: Stack
    context: Context | None
    blocked: tuple[int, ...]
    queue: Any
    local_key: Any = None


# ---------------------------------------------------------------------------------- capture


def capture(*, at: Literal["call", "check"], skip: Collection[CodeType] = (), value: object = None) -> Stack:
    """The stack of the calling thread.

    skip: code objects of library frames to leave out at the inner end (at="call"; the frames of a queued call
    are left out by themselves). value: what the innermost frame gets as the result of its call (at="call").
    Raises Refused; must not be called while an exception of the library's own is being handled.
    """
    enabled = gc.isenabled()
    gc.disable()  # collections come by counting allocations: ours must not move the program's
    seen: list[_frames.Frame] = []
    try:
        return _capture(at == "check", (_CAPTURE_CODE, _CAPTURE_INNER, *skip), value, seen)
    except Refused as refused:
        if seen:
            refused.obstacle = seen[-1][0], seen[-1][3]
        raise
    finally:
        if enabled:
            gc.enable()


def capture_thread(ident: int) -> Stack:
    """The stack of another thread, which stands still meanwhile. Raises Refused."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _capture(True, (), None, [], ident)
    finally:
        if enabled:
            gc.enable()


def _capture(
    at_check: bool, skip: tuple[CodeType, ...], value: object, seen: list[_frames.Frame], thread: int = 0
) -> Stack:
    """seen: gets the frames that were looked at; the last one is what a refusal is about. thread: 0: the calling one."""
    frames, callee, exc, depth, limit, traced = _frames.walk(BASES, skip, at_check, thread)
    reason = _reason_against(frames, traced, thread)
    if frames is None or reason:
        seen += frames[:1] if frames and traced == 2 else ()
        raise Refused(reason)
    records: list[FrameRecord] = []
    inner, value, at_check = take_off(frames, exc, thread) if thread or at_check else (callee, value, False)
    for frame in frames:
        seen.append(frame)
        _, code, func, lasti, flags, gen, _, locals_, stack, init, globals_, namespace, handled, kept = frame
        in_module = not code.co_flags & CO_OPTIMIZED
        if is_of_library(code) or thread:
            check_library(code, func, lasti, is_other_thread=thread != 0)
        if flags & UNUSABLE or in_module or code.co_flags & GENERATOR_FLAGS:
            check_frame(frame)
        mode: Mode
        pushed: Any
        if flags & STOPPED:
            assert stack is not None
            mode, lasti, pushed, until = "L", lasti - 1, NULL, 0
        elif stack is None:
            if inner is not None:
                resumption = classify(*_pair(frame, inner, thread))
            else:
                resumption, waits = innermost(frame, traced, thread)
                depth *= not waits  # C code has levels of its own
            mode, lasti, stack, pushed, until, kept = resumption
        elif inner is None:
            raise Refused("it is about to begin a line", location(code, lasti))
        else:
            if inner[4] & ENTRY and not flags & WAITING:
                raise Refused(
                    "a finished call is torn down, or a generator thrown into", location(code, lasti)
                )
            again = inlined(*_pair(frame, inner, thread), stack) if inner[5] is not None else None
            if again is not None:
                mode, lasti, stack, pushed, until, kept = again
            elif code_map(code).depth.get(lasti + 1) != len(stack) + 1:
                raise Refused("the stack depth is not what the code says", location(code, lasti))
            else:
                mode, pushed, until = ("V" if init is NULL else "I"), init, int(bool(flags & EXTRA_LEVEL))
        if not records and not at_check:
            if mode != "V":
                raise Refused("the library is called from inside of C", location(code, lasti))
            mode, pushed = "L", value
        if mode == "R" and inner is not None and inner[4] & CODE_REPLACED and inner[5] is None:
            # what is repeated enters the function by its new code
            raise Refused("the code of a running function has been replaced", location(code, lasti))
        record = FrameRecord(
            func, code, None, namespace, locals_, stack, lasti, mode, pushed, gen, handled, until, kept
        )
        if in_module:
            record.func, record.globals_ = None, globals_
        records.append(record)
        _check_contents(code, lasti, records)
        inner = frame
    records.reverse()
    if len(records) > c_stack.UNCHECKED_FRAMES:
        c_stack.check(len(records))
    captured = Stack(records, exc, depth, limit, ident=thread or get_ident())
    if traced:
        from ckpt.image.frames import tracing

        captured.tracing = tracing.note([record.code for record in records], BASES)
    return captured


def _check_contents(code: CodeType, lasti: int, records: list[FrameRecord]) -> None:
    """Raise Refused for what the frame of the latest record, and those that it has called, hold for a moment."""
    check_locks(code, lasti, records[-1].stack)
    if code.co_name == "__hash__":
        check_hash(code, lasti, (part for each in records for part in (each.stack, each.locals)))


def _reason_against(frames: list[_frames.Frame] | None, traced: int, thread: int) -> str:
    """Why no stack can be captured, whatever its frames; "": it can."""
    if frames is None:
        if (this := threading.current_thread()) is not threading.main_thread():
            return f"thread {this.name!r} waits inside of a call of ckpt"
        found = next(filter(None, (reason() for reason in on_other_stacks)), "")
        return found or "the program is not running under run_base, or is being restarted"
    if traced == 2:
        return "a trace or profile function of the program is running"
    if thread and traced:
        return "it is traced or profiled"
    return "" if frames else "the program is not running"


def _pair(outer: _frames.Frame, inner: _frames.Frame, thread: int) -> tuple[Suspended, Suspended]:
    return _suspended(outer, thread), _suspended(inner, thread)


def _suspended(frame: _frames.Frame, thread: int) -> Suspended:
    address, code, func, lasti, _, gen, gen_references, locals_ = frame[:8]
    return Suspended(
        code,
        func,
        lasti,
        gen,
        gen_references,
        locals_,
        code_map(code),
        lambda n: _frames.slots(address, n, True, code, thread),
        lambda cls: _frames.held_by_c(address, thread, cls, may_be_operand),
        lambda iterator: _frames.takes_from_only(address, thread, iterator),
        lambda: _frames.folds_of(address),
        lambda: _frames.taken_of(address),
    )


_CAPTURE_CODE = capture.__code__
_CAPTURE_INNER = _capture.__code__

"""Decides whether the call that the innermost frame of a thread executes is over, or is still running in C code.

A thread that stands at the interpreter's check behind a call, and one that is inside of the C function that is called, have
the same "last instruction". They differ in the evaluation stack: the result of a call takes the lowest slot of its operands.

    versions with NULL or a method below     NULL is there until the call is over; a method of a C type may be a method in
    the callable (3.11, 3.12)                use or, very seldom, a result
    versions with the callable first         any callable may be one in use or a result; Python functions are results,
    (3.13)                                   because the interpreter, not C, runs them

A method of a C type is a result if the entry above it is no object of that type (``copier = table.get(type(x))``).
Where both are possible the call counts as running: then the thread can only be captured if repeating the call is right, and
is looked at again later otherwise.

A *wait* is a call of a C function that does nothing but wait, and takes what it has waited for only when the interpreter's
lock (GIL) is held again. It has had no effect while the thread is inside of it. So a new process makes the call again, with
the same operands: ``Lock.acquire``, ``SimpleQueue.get``, ``time.sleep`` … A time limit begins anew.

A call that reads from a pipe (``os.read``, ``recv`` of a pair of sockets) takes what it has waited for without that lock. It
has had no effect while its thread is inside of the kernel's call, which `reads_from` lets the capture of another thread ask
for. The main thread is captured when a signal has interrupted its call, which has taken nothing then.

Where a thread waits for a line of a connection, C code (a buffer) has called Python code (``SocketIO.readinto``) that waits.
The call of the buffer can be made again: what it has of the line is found (:mod:`ckpt.compat.readers`), and comes first
then. So the frame of ``readinto`` is no part of an image.

A call can also be *answered*: what runs inside of it is no part of the image; in a new process the call returns a value
that says "nothing has come". A thread that serves something outside of this process (a pool of processes) reads from a
pipe, and what it would get does not exist in a new process. The library that has made the pipe knows a value by which
the thread's loop goes on and looks again (:attr:`ckpt.image.interface.library.Library.answered_calls`). The thread may
be anywhere inside of the call, so what it has done there must be without meaning if the call returns that value.

Nothing here runs code of the program. Not here: which calls are answered; C code that has entered another Python frame
(`c_calls`).
"""

from __future__ import annotations

import io
import os
import stat
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from ckpt.compat import accelerators, threads
from ckpt.compat.readers import buffers_of_pair
from ckpt.image.errors import Refused
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import DEAD, NULL
from ckpt.image.frames.call_operands import callee
from ckpt.image.frames.opcodes import TABLE, CodeMap, Instruction, code_map
from ckpt.image.frames.suspended import Resumption, describe, location
from ckpt.transport.records import NamedTuple

__all__ = [
    "Answer",
    "cut",
    "declare",
    "innermost",
    "is_answered",
    "reads_from",
    "running",
    "take_off",
    "waits_for",
]

_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
_BOUND = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
)  # with a subtype, of methods that know their class
further: list[Callable[[Any, str], bool]] = []
"""Of other modules: is this method of this object a wait?"""

reading: list[Callable[[Any, str], int]] = []
"""Of other modules: the descriptor from which this method of this object reads; -1: it takes nothing that may not get lost
with an image."""

_READ = ("posix", "read")
_FUNCTIONS = (("time", "sleep"), ("select", "select"), threads.WAIT_FOR_ALL)
_POLLS = ("poll", "epoll")
_CALLS = type(iter(int, 1))
_READERS: dict[type, tuple[str, ...]] = {
    io.BufferedReader: ("readline", "__next__", "next", "read1", "peek"),
    io.BufferedRWPair: ("readline", "__next__", "next", "peek"),
    io.TextIOWrapper: ("readline", "__next__", "next"),
}
"""Calls of buffers and text layers over connections that can be made again: what they have taken of a line is found."""

_Read = Callable[[int], list[Any]]
"""Reads so many entries of the evaluation stack. Raises LookupError: the thread has left the frame."""


class _Call(NamedTuple):
    """A call instruction with its operands on the stack. ``first``: index of its first code unit."""

    function: Any
    arguments: Sequence[Any]
    stack: list[Any]
    first: int


def innermost(frame: _frames.Frame, traced: int, thread: int) -> tuple[Resumption, bool]:
    """How a frame goes on that is the innermost one of its thread, and whether it is in a wait: else it stands at a check.
    ``thread``: as for ``_frames.walk``. Raises Refused; LookupError: the thread has left the frame."""
    address, code, lasti = frame[0], frame[1], frame[3]
    codes, call = code_map(code), _running_call(address, code, lasti, thread)
    if call is not None:
        if not _is_wait(call):
            raise Refused(f"{describe(call.function)} is running", location(code, lasti))
        return Resumption("L", call.first - 1, call.stack), True
    index = codes.after_traced_check(lasti) if traced else codes.after_check(lasti)
    if index is None or index not in codes.depth:
        item = _awaited_item(address, code, lasti, thread)
        raise Refused(item or "the check was not between two instructions", location(code, lasti))
    return Resumption("L", index - 1, _frames.slots(address, codes.depth[index], False, code, thread)), False


def waits_for(thread: int) -> Any:
    """The object (a lock, a module) for which another thread waits in its innermost frame; None: it is in no wait."""
    for address, code, lasti, _ in _frames.places(thread, 1):
        try:
            call = _running_call(address, code, lasti, thread)
        except LookupError:  # the thread has gone on
            return None
        return None if call is None or not _is_wait(call) else _owner(call)
    return None


def running(thread: int) -> str:
    """What the main thread does in C, for people, if it cannot be captured there; "": that is not known."""
    for address, code, lasti, _ in _frames.places(thread, 1):
        try:
            call = _running_call(address, code, lasti, thread)
            if call is None:
                return _awaited_item(address, code, lasti, thread)
        except LookupError:  # the thread has gone on
            return ""
        return "" if _is_wait(call) else f"{describe(call.function)} is running"
    return ""


def _awaited_item(address: int, code: types.CodeType, lasti: int, thread: int) -> str:
    """The iterator in C that is at its next item, for people; "": there is none."""
    codes = code_map(code)
    at = codes.instructions.get(lasti)
    depth = codes.depth.get(at.start) if at is not None and at.name == "FOR_ITER" else None
    if depth is None:
        return ""
    iterator = _frames.slots(address, depth, True, code, thread)[-1]
    return "" if iterator is DEAD or iterator is NULL else f"{type(iterator).__name__}.__next__() is running"


def reads_from(thread: int) -> int:
    """The descriptor from which another thread reads in its innermost frame, if that is a wait that takes what it reads; -1:
    it is in no such wait."""
    for address, code, lasti, _ in _frames.places(thread, 1):
        try:
            call = _running_call(address, code, lasti, thread)
        except LookupError:  # the thread has gone on
            return -1
        if call is None or not _is_wait(call):
            return -1
        owner, name = _owner(call), call.function.__name__
        if type(owner) is types.ModuleType:
            return call.arguments[0] if (owner.__name__, name) == _READ else -1
        return max((descriptor(owner, name) for descriptor in reading), default=-1)
    return -1


def _running_call(address: int, code: types.CodeType, lasti: int, thread: int) -> _Call | None:
    """The call that the frame's instruction makes; None: it makes none, or the call is over."""
    assert TABLE is not None
    codes = code_map(code)

    def read(depth: int) -> list[Any]:
        return _frames.slots(address, depth, True, code, thread)

    at = codes.instructions.get(lasti)
    if at is None:
        return None
    if at.name in (TABLE.call, TABLE.call_prefix, TABLE.keyword_call):
        return _plain_call(read, codes, at, names=int(at.name == TABLE.keyword_call))
    if at.name == "CALL_FUNCTION_EX":
        return _call_ex(read, codes, at)
    if at.name == "FOR_ITER":
        return _next_call(read, codes, at)
    return _entered(read, codes, at) if at.name == "BEFORE_WITH" else None


def _plain_call(read: _Read, codes: CodeMap, at: Instruction, names: int) -> _Call | None:
    """``names``: number of entries above the arguments (the names of those given by keyword)."""
    assert TABLE is not None
    instructions = codes.instructions
    prefix = instructions[at.previous] if at.name == TABLE.call != TABLE.call_prefix else at
    depth = codes.depth.get(prefix.start)
    if depth is None:
        return None
    stack = read(depth)
    base = depth - names - prefix.arg - 2
    function, arguments = callee(stack[base : depth - names])
    if _is_over(stack[base], function, arguments):
        return None
    before = instructions.get(prefix.previous)
    has_names = before is not None and before.name == TABLE.keyword_names
    first = before.start if before is not None and has_names else prefix.start
    return _Call(function, arguments, stack, first)


def _call_ex(read: _Read, codes: CodeMap, at: Instruction) -> _Call | None:
    """``f(*args, **kwargs)``: a call that runs is never taken for a wait, because its arguments may have been replaced."""
    assert TABLE is not None
    depth = codes.depth.get(at.start)
    if depth is None:
        return None
    stack = read(depth)
    base = depth - 3 - (at.arg & 1)
    function, arguments = stack[base + (not TABLE.callable_first)], (DEAD,)
    return None if _is_over(stack[base], function, arguments) else _Call(function, arguments, stack, at.start)


def _entered(read: _Read, codes: CodeMap, at: Instruction) -> _Call | None:
    """``with lock:``. Some versions have put the bound exit into the place of the lock already."""
    depth = codes.depth.get(at.start)
    if depth is None:
        return None
    stack = read(depth)
    top = stack[-1]
    if type(top) is types.BuiltinFunctionType and top.__name__ == "__exit__":
        stack[-1] = top.__self__
    enter = _frames.lookup(type(stack[-1]), "__enter__")
    return _Call(enter, (stack[-1],), stack, at.start)


def _next_call(read: _Read, codes: CodeMap, at: Instruction) -> _Call | None:
    """``for item in iter(queue.get, None)``: the call that the iterator makes. ``for line in file``: its own."""
    depth = codes.depth.get(at.start)
    if depth is None:
        return None
    stack = read(depth)
    if type(stack[-1]) in _READERS:
        return _Call(stack[-1].__next__, (), stack, at.start)
    if type(stack[-1]) is not _CALLS:
        return None
    state = stack[-1].__reduce__()[1]
    return _Call(state[0], (), stack, at.start) if len(state) == 2 else None


def _is_over(lowest: Any, function: Any, arguments: Sequence[Any]) -> bool:
    """Whether the lowest slot of a call's operands holds its result; see the table in the header. ``function``,
    ``arguments``: what the operands are if the call is not over."""
    assert TABLE is not None
    if TABLE.callable_first:
        if type(lowest) is types.FunctionType or lowest is DEAD or not callable(lowest):
            return True
    elif lowest is NULL or type(lowest) not in _UNBOUND:
        return lowest is not NULL
    if type(function) not in _UNBOUND or (arguments and arguments[0] is DEAD):
        return False
    return not arguments or not type.__subclasscheck__(function.__objclass__, type(arguments[0]))


# ---------------------------------------------------------------------------------- waits


def _is_wait(call: _Call) -> bool:
    if any(entry is DEAD for entry in call.stack) or any(entry is DEAD for entry in call.arguments):
        return False
    owner = _owner(call)
    if owner is None:
        return False
    if type(owner) is types.ModuleType:
        function = owner.__name__, call.function.__name__
        return function in _FUNCTIONS or (function == _READ and _is_pipe(call.arguments[0]))
    name = call.function.__name__
    if type(owner) in _READERS:
        return name in _READERS[type(owner)] and _raw_of(owner) is not None
    return name in _methods().get(type(owner), ()) or any(is_wait(owner, name) for is_wait in further)


def _take_off_reading(frames: list[_frames.Frame], thread: int) -> None:
    """Take the innermost frame off a list of one thread's frames, innermost first, if it is ``SocketIO.readinto``, which
    waits, and the next one has called a buffer that can be called again. Raises Refused; LookupError."""
    files = getattr(sys.modules.get("socket"), "SocketIO", None)
    if files is None or len(frames) < 2 or frames[0][8] is not None or not frames[0][7]:
        return  # what has an evaluation stack stands at the beginning of a line
    _, code, _, lasti, *_ = frames[1]
    call = (
        _running_call(frames[1][0], code, lasti, thread) if frames[0][1] is files.readinto.__code__ else None
    )
    if call is None or type(_owner(call)) not in _READERS or not _is_wait(call):
        return
    if _raw_of(_owner(call)) is frames[0][7][0] and innermost(frames[0], 0, thread)[1]:
        del frames[0]


def _raw_of(buffer: Any) -> Any:
    """What lies below a buffer or text layer over a connection, as ``socket.makefile`` makes it; None: it is none."""
    if type(buffer) is io.TextIOWrapper:
        try:
            buffer = buffer.buffer
        except ValueError:  # it has been taken off
            return None
        if type(buffer) not in (io.BufferedReader, io.BufferedRWPair):
            return None
    reader = (buffers_of_pair(buffer) or (None,))[0] if type(buffer) is io.BufferedRWPair else buffer
    raw, files = getattr(reader, "raw", None), getattr(sys.modules.get("socket"), "SocketIO", None)
    return raw if files is not None and type(raw) is files else None


def _is_pipe(descriptor: Any) -> bool:
    """Is it a pipe, or a socket? Where somebody else has the other end, there is no image."""
    try:
        mode = os.fstat(descriptor).st_mode if type(descriptor) is int and descriptor > 2 else 0
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _owner(call: _Call) -> Any:
    """The object of which a method is called (by ``next``, too), or the module of a function in C; None: neither."""
    if call.function is next and call.arguments:
        return call.arguments[0]
    if issubclass(type(call.function), _BOUND):
        return call.function.__self__
    return call.arguments[0] if type(call.function) in _UNBOUND and call.arguments else None


def _methods() -> dict[type, tuple[str, ...]]:
    """Type → names of its methods that are waits. What the program has not imported has no objects."""
    found = dict(threads.WAITS)
    if accelerators.loaded(accelerators.QUEUE) is not None:
        found[accelerators.SimpleQueue] = ("get",)
    select = sys.modules.get("select")
    for name in _POLLS:
        poll = getattr(select, name, None)
        if isinstance(poll, type):
            found[poll] = ("poll",)
        elif poll is not None:
            found[type(poll())] = ("poll",)
    return found


# ---------------------------------------------------------------------------------- calls that are answered


class Answer(NamedTuple):
    """A call that can be answered instead of made again. ``code``: of the function that is called. ``inside``: code of a
    function that must have been entered from there; None: the call is answered wherever the thread is in it."""

    code: types.CodeType
    value: Any
    inside: types.CodeType | None


_answers: dict[int, Answer] = {}  # by the id of the code


def declare(answer: Answer) -> None:
    """From now on, images answer calls of this function."""
    _answers[id(answer.code)] = answer


def cut(codes: Sequence[types.CodeType]) -> tuple[int, Any]:
    """``codes``: of the frames of one thread, innermost first. How many of the innermost frames belong to a call that is
    answered, and the value; (0, None): none."""
    if not _answers:
        return 0, None
    entered: set[int] = set()
    found: tuple[int, Any] = (0, None)
    for count, code in enumerate(codes, 1):
        answer = _answers.get(id(code))
        if answer is not None and (answer.inside is None or id(answer.inside) in entered):
            found = count, answer.value
        entered.add(id(code))
    return found


def take_off(
    frames: list[_frames.Frame], exc: BaseException | None, thread: int
) -> tuple[_frames.Frame | None, Any, bool]:
    """Take the frames of a call that is answered off a list of one thread's frames, innermost first. Returns the frame of
    the function that is called, the value, and False; (None, None, True): there is no such call. ``exc``: the exception that
    the thread handles. Raises Refused: it may be the call's."""
    count, value = cut([frame[1] for frame in frames])
    if not count:
        _take_off_reading(frames, thread)
        return None, None, True
    if exc is not None:
        raise Refused("an exception is being handled", location(frames[0][1], frames[0][3]))
    called = frames[count - 1]
    del frames[:count]
    return called, value, False


def is_answered(ident: int) -> bool:
    """Is this thread inside of a call that is answered?"""
    return bool(_answers) and bool(cut([place[1] for place in _frames.places(ident, sys.maxsize)])[0])

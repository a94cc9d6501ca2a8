"""Tests where a stopped thread is, and whether it has done nothing since but end its wait.

A thread that waits in C (:mod:`ckpt.image.frames.c_waits`) may go on while the image is prepared: what it waits for may
come, or its time may be over. It stops at the next line (``frames_threads.c``). Until there it must not have done anything
that others could see: it may have stored the result of the wait, decided by it where to go on, and returned from functions.
All other instructions (calls above all) count as changes.

Pure, but for :func:`place_of`.
"""

from __future__ import annotations

import sys
from types import CodeType

from ckpt.image.frames import _frames, c_waits
from ckpt.image.frames.opcodes import CodeMap, Instruction, code_map
from ckpt.transport.records import NamedTuple

__all__ = ["Place", "has_only_ended_its_wait", "place_of"]

_MOST_FRAMES = 6
_MOST_STEPS = 24
_HARMLESS = frozenset(
    {
        *(
            "NOP",
            "POP_TOP",
            "COPY",
            "SWAP",
            "LOAD_CONST",
            "LOAD_FAST",
            "LOAD_FAST_CHECK",
            "PUSH_NULL",
            "TO_BOOL",
            "UNARY_NOT",
        ),
        *("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL", "STORE_ATTR", "STORE_FAST_LOAD_FAST"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    }
)
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")


class _At(NamedTuple):
    """One frame: its address, its code, and the instruction that it executes (or, if stopped, is about to execute)."""

    address: int
    code: CodeType
    lasti: int


class Place(NamedTuple):
    """The innermost frames of a thread, innermost first. ``has_stopped``: at the beginning of a line."""

    has_stopped: bool
    frames: tuple[_At, ...]


def place_of(ident: int) -> Place:
    """Of another thread; without frames: it has ended."""
    found = _frames.places(ident, sys.maxsize)
    # What the thread does inside of a call that is answered is without meaning.
    answered_frames, _ = c_waits.cut([code for _, code, _, _ in found])
    left = found[answered_frames : answered_frames + _MOST_FRAMES]
    return Place(bool(left) and left[0][3], tuple(_At(*place[:3]) for place in left))


def has_only_ended_its_wait(before: Place, now: Place) -> bool:
    """Has the thread, which stood at ``before``, done nothing else until it has come to ``now``?"""
    if before == now:
        return True
    if before.has_stopped or not now.has_stopped or not before.frames or not now.frames:
        return False
    goal = now.frames[0]
    for depth, frame in enumerate(before.frames):
        if depth and not _can_return(before.frames[depth - 1]):
            return False
        if frame.address == goal.address:
            return _reaches(code_map(frame.code), _end_of_call(frame), goal.lasti, None) is not None
    return False


def _can_return(frame: _At) -> bool:
    return _reaches(code_map(frame.code), _end_of_call(frame), -1, _RETURNS) is not None


def _end_of_call(frame: _At) -> int:
    """Index behind the call that the frame executes; -1: not known."""
    codes = code_map(frame.code)
    instruction = codes.instructions.get(frame.lasti) or codes.ending_at(frame.lasti + 1)
    if instruction is None:
        return -1
    return codes.after_check(_index_of(codes, instruction)) or instruction.next


def _index_of(codes: CodeMap, instruction: Instruction) -> int:
    """The index under which the instruction is found: that of its opcode, behind its EXTENDED_ARGs."""
    index = instruction.start
    while codes.instructions.get(index) is not instruction:
        index += 1
    return index


def _reaches(codes: CodeMap, start: int, goal: int, names: tuple[str, ...] | None) -> int | None:
    """The index of ``goal``, or of an instruction with one of these names, if it can be reached from ``start`` by harmless
    instructions alone."""
    waiting: list[int] = [start]
    seen: set[int] = set()
    starts = {instruction.start: index for index, instruction in codes.instructions.items()}
    while waiting and len(seen) < _MOST_STEPS:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        if index == goal or starts.get(index) == goal:
            return index
        instruction = codes.instructions.get(starts.get(index, index))
        if instruction is None:
            continue
        if names is not None and instruction.name in names:
            return index
        is_branch = instruction.name.startswith("POP_JUMP_")
        if instruction.name not in _HARMLESS and not is_branch:
            continue
        if instruction.target >= 0:
            waiting.append(instruction.target)
        if is_branch or instruction.target < 0:
            waiting.append(instruction.next)
    return None

"""What the bytecode says about a frame: its instructions, and the depth of its evaluation stack at each of
them.

The interpreter keeps no valid stack pointer while a frame is inside of a C function or at a check; the depth
follows from the code alone: every instruction's effect (`dis.stack_effect`) along all paths, and the
exception table for handlers. Whatever differs between versions of the interpreter is in one `Table` per minor
version; nothing else in this package names a version.

Indices count code units (two bytes), as the interpreter's "last instruction" does; an instruction is named by
the index of its opcode, its `start` is the first EXTENDED_ARG before it, its `next` lies behind its inline
caches.

Pure: depends on code objects alone. The cache of `code_map` is bounded.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType
from typing import NamedTuple

__all__ = ["TABLE", "TABLES", "CodeMap", "Instruction", "Table", "code_map", "exception_table"]

GENERATOR_FLAGS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_CACHE_LIMIT = 20_000
_LONGEST_INSTRUCTION = 16  # code units, caches included


@dataclass(frozen=True)
class Table:
    """Names of opcodes by what they mean for capture."""

    ends: frozenset[str]  # control never falls through
    check_after: frozenset[str]  # the check comes when the instruction is complete
    check_at_target: frozenset[str]  # backward jumps: the check comes when the jump has been taken
    call_prefix: str  # the operands of a call are counted here …
    call: str  # … and the call ends behind this one (or it is the same one)
    keyword_names: str  # precedes call_prefix and belongs to the call
    fused_compare: str  # a specialised one also does the jump behind it
    load_global_shift: int  # low bits of its argument that do not belong to the index of the name
    load_attr_shift: int = 0  # likewise of LOAD_ATTR; the lowest one says that a method is loaded
    intrinsics: Mapping[int, str] = field(
        default_factory=dict
    )  # meanings of CALL_INTRINSIC_1 by its argument
    inlined_iteration: frozenset[str] = frozenset()  # enter a generator without C in between

    def meaning(self, instruction: Instruction) -> str:
        """The name of an instruction; for an intrinsic, what the instruction of its own was called."""
        if instruction.name == "CALL_INTRINSIC_1":
            return self.intrinsics.get(instruction.arg, instruction.name)
        return instruction.name


TABLES: dict[tuple[int, int], Table] = {
    (3, 11): Table(
        ends=frozenset(
            {
                "RETURN_VALUE",
                "RAISE_VARARGS",
                "RERAISE",
                "JUMP_FORWARD",
                "JUMP_BACKWARD",
                "JUMP_BACKWARD_NO_INTERRUPT",
            }
        ),
        check_after=frozenset({"RESUME", "CALL", "CALL_FUNCTION_EX"}),
        check_at_target=frozenset(
            {
                "JUMP_BACKWARD",
                "POP_JUMP_BACKWARD_IF_FALSE",
                "POP_JUMP_BACKWARD_IF_TRUE",
                "POP_JUMP_BACKWARD_IF_NONE",
                "POP_JUMP_BACKWARD_IF_NOT_NONE",
            }
        ),
        call_prefix="PRECALL",
        call="CALL",
        keyword_names="KW_NAMES",
        fused_compare="COMPARE_OP",
        load_global_shift=1,
    ),
    (3, 12): Table(
        ends=frozenset(
            {
                "RETURN_VALUE",
                "RETURN_CONST",
                "RAISE_VARARGS",
                "RERAISE",
                "JUMP_FORWARD",
                "JUMP_BACKWARD",
                "JUMP_BACKWARD_NO_INTERRUPT",
            }
        ),
        check_after=frozenset({"RESUME", "CALL", "CALL_FUNCTION_EX"}),
        check_at_target=frozenset({"JUMP_BACKWARD"}),
        call_prefix="CALL",
        call="CALL",
        keyword_names="KW_NAMES",
        fused_compare="",
        load_global_shift=1,
        load_attr_shift=1,
        intrinsics={2: "IMPORT_STAR", 3: "STOPITERATION_ERROR", 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"},
        inlined_iteration=frozenset({"FOR_ITER", "SEND"}),
    ),
}

TABLE: Table | None = TABLES.get(sys.version_info[:2])


class Instruction(NamedTuple):
    """One instruction; start, next and target are indices of code units (target -1: no jump)."""

    name: str
    arg: int
    start: int
    next: int
    previous: int
    target: int


class Handler(NamedTuple):
    """One entry of the exception table: covers [start, end), in code units."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def exception_table(code: CodeType) -> list[Handler]:
    """The exception table of a code object (format: CPython, Objects/exception_handling_notes.txt)."""
    values = iter(code.co_exceptiontable)
    handlers = []

    def varint(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(values)
            value = (value << 6) | (first & 63)
        return value

    for first in values:
        start = varint(first)
        length = varint(next(values))
        target = varint(next(values))
        depth_and_lasti = varint(next(values))
        handlers.append(
            Handler(start, start + length, target, depth_and_lasti >> 1, bool(depth_and_lasti & 1))
        )
    return handlers


class CodeMap:
    """Instructions and stack depths of one code object.

    instructions: by index of the opcode.  depth: entries on the stack *before* the instruction at an index
    (reachable ones only; also under the index of its first EXTENDED_ARG).  Raises ValueError for code whose
    depth is ambiguous.
    """

    __slots__ = ("_catches_at_yield", "_rebound", "code", "depth", "instructions")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions: dict[int, Instruction] = {}
        self.depth: dict[int, int] = {}
        self._catches_at_yield: bool | None = None
        self._rebound: frozenset[int] | None = None
        handlers = exception_table(code)
        starts = self._read(code)
        self._follow(code, handlers, starts)

    def _read(self, code: CodeType) -> dict[int, int]:
        """Fill `instructions`; returns opcode index by index of the first EXTENDED_ARG (or itself)."""
        units = code.co_code
        caches: list[int] = opcode._inline_cache_entries  # type: ignore[attr-defined]
        extended, jumps = opcode.opmap["EXTENDED_ARG"], frozenset(opcode.hasjrel)
        starts: dict[int, int] = {}
        index, arg, start, previous = 0, 0, -1, -1
        while index < len(units) // 2:
            op = units[2 * index]
            start = index if start < 0 else start
            arg = (arg << 8) | units[2 * index + 1]
            if op == extended:
                index += 1
                continue
            name, behind, target = opcode.opname[op], index + 1 + caches[op], -1
            if op in jumps:
                target = behind - arg if "BACKWARD" in name else behind + arg
            self.instructions[index] = Instruction(name, arg, start, behind, previous, target)
            starts[start] = starts[index] = previous = index
            index, arg, start = behind, 0, -1
        return starts

    def _follow(self, code: CodeType, handlers: list[Handler], starts: dict[int, int]) -> None:
        """Fill `depth` along all paths."""
        assert TABLE is not None
        effect, opmap, depths, ends = dis.stack_effect, opcode.opmap, self.depth, TABLE.ends
        have_argument = opcode.HAVE_ARGUMENT
        todo = [(0, 1 if code.co_flags & GENERATOR_FLAGS else 0)]
        todo += [(h.target, h.depth + 1 + h.lasti) for h in handlers]
        while todo:
            index, depth = todo.pop()
            while index in starts:
                index = starts[index]
                instruction = self.instructions[index]
                if index in depths:
                    if depths[index] != depth:
                        raise ValueError(f"ambiguous stack depth in {code.co_qualname} at {2 * index}")
                    break
                depths[index] = depths[instruction.start] = depth
                op = opmap[instruction.name]
                arg = instruction.arg if op >= have_argument else None
                if instruction.target >= 0:
                    todo.append((instruction.target, depth + effect(op, arg, jump=True)))
                if instruction.name in ends:
                    break
                depth += effect(op, arg, jump=False)
                index = instruction.next

    @property
    def catches_at_yield(self) -> bool:
        """Whether an exception thrown in at a yield (by a finaliser) runs more code of this generator."""
        if self._catches_at_yield is None:
            yields = [i for i, instruction in self.instructions.items() if instruction.name == "YIELD_VALUE"]
            handlers = [h for h in exception_table(self.code) if not self._is_of_interpreter(h)]
            self._catches_at_yield = any(h.start <= i < h.end for h in handlers for i in yields)
        return self._catches_at_yield

    def _is_of_interpreter(self, handler: Handler) -> bool:
        """Whether a handler belongs to every generator or delegation: it only passes the exception on."""
        assert TABLE is not None
        first = self.instructions.get(handler.target)
        return first is not None and TABLE.meaning(first) in ("STOPITERATION_ERROR", "CLEANUP_THROW")

    @property
    def rebound(self) -> frozenset[int]:
        """Indices of the variables the code assigns to; a parameter that is not among them is what was passed."""
        if self._rebound is None:
            stores = ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF")
            self._rebound = frozenset(i.arg for i in self.instructions.values() if i.name in stores)
        return self._rebound

    def call_end(self, prefix: Instruction) -> int:
        """Index behind a call whose operands `prefix` counts."""
        assert TABLE is not None
        return prefix.next if TABLE.call == TABLE.call_prefix else self.instructions[prefix.next].next

    def ending_at(self, index: int) -> Instruction | None:
        """The instruction that ends, with its caches, before the code unit at this index."""
        for before in range(index - 1, max(-1, index - 1 - _LONGEST_INSTRUCTION), -1):
            instruction = self.instructions.get(before)
            if instruction is not None:
                return instruction if instruction.next == index else None
        return None

    def after_check(self, index: int) -> int | None:
        """Index of the next instruction of a frame stopped at a check, whose last instruction was `index`.

        None: there is no check at that instruction.
        """
        table = TABLE
        assert table is not None
        instruction = self.instructions.get(index)
        if instruction is None:
            return None
        if instruction.name in table.check_after:
            return instruction.next
        if instruction.name == table.call_prefix:  # a specialised one that has done the call
            return self.call_end(instruction)
        if instruction.name in table.check_at_target:
            return instruction.target
        if instruction.name == table.fused_compare:
            jump = self.instructions[instruction.next]
            if jump.name in table.check_at_target:
                return jump.target
        return None


# keyed by identity (comparing code objects compares their constants); the map keeps its code object alive
_maps: dict[int, CodeMap] = {}


def code_map(code: CodeType) -> CodeMap:
    """The map of a code object, cached."""
    found = _maps.get(id(code))
    if found is None:
        if len(_maps) >= _CACHE_LIMIT:
            _maps.clear()
        found = _maps[id(code)] = CodeMap(code)
    return found

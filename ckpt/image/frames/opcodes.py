"""Reads from the bytecode of a frame its instructions, and the depth of its evaluation stack at each of them.

While a frame waits for a C function or stands at a check, the interpreter keeps no valid stack pointer for it. But the depth
follows from the code alone: from the effect of every instruction (`opcode.stack_effect`) along all paths, and from the
exception table for handlers. What differs between versions of the interpreter is in `tables`.

Indices count code units (two bytes), like the interpreter's "last instruction". An instruction is named by the index of its
opcode; its `start` is the first EXTENDED_ARG before it; its `next` lies behind its inline caches.

Pure: depends on code objects alone. The cache of `code_map` is bounded.
"""

from __future__ import annotations

import opcode
from types import CodeType

from ckpt.compat.interpreter import inline_cache_entries, opcodes_with_argument
from ckpt.image.frames.tables import TABLE, TABLES, Instruction, Table
from ckpt.transport.records import NamedTuple

__all__ = [
    "CO_OPTIMIZED",
    "GENERATOR_FLAGS",
    "TABLE",
    "TABLES",
    "CodeMap",
    "Instruction",
    "Table",
    "code_map",
    "may_be_operand",
    "exception_table",
]

CO_OPTIMIZED = 1
"""Flag of the code of functions (inspect.CO_OPTIMIZED): code of modules and class bodies has it not."""
GENERATOR_FLAGS = 0x20 | 0x80 | 0x200
"""inspect.CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR."""
_CACHE_LIMIT = 20_000
_LONGEST_INSTRUCTION = 16  # code units, caches included
_CACHES = inline_cache_entries()
_WITH_ARGUMENT = opcodes_with_argument()


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


def _stored(instruction: Instruction) -> tuple[int, ...]:
    """Indices of the variables an instruction binds or unbinds."""
    if instruction.name in ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF"):
        return (instruction.arg,)
    if instruction.name == "STORE_FAST_STORE_FAST":
        return (instruction.arg >> 4, instruction.arg & 15)
    return (instruction.arg >> 4,) if instruction.name == "STORE_FAST_LOAD_FAST" else ()


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
            name, target = opcode.opname[op], -1
            behind = index + 1 + _CACHES.get(name, 0)
            if op in jumps:
                target = behind - arg if "BACKWARD" in name else behind + arg
            self.instructions[index] = Instruction(name, arg, start, behind, previous, target)
            starts[start] = starts[index] = previous = index
            index, arg, start = behind, 0, -1
        return starts

    def _follow(self, code: CodeType, handlers: list[Handler], starts: dict[int, int]) -> None:
        """Fill `depth` along all paths."""
        assert TABLE is not None
        effect, opmap, depths, ends = opcode.stack_effect, opcode.opmap, self.depth, TABLE.ends
        todo = [(0, TABLE.generator_depth if code.co_flags & GENERATOR_FLAGS else 0)]
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
                arg = instruction.arg if op in _WITH_ARGUMENT else None
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
            self._rebound = frozenset(variable for i in self.instructions.values() for variable in _stored(i))
        return self._rebound

    @property
    def returns_none(self) -> bool:
        """Whether the code returns None wherever it does: that of statements, not of an expression."""
        returns = [i for i in self.instructions.values() if i.name in ("RETURN_VALUE", "RETURN_CONST")]
        loads = [i if i.name == "RETURN_CONST" else self.instructions.get(i.previous) for i in returns]
        return all(
            load is not None
            and load.name in ("LOAD_CONST", "RETURN_CONST")
            and self.code.co_consts[load.arg] is None
            for load in loads
        )

    def call_end(self, prefix: Instruction) -> int:
        """Index behind a call whose operands `prefix` counts."""
        assert TABLE is not None
        return prefix.next if TABLE.call == TABLE.call_prefix else self.instructions[prefix.next].next

    def index_ending_at(self, index: int) -> int:
        """Index of the instruction that ends, with its caches, before the code unit at this index; or -1."""
        for before in range(index - 1, max(-1, index - 1 - _LONGEST_INSTRUCTION), -1):
            instruction = self.instructions.get(before)
            if instruction is not None:
                return before if instruction.next == index else -1
        return -1

    def ending_at(self, index: int) -> Instruction | None:
        """The instruction that ends, with its caches, before the code unit at this index; or None."""
        return self.instructions.get(self.index_ending_at(index))

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

    def after_traced_check(self, index: int) -> int | None:
        """As `after_check`, in a traced frame, where a backward jump may stand at its target already.

        None also where both are possible, and at a function's beginning: that it has been called may not have been reported.
        """
        instruction = self.instructions.get(index)
        if instruction is not None and instruction.name == "RESUME":
            return None
        assert TABLE is not None
        found = {self.after_check(index)} - {None}
        if TABLE.jumps_before_check and any(
            i.name in TABLE.check_at_target and i.target == index + 1 for i in self.instructions.values()
        ):
            found.add(index + 1)
        return found.pop() if len(found) == 1 else None


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


def may_be_operand(code: CodeType, at: int, index: int) -> bool:
    """May this entry of the evaluation stack be in use while the instruction at ``at`` (code units) executes? Entries above
    those before and after it hold what was there earlier."""
    try:
        found = code_map(code)
    except ValueError:
        return True
    for start in range(at, max(-1, at - _LONGEST_INSTRUCTION), -1):
        instruction = found.instructions.get(start)
        if instruction is not None:
            places = (start, instruction.next, instruction.target)
            return start not in found.depth or index < max(found.depth.get(place, 0) for place in places)
    return True

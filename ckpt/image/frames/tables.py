"""The differences between the versions of the interpreter's bytecode: one `Table` for each minor version.

No other Python module of this room names a version: `opcodes`, `c_calls` and `call_operands` ask the table of the
interpreter in which they run. An opcode that exists in some versions only, and means the same in all of them, is named where
it is used.

Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpt.compat.interpreter import MINOR
from ckpt.transport.records import NamedTuple, dataclass, field

__all__ = ["TABLE", "TABLES", "Instruction", "Table"]


class Instruction(NamedTuple):
    """One instruction; start, next and target are indices of code units (target -1: no jump)."""

    name: str
    arg: int
    start: int
    next: int
    previous: int
    target: int


@dataclass(frozen=True)
class Table:
    """Names of opcodes by what they mean for capture."""

    ends: frozenset[str]  # control never falls through
    check_after: frozenset[str]  # the check comes when the instruction is complete
    check_at_target: frozenset[str]  # backward jumps: the check comes when the jump has been taken
    call_prefix: str  # the operands of a call are counted here …
    call: str  # … and the call ends behind this one (or it is the same one)
    fused_compare: str  # a specialised one also does the jump behind it
    load_global_shift: int  # low bits of its argument that do not belong to the index of the name
    keyword_names: str = ""  # precedes call_prefix and belongs to the call
    keyword_call: str = ""  # a call whose last operand is the tuple of its keywords' names
    callable_first: bool = (
        False  # a call's operands are callable, self or NULL, …; else NULL, callable or method, self
    )
    load_attr_shift: int = 0  # likewise of LOAD_ATTR; the lowest one says that a method is loaded
    # Meanings of CALL_INTRINSIC_1 by its argument
    intrinsics: Mapping[int, str] = field(default_factory=dict)
    inlined_iteration: frozenset[str] = frozenset()  # enter a generator without C in between
    generator_depth: int = 1  # entries on the stack of a generator that begins
    jumps_before_check: bool = False  # a traced jump backward has moved on before its check
    counts_c_calls: bool = False  # a call that goes through a type's tp_call is a level of Python's recursion

    def meaning(self, instruction: Instruction) -> str:
        """The name of an instruction; for an intrinsic, what the instruction of its own was called."""
        if instruction.name == "CALL_INTRINSIC_1":
            return self.intrinsics.get(instruction.arg, instruction.name)
        return instruction.name


_ENDS_SINCE_312 = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    }
)

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
        fused_compare="COMPARE_OP",
        load_global_shift=1,
        counts_c_calls=True,
        keyword_names="KW_NAMES",
    ),
    (3, 12): Table(
        ends=_ENDS_SINCE_312,
        check_after=frozenset({"RESUME", "CALL", "CALL_FUNCTION_EX"}),
        check_at_target=frozenset({"JUMP_BACKWARD"}),
        call_prefix="CALL",
        call="CALL",
        fused_compare="",
        load_global_shift=1,
        keyword_names="KW_NAMES",
        load_attr_shift=1,
        intrinsics={2: "IMPORT_STAR", 3: "STOPITERATION_ERROR", 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"},
        inlined_iteration=frozenset({"FOR_ITER", "SEND"}),
        jumps_before_check=True,
    ),
    (3, 13): Table(
        ends=_ENDS_SINCE_312,
        check_after=frozenset({"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX"}),
        check_at_target=frozenset({"JUMP_BACKWARD"}),
        call_prefix="CALL",
        call="CALL",
        keyword_call="CALL_KW",
        callable_first=True,
        fused_compare="",
        load_global_shift=1,
        load_attr_shift=1,
        intrinsics={2: "IMPORT_STAR", 3: "STOPITERATION_ERROR", 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"},
        inlined_iteration=frozenset({"FOR_ITER", "SEND"}),
        jumps_before_check=True,
        generator_depth=0,
    ),
}

TABLE: Table | None = TABLES.get(MINOR)

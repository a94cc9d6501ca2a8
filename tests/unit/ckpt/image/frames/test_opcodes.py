"""Instructions and stack depths of code objects."""

import contextlib
import dis
import enum
import functools
import inspect
import types

import pytest

from ckpt.image.frames.opcodes import TABLE, TABLES, CodeMap, code_map, exception_table, may_be_operand


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def index_of(codes, name, which=0):
    return [i for i, instruction in codes.instructions.items() if instruction.name == name][which]


def test_this_version_has_a_table():
    assert TABLE is not None
    assert all(name in dis.opmap for name in TABLE.ends | TABLE.check_after | TABLE.check_at_target)
    assert list(TABLES) == [(3, 11), (3, 12), (3, 13)]


@pytest.mark.parametrize("module", [contextlib, dis, enum, functools, inspect], ids=lambda m: m.__name__)
def test_every_depth_is_unambiguous_and_within_the_frame(module):
    for code in code_objects(compile(inspect.getsource(module), module.__name__, "exec")):
        codes = CodeMap(code)
        assert all(0 <= depth <= code.co_stacksize for depth in codes.depth.values())


def test_instructions_are_those_of_dis():
    code = test_instructions_are_those_of_dis.__code__
    ours = [(i, instruction.name, instruction.arg) for i, instruction in CodeMap(code).instructions.items()]
    theirs = [(i.offset // 2, i.opname, i.arg or 0) for i in dis.get_instructions(code)]
    assert ours == [row for row in theirs if row[1] not in ("EXTENDED_ARG", "CACHE")]


def test_extended_arguments_belong_to_their_instruction():
    code = compile("\n".join(f"v{i} = {i}" for i in range(300)), "many", "exec")
    codes = CodeMap(code)
    last = index_of(codes, "STORE_NAME", -1)
    assert codes.instructions[last].arg == 299
    assert codes.instructions[last].start == last - 1
    assert codes.depth[last] == codes.depth[last - 1] == 1


def test_jumps_have_targets():
    def loop(items):
        for item in items:
            print(item)

    codes = CodeMap(loop.__code__)
    begin, back = index_of(codes, "FOR_ITER"), index_of(codes, "JUMP_BACKWARD")
    assert codes.instructions[back].target == begin
    assert codes.instructions[codes.instructions[begin].target].name in ("LOAD_CONST", "END_FOR")
    assert codes.depth[begin] == 1


def test_depth_counts_operands_and_handlers():
    def f(a, g):
        try:
            return a + g(1, 2)
        except ValueError:
            return 3

    codes = CodeMap(f.__code__)
    assert codes.depth[index_of(codes, TABLE.call_prefix)] == 1 + 2 + 2  # a; NULL and g; 1 and 2
    assert codes.depth[index_of(codes, "BINARY_OP")] == 2
    assert codes.depth[index_of(codes, "PUSH_EXC_INFO")] == 1
    assert codes.depth[index_of(codes, "CHECK_EXC_MATCH")] == 3


def test_a_generator_begins_with_what_is_sent_to_it():
    def g():
        yield 1

    codes = CodeMap(g.__code__)
    behind = codes.instructions[index_of(codes, "RETURN_GENERATOR")].next
    assert codes.depth[behind] == 1  # popped at once
    assert codes.depth[index_of(codes, "RESUME")] == 0


def test_exception_table_is_that_of_dis():
    def f():
        with open("x") as stream:
            try:
                return stream.read()
            finally:
                print("done")

    theirs = [
        (e.start // 2, e.end // 2, e.target // 2, e.depth, e.lasti) for e in dis.Bytecode(f).exception_entries
    ]
    assert [tuple(entry) for entry in exception_table(f.__code__)] == theirs


def loop_with_a_call(n, g):
    while n < 3:
        g(n)
    return n


def test_next_instruction_after_a_check():
    codes = CodeMap(loop_with_a_call.__code__)
    for name in TABLE.check_after - {"CALL_FUNCTION_EX", "CALL_KW"}:
        at = index_of(codes, name)
        assert codes.after_check(at) == codes.instructions[at].next
    for name in TABLE.check_at_target & {found.name for found in codes.instructions.values()}:
        at = index_of(codes, name)
        assert codes.after_check(at) == codes.instructions[at].target
    assert codes.after_check(index_of(codes, "LOAD_FAST")) is None
    assert codes.after_check(-1) is None


@pytest.mark.skipif(
    not TABLE.fused_compare, reason="another Python: 3.11 has instructions that do the work of two"
)
def test_next_instruction_after_a_check_of_a_specialised_instruction():
    codes = CodeMap(loop_with_a_call.__code__)
    prefix = index_of(codes, TABLE.call_prefix)
    assert codes.after_check(prefix) == codes.instructions[codes.instructions[prefix].next].next
    fused = index_of(codes, TABLE.fused_compare, -1)
    jump = codes.instructions[codes.instructions[fused].next]
    assert codes.after_check(fused) == jump.target


def test_an_instruction_is_found_by_its_end():
    codes = CodeMap(loop_with_a_call.__code__)
    for instruction in codes.instructions.values():
        assert codes.ending_at(instruction.next) is instruction
    call = codes.instructions[index_of(codes, "CALL")]
    assert codes.ending_at(call.next - 1) is None  # within its caches
    assert codes.ending_at(0) is None


def test_what_a_generator_does_when_closed():
    def plain():
        yield 1

    def catching():
        try:
            yield 1
        finally:
            print()

    def outside():
        try:
            print()
        except ValueError:
            pass
        yield 1

    found = [CodeMap(g.__code__).catches_at_yield for g in (plain, catching, outside)]
    assert found == [False, True, False]


def test_rebinding_of_parameters():
    def kept(self):
        self.x = 1

    def rebound(self):
        self = 1
        return [self]

    def in_a_cell(self):
        self = 2
        return lambda: self

    assert [0 in CodeMap(f.__code__).rebound for f in (kept, rebound, in_a_cell)] == [False, True, True]


def test_maps_are_made_once():
    code = test_maps_are_made_once.__code__
    assert code_map(code) is code_map(code)


def test_where_a_traced_frame_goes_on():
    def loops(n):
        while n > 5:
            n -= 1
        while n:
            n -= 1

    codes = code_map(loops.__code__)
    # RESUME: that the function has been called may not have been reported
    assert codes.after_traced_check(0) is None
    jumps = [i for i, found in codes.instructions.items() if found.name in TABLE.check_at_target]
    assert jumps
    for at in jumps:
        targets = {
            found.target for found in codes.instructions.values() if found.name in TABLE.check_at_target
        }
        is_ambiguous = TABLE.jumps_before_check and at + 1 in targets - {codes.instructions[at].target}
        assert codes.after_traced_check(at) == (None if is_ambiguous else codes.after_check(at))
        target = codes.instructions[at].target
        if TABLE.jumps_before_check and target - 1 not in codes.instructions:
            assert codes.after_traced_check(target - 1) == target


def test_an_entry_above_the_operands_of_an_instruction_is_not_in_use() -> None:
    """What an earlier instruction left there kept `sorted(map(f, x))` out of images: it may hold a pointer to anything."""
    code = compile("f(a, b)", "", "eval")
    found = code_map(code)
    call, instruction = next((i, each) for i, each in found.instructions.items() if each.name == "CALL")
    depth = found.depth[call]
    for at in range(call, instruction.next):
        assert may_be_operand(code, at, depth - 1)
        assert not may_be_operand(code, at, depth)
    assert may_be_operand(code, 1000, 1000), "an instruction that is not known"

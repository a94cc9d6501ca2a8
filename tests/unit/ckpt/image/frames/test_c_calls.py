"""How a frame goes on that is suspended inside of C code which has entered another frame."""

import collections
import contextvars
import functools
import itertools
import types
import weakref

import pytest

from ckpt.image.errors import Refused
from ckpt.image.frames._frames import DEAD, NULL
from ckpt.image.frames.attribute_paths import path_of_attribute
from ckpt.image.frames.c_calls import classify, inlined
from ckpt.image.frames.call_operands import positional_arguments
from ckpt.image.frames.call_paths import (
    CachedCall,
    ContextRun,
    path_of_call,
    path_of_iteration,
    pending_of,
    repeated_source,
)
from ckpt.image.frames.opcodes import TABLE, code_map
from ckpt.image.frames.running import run_base
from ckpt.image.frames.stack import capture
from ckpt.image.frames.suspended import PASS, REDO, CallPath, Suspended, describe, instance_dict, location


def inner_of(func=None, locals_=(), gen=None, references=2):
    """A frame that runs func (or a generator)."""
    code = gen.gi_code if gen is not None else func.__code__
    padded = [*locals_, *[NULL] * (code.co_nlocals + len(code.co_cellvars) - len(locals_))]
    return Suspended(code, func, 0, gen, references, padded, code_map(code), lambda n: [])


def outer_at(func, instruction, stack, which=0):
    """A frame of func inside of the named instruction, with these entries on top of its stack."""
    codes = code_map(func.__code__)
    index = [i for i, found in codes.instructions.items() if found.name == instruction][which]

    def read(count):
        return [NULL] * (count - len(stack)) + list(stack)

    return Suspended(func.__code__, func, index, None, 0, [NULL] * 9, codes, read), codes.instructions[index]


def operands(fn, *args):
    """A call's, in the order of this version."""
    return [fn, NULL, *args] if TABLE.callable_first else [NULL, fn, *args]


class Thing:
    """Every way in which C code enters a method."""

    __slots__ = ("__dict__",)

    def __init__(self, x=0):
        self.x = x

    def __new__(cls, *args):
        return object.__new__(cls)

    def __call__(self): ...

    def __add__(self, other): ...

    def __getitem__(self, key): ...

    def __len__(self): ...

    def __iter__(self): ...

    def __next__(self): ...

    def __enter__(self): ...

    def __exit__(self, *info): ...

    def __del__(self): ...

    def method(self): ...

    @property
    def value(self): ...

    def __hash__(self): ...


def function(x): ...


def other(x): ...


def generator():
    yield 1
    yield 2


def catching():
    try:
        yield 1
    finally:
        pass


# ---------------------------------------------------------------------------------- callables


def test_python_callables_pass_their_result_through():
    thing, inner = Thing(), inner_of(function)
    assert path_of_call(function, None, inner) == PASS
    assert path_of_call(functools.partial(function, 1, 2), None, inner) == PASS
    assert path_of_call(functools.partial(functools.partial(function), 1, 2), None, inner) == PASS
    assert path_of_call(thing.method, None, inner_of(Thing.method)) == PASS
    assert path_of_call(thing, None, inner_of(Thing.__call__)) == PASS
    assert path_of_call(other, None, inner) is None
    assert path_of_call(thing, None, inner) is None


def test_a_type_call():
    thing = Thing()
    way = path_of_call(Thing, [1], inner_of(Thing.__init__, [thing, 1]))
    assert (way.mode, way.value) == ("I", thing)
    assert path_of_call(Thing, [1], inner_of(Thing.__new__, [Thing])) == REDO
    assert path_of_call(Thing, [1], inner_of(Thing.method, [thing])) is None
    assert path_of_call(dict, [1], inner_of(Thing.__init__, [thing])) is None


def test_an_init_that_rebinds_self_is_not_known():
    class Rebinding:
        def __init__(self):
            self = 1  # noqa: F841

    assert path_of_call(Rebinding, [], inner_of(Rebinding.__init__, [Rebinding()])) is None


def test_builtins_that_look_a_method_up_are_done_again():
    thing = Thing()
    assert path_of_call(len, [thing], inner_of(Thing.__len__)) == REDO
    assert path_of_call(iter, [thing], inner_of(Thing.__iter__)) == REDO
    assert path_of_call(next, [thing], inner_of(Thing.__next__)) == REDO
    assert path_of_call(hash, [thing], inner_of(Thing.__hash__)) == REDO
    assert path_of_call(getattr, [thing, "value"], inner_of(Thing.value.fget)) == REDO
    assert path_of_call(bool, [thing], inner_of(Thing.__len__)) == REDO
    # Belongs to it, but is not what len looks up
    assert path_of_call(len, [thing], inner_of(Thing.__hash__)) is None
    assert path_of_call(sum, [thing], inner_of(Thing.__next__)) is None
    assert path_of_call(repr, [[thing]], inner_of(Thing.__len__)) is None


def test_lru_cache_is_done_again():
    cached = functools.lru_cache(function)
    again = CallPath("R", CachedCall(cached, [1], {}))  # which its image must know of: it will miss once more
    assert path_of_call(cached, [1], inner_of(function)) == again
    assert path_of_call(types.MethodType(cached, 1), [], inner_of(function)) == again
    assert path_of_call(cached, [1], inner_of(other)) is None
    partial = functools.partial(functools.partial(cached, 1, key=2), 3, more=4)
    again = CallPath("R", CachedCall(cached, [1, 3, 5], {"key": 2, "more": 4}))
    assert path_of_call(partial, [5], inner_of(function)) == again


def test_exec_and_eval_pass_through_what_they_were_given():
    def module(source, kind):
        code = compile(source, "inner", kind)
        return code, inner_of(types.FunctionType(code, {}))

    statements, inner = module("x = 1", "exec")
    assert path_of_call(exec, [statements], inner) == path_of_call(exec, ["x = 1", {}], inner) == PASS
    assert path_of_call(exec, [compile("x = 1", "inner", "exec")], inner) is None
    assert path_of_call(exec, None, inner) is None
    assert path_of_call(exec, [statements], inner_of(function)) is None
    expression, inner = module("1 + x", "eval")
    assert path_of_call(eval, [expression], inner) == path_of_call(eval, ["1 + x", {}], inner) == PASS
    assert path_of_call(exec, [expression], inner) is None  # exec drops the value


def test_generators_under_calls():
    gen = generator()
    inner = inner_of(gen=gen)
    assert path_of_call(next, [gen], inner) == REDO
    assert path_of_call(gen.send, [1], inner) == REDO
    assert path_of_call(type(gen).send, [gen, 1], inner) == REDO
    assert path_of_call(any, [gen], inner) == REDO
    assert path_of_call(all, [enumerate(gen)], inner) == REDO
    assert path_of_call(sum, [gen], inner) is None
    assert path_of_call(list, [gen], inner) is None
    assert path_of_call(next, [generator()], inner) is None


def test_methods_that_take_item_by_item_are_done_again():
    gen, taken = generator(), []
    inner = inner_of(gen=gen)
    for container, name in (
        ([], "extend"),
        (set(), "update"),
        ({}, "update"),
        (collections.deque(), "extend"),
    ):
        assert path_of_call(getattr(container, name), [gen], inner) == REDO
        assert path_of_call(getattr(type(container), name), [container, enumerate(gen)], inner) == REDO
    assert path_of_call(taken.extend, [gen], inner_of(function)) is None
    assert path_of_call(taken.extend, [generator()], inner) is None
    assert path_of_call(taken.append, [gen], inner) is None
    assert path_of_call(set().update, [iter([1]), gen], inner) is None  # the first would be empty then
    assert path_of_call({}.update, [], inner) is None
    assert path_of_call(list, [gen], inner) is None  # the list is in C's hands alone
    outer, at = outer_at(adding, "BINARY_OP", [taken, gen])
    assert classify(outer, inner).lasti == at.start - 1
    outer, _ = outer_at(adding, "BINARY_OP", [(), gen])
    with pytest.raises(Refused, match="BINARY_OP is running"):
        classify(outer, inner)


def adding(a, b):
    a += b
    return a


def test_a_generator_that_may_be_finalised_is_not_known():
    """next(f()): the last reference to the generator is the operand, and goes when the call is over."""
    gen = catching()
    assert path_of_call(next, [gen], inner_of(gen=gen, references=1)) is None
    assert path_of_call(next, [gen], inner_of(gen=gen, references=2)) == REDO
    harmless = generator()  # has no code that would run
    assert path_of_call(next, [harmless], inner_of(gen=harmless, references=1)) == REDO


def test_refusals_name_the_callable():
    assert describe(sum) == "sum()"
    assert describe("".join) == "str.join()"
    assert describe(list) == "list()"
    assert describe(Thing()) == "a call of a Thing"


# ---------------------------------------------------------------------------------- contexts


def test_a_function_in_a_context_is_called_again():
    context, inner = contextvars.Context(), inner_of(function, [])
    expected = CallPath("R", ContextRun(context, None))
    assert path_of_call(context.run, [function], inner) == expected
    assert path_of_call(context.run, [functools.partial(function, 1)], inner) == expected
    assert path_of_call(contextvars.Context.run, [context, function], inner) == expected
    assert path_of_call(context.run, [len, function], inner) is None
    assert (
        path_of_call(functools.partial(context.run, function), [], inner) == expected
    )  # `asyncio.to_thread`
    assert path_of_call(functools.partial(context.run), [function], inner) == expected
    assert path_of_call(context.run, None, inner) is None
    assert path_of_call(functools.partial(context.run, function), None, inner) is None
    assert path_of_call(context.run, [next, map(function, [1])], inner) is None  # it would take another item


def test_a_call_with_a_star_into_a_context_is_made_again_where_the_function_has_these_arguments():
    """``Thread(target=context.run, args=(function, …))`` kept all checkpoints off while the thread ran."""

    class Method:
        def run(self, first, second): ...

    def function_of_two(first, second): ...

    context, one, two, method = contextvars.Context(), object(), object(), Method()
    inner, of_method = inner_of(function_of_two, [one, two]), inner_of(Method.run, [method, one, two])
    for given, fn, positional in (
        (inner, context.run, (function_of_two, one, two)),
        (inner, functools.partial(context.run, function_of_two), (one, two)),
        (inner, context.run, (functools.partial(function_of_two, one), two)),
        (of_method, context.run, (method.run, one, two)),
    ):
        assert positional_arguments(fn, positional, given) == list(positional)
    for positional in ((function_of_two, two, one), (function_of_two, one, two, one)):
        assert positional_arguments(context.run, positional, inner) is None


# ---------------------------------------------------------------------------------- iterators


def test_iterators_that_only_pass_on():
    gen = generator()
    inner = inner_of(gen=gen)
    chain = itertools.chain(gen)
    next(chain)  # it takes up its first source
    for iterator in (
        gen,
        enumerate(gen),
        zip(gen, [1], strict=False),
        map(function, gen),
        filter(function, gen),
        chain,
        itertools.islice(gen, 3),
        itertools.takewhile(function, gen),
        itertools.starmap(function, gen),
        enumerate(map(function, gen)),
    ):
        assert path_of_iteration(iterator, inner) == REDO, iterator


def test_iterators_that_hold_values_are_not_known():
    gen = generator()
    inner = inner_of(gen=gen)
    assert path_of_iteration(zip([1], gen, strict=False), inner) is None
    assert path_of_iteration(map(function, [1], gen), inner) is None
    assert path_of_iteration(filter(function, [1]), inner_of(function)) is None
    assert path_of_iteration(iter([1]), inner) is None


def test_maps_function_passes_through():
    assert path_of_iteration(map(function, [1]), inner_of(function)) == PASS
    assert path_of_iteration(map(function, [1], [2]), inner_of(function)) == PASS
    assert path_of_iteration(map(other, [1]), inner_of(function)) is None


def test_what_maps_function_returns_is_no_item_of_an_iterator_around_it():
    """`for i, x in enumerate(map(f, ...))` got the result of f in the place of the pair."""
    inner, mapped = inner_of(function), map(function, [1])
    chain = itertools.chain([1], mapped)
    assert path_of_iteration(chain, inner) is None
    assert [next(chain), next(chain)] and path_of_iteration(chain, inner) == PASS
    around = (enumerate(mapped), zip(mapped, [1], strict=False), map(other, mapped), enumerate(chain))
    around += (itertools.islice(mapped, 3),)
    for iterator in around:
        path = path_of_iteration(iterator, inner)
        assert path is not None and path.mode == "R", iterator
        assert path.value.steps == [(mapped, (function, 1))], "the map is asked again, and calls the function"
    assert path_of_iteration(filter(other, mapped), inner) is None


def test_a_function_that_may_be_called_by_two_iterators_is_run_by_neither():
    """`map(f, map(f, ...))` took the result of the inner call for an item of the outer one."""
    inner, method = inner_of(function), functools.partial(function)
    for source in (
        map(function, [1]),
        map(method, [1]),
        filter(function, [1]),
        itertools.chain([1], filter(function, [1])),
        itertools.starmap(function, [(1,)]),
        itertools.takewhile(function, [1]),
        itertools.accumulate([1], function),
        enumerate(itertools.islice(map(function, [1]), 2)),
        iter(function, 1),
    ):
        assert path_of_iteration(map(function, source), inner) is None, source
    for source in ([1], (1, 2), range(3), {function: 1}, map(other, [1]), enumerate("abc")):
        assert path_of_iteration(map(function, source), inner) == PASS, source


def test_a_consumer_of_a_map_gets_the_result_of_the_running_call_first():
    def added(a, b): ...

    inner, mapped = inner_of(added), map(added, iter([1, 2]), [3, 4])
    next(mapped)  # the running call has taken these
    again = repeated_source(mapped, inner)
    assert list(again) == [None, None], "the running call, and the one after it"
    around = enumerate(map(added, [1], [2]))
    assert repeated_source(around, inner) is around and pending_of(around, inner) is not NULL
    assert pending_of(mapped, inner) is NULL
    gen = generator()
    assert repeated_source(gen, inner_of(gen=gen)) is gen


def test_python_iterators():
    class Sequence:
        def __getitem__(self, index): ...

    assert path_of_iteration(Thing(), inner_of(Thing.__next__)) == REDO
    assert path_of_iteration(iter(Sequence()), inner_of(Sequence.__getitem__)) == REDO
    assert path_of_iteration(iter(function, 1), inner_of(function)) == REDO
    assert path_of_iteration(Thing(), inner_of(Thing.__len__)) is None


# ---------------------------------------------------------------------------------- attributes


def test_attributes():
    class Lazy:
        @functools.cached_property
        def once(self): ...

        def __getattr__(self, name): ...

        def __setattr__(self, name, value): ...

    lazy, get_once = Lazy(), inner_of(functools.cached_property.__get__)
    assert path_of_attribute(Thing(), "value", "get", inner_of(Thing.value.fget)) == REDO
    assert path_of_attribute(Thing(), "other", "get", inner_of(Thing.value.fget)) is None
    assert path_of_attribute(lazy, "none", "get", inner_of(Lazy.__getattr__)) == REDO
    assert path_of_attribute(lazy, "x", "set", inner_of(Lazy.__setattr__)) == REDO
    assert path_of_attribute(lazy, "once", "get", get_once) == REDO
    lazy.__dict__["once"] = 1  # a second look would find this and not ask the descriptor
    assert path_of_attribute(lazy, "once", "get", get_once) == PASS


def test_attributes_of_super_classes_and_modules():
    class Child(Thing):
        @property
        def value(self):
            return super()

    class Meta(type):
        @property
        def meta(cls): ...

    Class = Meta("Class", (), {})
    assert path_of_attribute(Child().value, "value", "get", inner_of(Thing.value.fget)) == REDO
    assert path_of_attribute(Class, "meta", "get", inner_of(Meta.meta.fget)) == REDO
    assert path_of_attribute(itertools, "x", "get", inner_of(function)) is None


def test_looking_runs_no_code_of_the_program():
    class Trap:
        def __getattribute__(self, name):
            raise AssertionError("touched")

        __eq__ = __hash__ = __bool__ = __instancecheck__ = __getattribute__

    trap, inner = Trap(), inner_of(function, [Thing()])
    assert path_of_call(trap, [trap], inner) is None
    assert path_of_call(len, [trap], inner) is None
    assert path_of_attribute(trap, "x", "get", inner) is None
    assert path_of_iteration(trap, inner) is None
    assert instance_dict(trap) == {}
    assert describe(trap) == "a call of a Trap"


# ---------------------------------------------------------------------------------- instructions


def test_a_loop_over_a_generator_repeats_its_instruction():
    def loop(items):
        for item in items:
            print(item)

    gen = generator()
    outer, at = outer_at(loop, "FOR_ITER", [gen])
    found = classify(outer, inner_of(gen=gen))
    assert (found.mode, found.lasti, found.until, found.stack) == ("R", at.start - 1, at.next, [gen])


@pytest.mark.skipif(
    not TABLE.inlined_iteration, reason="another Python: here generators are entered through C"
)
def test_a_generator_entered_without_c_in_between_is_entered_again():
    def loop(items):
        for item in items:
            print(item)

    def delegate(items):
        yield from items

    gen = generator()
    outer, at = outer_at(loop, "FOR_ITER", [gen])
    suspended = outer._replace(lasti=at.next - 1)  # it has moved on to its last cache
    found = inlined(suspended, inner_of(gen=gen), [gen])
    assert (found.mode, found.lasti, found.until, found.stack) == ("R", at.start - 1, at.next, [gen])
    assert inlined(suspended, inner_of(gen=generator()), [gen]) is None
    assert inlined(suspended, inner_of(gen=gen), [1, gen]) is None
    assert inlined(outer, inner_of(gen=gen), [gen]) is None
    outer, at = outer_at(delegate, "SEND", [gen, None])
    found = inlined(outer._replace(lasti=at.next - 1), inner_of(gen=gen), [gen])
    assert (found.mode, found.lasti, found.stack) == ("R", at.start - 1, [gen, None])


def test_a_call_of_an_init_goes_on_behind_the_call():
    def make(cls):
        return [1, cls(2)]

    thing = Thing()
    outer, at = outer_at(make, "CALL", [1, *operands(Thing, 2)])
    found = classify(outer, inner_of(Thing.__init__, [thing, 2]))
    assert (found.mode, found.value, found.stack) == ("I", thing, [1])
    assert found.lasti == at.next - 1
    assert found.kept == [Thing, 2]  # alive until the call returns


def test_a_repeated_call_begins_at_its_keyword_names():
    def keyed(f):
        return f(x=1)

    cached = functools.lru_cache(function)
    name = TABLE.keyword_call or "CALL"
    names = [("x",)] if TABLE.keyword_call else []  # an operand, or an instruction before
    outer, at = outer_at(keyed, name, [*operands(cached, 1), *names])
    instructions = code_map(keyed.__code__).instructions
    begin = next((i for i, found in instructions.items() if found.name == TABLE.keyword_names), at.start)
    found = classify(outer, inner_of(function))
    assert (found.mode, found.lasti, found.stack) == ("R", begin - 1, [*operands(cached, 1), *names])


def test_arguments_by_keyword_are_no_operands_of_builtins():
    def keyed(f, gen):
        return f(x=gen)

    gen = generator()
    names = [("x",)] if TABLE.keyword_call else []
    outer, _ = outer_at(keyed, TABLE.keyword_call or "CALL", [*operands(sum, gen), *names])
    with pytest.raises(Refused, match="sum"):
        classify(outer, inner_of(gen=gen))


def test_an_operator_repeats_with_its_operands():
    def add(a, b):
        return a + b

    thing = Thing()
    outer, _at = outer_at(add, "BINARY_OP", [thing, 1])
    assert classify(outer, inner_of(Thing.__add__)).mode == "R"
    outer, _ = outer_at(add, "BINARY_OP", [1, thing])
    assert classify(outer, inner_of(Thing.__add__)).stack == [1, thing]
    with pytest.raises(Refused, match="BINARY_OP is running"):
        classify(outer, inner_of(Thing.method))


def test_getitem_passes_through():
    def get(a, b):
        return a[b]

    thing = Thing()
    outer, at = outer_at(get, "BINARY_SUBSCR", [thing, 1])
    found = classify(outer, inner_of(Thing.__getitem__))
    assert (found.mode, found.lasti, found.stack, found.kept) == ("V", at.next - 1, [], [thing, 1])


def test_enter_and_exit_of_with():
    def use(manager):
        with manager:
            pass

    thing = Thing()
    outer, _ = outer_at(use, "BEFORE_WITH", [thing.__exit__])  # the manager has been replaced by its exit
    assert classify(outer, inner_of(Thing.__enter__)).mode == "V"
    outer, _ = outer_at(use, "BEFORE_WITH", [thing])  # or not yet
    found = classify(outer, inner_of(Thing.__enter__))
    assert (found.mode, found.stack) == ("V", [thing.__exit__])
    outer, _ = outer_at(use, "WITH_EXCEPT_START", [thing.__exit__, 0, None, ValueError()])
    assert classify(outer, inner_of(Thing.__exit__)).mode == "V"
    # the normal exit: the bound method's slot holds its self for the time of the call
    outer, _ = outer_at(use, "CALL", [thing, None, None, None])  # (in either order of operands)
    assert classify(outer, inner_of(Thing.__exit__, [thing])).mode == "V"


@pytest.mark.skipif(
    TABLE.callable_first, reason="another Python: here partial does not use the slot of the callable"
)
def test_a_partial_whose_slot_holds_its_argument_is_found_where_it_came_from():
    def run(f):
        return f(1)

    outer, _ = outer_at(run, "CALL", operands("bound", 1))
    partial = functools.partial(function, "bound")
    known = outer._replace(locals=[partial])
    assert classify(known, inner_of(function)).mode == "V"
    with pytest.raises(Refused, match="a call of a str"):
        classify(outer._replace(locals=[functools.partial(function, "another")]), inner_of(function))


@pytest.mark.skipif(
    not TABLE.callable_first, reason="another Python: here partial uses the slot of the callable"
)
def test_a_partial_is_called_again_without_the_argument_it_has_put_before_the_others():
    def run(f):
        return f()

    gen = generator()
    outer, _ = outer_at(run, "CALL", [functools.partial(gen.send, gen), gen])
    assert classify(outer, inner_of(gen=gen)).stack[1] is NULL


def test_dead_operands_are_refused():
    def add(a, b):
        return a + b

    outer, _ = outer_at(add, "BINARY_OP", [Thing(), DEAD])
    with pytest.raises(Refused, match="already been released"):
        classify(outer, inner_of(Thing.__add__))


def test_destructors_and_callbacks_are_refused_by_what_they_are():
    def add(a, b):
        return a + b

    class Aliased:
        def shut(self): ...

        __del__ = shut

    thing = Thing()
    gone = weakref.ref(Aliased())
    outer, _ = outer_at(add, "BINARY_OP", [thing, 1])
    with pytest.raises(Refused, match="destructor"):
        classify(outer, inner_of(Thing.__del__, [thing]))
    with pytest.raises(Refused, match="destructor"):
        classify(outer, inner_of(Aliased.shut, [Aliased()]))
    with pytest.raises(Refused, match="weak reference callback"):
        classify(outer, inner_of(function, [gone]))


def test_a_refusal_says_where():
    def add(a, b):
        return a + b

    outer, _at = outer_at(add, "BINARY_OP", [1, 2])
    with pytest.raises(Refused) as refusal:
        classify(outer, inner_of(function))
    line = add.__code__.co_firstlineno + 1
    assert refusal.value.where == location(add.__code__, outer.lasti)
    assert refusal.value.where.startswith(f"{__file__}:{line} ")


def test_dead_pointers_are_seen_as_such():
    """A real one: the operand of a release that is under way."""
    seen = []

    class Dying:
        def __del__(self):
            with pytest.raises(Refused) as refusal:
                capture(at="call")
            seen.append(refusal.value.reason)

    def program():
        len(str(Dying()))

    run_base(program)
    assert len(seen) == 1
    assert "destructor" in seen[0] or "torn down" in seen[0]

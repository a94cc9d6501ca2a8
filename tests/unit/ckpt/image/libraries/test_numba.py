"""What a program has set in libraries that keep it in C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.errors import ObjectRefused
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.registry import libraries
from ckpt.image.interface.transient import refuse_transient
from tests.unit.ckpt.image.support import pickled, resumed_output

pytestmark = pytest.mark.turns(2)

NUMBA = """
    import numba, numpy, random

    @numba.njit
    def seed(number):
        numpy.random.seed(number)
        random.seed(number + 1)

    @numba.njit
    def draw():
        return numpy.random.normal(0.0, 1.0), numpy.random.random(), random.gauss(0.0, 1.0), random.random()

    seed(5)
    draw()
    driver_tick()
    print(*draw())
"""


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_no_image_is_taken_while_a_function_is_entered_in_the_tables_of_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restart it was entered twice: "key already in dictionary"."""
    numba: Any = pytest.importorskip("numba")
    context: Any = pytest.importorskip("numba.core.typing.context").BaseContext
    said: list[str] = []
    plain = context._insert_global

    def looking(*arguments: Any) -> None:
        try:
            refuse_transient(capture(at="call"))
        except Refused as refused:
            said.append(refused.reason)
        plain(*arguments)

    monkeypatch.setattr(context, "_insert_global", looking)

    def program() -> None:
        numba.vectorize(lambda a: a + 1)
        numba.njit(lambda a: a)
        numba.stencil(lambda a: a[0])

    run_base(program)
    assert len(said) >= 3
    assert all(each.startswith("numba is making a compiled function") for each in said)


def test_a_class_that_numba_has_compiled_is_refused_by_its_name() -> None:
    """The reason named a table of numba's: "cannot pickle '_dynfunc._Closure' object"."""
    numba: Any = pytest.importorskip("numba")
    experimental: Any = pytest.importorskip("numba.experimental")

    class Box:
        def __init__(self) -> None:
            self.k = 0

    with pytest.raises(ObjectRefused, match=r"numba\.experimental\.jitclass"):
        pickled(experimental.jitclass([("k", numba.int64)])(Box))


@pytest.mark.system
def test_the_random_numbers_of_functions_compiled_by_numba_go_on(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    assert len(resumed_output(tmp_path, NUMBA).split()) == 4  # and they are those of the undisturbed program


def test_an_image_waits_while_something_is_compiled() -> None:
    """`numba.vectorize` compiles at once, in Python: an image met what LLVM had in its memory, and failed."""
    compiling = pytest.importorskip("numba.core.compiler_lock").global_compiler_lock
    library = libraries.find("numba")
    assert library is not None and library.reason_now(()) is None and library.moment_limit_s == 60.0
    with compiling:
        assert library.reason_now(()) == "numba is compiling a function"
    assert library.reason_now(()) is None


DECLARED = """
    import numba, numpy
    from numba import types
    from numba.extending import overload, overload_attribute, overload_method, register_jitable

    def more(x):
        return x + 1

    @overload(more)
    def overloaded(x):
        return (lambda x: x + 100) if isinstance(x, types.Integer) else (lambda x: x + 0.5)

    @overload_method(types.Array, "twice")
    def twice(a):
        return lambda a: a.sum() * 2

    @overload_attribute(types.Array, "first")
    def first(a):
        return lambda a: a[0]

    @register_jitable
    def helper(x):
        return x * 3

    @numba.njit
    def use(x, a):
        return helper(x) + more(x) + a.twice() + a.first

    @numba.njit("float64(float64)")
    def typed(x):
        return helper(x) + more(x)

    def outer(k):
        @numba.njit
        def inner(x):
            return typed(x) * k
        return inner

    functions = {"use": use, "of": [outer(2.0)]}
    use(1, numpy.arange(1.0, 3.0))
    driver_tick()
    print(use(1, numpy.arange(1.0, 3.0)), use(1.0, numpy.arange(1.0, 3.0)), typed(2.0), functions["of"][0](1.0))
    print(functions["use"] is use, use.py_func.__globals__ is globals(), typed.py_func.__globals__["helper"] is helper)
    try:
        typed("text")
    except TypeError:
        print("typed has its types alone")
"""


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_what_a_program_has_declared_to_numba_is_declared_again_and_functions_are_its_own(
    tmp_path: Path,
) -> None:
    """The first call after a restart failed ("Untyped global name"): functions of numba were copies, with copies of the
    functions that they call, and nothing was declared."""
    pytest.importorskip("numba")
    assert resumed_output(tmp_path, DECLARED).splitlines() == [
        "111.0 11.5 8.5 9.0",
        "True True True",
        "typed has its types alone",
    ]


STENCILS = """
    import numba, numpy

    weight = 0.25

    @numba.stencil
    def around(a):
        return weight * (a[0, 1] + a[1, 0] + a[0, -1] + a[-1, 0])

    @numba.stencil(neighborhood=((-1, 1),), cval=7.0)
    def mean(a):
        total = 0.0
        for i in range(-1, 2):
            total += a[i]
        return total / 3

    def outer(k):
        @numba.stencil
        def scaled(a):
            return k * a[0, 1]
        return scaled

    held = [outer(2.0)]

    @numba.njit
    def use(a):
        return around(a).sum()

    a = numpy.arange(9.0).reshape(3, 3)
    print(use(a))
    driver_tick()
    print(use(a), use(a.astype("f4")), mean(numpy.arange(4.0)), held[0](a)[0])
"""


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_stencils_are_made_again_of_their_functions(tmp_path: Path) -> None:
    """No image of a program with one could be taken: "the address in LP_LLVMModule (ctypes) …"."""
    pytest.importorskip("numba")
    assert resumed_output(tmp_path, STENCILS).splitlines()[-1] == "4.0 4.0 [7. 1. 2. 7.] [2. 4. 0.]"


@pytest.mark.parametrize("name", ["Dict", "List"])
def test_a_typed_container_is_named_with_what_to_do(name: str) -> None:
    typed: Any = pytest.importorskip("numba.typed")
    numba: Any = pytest.importorskip("numba")
    container = (
        typed.Dict.empty(numba.int64, numba.int64) if name == "Dict" else typed.List.empty_list(numba.int64)
    )
    with pytest.raises(
        ObjectRefused, match=r"a container of numba\.typed.*hold it no longer than for the call"
    ):
        pickled(container)

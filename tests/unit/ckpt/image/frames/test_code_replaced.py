"""Functions whose code is another than the one that runs: of the program, and of installed packages."""

from __future__ import annotations

import types
from pathlib import Path

from ckpt.image.frames.suspended import entered
from tests.unit.ckpt.image.support import after_restart

LIBRARY = """
import functools

def lazily(function):
    def waiting(*args, __me=None):
        __me.__code__ = (lambda *args, __me=None: compiled(*args)).__code__
        return __me(*args), __me.__code__.co_name
    def compiled(*args):
        return function(*args), "compiled"
    __me = waiting
    waiting.__kwdefaults__ = {"__me": waiting}
    globals()["compiled"] = compiled
    return functools.wraps(function)(waiting)

def call(function):
    return function()
call = lazily(call)

def numbers(n):
    for i in range(n):
        yield i, "first"

def later(n):
    for i in range(n):
        yield i, i, "second"
    return "end"
"""


def test_a_frame_is_entered_by_its_function_if_that_has_its_code():
    def function(x):
        return x

    assert entered(function, function.__code__, []) is function
    same = function.__code__.replace(co_filename="elsewhere")
    assert entered(function, same, []) is function


def test_a_stand_in_has_the_code_and_the_cells_of_the_frame():
    def maker():
        free = 1

        def function():
            return free

        return function

    function, cell = maker(), types.CellType(2)
    other = entered(len_of_nothing, function.__code__, [cell])
    assert other() == 2
    assert other.__globals__ is globals()


def len_of_nothing():
    return 0


def test_the_first_call_of_an_installed_function_that_compiles_itself_comes_back(tmp_path: Path) -> None:
    program = """
        from lib import call
        print(call(lambda: (driver_tick(), "ticked")[1])[0], flush=True)
        print(call.__kwdefaults__["__me"] is call, call.__name__, flush=True)
    """
    assert after_restart(tmp_path, LIBRARY, program) == "('ticked', 'compiled')\nTrue call\n"


def test_the_second_call_of_an_installed_function_that_has_compiled_itself_comes_back(tmp_path: Path) -> None:
    program = """
        from lib import call
        call(lambda: 1)
        print(call(lambda: (driver_tick(), "ticked")[1]), flush=True)
    """
    assert after_restart(tmp_path, LIBRARY, program) == "('ticked', 'compiled')\n"


def test_a_generator_of_an_installed_function_with_another_code_comes_back(tmp_path: Path) -> None:
    program = """
        import lib
        before = lib.numbers(3)
        next(before)
        lib.numbers.__code__ = lib.later.__code__
        after = lib.numbers(3)
        next(after)
        driver_tick()
        print(list(before), list(after), flush=True)
    """
    assert after_restart(tmp_path, LIBRARY, program) == (
        "[(1, 'first'), (2, 'first')] [(1, 1, 'second'), (2, 2, 'second')]\n"
    )


def test_a_generator_that_runs_comes_back_with_the_code_it_has(tmp_path: Path) -> None:
    library = LIBRARY + "\ndef each(f):\n    yield f()\n    yield 2\n"
    program = """
        import lib
        lib.each.__code__ = (lambda f: ((yield "third"), (yield f()))).__code__
        def tick():
            driver_tick()
            return "ticked"
        got = lib.each(tick)
        lib.each.__code__ = lib.numbers.__code__
        for x in got:
            print(x, flush=True)
    """
    assert after_restart(tmp_path, library, program) == "ticked\n"

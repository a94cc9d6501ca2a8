"""Functions of scipy in C that compute with what a function of the program returns go on after a restart.

No call that was over is made again, and the result is the same to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import refusals, resumed_output

pytest.importorskip("scipy")

SOURCE = """
import functools, math
import numpy
from scipy import integrate, optimize

def f(x):
    held = [x]
    calls.append(repr(x))
    tick(len(calls))
    return math.sin(held[0] * 3) / (held[0] + 2)

def residuals(v, scale=1.0):
    f(float(v[0]))
    return numpy.exp(-v[0] * times * scale) + v[1] - values

def slopes(y, t, damping=0.25):
    f(t)
    return [y[1], -damping * y[1] - 5 * numpy.sin(y[0])]

def jacobian(y, t):
    f(t)
    return [[0, 1], [-5 * numpy.cos(y[0]), -0.25]]

def clipped(y, t):
    f(t)
    y[y < 0] = 0.0
    return -y + numpy.sin(t)

def kept(y, t):
    seen.append(y)
    f(t)
    return -y

buffer = numpy.zeros(2)

def in_one_buffer(y, t):
    f(t)
    buffer[:] = y[1], -y[0]
    return buffer

class Curve:
    def __call__(self, x):
        return f(x) ** 2

    def plus(self, x, more):
        return f(x) + more

def tick(number):
    if number in PLACES and number not in ticked:
        ticked.append(number)
        driver_tick()

times = numpy.linspace(0, 4, 30)
values = 0.7 ** times + 0.1
calls, ticked, seen = [], [], []
print(repr(EXPRESSION))
print(ticked, len(calls), calls)
"""

CALLS = {
    "quad": "integrate.quad(f, 0, 5)",
    "quad of a method, with arguments": "integrate.quad(Curve().plus, 0, 5, args=(2,))",
    "quad of an object that is called": "integrate.quad(Curve(), 0, numpy.inf, limit=7)",
    "quad of a partial": "integrate.quad(functools.partial(Curve().plus, more=2), 0, 1, points=[0.5])",
    "quad with a weight": "integrate.quad(f, 0, 1, weight='cos', wvar=20)",
    "dblquad": "integrate.dblquad(lambda y, x: f(x * y), 0, 1, 0, lambda x: x)",
    "odeint": "integrate.odeint(slopes, [3, 0], [0, 0.5, 1]).tolist()",
    "odeint with a jacobian": "integrate.odeint(slopes, [3, 0], [0, 0.5], Dfun=jacobian).tolist()",
    "odeint whose function returns one buffer": "integrate.odeint(in_one_buffer, [1, 0], [0, 0.5]).tolist()",
    "brentq": "optimize.brentq(lambda x: f(x) - 0.2, -0.5, 0.5, full_output=True)[0]",
    "bisect": "optimize.bisect(lambda x: f(x) - 0.2, -0.5, 0.5)",
    "curve_fit": "[part.tolist() for part in optimize.curve_fit(lambda x, a: f(a) + x, times, values)]",
    "leastsq": "optimize.leastsq(residuals, [1.0, 0.0], args=(0.5,), full_output=True)[0].tolist()",
    "fsolve": "optimize.fsolve(lambda v: [f(v[0]) - v[1], v[0] + v[1] - 0.3], [0.1, 0.1]).tolist()",
    "root with a jacobian": (
        "optimize.root(lambda v: (f(v[0]) - v[1], v[0] + v[1] - 0.3), [0.1, 0.1], "
        "jac=lambda v: (f(v[0]), [[1, -1.0], [1, 1]])[1]).x.tolist()"
    ),
}


def program(expression: str, places: str) -> str:
    return SOURCE.replace("EXPRESSION", expression).replace("PLACES", places)


@pytest.mark.rotate(8)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_scipy_goes_on(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, program(CALLS[call], "(8,)"))


@pytest.mark.rotate(8)
@pytest.mark.parametrize("call", CALLS)
def test_an_image_of_a_call_of_scipy_that_was_resumed(tmp_path: Path, call: str) -> None:
    resumed_output(tmp_path, program(CALLS[call], "(1, 4, 9)"), places=[3])


@pytest.mark.rotate(2)
def test_what_a_function_changes_in_its_argument_reaches_the_solver(tmp_path: Path) -> None:
    """It is memory of the solver. The first call of the function is in the image, before it changes something."""
    resumed_output(tmp_path, program("integrate.odeint(clipped, [-1.0, 2.0], [0, 1]).tolist()", "(1,)"))


WAITS = {
    "the function has changed its argument": "integrate.odeint(clipped, [-1.0, 2.0], [0, 1])",
    "the function has kept its argument": "integrate.odeint(kept, [1.0], [0, 1])",
    "an object is returned that is no number": (
        "integrate.quad(lambda x: type('Real', (), {'__float__': lambda self: f(x)})(), 0, 1)"
    ),
    "arrays that are too large": (
        "optimize.leastsq(lambda v: (f(float(v[0])), numpy.zeros(10**7) + v[0])[1], [1.0], maxfev=9)"
    ),
}


@pytest.mark.rotate(4)
@pytest.mark.parametrize("call", WAITS)
def test_an_image_waits_where_a_call_of_scipy_could_not_be_made_again(tmp_path: Path, call: str) -> None:
    assert refusals(tmp_path, program(WAITS[call], "(3,)"))


@pytest.mark.rotate(2)
def test_a_solver_that_depends_on_more_than_its_arguments_is_an_error(tmp_path: Path) -> None:
    """A stand-in is told of a function that is none of these: it must not go on with other numbers."""
    source = program("asked(f)", "(2,)").replace(
        "times = ",
        """import itertools
from ckpt.image.frames import _frames
from scipy.optimize import _zeros
def asked(function):
    try:
        return _zeros._bisect(function, start(), 1.0, 1e-9, 1e-9, 90, (), 0, 0)
    except RuntimeError as error:
        return "asked for the same" in str(error)
def start():
    return -0.9
times = """,
    )
    assert "asked for the same" not in resumed_output(tmp_path, source)

"""Functions whose arguments pydantic validates are entered from its compiled code, and are no obstacle to an image."""

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import refusals, resumed_output

pytestmark = pytest.mark.turns(2)

PROGRAM = """
import functools
from pydantic import ConfigDict, validate_call

@validate_call
def deep(count: int, *, step: int = 1) -> str:
    if count > 0:
        return deep(str(count - step)) + f" {type(count).__name__}"
    driver_tick()
    return "deep"

class Solver:
    def __init__(self, scale):
        self.scale = scale

    @validate_call
    def run(self: object, values: list[float]) -> float:
        return sum(values) * self.scale + len(deep(2))

    @classmethod
    @validate_call
    def made(cls: type, scale: float):
        driver_tick()
        return cls(scale)

@validate_call(validate_return=True)
def text(number: int) -> str:
    driver_tick()
    return f"{number}"

added = validate_call(functools.partial(lambda a, b: (driver_tick(), a, b)[1:], 1))

@validate_call
def numbers(count: int):
    for number in range(count):
        driver_tick()
        yield number

@validate_call(config=ConfigDict(arbitrary_types_allowed=True))
def fails(solver: Solver):
    driver_tick()
    raise LookupError(solver.scale)

print(deep("2"), Solver.made("2").run(["1", 2]), text("7"), added(2), list(numbers("3")))
try:
    fails(Solver(4))
except LookupError as failure:
    print(repr(failure))
try:
    deep("two")
except ValueError as failure:
    print(failure.error_count())
"""


def test_a_call_that_is_the_first_of_its_place_goes_on(tmp_path: Path) -> None:
    """Then the interpreter has the method and the validator, and not the bound method. libensemble runs in such a call."""
    source = """
        from pydantic import validate_call

        @validate_call
        def work(count: int, *, name: str = "x") -> str:
            driver_tick()
            return name * count

        print(work("3"))
    """
    assert resumed_output(tmp_path, source) == "xxx\n"


@pytest.mark.parametrize("place", range(1, 9))
def test_a_validated_function_goes_on(place: int, tmp_path: Path) -> None:
    output = resumed_output(tmp_path, PROGRAM, places=[place])
    assert output == "deep int int 18.0 7 (1, 2) [0, 1, 2]\nLookupError(4)\n1\n"


def test_a_function_whose_result_is_validated_in_compiled_code_too_is_named(tmp_path: Path) -> None:
    reasons = refusals(
        tmp_path,
        """
        from pydantic import ConfigDict, validate_call

        @validate_call(config=ConfigDict(validate_return=True))
        def text(number: int) -> str:
            driver_tick()
            return f"{number}"

        print(text("7"))
        """,
    )
    assert any("SchemaValidator.validate_python() is running text" in each for each in reasons), reasons

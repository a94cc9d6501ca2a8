"""What a program has set in libraries that keep it in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.image.interface.registry import libraries
from tests.unit.ckpt.image.support import resumed_output

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

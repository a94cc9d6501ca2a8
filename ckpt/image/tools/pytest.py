"""pytest, with pluggy: the variables of these packages are no part of images.

They describe a run of tests: rewritten modules, captured output, the test that runs. None of that goes on after a restart,
so no image is taken while pytest runs; but a program may import these packages, and use their functions.
"""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Pytest"]


class Pytest(Library):
    is_left_alone = True
    transient_functions = tuple(
        (function, "pytest runs tests, and such a run does not go on after a restart")
        for function in ("_pytest.config:main", "_pytest.python:pytest_pyfunc_call")  # a test may call deep
    )
    moment_limit_s = 1e9

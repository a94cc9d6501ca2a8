"""A run of pytest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import _pytest.config
import _pytest.python
import pytest

from ckpt.image.errors import Refused
from ckpt.image.interface import transient


@pytest.mark.parametrize("function", [_pytest.config.main, _pytest.python.pytest_pyfunc_call])
def test_no_image_is_taken_of_a_run_of_tests(function: Any) -> None:
    """A restarted one went on without its rewritten assertions, or failed."""
    record = SimpleNamespace(code=function.__code__, stack=[], locals=[], func=function, globals_={}, lasti=0)
    stack: Any = SimpleNamespace(threads=[], frames=[record], ident=0)
    with pytest.raises(Refused, match="pytest runs tests, and such a run does not go on after a restart"):
        transient.refuse_transient(stack)

"""A module in C that has not been built since its Python code was changed is named, and what to do."""

from __future__ import annotations

import pytest

from ckpt.compat.compiled import stale
from ckpt.mpi.engine import _quick
from ckpt.undo import _watch


def failure_of(statement: str, **names: object) -> BaseException:
    with pytest.raises((AttributeError, ImportError)) as caught:
        exec(statement, dict(names))
    return caught.value


@pytest.mark.parametrize(
    ("statement", "module", "why"),
    [
        ("quick.send_all", "ckpt.mpi.engine._quick", "it has no 'send_all'"),
        ("watch.FastPath().open_all()", "ckpt.undo._watch", "it has no 'open_all'"),
        ("from ckpt.undo._watch import mac_of_all", "ckpt.undo._watch", "cannot import name 'mac_of_all'"),
        ("import ckpt.undo._all", "ckpt.undo._all", "it has never been built"),
    ],
)
def test_what_such_a_module_lacks_is_said_with_the_remedy(statement: str, module: str, why: str) -> None:
    text = stale(failure_of(statement, quick=_quick, watch=_watch))
    assert text is not None
    assert f"the compiled module {module} does not fit" in text
    assert why in text
    assert "`make setup`" in text
    assert "`pip install -e .`" in text


@pytest.mark.parametrize(
    "statement",
    [
        "import ckpt; ckpt.no_such_name",
        "import math; math.no_such_name",
        "from math import no_such_name",
        "import no_such_module",
        "(1).no_such_name",
    ],
)
def test_other_failures_are_none_of_these(statement: str) -> None:
    assert stale(failure_of(statement)) is None

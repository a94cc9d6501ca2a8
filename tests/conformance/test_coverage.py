"""The documented coverage is what the code offers; every name of mpi4py's interface exists."""

from __future__ import annotations

import pytest

from ckpt import MPI
from tests.conformance import coverage


def test_the_documented_table_is_up_to_date() -> None:
    with open(coverage.DOCUMENT, encoding="utf-8") as source:
        text = source.read()
    assert coverage.document(text) == text, "run: python -m tests.conformance.coverage"


@pytest.mark.parametrize(
    "name", ["COMM_WORLD", "COMM_SELF", "COMM_NULL", "BYTE", "INT_INT", "ERR_REVOKED", "THREAD_MULTIPLE"]
)
def test_names(name: str) -> None:
    assert hasattr(MPI, name)


def test_what_is_not_offered_says_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="ckpt run -n"):
        MPI.COMM_SELF.Spawn("x")

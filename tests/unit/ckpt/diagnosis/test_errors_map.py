"""Errors and their names."""

from __future__ import annotations

import errno

import pytest

from ckpt.diagnosis.errors import UnknownError
from ckpt.diagnosis.errors_map import ERRORS, STEPS, error_name, need_diagnosis


@pytest.mark.parametrize("number", ERRORS)
def test_errors_of_the_network_need_a_diagnosis(number: int) -> None:
    assert need_diagnosis(number)
    assert need_diagnosis(OSError(number, "x"))
    assert error_name(number) == error_name(errno.errorcode[number]) == error_name(OSError(number, "x"))
    assert ERRORS[number] in STEPS


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EAGAIN, errno.EINTR, 0, None])
def test_others_do_not(number: int | None) -> None:
    assert not need_diagnosis(number)
    assert not need_diagnosis(OSError(number, "x"))


def test_kernels_mix_up_silence_and_no_way() -> None:
    assert STEPS["silent"] == STEPS["unreachable"]


def test_the_order_of_the_paper() -> None:
    """Interface 0, port 0, switch, port 1, interface 1, node 1; section 3.4."""
    own = [("interface", "here"), ("port", "here"), ("switch", "between")]
    paper = [*own, ("port", "there"), ("interface", "there"), ("host", "there")]
    assert [step for step in STEPS["unreachable"] if step in paper] == paper


@pytest.mark.parametrize("error", ["ENOENT", errno.ENOENT, "quiet", 99999, OSError("no number")])
def test_an_unknown_error_is_refused(error: str | int | OSError) -> None:
    with pytest.raises(UnknownError, match=r"says nothing about a place; .*ETIMEDOUT.*silent"):
        error_name(error)

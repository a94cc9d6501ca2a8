"""What events say of themselves."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from ckpt.controller.supervision.events import ProgramError


def plain() -> None:
    raise ValueError("no such number")


def with_a_note() -> None:
    failure = KeyError("x")
    failure.add_note("the table was\nempty")
    raise failure


def of_several_lines() -> None:
    raise RuntimeError("first\n  second\nthird")


def of_syntax() -> None:
    compile("x = = 1", "program.py", "exec")


def a_group() -> None:
    raise ExceptionGroup("tasks", [ValueError("one"), KeyError("two")])


def a_group_after_another() -> None:
    try:
        plain()
    except ValueError as failure:
        raise ExceptionGroup("tasks", [ValueError("one")]) from failure


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (plain, "ValueError: no such number"),
        (with_a_note, "KeyError: 'x'"),
        (of_several_lines, "RuntimeError: first"),
        (of_syntax, "SyntaxError: invalid syntax"),
        (a_group, "ExceptionGroup: tasks (2 sub-exceptions)"),
        (a_group_after_another, "ExceptionGroup: tasks (1 sub-exception)"),
    ],
)
def test_the_line_that_names_the_exception_is_told_of_a_program_that_fails(
    fail: Callable[[], None], said: str
) -> None:
    """It was the last one: of an exception with a note the end of the note."""
    with pytest.raises(Exception) as raised:
        fail()
    assert ProgramError(0, 0, 1, "".join(traceback.format_exception(raised.value))).exception == said


def test_text_that_is_no_traceback_is_told_by_its_last_line() -> None:
    assert ProgramError(0, 0, 3, "the image\ncannot be loaded\n").exception == "cannot be loaded"
    assert ProgramError(0, 0, 3).exception == ""

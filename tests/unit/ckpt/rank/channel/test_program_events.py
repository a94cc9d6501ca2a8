"""Lines that a program writes to the event log: what is a name, what are fields, what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.errors import EventError
from ckpt.rank.channel.program_events import OWN_NAMES, packet

EVENTS = Path(__file__).parents[5] / "docs" / "events.md"


def test_a_line_has_the_name_and_the_fields() -> None:
    assert packet("phase-2-ended", {"residual": 0.5, "parts": [1, None, "x"]}) == {
        "m": "event",
        "event": "phase-2-ended",
        "residual": 0.5,
        "parts": [1, None, "x"],
    }


def test_the_names_of_the_job_are_those_of_the_document() -> None:
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", EVENTS.read_text(), re.MULTILINE))
    documented = {name for name in documented if not name.startswith(("reduction-", "abft-"))}  # by log_event
    assert documented | {"continued", "output", "message"} == OWN_NAMES  # these three: not in a table


@pytest.mark.parametrize("name", ["", "Phase", "phase ended", "phase_ended", "-phase", "phase-", "2nd", 7])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(EventError, match="no name of an event"):
        packet(name, {})


@pytest.mark.parametrize("name", sorted(OWN_NAMES))
def test_a_program_cannot_write_events_of_the_job(name: str) -> None:
    with pytest.raises(EventError, match="an event of the job itself"):
        packet(name, {})


@pytest.mark.parametrize("field", ["t", "ns", "event", "rank", "incarnation", "m", "lost", "digest"])
def test_fields_that_every_line_has_are_refused(field: str) -> None:
    with pytest.raises(EventError, match=f"a field '{field}' of its own"):
        packet("mine", {field: 1})


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, math.nan, math.inf, {(1, 2): 3}])
def test_what_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(EventError, match="cannot be written as JSON"):
        packet("mine", {"value": value})


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(EventError, match="cannot be written as JSON"):
        packet("mine", {"value": value})


def test_long_lines_are_refused() -> None:
    packet("mine", {"value": "x" * 4000})
    with pytest.raises(EventError, match="at most 4096 are logged"):
        packet("mine", {"value": "x" * 4096})


def test_outside_a_job_nothing_is_written_and_mistakes_are_told() -> None:
    ckpt.log_event("mine", value=1)
    with pytest.raises(EventError):
        ckpt.log_event("job-finished")


def test_outside_of_a_job_no_death_has_a_policy() -> None:
    assert ckpt.failure_policy() is None

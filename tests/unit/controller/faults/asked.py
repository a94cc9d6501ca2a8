"""Waits for what a process that is asked once has answered (`ckpt.controller.faults.oneshot.AskedOnce`)."""

from __future__ import annotations

import selectors
import time
from typing import Any


def answer(
    selector: selectors.BaseSelector, log: list[tuple[str, dict[str, Any]]], event: str
) -> dict[str, Any]:
    """The fields of the one event, which has this name, as soon as it is there."""
    until = time.monotonic() + 60
    while not log:
        assert time.monotonic() < until
        for key, _ in selector.select(1):
            key.data()
    [(name, fields)] = log
    assert name == event
    return fields

"""Clocks of replicas where they may not ask the leader."""

from __future__ import annotations

import time

import pytest

from ckpt.redundancy.surroundings import clocks
from ckpt.redundancy.surroundings.clocks import ASKED, STILL_S, value


def test_a_clock_that_may_not_ask_stands_still_and_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waited for a time to come waited for ever."""
    monkeypatch.setattr(ASKED, "ask", lambda look: look())
    monkeypatch.setattr(ASKED, "main", 0)  # this thread may not ask
    monkeypatch.setattr(ASKED, "last", {"monotonic": 100.0, "time_ns": 7, "times": (1.0,)})
    monkeypatch.setattr(ASKED, "told_s", dict.fromkeys(("monotonic", "time_ns"), time.monotonic()))
    assert [value(name, int) for name in ("monotonic", "time_ns", "times")] == [100.0, 7, (1.0,)]
    ASKED.told_s.update(dict.fromkeys(("monotonic", "time_ns"), time.monotonic() - STILL_S - 2))
    assert 101 < value("monotonic", int) < 150
    assert 10**9 < value("time_ns", int) < 50 * 10**9 and isinstance(value("time_ns", int), int)
    assert value("never told", int) == 0.0
    monkeypatch.setattr(ASKED, "main", clocks.threading.get_ident())
    assert value("monotonic", lambda: 5.0) == 5.0 == ASKED.last["monotonic"]

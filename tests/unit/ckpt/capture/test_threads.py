"""Declared threads; what is registered; looking at the program's threads leaves nothing behind."""

from __future__ import annotations

import gc

import pytest

import ckpt
from ckpt.capture.threads import HarmlessThreads, bare_threads
from ckpt.errors import RegistrationError
from ckpt.rank.standalone import Standalone


def test_what_is_no_thread_and_no_name_is_refused() -> None:
    """It was found in the middle of the next image, which failed."""
    with pytest.raises(RegistrationError, match="not by 5"):
        HarmlessThreads().allow("progress-*", 5)  # type: ignore[arg-type]


def test_one_pattern_by_itself_is_one_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its letters were patterns, and the star among them one for all threads: a restart went on without any."""
    world = Standalone.start()
    monkeypatch.setattr(ckpt, "_world", [world], raising=False)
    monkeypatch.setattr(ckpt, "_runtime", lambda: world)
    ckpt.enable(harmless_threads="progress-*")
    assert world.threads.patterns == ["progress-*"]


def test_names_are_checked_where_there_is_no_job_too() -> None:
    world = Standalone.start()
    world.register("grid.u", named := [])
    world.register("grid.u", named)
    with pytest.raises(RegistrationError, match="registered already"):
        world.register("grid.u", [])
    for name in (5, "", "a b", "a."):
        with pytest.raises(RegistrationError, match="no usable name"):
            world.register(name, [])  # type: ignore[arg-type]


def test_a_look_at_the_threads_leaves_no_garbage() -> None:
    """A frame among those of all threads referred to itself: programs that count what the collector finds saw each image."""
    HarmlessThreads().others()  # imports, once
    while gc.collect():
        pass  # classes of ctypes, which other tests have left, take several passes
    gc.disable()
    try:
        bare_threads()
        HarmlessThreads().others()
        assert gc.collect() == 0
    finally:
        gc.enable()

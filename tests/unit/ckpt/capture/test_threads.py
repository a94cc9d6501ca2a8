"""Looking at the program's threads leaves nothing behind."""

from __future__ import annotations

import gc

from ckpt.capture.threads import HarmlessThreads, bare_threads


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

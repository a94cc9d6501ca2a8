"""Queues between processes: those of a pool are part of an image (tests/system/threads), others are refused by name."""

from __future__ import annotations

from pathlib import Path

from tests.unit.ckpt.image.support import image_failure


def test_a_queue_that_belongs_to_no_pool_is_named_and_not_a_part_of_it(tmp_path: Path) -> None:
    """Tried by a stranger: `q._close._weakref` was named, a weak reference, for which a way was to be registered."""
    source = """
        import multiprocessing

        tasks = multiprocessing.Queue()
        tasks.put(3)
        tasks.get()
        driver_tick()
        tasks.close()
    """
    failure = image_failure(tmp_path, source)
    assert "a queue of multiprocessing leads to other processes" in failure and "'tasks'" in failure
    assert "multiprocessing.Pool or concurrent.futures" in failure and "_weakref" not in failure

"""Queues between processes: those of a pool are part of an image (tests/system/threads), others without children, too."""

from __future__ import annotations

from pathlib import Path

from tests.unit.ckpt.image.support import image_failure


def test_a_queue_that_belongs_to_no_pool_is_named_and_not_a_part_of_it(tmp_path: Path) -> None:
    """Tried by a stranger: `q._close._weakref` was named, a weak reference, for which a way was to be registered."""
    source = """
        import multiprocessing, time

        tasks = multiprocessing.Queue()
        tasks.put(3)
        tasks.get()
        child = multiprocessing.Process(target=time.sleep, args=(9,))
        child.start()
        driver_tick()
        child.kill()
    """
    failure = image_failure(tmp_path, source)
    assert "a queue of multiprocessing leads to other processes" in failure and "'tasks'" in failure
    assert "multiprocessing.Pool or concurrent.futures" in failure and "_weakref" not in failure

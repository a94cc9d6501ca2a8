"""Results of a pool of processes in images, when the pool is over."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool

from ckpt.compat.worker_pools import connections_of
from tests.unit.ckpt.image.support import copy_of


def test_a_result_outlives_its_pool() -> None:
    """It holds the table of the pool's open tasks, and that a queue: no image could be taken while the program kept it."""
    with ThreadPool(1) as pool:
        result = pool.apply_async(int, ("7",))
        assert result.get() == 7
    del pool
    made, again = copy_of([result, result])
    for end in connections_of(made._cache.notifier):
        end._handle = None  # in this process the number is that of the original
    assert made.get() == 7 and made.ready() and again is made

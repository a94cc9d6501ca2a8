"""Long computations of parametrised tests, begun all at once on every core (eight at most) by the first of them that runs.

    elsewhere = ahead(test_every_state=whole, test_a_part=part)      in a module of tests: a fixture

    def test_every_state(name, elsewhere):       elsewhere() is whole(name), computed by another process

A function gets what its test is parametrised with, must be importable, and raises what the test should fail with.
Only tests that were selected are computed. What must not share a process, or is short, does not belong here.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest


def ahead(**work: Callable[..., Any]) -> Any:
    """A fixture for one module; see above."""
    begun: dict[str, Future[Any]] = {}

    @pytest.fixture(scope="module")
    def _begun(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Any]]]:
        # spawned, not forked: nothing of what tests before this have left behind in this process
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(os.cpu_count() or 2, 8), mp_context=context) as pool:
            for item in request.session.items:
                name = getattr(item, "originalname", None)
                if item.module is request.module and name in work:  # type: ignore[attr-defined]
                    begun[item.nodeid] = pool.submit(work[name], *item.callspec.params.values())  # type: ignore[attr-defined]
            yield begun
            for future in begun.values():
                future.cancel()

    @pytest.fixture
    def elsewhere(request: pytest.FixtureRequest, _begun: dict[str, Future[Any]]) -> Callable[[], Any]:
        return _begun[request.node.nodeid].result

    return _begun, elsewhere

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sweep.fetch import Place, Unavailable, fetched
from tests.system.support import Job, jobs_fixture


@pytest.fixture(scope="session")
def place() -> Place:
    """Where the programs are; a test that needs them is skipped where they cannot be had."""
    try:
        return fetched()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """start(app, *argv, ranks=1, every=…, …) -> Job, see tests/system/support.py."""
    yield from jobs_fixture(tmp_path)

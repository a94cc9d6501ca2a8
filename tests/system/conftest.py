from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, jobs_fixture


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """start(app, *argv, ranks=4, every=0.2, …) -> Job: options become flags of `ckpt run`."""
    yield from jobs_fixture(tmp_path)

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Job, jobs_fixture

Start = Callable[..., Job]


@pytest.fixture
def start_with_copies(tmp_path: Path) -> Iterator[Start]:
    """As `start` of all jobs: replicas that are lost are replaced."""
    yield from jobs_fixture(tmp_path)


@pytest.fixture
def start(start_with_copies: Start) -> Start:
    """Jobs whose replicas are not replaced: what happens then is in test_redundancy_copies.py."""

    def without_copies(*arguments: Any, redundancy: int = 1, **options: Any) -> Job:
        if redundancy > 1:
            options = {"redundancy": redundancy, "clones": 0, **options}
        return start_with_copies(*arguments, **options)

    return without_copies

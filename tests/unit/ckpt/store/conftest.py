from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ckpt.store import JobDirectory

sys.path.insert(0, str(Path(__file__).parent))

from store_helpers import make_job


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    """A job of one rank on the real disk."""
    return make_job(tmp_path)

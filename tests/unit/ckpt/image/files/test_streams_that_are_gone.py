"""Programs without some of their standard streams get checkpoints, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import resumed_output


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.close(2)\nos.close(0)",
        "import sys\nsys.__stdout__ = sys.__stderr__ = sys.__stdin__ = None",
    ],
    ids=["descriptors are closed", "there are no objects"],
)
def test_streams_that_are_gone(tmp_path: Path, source: str) -> None:
    """Each image failed: "Bad file descriptor", "tuple index out of range"."""
    assert resumed_output(tmp_path, source + "\ndriver_tick()\nprint('end')\n").splitlines() == ["end"]

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

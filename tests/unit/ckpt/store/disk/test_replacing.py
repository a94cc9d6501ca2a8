"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ckpt.store.disk.replacing import replace_file


def test_the_new_content_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    replace_file(str(path), b"old")
    assert path.stat().st_mode & 0o777 == 0o600
    replace_file(str(path), b"new", sync=True, previous_path=str(tmp_path / "x.1"))
    assert path.read_bytes() == b"new"
    assert (tmp_path / "x.1").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("call", ["fsync", "link", "replace", "write", "half"])
def test_what_the_system_refuses_leaves_the_old_one_and_nothing_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def refuse(*_: object, **__: object) -> int:
        if call == "half":
            return 1
        raise OSError(errno.EIO, "broken")

    if call not in ("write", "half"):
        monkeypatch.setattr(os, call, refuse)
    write = refuse if call in ("write", "half") else os.write
    with pytest.raises(OSError):
        replace_file(str(path), b"new", sync=True, previous_path=str(tmp_path / "x.1"), write=write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_into_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(str(tmp_path / "none" / "x"), b"new")

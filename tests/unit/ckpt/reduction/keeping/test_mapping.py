"""Files of the host's memory that are mapped without a descriptor that stays open."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from ckpt.reduction.keeping import mapping  # noqa: E402
from ckpt.reduction.keeping.mapping import Mapping  # noqa: E402


@pytest.fixture(params=["in one call of C", "without a compiler"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without a compiler":
        monkeypatch.setattr(mapping, "_keeper", None)
    return str(tmp_path / "file")


@pytest.mark.parametrize("nbytes", [4096, 3 << 20])
def test_a_new_file_is_written_to_and_read_elsewhere(path: str, nbytes: int) -> None:
    before = os.listdir("/proc/self/fd")
    made = Mapping(path, nbytes)
    assert os.stat(path).st_blocks * 512 >= nbytes and os.stat(path).st_mode & 0o777 == 0o600
    np.asarray(made)[16:20] = 7
    made.head[0] = 3
    made.view()[8:16] = b"12345678"
    found = Mapping(path)
    assert (
        found.nbytes == nbytes and found.head[0] == 3 and bytes(found.view()[8:20]) == b"12345678" + b"\7" * 4
    )
    assert not np.asarray(found).flags.writeable
    assert len(os.listdir("/proc/self/fd")) == len(before)
    with pytest.raises(TypeError, match="no part of an image"):
        pickle.dumps(found)


def test_what_cannot_be_mapped_is_an_error_of_the_system(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        Mapping(path)
    Path(path).write_bytes(b"short")
    with pytest.raises(OSError, match="has 5 bytes"):
        Mapping(path)
    with pytest.raises(FileExistsError):
        Mapping(path, 4096)
    os.unlink(path)
    with pytest.raises(OSError, match=r".*"):
        Mapping(path, 1 << 60)  # no room
    assert not os.path.exists(path)
    os.symlink("/etc/passwd", path)
    for nbytes in (0, 4096):
        with pytest.raises(OSError, match=r".*"):
            Mapping(path, nbytes)

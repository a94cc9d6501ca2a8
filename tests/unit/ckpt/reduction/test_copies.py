"""Copies in files: what is written is what is read, or nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from ckpt.reduction import Body, copies  # noqa: E402
from ckpt.reduction.copies import LEAST_BYTES, Gone, Store, Stored  # noqa: E402


class Text(Body):
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(copies, "folder", lambda: tmp_path)
    return tmp_path


def stored(value: object) -> Stored:
    found = Store().store(value)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["f8", "?", "c16", ">i4", "u1"])
def test_an_array_comes_back(dtype: str) -> None:
    array = (np.arange(3 * LEAST_BYTES).reshape(3, -1) % 7).astype(dtype)
    copy = stored(array).load()
    assert copy.dtype == array.dtype and copy.shape == array.shape and (copy == array).all()


def test_a_body_comes_back() -> None:
    assert stored(Text("x" * LEAST_BYTES)).load().body().text == "x" * LEAST_BYTES


def test_what_is_small_is_not_written(memory: Path) -> None:
    assert Store().store(np.zeros(4)) is None and Store().store(Text("x")) is None
    assert not list(memory.iterdir())


def test_a_copy_that_is_not_there_or_not_whole_is_gone() -> None:
    copy = stored(np.zeros(LEAST_BYTES))
    os.truncate(copy.path, LEAST_BYTES)
    with pytest.raises(Gone, match="items of"):
        copy.load()
    copy.remove()
    copy.remove()
    with pytest.raises(Gone, match="No such file"):
        copy.load()


def test_it_is_private_and_overwrites_nothing_of_others(memory: Path) -> None:
    store = Store()
    copy = store.store(np.zeros(LEAST_BYTES))
    assert copy is not None and stat.S_IMODE(os.stat(copy.path).st_mode) == 0o600
    (memory / "precious").write_text("precious")
    copy.remove()
    os.symlink(memory / "precious", copy.path)
    again = store.store(np.ones(LEAST_BYTES), copy)
    assert again is not None and again.path == copy.path and again.load()[0] == 1
    assert (memory / "precious").read_text() == "precious"


def test_without_room_the_value_itself_is_sent(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "folder", lambda: memory / "not there")
    assert Store().store(np.zeros(LEAST_BYTES)) is None


def test_what_dead_jobs_have_left_is_removed_after_an_hour(memory: Path) -> None:
    names = [f"ckpt-reduction-{agent}-0-1" for agent in (os.getpid(), 2**22 + 1)] + [
        "ckpt-reduction-x",
        "other",
    ]
    for name in names:
        (memory / name).touch()
        os.utime(memory / name, (0, 0))
    (memory / f"ckpt-reduction-{2**22 + 1}-0-2").touch()
    copies.remove_stale()
    assert sorted(path.name for path in memory.iterdir()) == sorted(
        [names[0], "ckpt-reduction-x", "other", f"ckpt-reduction-{2**22 + 1}-0-2"]
    )

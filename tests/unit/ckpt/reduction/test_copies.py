"""Memory of the host: what others read is what was put there, or nothing."""

from __future__ import annotations

import ctypes
import os
import pickle
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

import ckpt  # noqa: E402
from ckpt.reduction import Body, copies  # noqa: E402
from ckpt.reduction.body import Packed  # noqa: E402
from ckpt.reduction.copies import LEAST_BYTES, Gone, Memory, OwnMemory, Piece, Where  # noqa: E402
from ckpt.reduction.values import Values  # noqa: E402


class Text(Body):
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(copies, "folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def epoch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    epochs = [0]
    monkeypatch.setattr(ckpt, "epoch", lambda: epochs[0])
    return epochs


def put(value: object, owner: Memory | None = None) -> Piece:
    piece = (owner or Memory(0)).put(value)
    assert piece is not None
    return piece


@pytest.mark.parametrize("dtype", ["f8", "?", "c16", ">i4", "u1"])
def test_an_array_is_read_where_it_lies(dtype: str) -> None:
    array = (np.arange(3 * LEAST_BYTES).reshape(3, -1) % 7).astype(dtype)
    piece, reader = put(array), Memory(1)
    there = reader.find(piece.where)
    assert there.dtype == array.dtype and there.shape == array.shape and (there == array).all()
    assert reader.check(piece.where) and not there.flags.writeable
    copy = reader.load(piece.where)
    del piece
    assert (copy == array).all() and not reader.check(Where("elsewhere", 1, "f8", (1,)))


def test_a_body_comes_back() -> None:
    piece = put(Packed.of(Text("x" * LEAST_BYTES)))
    assert Memory(1).load(piece.where).body().text == "x" * LEAST_BYTES


def test_what_is_small_or_finds_no_room_is_not_put_there(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Memory(0).put(np.zeros(4)) is None and not list(memory.iterdir())
    monkeypatch.setattr(copies, "folder", lambda: memory / "not there")
    owner = Memory(0)
    assert owner.put(np.zeros(LEAST_BYTES)) is None and owner.is_full


def test_what_is_taken_away_is_gone_though_it_is_still_mapped(epoch: list[int]) -> None:
    owner, reader = Memory(0), Memory(1)
    piece = put(np.ones(LEAST_BYTES), owner)
    where = piece.where
    there = reader.find(where)
    del piece
    assert not reader.check(where) and there[0] == 1
    with pytest.raises(Gone, match="something else"):
        reader.load(where)
    other = put(np.zeros(LEAST_BYTES), owner)  # the same memory
    assert other.where.path == where.path and reader.load(other.where)[0] == 0
    with pytest.raises(Gone, match="something else"):
        reader.find(where)


def test_memory_is_not_used_again_if_an_image_was_taken_since(epoch: list[int], memory: Path) -> None:
    """Images are written by a copy of the process, which shares it: a silent wrong result after a restart otherwise."""
    owner = Memory(0)
    piece = put(np.ones(LEAST_BYTES), owner)
    path, there = piece.where.path, piece.value
    epoch[0] = 1
    del piece
    other = put(np.zeros(LEAST_BYTES), owner)
    assert other.where.path != path and there[0] == 1 and not os.path.exists(path)


def test_an_image_has_the_content_and_a_restart_puts_it_where_it_was() -> None:
    array = np.arange(LEAST_BYTES)
    piece = put(array)
    where = piece.where
    loaded = pickle.loads(pickle.dumps(piece))
    assert type(loaded) is np.ndarray and (loaded == array).all()
    del piece
    reader = Memory(1)
    with pytest.raises(Gone):
        reader.load(where)
    again = Memory(0).put(loaded, where)
    assert again is not None and again.where == where and (reader.load(where) == array).all()
    with pytest.raises(TypeError, match="no part of an image"):
        pickle.dumps(again._mapping)


def test_the_memory_of_a_result_is_used_again_when_nobody_has_it() -> None:
    own, bytes_ = OwnMemory(), 2 * LEAST_BYTES
    array = own.empty("f8", (bytes_ // 8,))
    array[:] = 1
    at = array.ctypes.data
    keeps: list[Callable[[Any], object]] = [
        lambda array: array,
        lambda array: array[5:7],
        lambda array: array.reshape(2, -1).T,
        lambda array: memoryview(array)[3:],
        lambda array: np.frombuffer(array, "u1")[-1:],
        lambda array: np.asarray(memoryview(array).cast("B")),
        lambda array: array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
        iter,
        lambda array: {"a": [array.view("i8").real]},
    ]
    for keep in keeps:
        kept = keep(array)
        del array
        array = own.empty("f8", (bytes_ // 8,))
        assert array.ctypes.data != at and not np.may_share_memory(array, own.empty("u1", (bytes_,)))
        del array, kept
        array = own.empty(">i2", (2, bytes_ // 4))
        at = array.ctypes.data
        array = array.view("f8").reshape(-1)
    assert own.empty("u1", (LEAST_BYTES - 1,)).flags.owndata and own.empty("f8", (0, 3)).shape == (0, 3)
    again = pickle.loads(pickle.dumps(own))
    assert again._blocks == {} and again._kept == 0


def test_the_memory_of_results_that_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "OWN_BYTES", 10 * LEAST_BYTES)
    own = OwnMemory()
    arrays = [own.empty("u1", (LEAST_BYTES + number // 3,)) for number in range(30)]
    assert own._kept <= copies.OWN_BYTES >= sum(len(b) * n for n, b in own._blocks.items())
    assert len({array.ctypes.data for array in arrays}) == 30
    assert own.empty("u1", (11 * LEAST_BYTES,)).flags.owndata


def test_threads_never_get_the_same_memory() -> None:
    own, failures = OwnMemory(), []

    def use(number: int) -> None:
        for step in range(300):
            array = own.empty("i8", (LEAST_BYTES // 8,))
            array[:] = number * 1000 + step
            if not (array == number * 1000 + step).all():
                failures.append((number, step))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_it_outlives_a_process_that_is_killed() -> None:
    program = (
        "import os, numpy as np\nfrom ckpt.reduction.copies import Memory\n"
        "memory = Memory(0)\npiece = memory.put(np.arange(100000))\n"
        "print(*piece.where[:2], flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    path, mark = done.stdout.split()
    try:
        loaded = Memory(1).load(Where(path, int(mark), "<i8", (100000,)))
        assert (loaded == np.arange(100000)).all()
    finally:
        os.unlink(path)


def test_it_is_private_and_overwrites_nothing_of_others(memory: Path) -> None:
    owner = Memory(0)
    piece = put(np.zeros(LEAST_BYTES), owner)
    path = Path(piece.where.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (memory / "precious").write_text("precious")
    path.unlink()
    path.symlink_to(memory / "precious")
    with pytest.raises(Gone):
        Memory(1).find(piece.where)
    again = owner.put(np.ones(LEAST_BYTES), piece.where)
    assert again is not None and Memory(1).load(again.where)[0] == 1
    assert (memory / "precious").read_text() == "precious"


def test_a_file_that_is_too_short_is_gone(memory: Path) -> None:
    piece = put(np.zeros(LEAST_BYTES))
    os.truncate(piece.where.path, LEAST_BYTES)
    with pytest.raises(Gone, match="bytes"):
        Memory(1).find(piece.where)
    os.truncate(piece.where.path, piece._mapping.nbytes)  # its own mapping is whole again


def test_all_is_removed_at_the_end(memory: Path) -> None:
    owner = Memory(0)
    kept, dropped = put(np.zeros(LEAST_BYTES), owner), put(np.zeros(LEAST_BYTES), owner)
    del dropped
    assert len(list(memory.iterdir())) == 2
    owner.remove()
    assert not list(memory.iterdir())
    del kept


def test_the_living_remove_what_a_dead_rank_has_left(memory: Path) -> None:
    mine, other = put(np.zeros(LEAST_BYTES), Memory(1)), put(np.zeros(LEAST_BYTES), Memory(11))
    copies.remove_of(1)
    assert [str(path) for path in memory.iterdir()] == [other.where.path] != [mine.where.path]


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


def test_two_threads_that_look_at_once_let_go_of_what_is_retired(tmp_path: Path) -> None:
    """The worker and the handler looked at the same time and removed the same mapping: the rank failed with a KeyError."""
    owner, reader = Memory(1), Memory(2)
    first, second = put(np.ones(LEAST_BYTES), owner), put(np.ones(2 * LEAST_BYTES), owner)
    reader.find(first.where)
    reader._others[first.where.path].head = [0, 1]  # retired

    class Raced(dict[str, object]):
        def items(self) -> list[tuple[str, object]]:  # type: ignore[override]
            found = list(super().items())
            self.clear()  # the other thread
            return found

    reader._others = Raced(reader._others)  # type: ignore[assignment]
    assert (reader.find(second.where) == 1).all()
    owner.close()


def test_a_copy_whose_file_is_gone_is_sent_out_of_the_mapping() -> None:
    """The rank that asked could not map the file; it got its name again in place of the content, and the copy was lost."""
    owner, holder = Memory(1), Values(2, 0, 2)
    piece = put(np.arange(float(LEAST_BYTES)), owner)
    holder.memory.find(piece.where)
    os.unlink(piece.where.path)
    assert (holder.outgoing(piece.where) == piece.value).all()

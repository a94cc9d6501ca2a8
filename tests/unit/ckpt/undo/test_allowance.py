"""All ranks and intervals of a job share one bound for their copies."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from ckpt.undo.allowance import Allowance, copied_bytes

RANKS = 4


@pytest.fixture
def undo(tmp_path: Path) -> Path:
    for epoch in range(3):
        (tmp_path / f"epoch-0000000{epoch}-00000").mkdir()
    return tmp_path


def rank(undo: Path, epoch: int = 0, limit_bytes: int = 100) -> Allowance:
    return Allowance(f"{undo}/epoch-0000000{epoch}-00000", limit_bytes, RANKS)


def test_ranks_and_intervals_share_the_bound(undo: Path) -> None:
    assert rank(undo, 0).take(40) and rank(undo, 0).take(40) and rank(undo, 1).take(20)
    assert not rank(undo, 0).take(1) and not rank(undo, 2).take(1)
    assert copied_bytes(str(undo)) == 100


def test_what_is_too_large_takes_nothing(undo: Path) -> None:
    first = rank(undo)
    assert not first.take(101)
    assert not (undo / "epoch-00000000-00000" / "copied").exists()
    assert first.take(100)


def test_an_interval_that_goes_takes_its_bytes_along(undo: Path) -> None:
    assert rank(undo, 0).take(60) and rank(undo, 1).take(30)
    (undo / "epoch-00000000-00000").rename(undo / "done-epoch-00000000-00000")
    assert not rank(undo, 1).take(71)
    assert rank(undo, 1).take(70)
    shutil.rmtree(undo / "epoch-00000001-00000")
    assert rank(undo, 2).take(100)


def test_bytes_that_were_not_needed_are_given_back(undo: Path) -> None:
    first = rank(undo)
    assert first.take(100)
    first.give_back(70)  # a file with holes, or shared blocks
    assert first.take(60)
    assert not first.take(11)
    first.end()
    assert copied_bytes(str(undo)) == 90
    assert rank(undo, 1).take(10)


def test_many_small_copies_need_the_lock_seldom_and_the_rest_comes_back(undo: Path) -> None:
    first = rank(undo, limit_bytes=1 << 20)
    count = undo / "epoch-00000000-00000" / "copied"
    seen = set()
    for _ in range(100):
        assert first.take(100)
        seen.add(count.read_text())
    assert len(seen) < 5
    assert int(max(seen)) <= 100 * 100 + (1 << 20) // 64
    first.end()
    assert copied_bytes(str(undo)) == 100 * 100


def test_what_a_killed_rank_has_taken_counts(undo: Path) -> None:
    assert rank(undo).take(70)
    assert not rank(undo).take(31)


def test_ranks_at_the_same_time_never_take_more_than_there_is(undo: Path) -> None:
    taken: list[int] = []

    def copy(epoch: int) -> None:
        mine = rank(undo, epoch, 10_000)
        taken.extend(7 for _ in range(500) if mine.take(7))

    threads = [threading.Thread(target=copy, args=(number % 3,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 10_000 - 6 * (10_000 // 64 // RANKS) - 7 <= sum(taken) <= 10_000
    assert copied_bytes(str(undo)) <= 10_000


def test_a_damaged_number_is_an_error_with_its_path(undo: Path) -> None:
    (undo / "epoch-00000001-00000" / "copied").write_text("many")
    with pytest.raises(OSError, match="epoch-00000001-00000/copied"):
        rank(undo).take(1)


def test_a_number_that_a_killed_rank_has_not_written_yet_is_none(undo: Path) -> None:
    """It stopped all copies of the job."""
    (undo / "epoch-00000001-00000" / "copied").write_text("")
    assert rank(undo).take(100)

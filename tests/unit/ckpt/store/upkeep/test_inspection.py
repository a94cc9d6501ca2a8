"""`ckpt inspect`'s content: from authenticated records only, whatever lies in the blocks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from store_helpers import commit, make_job

from ckpt.store import (
    BlockDamaged,
    EpochMissing,
    JobDirectory,
    Misplaced,
    RankMissing,
    RecordDamaged,
    load_control,
    verify,
)
from ckpt.store.upkeep.inspection import SCHEMA, inspect

LARGE = np.frombuffer(bytearray(os.urandom(300_000)), np.uint8)


def manifest_of(job: JobDirectory, epoch: int, rank: int = 0) -> Path:
    return Path(job.path, load_control(job, epoch).ranks[rank].manifest)


def test_the_newest_line_is_shown_unless_an_epoch_is_named(job: JobDirectory) -> None:
    commit(job, 1, "first")
    commit(job, 2, "second")
    assert inspect(job)["epoch"] == 2
    assert inspect(job, 1)["epoch"] == 1
    assert inspect(job)["schema"] == SCHEMA


def test_sizes_and_vectors_are_those_of_the_commit(job: JobDirectory) -> None:
    control = commit(job, 1, LARGE)
    [rank] = inspect(job)["ranks"]
    assert rank["bytes"]["raw"] == control.bytes_raw
    assert rank["bytes"]["written"] == control.bytes_written
    assert rank["messages"]["peers"]["0"] == {
        "tx": 3, "base": 1, "rx": 2, "unacked": 2, "unacked_bytes": None,
    }  # fmt: skip
    assert rank["stack"] == [] and rank["variables"] is None, "an image that says nothing of them"


def test_blocks_are_new_once_and_shared_afterwards(job: JobDirectory) -> None:
    commit(job, 1, LARGE)
    commit(job, 2, ["and this", LARGE])
    first = inspect(job, 1)["ranks"][0]["blocks"]
    second = inspect(job, 2)["ranks"][0]["blocks"]
    assert first["shared"] == 0 and first["new_bytes"] >= LARGE.nbytes
    assert second["shared_bytes"] >= LARGE.nbytes and second["new_bytes"] < 1000
    assert (
        second["packs"] == 2
        and second["new"] == 1
        and sum(second["codecs"].values()) == second["new"] + second["shared"]
    )


def test_an_image_without_a_pack_of_its_own_has_no_new_blocks(job: JobDirectory) -> None:
    commit(job, 1, LARGE)
    commit(job, 2, LARGE)
    blocks = inspect(job, 2)["ranks"][0]["blocks"]
    assert blocks["new"] == 0 and blocks["shared"] > 0


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    with pytest.raises(EpochMissing, match="nothing was committed"):
        inspect(job)
    commit(job, 1, "data")
    with pytest.raises(EpochMissing, match=r"no committed epoch 7.*Committed epochs: 1"):
        inspect(job, 7)
    with pytest.raises(RankMissing, match=r"epoch 1 has no rank 2.*Its ranks are 0 to 1") as missing:
        inspect(job, 1, 2)
    assert missing.value.exit_code == 10


def test_a_changed_manifest_is_not_trusted(tmp_path: Path) -> None:
    job = make_job(tmp_path, size=2)
    commit(job, 1, "data")
    path = manifest_of(job, 1, rank=1)
    path.write_bytes(path.read_bytes().replace(b'"note":"test"', b'"note":"fake"'))
    with pytest.raises(RecordDamaged, match="manifest does not verify") as damaged:
        inspect(job, 1, 1)
    assert damaged.value.exit_code == 12
    whole, changed = inspect(job, 1)["ranks"]
    assert whole["good"] and not changed["good"]
    assert changed["error"] == "RecordDamaged" and "does not verify" in changed["reason"]
    assert set(changed) == {"rank", "good", "error", "reason", "exit_code"}, "nothing of it is shown"


def test_a_manifest_of_another_epoch_is_not_trusted(job: JobDirectory) -> None:
    commit(job, 1, "data")
    commit(job, 2, "data")
    manifest_of(job, 2).write_bytes(manifest_of(job, 1).read_bytes())
    with pytest.raises(Misplaced, match="of epoch 1, wanted was 2") as misplaced:
        inspect(job, 2, 0)
    assert misplaced.value.fallback_epoch == 1
    assert misplaced.value.exit_code == 3


def test_damaged_blocks_do_not_matter_here(job: JobDirectory) -> None:
    commit(job, 1, LARGE)
    [pack] = Path(job.rank_directory(0)).glob("*.pack")
    before = inspect(job)
    pack.write_bytes(bytes(pack.stat().st_size))
    assert inspect(job) == before
    assert verify(job).lines[0].findings[0].kind == BlockDamaged.__name__

"""Manifest, control file and their schemas: complete, inside their bounds, and the same in both readings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, control_of

from ckpt.store import ControlFile, JobDirectory, Manifest, Misplaced, RankEntry, RecordDamaged, load_manifest
from ckpt.store.records import authenticated, formats
from ckpt.store.records.control import control_name, epoch_of_name
from ckpt.store.records.manifest import BlockRef, BufferRef, PackRef
from ckpt.store.records.schema import check_control, check_manifest

KEY = bytes(32)
JOB = "0123456789abcdef"
DIGEST = "ab" * 32
PACK = PackRef("images/rank-00000/epoch-00000002.i0001.00.pack", 5000, 1)
GOOD = Manifest(
    job=JOB,
    rank=0,
    incarnation=1,
    label=(1, 2),
    packs=(PACK,),
    blocks=(
        BlockRef(DIGEST, 0, 0, 10, 10, "raw", 1, ""),
        BlockRef(DIGEST, 0, 10, 5, 90, "zstd", 1, "cd" * 32, "ef" * 16),
    ),
    stream=(0,),
    small=(1,),
    buffers=(BufferRef(7, None), BufferRef(100, (0, 1))),
    meta={"stack": [["app.py", 3]]},
    bytes_raw=100,
    bytes_written=15,
)


def decode(data: bytes) -> Manifest:
    return Manifest.decode(KEY, JOB, data, "f")


def test_a_manifest_survives_its_trip() -> None:
    assert decode(GOOD.encode(KEY)) == GOOD
    assert GOOD.epoch == 2
    assert [block.stored_digest for block in GOOD.blocks] == [DIGEST, "cd" * 32]


def test_the_strict_reading_agrees() -> None:
    model = check_manifest(GOOD.encode(KEY), "f")
    assert (model.rank, model.epoch, model.previous, model.buffers) == (0, 2, 1, [7, [100, 0, 1]])


def test_blocks_without_a_likeness_are_read_too() -> None:
    """As they were written before there were likenesses."""
    content = json.loads(GOOD.encode(KEY))
    for envelope in ("mac", "kind", "format", "job"):
        content.pop(envelope)
    content["blocks"] = [block[:8] for block in content["blocks"]]
    data = authenticated.encode(KEY, "manifest", JOB, content)
    assert [block.likeness for block in decode(data).blocks] == ["", ""]
    assert [len(block) for block in check_manifest(data, "f").blocks] == [8, 8]


def test_real_records_pass_the_strict_reading(job: JobDirectory) -> None:
    control = commit(job, 1, [np.arange(100_000), "x"])
    check_manifest(load_manifest(job, control.ranks[0]).encode(job.key), "f")
    model = check_control(control.encode(job.key, job.job_id), "f")
    assert model.ranks[0].vectors == {"0": (3, 1, 2)}


def signed(data: bytes, kind: str, changes: dict[str, Any], *without: str) -> bytes:
    """The record with other fields, and signed: what a bug in a writer could have left."""
    content = json.loads(data) | changes
    for name in ("mac", "kind", "format", "job", *without):
        content.pop(name)
    return authenticated.encode(KEY, kind, JOB, content)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"stream": [2]}, "block it does not list"),
        ({"small": [-1]}, "small: -1 is not from 0"),
        ({"buffers": [[1, 9]]}, "block it does not list"),
        ({"packs": []}, "pack it does not list"),
        ({"packs": [["/etc/passwd", 5000, 1]]}, "packs.path: '/etc/passwd' does not match"),
        ({"packs": [["images/../../x", 5000, 1]]}, "packs.path: .* does not match"),
    ],
)
def test_what_points_nowhere_is_damaged_and_is_not_written(changes: dict[str, Any], match: str) -> None:
    data = signed(GOOD.encode(KEY), "manifest", changes)
    with pytest.raises(RecordDamaged, match=match):
        decode(data)
    content = json.loads(GOOD.encode(KEY)) | changes
    for envelope in ("mac", "kind", "format", "job"):
        content.pop(envelope)
    with pytest.raises(ValueError, match=match):
        formats.write(KEY, formats.MANIFEST, JOB, content)


def without(data: bytes, name: str, kind: str) -> bytes:
    return signed(data, kind, {}, name)


FIELDS = ["rank", "epoch", "previous", "incarnation", "packs", "blocks", "stream", "small", "buffers", "meta"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_manifest_without_a_field_is_damaged(name: str) -> None:
    data = without(GOOD.encode(KEY), name, "manifest")
    with pytest.raises(RecordDamaged, match=name):
        decode(data)
    with pytest.raises(RecordDamaged, match=name):
        check_manifest(data, "f")


@pytest.mark.parametrize("field", ["rank", "epoch", "incarnation"])
def test_a_manifest_must_be_the_one_expected(field: str) -> None:
    right = {"rank": 0, "epoch": 2, "incarnation": 1}
    GOOD.expect(**right, path="f")
    with pytest.raises(Misplaced, match=field):
        GOOD.expect(**{**right, field: 7}, path="f")


ENTRY = RankEntry(
    0, 1, (1, 2), "images/rank-00000/epoch-00000002.i0001.00.json", DIGEST, 100, 15, {0: (5, 2, 3)}
)


def test_an_entry_survives_its_trip_as_json() -> None:
    assert RankEntry.from_json(json.loads(json.dumps(ENTRY.to_json()))) == ENTRY


@pytest.mark.parametrize("name", ["epoch", "previous", "incarnation", "generation", "ranks", "meta"])
def test_a_control_file_without_a_field_is_damaged(name: str) -> None:
    data = without(control_of(2, [ENTRY]).encode(KEY, JOB), name, "control")
    with pytest.raises(RecordDamaged, match=name):
        ControlFile.decode(KEY, JOB, data, "f")
    with pytest.raises(RecordDamaged, match=name):
        check_control(data, "f")


def test_a_control_file_of_no_ranks_is_none() -> None:
    with pytest.raises(ValueError, match="size: 0"):
        ControlFile(2, 1, 0, 1, []).encode(KEY, JOB)


@pytest.mark.parametrize(("epoch", "covered"), [(1, False), (2, True), (3, False)])
def test_an_image_stands_for_its_label_only(epoch: int, covered: bool) -> None:
    control = control_of(epoch, [ENTRY])
    if covered:
        control.encode(KEY, JOB)
    else:
        with pytest.raises(ValueError, match=rf"voted for \(1, 2\), not for epoch {epoch}"):
            control.encode(KEY, JOB)


@pytest.mark.parametrize("epoch", [1, 99_999_999, 123_456_789])
def test_names_of_control_files(epoch: int) -> None:
    assert epoch_of_name(control_name(epoch)) == epoch


@pytest.mark.parametrize(
    "name", ["epoch-1.json", "epoch-00000001.json.tmp", ".tmp-epoch-00000001.json", "x", "epoch-.json"]
)
def test_names_of_other_files(name: str) -> None:
    assert epoch_of_name(name) is None

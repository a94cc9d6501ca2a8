"""Lines: the newest that verifies is found; what is missing or damaged is named, with what can be used
instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_helpers import commit, write_image

from ckpt.store import (
    Damaged,
    EpochMissing,
    Incompatible,
    JobDirectory,
    Line,
    RecordDamaged,
    latest_committed,
    list_lines,
    load_control,
    load_manifest,
    verify,
)
from ckpt.store.errors import StorageFailed, StoreError
from ckpt.store.records import authenticated


def path_of(job: JobDirectory, epoch: int) -> Path:
    return Path(job.control_directory) / f"epoch-{epoch:08d}.json"


def test_before_any_commit(job: JobDirectory) -> None:
    write_image(job, 0, 1, "no control file")
    assert latest_committed(job) is None and list_lines(job) == []
    for look in (load_control, verify):
        with pytest.raises(EpochMissing, match="nothing was committed") as caught:
            look(job)
        assert caught.value.exit_code == 10


def test_an_epoch_that_is_not_there(job: JobDirectory) -> None:
    commit(job, 2, "x")
    for look in (load_control, verify):
        with pytest.raises(EpochMissing, match="Committed epochs: 2"):
            look(job, 1)


def test_the_newest_is_found(job: JobDirectory) -> None:
    for epoch in (1, 5):
        commit(job, epoch, "x")
    assert load_control(job).epoch == 5 and load_control(job, 1).epoch == 1
    assert [line.epoch for line in list_lines(job)] == [1, 5]


def test_a_damaged_newest_is_passed_over_and_told(job: JobDirectory) -> None:
    for epoch in (1, 2, 3):
        commit(job, epoch, "x")
    path_of(job, 3).write_bytes(b"")
    skipped: list[Line] = []
    found = latest_committed(job, skipped=skipped)
    assert found is not None and found.epoch == 2 and [line.epoch for line in skipped] == [3]
    with pytest.raises(RecordDamaged) as caught:
        load_control(job, 3)
    assert caught.value.exit_code == 3 and caught.value.fallback_epoch == 2


def test_nothing_but_damage(job: JobDirectory) -> None:
    commit(job, 1, "x")
    path_of(job, 1).write_bytes(b"")
    with pytest.raises(Damaged) as caught:
        latest_committed(job)
    assert caught.value.exit_code == 12


def test_a_newer_format_is_not_passed_over(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on from an older line would silently undo what a newer version did."""
    commit(job, 1, "x")
    with monkeypatch.context() as patch:
        patch.setattr(authenticated, "FORMAT", 2)
        commit(job, 2, "x", incremental=False)
    with pytest.raises(Incompatible, match="format 2"):
        latest_committed(job)
    assert verify(job).exit_code == 13


def test_an_unreadable_file_is_not_called_damaged(job: JobDirectory) -> None:
    commit(job, 1, "x")
    path_of(job, 1).unlink()
    path_of(job, 1).symlink_to("elsewhere")
    (line,) = list_lines(job)
    assert isinstance(line.error, StorageFailed)


def test_a_missing_manifest(job: JobDirectory) -> None:
    entry = commit(job, 1, "x").ranks[0]
    (Path(job.path) / entry.manifest).unlink()
    with pytest.raises(RecordDamaged, match="missing"):
        load_manifest(job, entry)


def test_a_job_without_its_control_directory(job: JobDirectory) -> None:
    Path(job.control_directory).rmdir()
    assert latest_committed(job) is None


@pytest.mark.parametrize("left", [0, 1])
def test_a_lost_control_file_does_not_look_as_if_nothing_had_been_committed(
    job: JobDirectory, left: int
) -> None:
    """`ckpt restart` said that nothing was committed yet, and to start from the beginning."""
    with job.lock() as lock:
        for epoch in range(1, left + 2):
            commit(job, epoch, "x", lock=lock)
    path_of(job, left + 1).unlink()
    lines = list_lines(job)
    assert [line.epoch for line in lines] == [*range(1, left + 2)]
    assert isinstance(lines[-1].error, RecordDamaged) and "missing" in str(lines[-1].error)
    assert verify(job).exit_code == (3 if left else 12)
    with pytest.raises(RecordDamaged, match="missing") as caught:
        load_control(job, left + 1)
    assert caught.value.fallback_epoch == (left or None)
    if left:
        found = latest_committed(job)
        assert found is not None and found.epoch == left
    else:
        with pytest.raises(RecordDamaged, match="journal says"):
            latest_committed(job)


def test_control_files_are_plain_json(job: JobDirectory) -> None:
    commit(job, 1, "x")
    content = json.loads(path_of(job, 1).read_text())
    assert content["epoch"] == 1 and content["ranks"][0]["rank"] == 0


def exit_codes(base: type[StoreError]) -> set[type[StoreError]]:
    return {base}.union(*(exit_codes(child) for child in base.__subclasses__()))


def test_every_error_is_in_the_drawing_and_has_an_exit_code() -> None:
    from ckpt.store import errors

    drawing = errors.__doc__ or ""
    for kind in exit_codes(StoreError):
        assert kind.__name__ in drawing
        if not issubclass(kind, Damaged):
            assert kind.exit_code in {1, 2, 10, 11, 13}
    assert Damaged("x").exit_code == 12


def test_an_error_tells_what_which_file_and_what_next() -> None:
    error = RecordDamaged("it broke", path="/a/b", hint="Mend it.")
    assert str(error) == "it broke: /a/b. Mend it."
    error.fallback_epoch = 4
    assert str(error).endswith("Epoch 4 can be used instead: `ckpt restart JOB@4`.")

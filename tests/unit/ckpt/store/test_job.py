"""The job directory: private, versioned, made whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from store_helpers import commit, make_job, read_image, write_image

from ckpt.store import (
    BlockDamaged,
    ImageReader,
    Incompatible,
    JobDirectory,
    JobExists,
    JobMissing,
    NotPrivate,
    RecordDamaged,
    StorageFailed,
)
from ckpt.store.job import epoch_of_image
from ckpt.store.privacy import SOCKET_PATH_LIMIT


def test_what_is_created_is_opened(tmp_path: Path) -> None:
    made = JobDirectory.create(
        tmp_path / "deep" / "job", command=["a.py", "é"], size=3, options={"every": 2.5}
    )
    opened = JobDirectory.open(made.path)
    assert opened == made
    assert (opened.command, opened.size, opened.options) == (["a.py", "é"], 3, {"every": 2.5})
    assert len(opened.job_id) == 16 and int(opened.job_id, 16) >= 0 and len(opened.key) == 32
    assert 1 <= opened.hash_seed <= 4294967295


def test_two_jobs_share_nothing(tmp_path: Path) -> None:
    one, other = make_job(tmp_path / "a"), make_job(tmp_path / "b")
    assert one.job_id != other.job_id and one.key != other.key


def test_everything_is_private(job: JobDirectory) -> None:
    commit(job, 1, "x")
    job.events.append("something")
    with job.lock():
        pass
    for folder, folders, files in os.walk(job.path):
        for name in [*folders, "."]:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o700, name
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600, name


def test_the_key_is_not_shown(job: JobDirectory) -> None:
    assert job.key.hex() not in repr(job) and repr(job.key) not in repr(job)


def test_a_job_in_an_empty_directory(tmp_path: Path) -> None:
    made = JobDirectory.create(tmp_path, command=["a", "b"], size=3)
    opened = JobDirectory.open(tmp_path)
    assert opened == made and (opened.size, opened.path) == (3, made.path)


def test_an_existing_job_is_not_overwritten(job: JobDirectory) -> None:
    with pytest.raises(JobExists, match="restart") as caught:
        JobDirectory.create(job.path, command=[], size=1)
    assert caught.value.exit_code == 2
    assert JobDirectory.open(job.path) == job


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(JobExists, match=r"thesis\.tex"):
        JobDirectory.create(tmp_path, command=[], size=1)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_creation_that_was_killed_is_no_job_and_can_be_repeated(job: JobDirectory) -> None:
    os.unlink(os.path.join(job.path, "job.json"))
    with pytest.raises(JobMissing):
        JobDirectory.open(job.path)
    again = JobDirectory.create(job.path, command=[], size=2)
    assert again.job_id != job.job_id and JobDirectory.open(job.path) == again


def test_a_job_of_no_ranks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        JobDirectory.create(tmp_path, command=[], size=0)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_no_job_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(JobMissing) as caught:
        JobDirectory.open(tmp_path / name)
    assert caught.value.exit_code == 10 and str(tmp_path) in str(caught.value)


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("")
    with pytest.raises(NotPrivate):
        JobDirectory.open(tmp_path / "job")


def test_another_users_job_is_refused(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NotPrivate, match="owned by user") as caught:
        JobDirectory.open(job.path)
    assert caught.value.exit_code == 13


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_directory_that_others_can_write_is_refused(job: JobDirectory, mode: int) -> None:
    os.chmod(job.path, mode)
    with pytest.raises(NotPrivate, match="chmod"):
        JobDirectory.open(job.path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(job: JobDirectory, mode: int) -> None:
    os.chmod(os.path.join(job.path, "key"), mode)
    with pytest.raises(NotPrivate, match="key"):
        JobDirectory.open(job.path)


def test_a_link_to_a_job_directory_is_refused(job: JobDirectory, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(job.path)
    with pytest.raises(NotPrivate):
        JobDirectory.open(tmp_path / "link")


@pytest.mark.parametrize("name", ["control", "images", "output"])
class TestWhatIsInsideIsPrivateToo:
    """Who could write there could not sign an image, but put an older line in the place of the newest."""

    @pytest.mark.parametrize("mode", [0o720, 0o702])
    def test_writable_by_others(self, job: JobDirectory, name: str, mode: int) -> None:
        os.chmod(os.path.join(job.path, name), mode)
        with pytest.raises(NotPrivate, match=name):
            JobDirectory.open(job.path)

    def test_a_link(self, job: JobDirectory, name: str, tmp_path: Path) -> None:
        inside = Path(job.path) / name
        inside.rename(tmp_path / "elsewhere")
        inside.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(NotPrivate, match=name):
            JobDirectory.open(job.path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
    def test_of_another_owner(self, job: JobDirectory, name: str) -> None:
        os.chown(os.path.join(job.path, name), 12345, -1)
        with pytest.raises(NotPrivate, match="owned by user 12345"):
            JobDirectory.open(job.path)


def test_a_rank_s_directory_that_others_can_write_is_neither_read_nor_written(job: JobDirectory) -> None:
    commit(job, 1, "x")
    os.chmod(job.rank_directory(0), 0o777)
    for use in (lambda: ImageReader(job, epoch=1, rank=0), lambda: write_image(job, 0, 2, "x")):
        with pytest.raises(NotPrivate, match="rank-00000"):
            use()


def test_a_rank_s_directory_that_is_a_link_is_neither_read_nor_written(
    job: JobDirectory, tmp_path: Path
) -> None:
    commit(job, 1, "x")
    inside = Path(job.rank_directory(0))
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    for use in (lambda: ImageReader(job, epoch=1, rank=0), lambda: write_image(job, 0, 2, "x")):
        with pytest.raises(NotPrivate, match="rank-00000"):
            use()


@pytest.mark.parametrize("kind", ["manifest", "pack", "control"])
def test_a_linked_file_of_an_image_is_refused(job: JobDirectory, tmp_path: Path, kind: str) -> None:
    control = commit(job, 1, "x")
    manifest = Path(job.path) / control.ranks[0].manifest
    pack, record = manifest.with_suffix(".pack"), next(Path(job.control_directory).iterdir())
    path = {"manifest": manifest, "pack": pack, "control": record}[kind]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((StorageFailed, BlockDamaged)):
        read_image(job, 0, 1)


def test_a_linked_key_is_refused(job: JobDirectory, tmp_path: Path) -> None:
    key = Path(job.path) / "key"
    key.rename(tmp_path / "elsewhere")
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordDamaged, match="key"):
        JobDirectory.open(job.path)


def rewrite(job: JobDirectory, **changes: Any) -> None:
    path = Path(job.path) / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, separators=(",", ":")) + "\n")


def test_a_job_of_another_format_is_incompatible(job: JobDirectory) -> None:
    rewrite(job, format=99)
    with pytest.raises(Incompatible, match="format 99") as caught:
        JobDirectory.open(job.path)
    assert caught.value.exit_code == 13


def test_an_edited_job_file_is_refused(job: JobDirectory) -> None:
    rewrite(job, size=2)
    with pytest.raises(RecordDamaged) as caught:
        JobDirectory.open(job.path)
    assert caught.value.exit_code == 12


def test_every_flipped_bit_of_job_file_and_key_is_detected(job: JobDirectory) -> None:
    for name in ("job.json", "key"):
        path = Path(job.path) / name
        content = path.read_bytes()
        for bit in range(len(content) * 8):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises((RecordDamaged, Incompatible)):
                JobDirectory.open(job.path)
        path.write_bytes(content)
    assert JobDirectory.open(job.path) == job


@pytest.mark.parametrize("content", ["", "00", "zz" * 32 + "\n", "AA" * 32 + "\n", "00" * 33 + "\n"])
def test_a_damaged_key_is_said_to_be_one(job: JobDirectory, content: str) -> None:
    (Path(job.path) / "key").write_text(content)
    with pytest.raises(RecordDamaged, match="key is damaged"):
        JobDirectory.open(job.path)


def test_a_lost_key_is_said_to_be_lost(job: JobDirectory) -> None:
    os.unlink(os.path.join(job.path, "key"))
    with pytest.raises(RecordDamaged, match="cannot be read"):
        JobDirectory.open(job.path)


def test_where_output_goes(job: JobDirectory) -> None:
    assert job.output_path(3, "out") == os.path.join(job.path, "output", "rank-3.out")
    with pytest.raises(ValueError, match="'log'"):
        job.output_path(0, "log")


def test_burnt_epochs_are_remembered_by_what_they_left(job: JobDirectory) -> None:
    assert job.highest_epoch() == 0
    commit(job, 3, "x")
    assert job.highest_epoch() == 3
    write_image(job, 0, 5, "burnt")
    assert job.highest_epoch() == 5
    (Path(job.rank_directory(0)) / ".tmp-epoch-00000007.i0000.00.pack.11").touch()
    assert job.highest_epoch() == 7
    (Path(job.control_directory) / ".tmp-epoch-00000009.json.22").touch()
    assert job.highest_epoch() == 9


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        ("epoch-00000012.i0001.ab.json", 12),
        (".tmp-epoch-00000012.i0001.ab.pack.cd", 12),
        ("epoch-x.json", None),
        ("notes.txt", None),
        ("12", None),
    ],
)
def test_the_epoch_in_a_file_name(name: str, epoch: int | None) -> None:
    assert epoch_of_image(name) == epoch


class TestRuntimeDirectory:
    def test_is_private_and_short_and_stays(self, job: JobDirectory, tmp_path: Path) -> None:
        path = job.runtime_dir()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700 and job.job_id in path
        assert len(os.path.join(path, "r1023.1023")) < SOCKET_PATH_LIMIT
        assert job.runtime_dir() == path
        os.rmdir(path)

    def test_leaves_a_long_temporary_directory(
        self, job: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = tmp_path / ("x" * 90)
        deep.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(deep))
        path = job.runtime_dir()
        assert path.startswith("/tmp/ckpt-")
        os.rmdir(path)

    def outer(self, base: Path) -> Path:
        return base / f"ckpt-{os.geteuid()}"

    def test_a_planted_link_is_refused(self, job: JobDirectory, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.mkdir(mode=0o700)
        self.outer(tmp_path).symlink_to(target)
        with pytest.raises(NotPrivate):
            job.runtime_dir(base=str(tmp_path))
        self.outer(tmp_path).unlink()
        self.outer(tmp_path).mkdir(mode=0o700)
        (self.outer(tmp_path) / job.job_id).symlink_to(target)
        with pytest.raises(NotPrivate):
            job.runtime_dir(base=str(tmp_path))
        assert os.listdir(target) == []

    def test_a_file_or_an_open_directory_is_refused(self, job: JobDirectory, tmp_path: Path) -> None:
        self.outer(tmp_path).touch()
        with pytest.raises(NotPrivate):
            job.runtime_dir(base=str(tmp_path))
        self.outer(tmp_path).unlink()
        self.outer(tmp_path).mkdir()
        self.outer(tmp_path).chmod(0o750)
        with pytest.raises(NotPrivate, match="0750"):
            job.runtime_dir(base=str(tmp_path))

    def test_another_users_directory_is_refused(
        self, job: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: real + 1)
        self.outer(tmp_path).mkdir(mode=0o700)
        with pytest.raises(NotPrivate, match="owned by user"):
            job.runtime_dir(base=str(tmp_path))

    def test_a_base_that_does_not_exist(self, job: JobDirectory, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed, match="mkdir"):
            job.runtime_dir(base=str(tmp_path / "nowhere"))

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
    FileSystem,
    ImageReader,
    Incompatible,
    JobDirectory,
    JobExists,
    JobLocked,
    JobMissing,
    KeyUnreadable,
    NotPrivate,
    RecordDamaged,
    StorageFailed,
    list_lines,
)
from ckpt.store.disk.privacy import SOCKET_PATH_LIMIT, is_private_directory, make_runtime_directory
from ckpt.store.job.directory import epoch_of_image
from ckpt.store.job.lock import acquire_flock


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


@pytest.mark.rotate(2)
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


def test_a_host_that_cannot_read_the_key_is_given_it(job: JobDirectory) -> None:
    text = (Path(job.path) / "key").read_text()
    os.unlink(os.path.join(job.path, "key"))
    with pytest.raises(KeyUnreadable):
        JobDirectory.open(job.path)
    assert text == job.key_text
    assert JobDirectory.open(job.path, key=text) == job


@pytest.mark.parametrize(
    ("key", "says"),
    [("00" * 32 + "\n", "verif"), ("00" * 32, "damaged"), ("", "damaged"), ("é\n", "damaged")],
)
def test_a_key_that_is_given_and_wrong_is_refused(job: JobDirectory, key: str, says: str) -> None:
    with pytest.raises(RecordDamaged, match=says):
        JobDirectory.open(job.path, key=key)


def test_where_output_goes(job: JobDirectory) -> None:
    assert job.output_path(3, "out") == os.path.join(job.path, "output", "rank-3.out")
    assert job.agent_log_path() == os.path.join(job.path, "output", "agent.log")
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
    def test_is_private_short_and_new(self) -> None:
        paths = [make_runtime_directory() for _ in range(2)]
        for path in paths:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700 and is_private_directory(path)
            assert len(os.path.join(path, "r1023.1023")) < SOCKET_PATH_LIMIT
            os.rmdir(path)
        assert paths[0] != paths[1]

    def test_leaves_a_long_temporary_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        deep = tmp_path / ("x" * 90)
        deep.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(deep))
        path = make_runtime_directory()
        assert path.startswith("/tmp/ckpt-")
        os.rmdir(path)

    def test_nobody_blocks_it_by_being_there_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        (tmp_path / f"ckpt-{os.geteuid()}").touch()
        assert is_private_directory(make_runtime_directory())

    def test_a_base_that_does_not_exist(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
        with pytest.raises(StorageFailed, match="TMPDIR"):
            make_runtime_directory()

    @pytest.mark.parametrize("kind", ["link", "file", "open", "nothing"])
    def test_what_is_not_private_is_not_used_again(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "place"
        if kind == "link":
            path.symlink_to(tmp_path)
        elif kind == "file":
            path.touch()
        elif kind == "open":
            path.mkdir()
            path.chmod(0o750)
        assert not is_private_directory(str(path))


class TestTheMakingOfIt:
    def test_one_of_two_at_the_same_time_makes_it(self, tmp_path: Path) -> None:
        job, lock_fd = JobDirectory.create_locked(tmp_path / "job", command=[], size=1)
        (tmp_path / "half").mkdir()
        other = acquire_flock(str(tmp_path / "half"), FileSystem())
        with pytest.raises(JobLocked, match=f"pid {os.getpid()}"):
            JobDirectory.create(tmp_path / "half", command=[], size=1)
        assert os.listdir(tmp_path / "half") == ["lock"], "who is told so has touched nothing"
        os.close(other)
        JobDirectory.create(tmp_path / "half", command=[], size=1)
        with pytest.raises(JobLocked):
            job.lock()
        with job.lock(lock_fd) as lock:
            assert lock.generation == 1

    @pytest.mark.parametrize(
        "left",
        [
            "images/rank-00000/epoch-00000001.i0000.ab.json",
            "control/epoch-00000001.json",
            "output/rank-0.out",
        ],
    )
    def test_a_job_whose_job_file_is_lost_is_not_overwritten(self, job: JobDirectory, left: str) -> None:
        os.unlink(os.path.join(job.path, "job.json"))
        (Path(job.path) / left).touch()
        key = (Path(job.path) / "key").read_bytes()
        with pytest.raises(JobExists, match=r"no job\.json"):
            JobDirectory.create(job.path, command=[], size=1)
        assert (Path(job.path) / "key").read_bytes() == key

    def test_directories_on_the_way_are_private_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            JobDirectory.create(tmp_path / "a" / ".ckpt" / "job", command=[], size=1)
        finally:
            os.umask(before)
        modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("a", "a/.ckpt", "a/.ckpt/job")}
        assert modes == {0o700}


@pytest.mark.parametrize(
    "name", ["job.json", "key", "generation.json", "lock", "events.jsonl", "control/epoch-00000001.json"]
)
def test_a_fifo_in_place_of_a_file_holds_nobody(job: JobDirectory, name: str) -> None:
    commit(job, 1, "x")
    job.lock().release()
    path = Path(job.path) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)

    def use() -> None:
        again = JobDirectory.open(job.path)
        again.record()
        assert [line.control is None for line in list_lines(again)] == [name.startswith("control")]
        again.events.append("something")
        again.events.read()
        again.lock().release()

    if name.startswith("control"):
        use()
        return
    with pytest.raises((NotPrivate, RecordDamaged), match="not a regular file"):
        use()


@pytest.mark.parametrize("depth", [1, 100_000])
def test_nothing_of_a_job_file_is_parsed_before_it_is_verified(job: JobDirectory, depth: int) -> None:
    data = (
        (Path(job.path) / "job.json")
        .read_bytes()
        .replace(b'"options":{}', b'"options":' + b"[" * depth + b"]" * depth)
    )
    (Path(job.path) / "job.json").write_bytes(data)
    with pytest.raises(RecordDamaged, match="does not verify"):
        JobDirectory.open(job.path)


def test_the_highest_incarnation_is_that_of_any_image_half_written_ones_included(job: JobDirectory) -> None:
    assert job.highest_incarnation() == -1
    directory = Path(job.rank_directory(0))
    for name in (
        "epoch-00000003.i0002.abcd.json",
        ".tmp-epoch-00000004.i0005.abcd.pack",
        "epoch-00000009",
        "notes.i9",
    ):
        (directory / name).touch()
    assert job.highest_incarnation() == 5
    (directory / "epoch-00000009.ix.abcd").touch()
    assert job.highest_incarnation() == 5

"""What is rare, each by its name: whoever reads the message knows what happened, where, and what to do."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from store_helpers import commit, control_of, write_image

from ckpt.store import (
    BlockDamaged,
    FileSystem,
    ImageReader,
    ImageWriter,
    JobDirectory,
    JobLocked,
    NotPrivate,
    PruneReport,
    RecordDamaged,
    StorageFailed,
    load_manifest,
    prune,
    verify,
    write_control,
)
from ckpt.store.disk.pool import Pool
from ckpt.store.disk.privacy import check_private_file
from ckpt.store.job.lock import read_generation
from ckpt.store.records import authenticated
from ckpt.store.records.manifest import BufferRef
from ckpt.transport import records


class Refusing(FileSystem):
    """One kind of call fails, on paths that contain `part`."""

    def __init__(self, call: str, part: str = "", error: int = errno.EIO) -> None:
        self.call, self.part, self.error = call, part, error

    def __getattribute__(self, name: str) -> Any:
        if name != object.__getattribute__(self, "call"):
            return object.__getattribute__(self, name)

        def refuse(path: object, *arguments: object) -> Any:
            if self.part not in str(path):
                return getattr(FileSystem, name)(self, path, *arguments)
            raise OSError(self.error, os.strerror(self.error))

        return refuse


def again(job: JobDirectory, fs: FileSystem) -> JobDirectory:
    return records.replace(job, fs=fs)


class TestJob:
    def test_a_record_that_lacks_a_field(self, job: JobDirectory) -> None:
        fields = {name: value for name, value in job._fields().items() if name != "hash_seed"}
        (Path(job.path) / "job.json").write_bytes(authenticated.encode(job.key, "job", job.job_id, fields))
        with pytest.raises(RecordDamaged, match="hash_seed"):
            JobDirectory.open(job.path)

    @pytest.mark.parametrize("call", ["read_file", "list_directory"])
    def test_a_disk_that_cannot_be_read(self, job: JobDirectory, call: str) -> None:
        broken = again(job, Refusing(call))
        with pytest.raises(StorageFailed, match="Input/output error"):
            JobDirectory.open(job.path, fs=broken.fs) if call == "read_file" else broken.highest_epoch()

    def test_a_place_that_cannot_be_listed(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed, match="list failed"):
            JobDirectory.create(tmp_path, command=[], size=1, fs=Refusing("list_directory"))

    @pytest.mark.parametrize("part", ["", "images"])
    def test_a_directory_that_cannot_be_made(self, tmp_path: Path, part: str) -> None:
        with pytest.raises(StorageFailed, match="mkdir failed") as caught:
            JobDirectory.create(tmp_path / "job", command=[], size=1, fs=Refusing("make_directory", part))
        assert str(caught.value.path).endswith(part or "job")

    def test_a_job_file_of_an_absurd_size(self, job: JobDirectory) -> None:
        os.truncate(Path(job.path) / "job.json", (1 << 24) + 1)
        with pytest.raises(RecordDamaged, match=r"16777217 bytes, more than any"):
            JobDirectory.open(job.path)


class TestLock:
    def test_what_stands_in_its_place(self, job: JobDirectory) -> None:
        (Path(job.path) / "lock").unlink()
        (Path(job.path) / "lock").mkdir()
        with pytest.raises(StorageFailed, match="open failed"):  # "Is a directory"
            job.lock()

    def test_a_system_without_locks(self, job: JobDirectory) -> None:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(StorageFailed, match="flock failed"):
            again(job, Refusing("try_lock", error=errno.ENOLCK)).lock()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_lock_file_that_others_may_write(self, job: JobDirectory) -> None:
        path = Path(job.path) / "lock"
        path.touch(0o600)
        path.chmod(0o666)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(NotPrivate):
            job.lock()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_no_regular_file(self) -> None:
        come, tell = os.pipe()
        with pytest.raises(NotPrivate, match="not a regular file"):
            check_private_file(come, "pipe")
        os.close(come)
        os.close(tell)

    def test_a_file_that_is_replaced_all_the_time(
        self, job: JobDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FileSystem, "is_same_file", lambda self, fd, path: False)
        with pytest.raises(JobLocked, match="over and over"):
            job.lock()

    @pytest.mark.parametrize("content", [b"", b"not json", b"[1]"])
    def test_a_holder_that_says_nothing_of_use(self, job: JobDirectory, content: bytes) -> None:
        with job.lock():
            (Path(job.path) / "lock").write_bytes(content)
            with pytest.raises(JobLocked, match=r"pid \?") as caught:
                job.lock()
            assert caught.value.holder == {}

    def test_a_holder_that_cannot_sign(self, job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(os, "ftruncate", refuse)
        with job.lock() as lock:
            assert lock.generation == 1

    def test_a_generation_that_is_no_number(self, job: JobDirectory) -> None:
        data = authenticated.encode(job.key, "generation", job.job_id, {"generation": "one"})
        (Path(job.path) / "generation.json").write_bytes(data)
        with pytest.raises(RecordDamaged, match="garbles"):
            read_generation(job.path, job.key, job.job_id, job.fs)


class TestPrune:
    def line(self, job: JobDirectory) -> Path:
        for epoch in (1, 2, 3):
            commit(job, epoch, epoch)
        path = Path(job.rank_directory(0)) / ".tmp-epoch-00000002.i0000.aa.pack.bb"
        path.write_bytes(b"half")
        return path

    @pytest.mark.parametrize("call", ["open_read", "try_lock"])
    def test_a_temporary_file_of_which_nothing_is_known_stays(self, job: JobDirectory, call: str) -> None:
        path = self.line(job)
        part = ".tmp-" if call == "open_read" else ""
        assert isinstance(prune(again(job, Refusing(call, part))), PruneReport)
        assert path.exists()

    def test_a_directory_that_cannot_be_listed(self, job: JobDirectory) -> None:
        self.line(job)
        with pytest.raises(StorageFailed, match="list failed"):
            prune(again(job, Refusing("list_directory", "rank-00000")))

    def test_a_directory_that_is_gone(self, job: JobDirectory) -> None:
        self.line(job)
        os.rename(job.rank_directory(0), f"{job.path}/elsewhere")
        assert prune(job).removed == []

    def test_a_file_that_somebody_else_has_just_removed(self, job: JobDirectory) -> None:
        self.line(job)
        assert prune(again(job, Refusing("unlink", error=errno.ENOENT))).files == []


class TestSenselessManifests:
    """Signed, so the writer's own mistake: refused as well."""

    def rewritten(self, job: JobDirectory, **changes: Any) -> JobDirectory:
        entry = write_image(job, 0, 1, b"x" * 100)
        manifest = records.replace(load_manifest(job, entry), **changes)
        data = manifest.encode(job.key)
        (Path(job.path) / entry.manifest).write_bytes(data)
        write_control(job, control_of(1, [records.replace(entry, digest=authenticated.digest(data))]))
        return job

    def test_small_buffers_that_do_not_add_up(self, job: JobDirectory) -> None:
        job = self.rewritten(job, small=(0,))
        with pytest.raises(RecordDamaged, match="small buffers do not add up"):
            ImageReader(job, epoch=1, rank=0).stream()

    def test_blocks_that_do_not_add_up(self, job: JobDirectory) -> None:
        job = self.rewritten(job, buffers=(BufferRef(7, (0,)),))
        with pytest.raises(RecordDamaged, match="blocks of a buffer do not add up"):
            ImageReader(job, epoch=1, rank=0).stream()

    def test_a_block_that_does_not_decompress(self, job: JobDirectory) -> None:
        entry = write_image(job, 0, 1, os.urandom(1000))
        manifest = load_manifest(job, entry)
        job = self.rewritten(
            job,
            packs=manifest.packs,
            blocks=(manifest.blocks[0]._replace(codec="zstd", check=manifest.blocks[0].digest),),
            stream=(0,),
        )
        with pytest.raises(BlockDamaged, match="decompress") as caught:
            ImageReader(job, epoch=1, rank=0).stream()
        assert caught.value.path is not None and caught.value.path.endswith(".pack")

    def test_a_block_that_is_something_else_than_its_name(self, job: JobDirectory) -> None:
        """`verify` compares the plain content with the name by which unchanged data is recognised."""
        entry = write_image(job, 0, 1, b"y" * 1000)
        manifest = load_manifest(job, entry)
        block = manifest.blocks[0]
        assert block.check, "compressed: the stored digest is another than the name"
        job = self.rewritten(
            job, packs=manifest.packs, blocks=(block._replace(digest="00" * 32),), stream=(0,)
        )
        report = verify(job)
        assert not report.good and "unpacks to something else" in str(report.lines[0].findings)

    def test_a_line_of_another_size_than_the_job(self, job: JobDirectory) -> None:
        commit(job, 1, "x")
        assert not verify(records.replace(job, size=2)).good


def test_orphans_that_cannot_be_listed(job: JobDirectory) -> None:
    commit(job, 1, "x")
    with pytest.raises(StorageFailed, match="list failed"):
        verify(again(job, Refusing("list_directory", "rank-00000")))


def test_a_pack_that_cannot_be_looked_at(job: JobDirectory) -> None:
    entry = write_image(job, 0, 1, "x")
    with pytest.raises(StorageFailed, match="stat failed"):
        write_control(again(job, Refusing("file_size")), control_of(1, [entry]))


def test_a_writer_as_a_context_gives_up_what_was_not_finished(job: JobDirectory) -> None:
    with pytest.raises(KeyError), ImageWriter(job, rank=0, incarnation=0, label=(0, 1)) as writer:
        writer.write(os.urandom(9 << 20))
        raise KeyError("somewhere in the pickler")
    assert os.listdir(job.rank_directory(0)) == []


def test_an_event_log_may_be_closed_at_any_time(job: JobDirectory) -> None:
    job.events.close()
    job.events.append("one")
    job.events.close()
    job.events.close()
    job.events.append("two")
    assert [json.loads(line)["event"] for line in Path(job.events.path).read_text().splitlines()] == [
        "one",
        "two",
    ]


class TestAWorker:
    """What a thread of the pool does, done here: every task is answered, whatever happens."""

    def run(self, pool: Pool[int], tasks: list[int | None]) -> list[BaseException | None]:
        for task in tasks:
            pool._tasks.put(task)
        pool._run()
        return [pool._done.get() for _ in tasks]

    def test_answers_each_task_and_its_end(self) -> None:
        seen: list[int] = []
        pool: Pool[int] = Pool(lambda: seen.append, 0)
        assert self.run(pool, [1, 2, None]) == [None, None, None]
        assert seen == [1, 2]

    def test_answers_with_the_error_and_goes_on(self) -> None:
        def fail(task: int) -> None:
            if task == 1:
                raise MemoryError("no block")

        pool: Pool[int] = Pool(lambda: fail, 0)
        first, second, end = self.run(pool, [1, 2, None])
        assert isinstance(first, MemoryError) and second is None and end is None

    def test_that_cannot_begin_says_so_with_every_task(self) -> None:
        calls: list[int] = []

        def make() -> Any:
            calls.append(1)
            if len(calls) > 1:
                raise MemoryError("no staging memory")
            return calls.append

        pool: Pool[int] = Pool(make, 0)
        first, second, end = self.run(pool, [1, 2, None])
        assert isinstance(first, MemoryError) and isinstance(second, MemoryError) and end is None

"""What was kept of files is looked at before a restart changes anything: a damaged copy is not put back unnoticed."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.undo import copying
from ckpt.undo.chain import intervals
from ckpt.undo.copying import content_digest, copy_file
from ckpt.undo.errors import CopyDamaged
from ckpt.undo.keeping import Keeper, directory_of
from ckpt.undo.records import Content, Name, from_plain, to_plain
from ckpt.undo.restart.intervals import logs_of
from ckpt.undo.restart.restoring import undo
from ckpt.undo.restart.verifying import Verifier
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.restart.test_restoring import Job, job_of
from tests.unit.ckpt.undo.test_sequences import KEY, Rank, tree_of

where = sequences.where
SIZE = 3 << 17  # one whole block, and a half one


class Kept:
    """A rank that rewrites `x` and `y` in place, appends to `log`, and replaces `z`, in each of three intervals."""

    def __init__(self, where: str) -> None:
        self.root, self.job = os.path.join(where, "root"), os.path.join(where, "job")
        os.mkdir(self.root)
        os.mkdir(self.job)
        self.rank = Rank(self.root, self.job, 0)
        for name in ("x", "y", "z", "log"):
            self.path(name).write_bytes(name.encode() * SIZE)
        self.trees = []
        for epoch in range(3):
            if self.rank.keeper is not None:
                self.rank.keeper.close()
            self.trees.append(tree_of(self.root))
            self.rank.keeper = Keeper(
                directory_of(self.job, epoch, 0, 0), KEY, self.rank.recorder, limit_bytes=1 << 30
            )
            self.rank.keeper.begin()
            for name in ("x", "y"):
                self.rank.tell("rewrite", str(self.path(name)))
                self.path(name).write_bytes(b"%d" % epoch)
            self.rank.append(str(self.path("log")), "")
            self.rank.new(str(self.path("z.tmp")), "")
            self.rank.rename(str(self.path("z.tmp")), str(self.path("z")))
        self.rank.keeper.close()

    def path(self, name: str) -> Path:
        return Path(self.root, name)

    def copy(self, epoch: int, name: str) -> Path:
        for record in self.log(epoch):
            if isinstance(record, Content) and record.copy and os.path.basename(record.path) == name:
                return Path(directory_of(self.job, epoch, 0, 0), str(record.copy))
        raise AssertionError(name)

    def link(self, epoch: int) -> Path:
        [number] = {record.kept for record in self.log(epoch) if getattr(record, "kept", 0)}
        return Path(directory_of(self.job, epoch, 0, 0), str(number))

    def log(self, epoch: int):  # type: ignore[no-untyped-def]
        [log] = logs_of(intervals(self.job)[epoch], KEY, [])
        return log.records

    def undo(self, line: int) -> list[str]:
        return [each.path for each in undo(self.job, KEY, line, highest=3, from_start=True).problems]

    def refused(self, line: int) -> CopyDamaged:
        before, chain = tree_of(self.root), intervals(self.job)
        with pytest.raises(CopyDamaged) as failure:
            self.undo(line)
        assert tree_of(self.root) == before
        assert intervals(self.job) == chain
        found = Verifier(self.job, KEY).failure(line)
        assert str(found) == str(failure.value)
        return failure.value


@pytest.fixture
def kept(where: str) -> Kept:
    return Kept(where)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def longer(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def exchanged(path: Path) -> None:
    """All that is in the directory of the same length, too."""
    path.write_bytes(b"y" * path.stat().st_size)


def made_a_link(path: Path) -> None:
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


DAMAGE: list[Callable[[Path], object]] = [
    *(flipped, cut_short, longer, empty, exchanged, made_a_link, os.unlink),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
def test_a_copy_that_is_not_what_was_kept_is_refused_by_name(
    kept: Kept, damage: Callable[[Path], object]
) -> None:
    copy = kept.copy(0, "x")
    shutil.copyfile(copy, f"{kept.job}/backup")
    damage(copy)
    failure = kept.refused(0)
    assert failure.path == str(copy)
    assert f"the copy of {kept.path('x')} that was kept for epoch 0" in failure.what
    copy.unlink(missing_ok=True)
    shutil.copyfile(f"{kept.job}/backup", copy)  # as the message says
    assert not kept.undo(0)
    assert tree_of(kept.root) == kept.trees[0]


def test_only_lines_that_need_the_copy_are_refused(kept: Kept) -> None:
    """An older interval has the whole contents of the same file: they are put back over those of the damaged copy."""
    flipped(kept.copy(1, "x"))
    kept.refused(1)
    assert Verifier(kept.job, KEY).failure(2) is None
    assert Verifier(kept.job, KEY).failure(0) is None
    assert not kept.undo(0)
    assert tree_of(kept.root) == kept.trees[0]


def test_a_copy_with_nothing_older_is_needed_by_all_older_lines(where: str) -> None:
    """The older interval has the length only: the file was appended to."""
    with job_of(where, 3, lines=0) as job:
        path, rank = Path(job.root, "0", "log"), job.ranks[0]
        path.write_bytes(b"a line\n")
        job.checkpoint()
        rank.append(str(path), "")
        job.checkpoint()
        rank.tell("rewrite", str(path))
        path.write_text("anew")
        job.close()
        cut_short(Path(directory_of(job.path, 1, 0, 0), "1"))
        for line in (1, 0):
            with pytest.raises(CopyDamaged, match="does not match its digest"):
                job.undo(line)
        assert path.read_text() == "anew"


def test_a_hard_link_that_is_gone_or_another_file_is_refused(kept: Kept) -> None:
    link = kept.link(1)
    link.rename(f"{kept.job}/backup")
    assert "the hard link of" in kept.refused(1).what
    shutil.copy2(f"{kept.job}/backup", link)
    failure = kept.refused(1)
    assert failure.path == str(link)
    assert "is another file" in failure.what
    os.replace(f"{kept.job}/backup", link)
    assert not kept.undo(1)
    assert tree_of(kept.root) == kept.trees[1]


def test_a_file_that_somebody_has_changed_after_it_was_replaced_is_told(kept: Kept) -> None:
    """The hard link is the file itself: who has it open goes on writing."""
    with kept.link(1).open("ab") as held:
        held.write(b"of somebody else")
    assert Verifier(kept.job, KEY).failure(1) is None
    [problem] = undo(kept.job, KEY, 1, highest=3, from_start=True).problems
    assert problem.path == str(kept.path("z"))
    assert "somebody else has changed the file" in problem.reason


def test_a_file_that_a_rank_has_changed_by_another_name_is_no_problem(where: str) -> None:
    with job_of(where, 3, lines=0) as job:
        rank = job.ranks[0]
        one, other = (os.path.join(rank.root, name) for name in ("one", "other"))
        Path(one).write_text("then")
        os.link(one, other)
        job.checkpoint()
        rank.remove(one, "")
        job.checkpoint()
        rank.append(other, "")
        job.close()
        for line in (1, 0):
            assert not job.undo(line).problems
            assert tree_of(job.root) == job.trees[line]


def test_shared_blocks_are_known_by_inode_length_and_time(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file system here can share blocks: what the kernel does then, but for the sharing. Nothing is read."""
    source, copy = kept.path("log"), Path(kept.job, "clone")

    def shares(writing: int, request: int, reading: int) -> int:
        os.sendfile(writing, reading, 0, os.fstat(reading).st_size)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "ioctl", shares)
        patch.setattr(copying, "_read", None)
        made = copy_file(str(source), str(copy))
    assert made is not None and made.clone is not None and not made.digest
    status = made.clone._replace(target="")
    record = Content(str(source), status, 1, "", 0, 0, 0, made.digest, made.clone)
    assert from_plain(to_plain(record)) == record
    wrong = copying_is_wrong(copy, record)
    assert wrong == ""
    flipped(copy)
    assert copying_is_wrong(copy, record) == "has been changed"
    copy.unlink()
    shutil.copyfile(source, copy)
    assert copying_is_wrong(copy, record) == "has been changed"


def copying_is_wrong(copy: Path, record: Content) -> str:
    from ckpt.undo.restart.kept_files import what_is_wrong

    return what_is_wrong(str(copy), record)


def test_a_log_of_an_earlier_version_has_no_digests(kept: Kept) -> None:
    [record] = [each for each in kept.log(0) if isinstance(each, Content) and each.path.endswith("/x")]
    assert record.digest
    old = from_plain(to_plain(record)[:-5])
    assert isinstance(old, Content)
    assert old == record._replace(digest="", clone=None, copied_ns=0, is_open=0)
    flipped(kept.copy(0, "x"))
    assert not copying_is_wrong(kept.copy(0, "x"), old)
    with pytest.raises(ValueError, match="values"):
        from_plain(to_plain(record)[:-6])


def test_a_copy_that_cannot_be_read_is_no_damaged_one(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    from ckpt.undo.errors import NotUndone

    def refuses(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(copying.os, "pread", refuses)
        with pytest.raises(NotUndone, match="Input/output error"):
            kept.undo(0)
    assert not kept.undo(0)


def test_digests_are_those_of_contents_whatever_is_a_hole(tmp_path: Path) -> None:
    """A block of zeros counts as a hole, wherever the file system puts holes."""
    for seed in range(200):
        choose = random.Random(seed)
        nbytes = choose.choice([0, 1, 4095, 1 << 18, (1 << 18) + 1, choose.randrange(1 << 20)])
        content = bytearray(nbytes)
        for _ in range(choose.randrange(4)):
            at = choose.randrange(nbytes or 1)
            content[at : at + 7] = choose.randbytes(min(7, nbytes - at))
        sparse, full = tmp_path / f"{seed}-sparse", tmp_path / f"{seed}-full"
        full.write_bytes(content)
        with sparse.open("wb") as file:
            for at in range(0, nbytes, 4096):
                if any(content[at : at + 4096]):
                    file.seek(at)
                    file.write(content[at : at + 4096])
            file.truncate(nbytes)
        digests = set()
        for source in (sparse, full):
            copied = copy_file(str(source), str(tmp_path / f"{seed}-copy-{source.name}"))
            assert copied is not None
            assert (tmp_path / f"{seed}-copy-{source.name}").read_bytes() == content
            with source.open("rb") as file:
                digests |= {copied.digest, content_digest(file.fileno())}
        assert len(digests) == 1, seed
        if nbytes:
            flipped(full)
            with full.open("rb") as file:
                assert content_digest(file.fileno()) not in digests


def test_a_file_that_is_cut_while_it_is_copied_has_the_digest_of_its_copy(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(b"x" * SIZE)
    genuine = os.pread

    def cuts(fd: int, nbytes: int, offset: int) -> bytes:
        block = genuine(fd, nbytes, offset)
        os.truncate(source, 1)
        return block

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying.os, "pread", cuts)
        copied = copy_file(str(source), str(copy))
    assert copied is not None
    with copy.open("rb") as file:
        assert content_digest(file.fileno()) == copied.digest
    assert copy.stat().st_size == SIZE


def test_verify_says_which_lines_of_random_programs_cannot_be_put_back(where: str) -> None:
    """What it says is what a restart does."""
    refused = 0
    for seed in range(40):
        with job_of(where, seed) as job:
            job.close()
            logs = [log for interval in intervals(job.path) for log in logs_of(interval, KEY, [])]
            records = [(log, each) for log in logs for each in log.records]
            copies = {log.kept(each.copy) for log, each in records if isinstance(each, Content)} - {""}
            links = {log.kept(each.kept) for log, each in records if isinstance(each, Name)} - {""}
            found = sorted(copies | links)
            if not found:
                continue
            choose = random.Random(seed)
            damaged = Path(choose.choice(found))
            flipped(damaged) if str(damaged) in copies and choose.random() < 0.5 else damaged.unlink()
            said = {line: Verifier(job.path, KEY).failure(line) for line in range(3)}
            refused += sum(each is not None for each in said.values())
            for line in (2, 1, 0):
                check(job, line, said[line])
    assert refused > 20


def check(job: Job, line: int, said: Exception | None) -> None:
    try:
        problems = job.undo(line).problems
    except CopyDamaged as failure:
        assert str(failure) == str(said)
    else:
        assert said is None
        assert problems or tree_of(job.root) == job.trees[line]

"""A restart undoes all intervals since its line, of all ranks, and goes on where it was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.undo.chain import intervals
from ckpt.undo.errors import LogDamaged, NotRecorded
from ckpt.undo.keeping import Keeper, directory_of
from ckpt.undo.logs import end_of, name_of
from ckpt.undo.recorder import Operation
from ckpt.undo.restart import restoring, state
from ckpt.undo.restart.restoring import (
    LineNote,
    Restored,
    can_put_back,
    empty_undone,
    forget,
    give_up,
    remove_done,
    undo,
)
from ckpt.undo.sealing import Told, seal
from ckpt.undo.selection.patterns import Chosen
from ckpt.undo.watching import FileWatch
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.test_sequences import KEY, Killed, Rank, Tree, killed_before, tree_of

where = sequences.where
ALL = Chosen(["auto"], "/")


class Job:
    """Two ranks with directories of their own, which take checkpoints together; what was there at each."""

    def __init__(self, where: str, seed: int, job_where: str) -> None:
        self.root, self.path = os.path.join(where, f"{seed}"), os.path.join(job_where, f"job-{seed}")
        os.mkdir(self.path)
        self.ranks = []
        for rank in range(2):
            root = os.path.join(self.root, f"{rank}")
            os.makedirs(root)
            self.ranks.append(Rank(root, self.path, 2 * seed + rank))
        self.epoch = self.incarnation = 0
        self.trees: dict[int, Tree] = {}
        self.notes: list[LineNote] = []
        self.run([*sequences.BUILDING] * 2)

    def run(self, operations: list[str] = sequences.OPERATIONS) -> None:
        for _ in range(10):
            for rank in self.ranks:
                rank.step(operations)

    def checkpoint(self) -> None:
        """An interval begins; the one before is sealed, as by an image."""
        keepers = [rank.keeper for rank in self.ranks if rank.keeper is not None]
        self.close()
        for keeper in keepers:
            said = seal(keeper, Told())
            self.notes.append(LineNote(self.epoch, said["log"], said["bytes"], said["mac"], said["boot"]))
        self.trees[self.epoch] = tree_of(self.root)
        for number, rank in enumerate(self.ranks):
            directory = directory_of(self.path, self.epoch, self.incarnation, number)
            rank.keeper = Keeper(directory, KEY, rank.recorder, limit_bytes=1 << 30)
            assert not rank.keeper.begin()
        self.epoch += 1

    def close(self) -> None:
        for rank in self.ranks:
            if rank.keeper is not None:
                rank.keeper.close()
                rank.keeper = None

    def undo(self, line: int, now: Chosen = ALL) -> Restored:
        self.close()
        lines = [note for note in self.notes if note.line >= line]
        restored = undo(
            *(self.path, KEY, line),
            highest=self.epoch,
            from_start=True,
            lines=lines,
            first=ALL,
            now=now,
        )
        self.incarnation += 1
        return restored


@contextlib.contextmanager
def job_of(
    where: str,
    seed: int,
    lines: int = 3,
    job_where: str | None = None,
    operations: list[str] = sequences.OPERATIONS,
) -> Iterator[Job]:
    job = Job(where, seed, job_where or where)
    for _ in range(lines):
        job.checkpoint()
        job.run(operations)
    try:
        yield job
    finally:
        job.close()
        shutil.rmtree(job.root)
        shutil.rmtree(job.path)


@pytest.mark.parametrize("line", range(3))
def test_all_intervals_since_the_line_are_undone(where: str, line: int) -> None:
    for seed in range(20):
        with job_of(where, seed) as job:
            assert not job.undo(line).problems
            assert tree_of(job.root) == job.trees[line], seed
            assert [each.epoch for each in intervals(job.path)] == list(range(line))
            remove_done(job.path)
            assert not [name for name in os.listdir(job.path + "/undo") if name.startswith("done-")]


def test_older_lines_can_be_gone_back_to_after_further_work(where: str) -> None:
    """Files that were made again have other numbers than older intervals know, once or twice."""
    for seed in range(30):
        with job_of(where, seed) as job:
            for line in (2, 1, 0):
                assert not job.undo(line).problems, (seed, line)
                assert tree_of(job.root) == job.trees[line], (seed, line)
                if line:  # from the line, an incarnation that takes no checkpoint
                    epoch, tree, job.epoch = job.epoch, job.trees[line], line
                    job.checkpoint()
                    assert job.trees[line] == tree
                    job.epoch = epoch
                    job.run()


def test_a_restart_that_is_killed_at_any_step_goes_on(where: str) -> None:
    kills = 0
    for seed in range(3):
        for step in range(1000):
            with job_of(where, seed, lines=2) as job:
                try:
                    with killed_before(step):
                        job.undo(0)
                    break
                except Killed:
                    kills += 1
                assert not job.undo(0).problems, (seed, step)
                assert tree_of(job.root) == job.trees[0], (seed, step)
    assert kills > 50


def test_a_restart_where_no_hard_links_can_be_made_is_killed(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are made again; a kill behind that loses no number that an older interval needs."""
    monkeypatch.setattr(sequences.Keeper, "_keep", _without_links(Keeper._keep))
    for seed in (0, 12):  # in 12 an older interval knows a file that is made again
        for step in range(1000):
            with job_of(where, seed, lines=2) as job:
                try:
                    with killed_before(step):
                        job.undo(0)
                    break
                except Killed:
                    pass
                several = "it had other names, which are not known"
                told = job.undo(0).problems
                assert all(several in problem.reason for problem in told), (seed, step, told)
                now, then = tree_of(job.root), job.trees[0]
                names = {path for path in then if not sequences.has_several_names(then[path])}
                assert {path: now.get(path) for path in names} == {path: then[path] for path in names}


def _without_links(keep):  # type: ignore[no-untyped-def]
    def kept(self, due):  # type: ignore[no-untyped-def]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "link", _refused)
            return keep(self, due)

    return kept


def _refused(*args: object, **options: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_a_line_that_was_left_behind_is_refused(where: str) -> None:
    """Its files are not known: what has been put back to an older line is not recorded."""
    with job_of(where, 1) as job:
        job.undo(1)
        assert "epoch 1" in can_put_back(job.path, KEY, 2, from_start=True)
        before = tree_of(job.root)
        with pytest.raises(NotRecorded):
            job.undo(2)
        assert tree_of(job.root) == before
        for line in (1, 0):
            assert not can_put_back(job.path, KEY, line, from_start=True)
            job.undo(line)
            assert tree_of(job.root) == job.trees[line]


def test_a_line_is_left_behind_before_the_first_change(where: str) -> None:
    with job_of(where, 2) as job:
        with pytest.raises(Killed), killed_before(3):
            job.undo(0)
        with pytest.raises(NotRecorded):
            job.undo(1)


def test_a_damaged_log_changes_nothing(where: str) -> None:
    with job_of(where, 3) as job:
        job.close()
        before = tree_of(job.root)
        log = Path(directory_of(job.path, 1, 0, 0), "log")
        data = bytearray(log.read_bytes())
        data[40] ^= 1
        log.write_bytes(data)
        with pytest.raises(LogDamaged, match=str(log)):
            job.undo(0)
        assert tree_of(job.root) == before
        assert len(intervals(job.path)) == 3


@pytest.mark.parametrize(("epoch", "rank"), [(1, 0), (2, 1)])
def test_a_log_in_the_place_of_another_one_is_refused(tmp_path: Path, epoch: int, rank: int) -> None:
    """An older one of the same job, or another rank's: all its lines are the job's own."""
    (tmp_path / "job").mkdir()
    job, file = str(tmp_path / "job"), tmp_path / "file"
    watches = [
        FileWatch(
            *(job, KEY), rank=each, incarnation=0, limit_bytes=1, on_uncovered=lambda epoch, uncovered: None
        )
        for each in range(2)
    ]
    for epoch_now in (1, 2):
        for watch in watches:
            watch.cut(epoch_now, [])
            watch._record([Operation("append", str(file))])
    there, other = (os.path.join(directory_of(job, *place), "log") for place in ((2, 0, 0), (epoch, 0, rank)))
    shutil.copyfile(other, there)
    with pytest.raises(LogDamaged, match="line 1 does not verify") as failure:
        undo(job, KEY, 1, highest=2, from_start=True)
    assert failure.value.path == there


def test_a_log_that_has_lost_its_end_changes_nothing(where: str) -> None:
    """Its lines verify. Where it ended was noted when the job ended, or by an image."""
    with job_of(where, 4) as job:
        job.close()
        log = os.path.join(intervals(job.path)[1].path, "rank-00001", "log")
        end = (name_of(os.path.dirname(log)), *end_of(os.path.dirname(log)))
        tree = tree_of(job.root)
        good = Path(log).read_bytes()
        lines = good.splitlines(keepends=True)
        assert len(b"".join(lines)) == end[1]
        for count in range(len(lines)):
            Path(log).write_bytes(b"".join(lines[:count]) + bytes(100))
            with pytest.raises(LogDamaged, match="lines are missing") as damaged:
                undo(job.path, KEY, 0, highest=3, from_start=True, lines=[LineNote(9, *end)])
            assert damaged.value.path == log
        Path(log).write_bytes(good)
        restoring.ended(job.path, KEY)
        os.unlink(log)
        with pytest.raises(LogDamaged, match="lines are missing"):
            restoring.ended(job.path, KEY)
        os.rename(os.path.dirname(log), f"{where}/kept")
        with pytest.raises(LogDamaged, match="it is gone"):
            job.undo(1)
        assert tree_of(job.root) == tree
        os.rename(f"{where}/kept", os.path.dirname(log))
        Path(log).write_bytes(good)
        assert not job.undo(0).problems
        assert tree_of(job.root) == job.trees[0]


def test_a_log_may_be_longer_than_an_image_says(where: str) -> None:
    with job_of(where, 5) as job:
        job.close()
        directory = os.path.join(intervals(job.path)[2].path, "rank-00000")
        lines = Path(directory, "log").read_bytes().splitlines(keepends=True)
        end = (name_of(directory), len(lines[0]), lines[0][:32].decode())
        restored = undo(
            job.path,
            KEY,
            2,
            highest=3,
            from_start=True,
            lines=[LineNote(3, *end)],
        )
        assert not restored.problems
        assert tree_of(job.root) == job.trees[2]


def test_a_damaged_state_is_named(where: str) -> None:
    with job_of(where, 4) as job:
        job.undo(1)
        path = Path(job.path, "undo", "state")
        path.write_bytes(path.read_bytes().replace(b'"since":0', b'"since":1'))
        with pytest.raises(LogDamaged, match=str(path)):
            job.undo(1)


def test_what_was_recorded_is_no_use_after_a_restart_without(where: str) -> None:
    """The files have changed unseen since; what had been kept stays until the next line is committed."""
    with job_of(where, 5) as job:
        job.close()
        give_up(job.path, KEY)
        assert not intervals(job.path)
        assert len(os.listdir(os.path.join(job.path, "undone"))) == 3
        restored = job.undo(2)
        assert not restored.is_recorded
        assert "before epoch 2" in can_put_back(job.path, KEY, 1, from_start=True)
        assert job.undo(2).is_recorded
        empty_undone(job.path)
        remove_done(job.path)
        assert sorted(os.listdir(job.path)) == ["undo"]
        assert sorted(os.listdir(os.path.join(job.path, "undo"))) == ["copies", "state"]


def test_intervals_before_the_oldest_line_are_removed(where: str) -> None:
    with job_of(where, 6) as job:
        job.close()
        forget(job.path, KEY, 1, from_start=True)
        remove_done(job.path)
        assert [each.epoch for each in intervals(job.path)] == [1, 2]
        assert sorted(os.listdir(os.path.join(job.path, "undo"))) == [
            "copies",
            *(f"epoch-{epoch:08d}-00000" for epoch in (1, 2)),
            "state",
        ]
        job.undo(1)
        assert tree_of(job.root) == job.trees[1]


def test_a_program_does_not_start_over_on_files_that_are_not_those_of_its_start(where: str) -> None:
    """No line can be read. It did, after a message, ended with exit code 0, and each line of its log was there twice."""
    with job_of(where, 6) as job:
        job.close()
        forget(job.path, KEY, 1, from_start=True)
        with pytest.raises(NotRecorded, match="cannot start over here: it had changed files before epoch 1"):
            job.undo(0)
        forget(job.path, KEY, 2, from_start=True)
        with pytest.raises(NotRecorded, match="before epoch 2"):
            job.undo(0)
        job.undo(2)
        assert tree_of(job.root) == job.trees[2]


def test_a_program_starts_over_that_had_changed_nothing_before_the_oldest_line(where: str) -> None:
    with job_of(where, 6, lines=0) as job:
        job.checkpoint()
        passing = os.path.join(job.root, "0", "passing")
        job.ranks[0].new(passing, "")
        job.ranks[0].remove(passing, "")
        job.checkpoint()
        job.run()
        job.close()
        forget(job.path, KEY, 1, from_start=True)
        assert not job.undo(0).problems
        assert tree_of(job.root) == job.trees[0]


def test_after_the_user_has_moved_the_directory_files_are_put_back_there(where: str) -> None:
    for seed in range(10):
        with job_of(where, seed) as job:
            job.close()
            old, job.root = job.root, job.root + "-moved"
            os.rename(old, job.root)
            moved = state.Moved(1, old, job.root)
            with pytest.raises(NotRecorded, match="--chdir"):
                undo(job.path, KEY, 2, highest=2, from_start=True, directory=old)
            for line in (2, 1, 0):  # said once, and known from then on
                restored = undo(
                    *(job.path, KEY, line),
                    highest=2,
                    from_start=True,
                    directory=job.root,
                    moved=moved if line == 2 else None,
                )
                assert not restored.problems
                assert tree_of(job.root) == job.trees[line], (seed, line)


def test_files_are_not_put_back_into_a_copy_of_the_directory(where: str) -> None:
    with job_of(where, 3, lines=0) as job:
        [rank, _] = job.ranks
        path = os.path.join(rank.root, "log")
        Path(path).write_text("before")
        job.checkpoint()
        rank.append(path, "")
        job.close()
        copy = job.root + "-copy"
        shutil.copytree(job.root, copy, symlinks=True)
        for directory in (copy, os.path.join(where, "nowhere")):
            with pytest.raises(NotRecorded):
                undo(
                    *(job.path, KEY, 0),
                    highest=0,
                    from_start=True,
                    directory=directory,
                    moved=state.Moved(1, job.root, directory),
                )
        assert tree_of(copy).keys() == tree_of(job.root).keys()
        assert os.path.getsize(os.path.join(copy, "0", "log")) > len("before")
        assert not undo(job.path, KEY, 0, highest=0, from_start=True).problems
        assert Path(path).read_text() == "before"
        shutil.rmtree(copy)


@pytest.mark.parametrize(("line", "was_there"), [(0, False), (1, False), (0, True), (1, True)])
def test_a_journal_that_another_rank_has_removed_before_its_checkpoint_is_no_problem(
    tmp_path: Path, line: int, was_there: bool
) -> None:
    """One rank finds it at its checkpoint; the other, which has made it, removes it before its own. But if it comes back
    by an older interval, what the first rank has written to it meanwhile does not go."""
    root, undo_directory = tmp_path / "w", tmp_path / "job"
    root.mkdir()
    undo_directory.mkdir()
    journal = root / "data.db-journal"

    def watch(rank: int) -> FileWatch:
        return FileWatch(
            *(str(undo_directory), KEY),
            rank=rank,
            incarnation=0,
            limit_bytes=1 << 30,
            on_uncovered=lambda epoch, each: None,
        )

    finds, makes = watch(0), watch(1)
    if was_there:
        journal.write_text("of a transaction")
    for each in (finds, makes):
        each.cut(0, [])
    if not was_there:
        makes._record([Operation("rewrite", str(journal))])
        journal.write_text("of a transaction")
    finds.cut(1, [])
    finds._record([Operation("rewrite", str(journal))])
    makes._record([Operation("remove", str(journal))])
    journal.unlink()
    makes.cut(1, [])
    makes._record([Operation("rewrite", str(journal))])
    journal.write_text("of the next transaction")
    restored = undo(str(undo_directory), KEY, line, highest=1, from_start=True)
    comes_back = was_there and line == 0
    assert restored.names and len(restored.problems) == comes_back
    assert journal.exists() == comes_back


def test_numbers_of_files_are_forgotten_with_the_last_interval(where: str) -> None:
    first, second, third = (restoring.FileId(1, number, 0) for number in (1, 2, 3))
    with job_of(where, 7) as job:
        job.close()
        saved = state.State(0, [(1, 2)], {first: second}, [state.Moved(2, "/a", "/b")])
        state.save(job.path, KEY, saved)
        assert state.load(job.path, KEY, False) == saved
        forget(job.path, KEY, 9, from_start=True)
        assert state.load(job.path, KEY, False) == state.State(9, [], {}, [])
    known = {first: second}
    renumbered = {first: second, second: third}
    state.follow(known, renumbered)
    assert renumbered == {first: third, second: third}


def test_a_restart_that_is_killed_forgets_no_choice_of_files(where: str) -> None:
    out, logs = Chosen(["out"], "/"), Chosen(["logs"], "/")
    for step in range(1000):
        with job_of(where, 7) as job:
            assert job.undo(2, out).chosen == [ALL]
            job.checkpoint()
            job.run()
            try:
                with killed_before(step):
                    job.undo(1, logs)
            except Killed:
                assert job.undo(1, logs).chosen in ([ALL, out], [logs]), step  # the second: all was done
            else:
                break
            assert job.undo(1).chosen == [logs], step
            assert job.undo(0).chosen == [ALL], "the choice at 1 has been taken back there"
    assert step > 10


def test_what_somebody_else_has_changed_since_the_end_is_left_and_told(where: str) -> None:
    told = 0
    for seed in range(20):
        with job_of(where, seed) as job:
            job.close()
            restoring.ended(job.path, KEY)
            files = [path for path, value in tree_of(job.root).items() if value[0] == "file"]
            if not files:
                continue
            path = os.path.join(job.root, files[seed % len(files)])
            Path(path).write_text("of somebody else")
            mine = os.stat(path)
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(restoring, "retire", raise_killed)  # and the restart is killed
                job.undo(1)
            problems = job.undo(1).problems
            if not any(each.path == path for each in problems):
                continue  # no rank had changed this file
            told += 1
            assert all("somebody else" in each.reason and each.is_final for each in problems), (
                seed,
                path,
                problems,
            )
            # Else it is in a directory that has its old name again, or is in `undone`
            if os.path.exists(path):
                assert Path(path).read_text() == "of somebody else"
            names = {os.path.relpath(each.path, job.root) for each in problems}
            now, then = tree_of(job.root), job.trees[1]
            assert {key: now.get(key) for key in then if key not in names} == {
                key: value for key, value in then.items() if key not in names
            } or mine.st_nlink > 1, (seed, names)
    assert told > 5


def raise_killed(*_: object) -> None:
    raise Killed


def test_what_somebody_has_removed_since_the_end_comes_back(where: str) -> None:
    with job_of(where, 3) as job:
        job.close()
        restoring.ended(job.path, KEY)
        for path, value in tree_of(job.root).items():
            if value[0] == "file":
                os.unlink(os.path.join(job.root, path))
        assert not job.undo(2).problems or tree_of(job.root).keys() <= job.trees[2].keys()


def test_what_files_were_at_an_end_is_forgotten_when_they_are_given_up(where: str) -> None:
    """What the program itself changed after `--files off` was taken for changes of somebody else."""
    with job_of(where, 3) as job:
        job.close()
        restoring.ended(job.path, KEY)
        assert "end" in os.listdir(os.path.join(job.path, "undo"))
        assert give_up(job.path, KEY)
        assert "end" not in os.listdir(os.path.join(job.path, "undo"))

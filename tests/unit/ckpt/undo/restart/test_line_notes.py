"""What lines and notes say of files is held against what is there, before a restart changes anything."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.undo import logs
from ckpt.undo.chain import intervals
from ckpt.undo.errors import LogDamaged, NotRecorded, UndoError
from ckpt.undo.keeping import directory_of
from ckpt.undo.records import Noted, Status
from ckpt.undo.restart import checking, line_notes, restoring
from ckpt.undo.restart.others import Touched, differing
from ckpt.undo.restart.restoring import Restored, give_up
from ckpt.undo.restart.verifying import Verifier
from ckpt.undo.sealing import Told, read_notes, seal
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.restart.test_restoring import Job, job_of, raise_killed
from tests.unit.ckpt.undo.test_sequences import KEY, Killed, tree_of

where = sequences.where


def rebooted(monkeypatch: pytest.MonkeyPatch, boot: str = "another boot") -> None:
    for module in (logs, checking, line_notes):
        monkeypatch.setattr(module, "boot_id", lambda: boot)


def reasons(restored: Restored) -> list[str]:
    return [each.reason for each in restored.problems]


# ---- a whole interval is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_interval_that_is_missing_as_a_whole_is_refused_by_name(where: str, epoch: int) -> None:
    """It was taken for one without changes."""
    with job_of(where, 4) as job:
        job.close()
        interval = intervals(job.path)[epoch].path
        os.rename(interval, f"{where}/backup")
        tree = tree_of(job.root)
        with pytest.raises(LogDamaged, match="all that was kept in this interval is gone") as failure:
            job.undo(epoch)
        assert failure.value.path == interval
        assert tree_of(job.root) == tree
        assert isinstance(Verifier(job.path, KEY, job.notes).failure(epoch), LogDamaged)
        assert Verifier(job.path, KEY, job.notes).failure(2) is None
        os.rename(f"{where}/backup", interval)
        assert not job.undo(epoch).problems
        assert tree_of(job.root) == job.trees[epoch]


def test_the_last_interval_is_missed_where_the_controller_has_noted_it(where: str) -> None:
    with job_of(where, 4) as job:
        job.close()
        restoring.ended(job.path, KEY)
        interval = intervals(job.path)[2].path
        os.rename(interval, f"{where}/backup")
        for line in (2, 0):
            with pytest.raises(LogDamaged, match="all that was kept") as failure:
                job.undo(line)
            assert failure.value.path == interval


def test_intervals_that_a_restart_has_undone_are_not_missed(where: str) -> None:
    """Lines that were left say where their logs ended; and a restart that is killed has undone some already."""
    with job_of(where, 4) as job:
        job.close()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(restoring, "follow", raise_killed)
            patch.setattr(restoring, "sync_file_systems", raise_killed)
            job.undo(1)
        assert not job.undo(1).problems
        assert not job.undo(1).problems
        assert not job.undo(0).problems
        assert tree_of(job.root) == job.trees[0]


def test_intervals_that_were_pruned_are_not_missed(where: str) -> None:
    with job_of(where, 4) as job:
        job.close()
        restoring.forget(job.path, KEY, 1, from_start=True)
        assert reasons(job.undo(1)) == []


def test_lines_that_were_left_without_putting_files_back_are_refused(where: str) -> None:
    """`--files off`, and then `auto` from an older line: the files of the newer ones are not known, though recorded once."""
    with job_of(where, 4) as job:
        job.close()
        give_up(job.path, KEY)
        assert not job.undo(1).is_recorded
        with pytest.raises(NotRecorded):
            job.undo(2)
        assert not job.undo(1).problems


# ---- the host was restarted -----------------------------------------------------------------------------------


def test_another_boot_is_told_where_nobody_has_noted_the_end(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lines, copies, or the whole interval may not have reached the disk."""
    for is_there in (True, False):
        with job_of(where, 4) as job:
            job.close()
            if not is_there:
                shutil.rmtree(intervals(job.path)[2].path)
            with monkeypatch.context() as patch:
                rebooted(patch)
                restored = job.undo(2)
                [told] = [each for each in restored.problems if not each.path]
                assert told.is_final
                assert told.reason == checking._RESTARTED.format(2)
                assert is_there == (tree_of(job.root) == job.trees[2])
                assert is_there == (len(restored.problems) == 1), (
                    "files of the line that are not what they were"
                )
                assert not reasons(job.undo(2)), "it has been told, and nothing was recorded since"
                rebooted(patch, "a third one")
                assert told.reason in reasons(job.undo(2))


def test_another_boot_is_not_told_where_all_ends_are_known(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_of(where, 4) as job:
        job.close()
        restoring.ended(job.path, KEY)
        rebooted(monkeypatch)
        for line in (2, 1, 0):
            assert not job.undo(line).problems
            assert tree_of(job.root) == job.trees[line]


def test_the_same_boot_is_not_told(where: str) -> None:
    """All processes were killed, the controller, too: what they have written stays."""
    with job_of(where, 4) as job:
        job.close()
        shutil.rmtree(intervals(job.path)[2].path)  # nobody knows that there was one
        assert not reasons(job.undo(2))


def test_a_file_of_the_line_that_the_host_has_lost_is_named(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ckpt makes durable what it has kept, not what the program has written."""
    with job_of(where, 3, lines=0) as job:
        lost, changed, same = (Path(job.ranks[0].root, name) for name in ("lost", "changed", "same"))
        job.checkpoint()
        for path in (lost, changed, same):
            job.ranks[0].new(str(path), "")
            path.write_text("of the checkpoint")
        job.checkpoint()
        job.ranks[0].append(str(changed), "")
        job.close()
        os.truncate(lost, 0)
        rebooted(monkeypatch)
        told = {each.path: each.reason for each in job.undo(1).problems}
        assert told == {"": checking._RESTARTED.format(1), str(lost): checking._LOST}
        assert changed.read_text() == "of the checkpoint"


# ---- changed by somebody else since a line --------------------------------------------------------------------


def test_what_somebody_else_has_changed_since_a_line_is_left_and_told(where: str) -> None:
    """The job has not ended well enough for its files to be noted then."""
    with job_of(where, 3, lines=0) as job:
        rank = job.ranks[0]
        mine, theirs, gone, new = (Path(rank.root, name) for name in ("mine", "theirs", "gone", "new"))
        for path in (mine, theirs, gone):
            path.write_text("at first")
        job.checkpoint()
        for path in (mine, theirs, gone, new):
            rank.tell("rewrite", str(path))
            path.write_text("of the first interval")
        job.checkpoint()
        rank.append(str(mine), "")
        theirs.write_text("of somebody else")
        new.write_text("of somebody else, too")
        gone.unlink()
        job.close()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(restoring, "retire", raise_killed)
            job.undo(0)
        told = job.undo(0).problems
        assert {each.path for each in told if "somebody else" in each.reason} == {str(theirs), str(new)}
        assert {each.path for each in told} == {str(theirs), str(new), str(gone)}
        assert theirs.read_text() == "of somebody else"
        assert new.read_text() == "of somebody else, too"
        assert mine.read_text() == "at first"


def test_in_random_programs_nobody_else_has_changed_anything(where: str) -> None:
    """No change of a rank is taken for one of somebody else."""
    for seed in range(60):
        with job_of(where, seed) as job:
            line = seed % 3
            restored = job.undo(line)
            assert not restored.problems, (seed, restored.problems)
            assert tree_of(job.root) == job.trees[line], seed


def test_in_random_programs_what_is_changed_is_left_or_was_never_changed_by_a_rank(where: str) -> None:
    told = 0
    for seed in range(100):
        with job_of(where, seed, lines=2) as job:
            job.close()
            noted = [read_notes(directory_of(job.path, 0, 0, rank), KEY) or [] for rank in range(2)]
            there = [each.path for of_rank in noted for each in of_rank if os.path.isfile(each.path)]
            files = [path for path in there if not os.path.islink(path)]
            if not files:
                continue
            path = random.Random(seed).choice(files)
            with open(path, "ab") as file:
                file.write(b"of somebody else")
            problems = [each for each in job.undo(0).problems if each.reason == restoring._FOREIGN]
            if any(each.path == path for each in problems):
                told += 1
                left = [each for each in Path(where).rglob("*") if each.is_file()]
                assert any(each.read_bytes().endswith(b"of somebody else") for each in left), seed
    assert told > 5


@contextlib.contextmanager
def one_file(where: str) -> Iterator[tuple[Job, Path]]:
    """Two ranks have written the same file since the checkpoint."""
    with job_of(where, 3, lines=0) as job:
        path = Path(job.ranks[0].root, "x")
        path.write_text("at first")
        job.checkpoint()
        for rank in job.ranks:
            rank.tell("rewrite", str(path))
            path.write_text(f"of a rank in {rank.root}")
        yield job, path
        assert not job.undo(0).problems
        assert path.read_text() == "at first"


def test_a_rank_that_has_not_taken_its_image_yet_may_change_what_another_one_has_noted(where: str) -> None:
    """Its own note says what the file is then."""
    with one_file(where) as (job, path):
        for rank in job.ranks:
            assert rank.keeper is not None
            rank.keeper.close()
            seal(rank.keeper, Told())
            if rank is job.ranks[0]:
                path.write_text("of the other rank, later")
            rank.keeper = None
        job.epoch += 1


def test_where_one_rank_has_no_note_nothing_is_told(where: str) -> None:
    """Its image was not taken: what it has changed after the others' notes nobody knows."""
    with one_file(where) as (job, path):
        job.checkpoint()
        job.close()
        os.unlink(os.path.join(directory_of(job.path, 0, 0, 1), "noted"))
        path.write_text("of the other rank, or of somebody else")


@pytest.mark.parametrize("rewrite", ["as it was", "another target"])
def test_a_symbolic_link_is_known_by_its_target(tmp_path: Path, rewrite: str) -> None:
    path = tmp_path / "link"
    os.symlink("target", path)
    from ckpt.undo.keeping import look

    noted = Noted(str(path), look(str(path)))
    path.unlink()
    os.symlink("target" if rewrite == "as it was" else rewrite, path)
    found = list(differing([noted], Touched(), {}))
    assert [each for each, _ in found] == ([] if rewrite == "as it was" else [str(path)])


def test_a_file_that_has_been_made_again_is_known_by_its_new_number(tmp_path: Path) -> None:
    from ckpt.undo.keeping import look

    path = tmp_path / "x"
    path.write_text("x")
    before = look(str(path))
    assert isinstance(before, Status)
    copy = tmp_path / "copy"
    shutil.copy2(path, copy)
    os.replace(copy, path)
    now = look(str(path))
    assert isinstance(now, Status)
    same = before._replace(file=now.file) == now
    assert same, "contents, length and time are the same"
    assert not list(differing([Noted(str(path), before)], Touched(), {before.file: now.file}))
    assert list(differing([Noted(str(path), before)], Touched(), {}))


# ---- what is not covered --------------------------------------------------------------------------------------


def test_what_a_line_says_not_to_be_covered_is_told_at_a_restart_from_it_and_from_older_ones(
    where: str,
) -> None:
    rows = [(0, "/before", "of the interval before"), (2, "/held", "no space at the checkpoint")]
    for line, named in ((2, {"/held"}), (1, {"/held"}), (0, {"/held", "/before"})):
        with job_of(where, 3) as job:
            job.close()
            job.notes = [note._replace(uncovered=rows) if note.line == 2 else note for note in job.notes]
            assert {each.path for each in job.undo(line).problems} == named


def test_errors_of_notes_are_of_the_tree(where: str) -> None:
    with job_of(where, 3) as job:
        job.close()
        for path in Path(job.path).rglob("noted"):
            path.write_bytes(path.read_bytes().replace(b"noted", b"motet"))
        with pytest.raises(UndoError, match="does not verify"):
            job.undo(0)
        assert not job.undo(2).problems, "a restart to the last line does not need them"

"""Files are those of the checkpoint while ranks load: code at first, then all. They are what the program had left again if a
rank cannot go on, whatever happens."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ckpt.undo.chain import intervals, undo_path
from ckpt.undo.errors import NotKept, NotUndone
from ckpt.undo.keeping import Keeper
from ckpt.undo.logs import read_log
from ckpt.undo.planning.plan import Log, Plan, make_plan
from ckpt.undo.recorder import Changes, Operation
from ckpt.undo.records import Uncovered
from ckpt.undo.restart import ahead, provisional, restoring
from ckpt.undo.restart.ending import changed_since, note_end
from ckpt.undo.restart.provisional import give_code, is_given, take_back
from ckpt.undo.restart.putting_back import Problem
from ckpt.undo.restart.restoring import Prepared, can_put_back, prepare
from ckpt.undo.restart.state import State
from tests.unit.ckpt.undo import test_sequences as sequences
from tests.unit.ckpt.undo.restart.test_restoring import ALL, Job, job_of, raise_killed
from tests.unit.ckpt.undo.test_sequences import (
    KEY,
    Killed,
    Rank,
    Restart,
    Tree,
    killed_before,
    killed_now_and_then,
    tree_of,
)

where = sequences.where
SEQUENCES = 60
LIMIT_BYTES = 1 << 30


def plans_of(rank: Rank, line: int) -> list[Plan]:
    return [make_plan([Log(each, list(read_log(each, KEY)))]) for each in reversed(rank.directories[line:])]


def give(rank: Rank, line: int) -> bool:
    return give_code(rank.job, KEY, plans_of(rank, line), [], State(since=0))


def plain(tree: Tree) -> Tree:
    """Without modes of directories: they do not matter where all can be read."""
    return {path: each[:1] if each[0] == "directory" else each for path, each in tree.items()}


def check(
    where: str,
    seed: int,
    code: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    job_where: str | None = None,
) -> bool:
    """Returns whether code was given as a whole, and was another one."""
    monkeypatch.setattr(provisional, "_CODE", code)
    with sequences.program(where, seed, job_where) as (rank, trees, _):
        assert rank.keeper is not None
        rank.keeper.close()
        line, choose = rank.random.randrange(len(trees)), random.Random(-seed)
        now = tree_of(rank.root)
        note_end(rank.job, KEY, plans_of(rank, 0), [])
        is_given_whole = False
        try:
            with killed_before(choose.randrange(40)):
                is_given_whole = give(rank, line)
            if set(code) == set(sequences.NAMES) and job_where is None:
                assert plain(tree_of(rank.root)) == plain(trees[line]), seed
        except Killed:
            pass
        killed_now_and_then(choose, lambda: bool(take_back(rank.job, KEY)) and None)
        assert not is_given(rank.job)
        assert tree_of(rank.root) == now, seed
        assert not changed_since(rank.job, KEY), seed  # nobody else has changed anything
        restart = Restart(rank, line)
        restart.run()
        assert not restart.problems and tree_of(rank.root) == trees[line], seed
        return is_given_whole and now != trees[line]


def test_code_is_given_and_taken_back_killed_at_any_step(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All names are code: then the whole tree is that of the checkpoint meanwhile."""
    given = sum(check(where, seed, sequences.NAMES, monkeypatch) for seed in range(SEQUENCES))
    assert given > SEQUENCES // 4


def test_code_among_other_files_is_taken_back(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sum(check(where, seed, ("a",), monkeypatch) for seed in range(SEQUENCES))
    assert given > SEQUENCES // 4


def test_code_is_taken_back_from_another_file_system(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job directory is on another one than the files: no link can be made, and nothing be renamed into it."""
    if os.stat(where).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("both are on one file system")
    names = sequences.NAMES
    given = sum(check(where, seed, names, monkeypatch, str(tmp_path)) for seed in range(SEQUENCES // 5))
    assert given > SEQUENCES // 20


def test_code_is_taken_back_where_no_links_can_be_made(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Rank, "link", Rank.new)
    given = sum(check(where, seed, sequences.NAMES, monkeypatch) for seed in range(SEQUENCES // 5))
    assert given > SEQUENCES // 20


def test_only_code_and_what_it_needs_is_changed(where: str) -> None:
    with sequences.program(where, 0) as (rank, _, _):
        package, data = Path(rank.root, "package"), Path(rank.root, "data")
        (package / "below").mkdir(parents=True)
        data.mkdir()
        (package / "below" / "code.py").write_text("then")
        (data / "large").write_text("then")
        rank.checkpoint()
        rank.rename(str(package), f"{package}.old")  # nothing below it is recorded
        rank.rename(str(data), f"{data}.old")
        rank.write(f"{data}.old/large", "")
        rank.new(f"{rank.root}/json.py", "")
        now = tree_of(rank.root)
        assert give(rank, -1)
        assert (package / "below" / "code.py").read_text() == "then"
        assert not Path(f"{package}.old").exists() and not Path(rank.root, "json.py").exists()
        assert not data.exists() and tree_of(f"{data}.old") == {
            path.removeprefix("data.old/"): each for path, each in now.items() if path.startswith("data.old/")
        } | {"large": (*now["data.old/large"][:4], ("large",))}
        assert take_back(rank.job, KEY) and tree_of(rank.root) == now
        assert not take_back(rank.job, KEY)


def test_nothing_is_changed_where_there_is_no_code(where: str) -> None:
    with sequences.program(where, 0) as (rank, _, _):
        (Path(rank.root) / "old").mkdir()
        rank.checkpoint()
        rank.rename(f"{rank.root}/old", f"{rank.root}/new")
        assert not give(rank, -1)
        assert not is_given(rank.job)


def test_code_stays_as_it_is_where_it_could_not_be_kept(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, say: no file is changed that could not be kept."""
    with sequences.program(where, 0) as (rank, _, _):
        path = Path(rank.root, "code.py")
        path.write_text("then")
        rank.checkpoint()
        rank.write(str(path), "")
        now = tree_of(rank.root)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("ckpt.undo.keeping.copy_file", full)
            with pytest.raises(NotUndone, match="No space left"):
                give(rank, -1)
        assert tree_of(rank.root) == now and not is_given(rank.job)


# ---------------------------------------------------------------------- all files


def refused(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def prepared(job: Job, line: int) -> Prepared:
    job.close()
    lines = [note for note in job.notes if note.line >= line]
    return prepare(job.path, KEY, line, highest=job.epoch, from_start=True, lines=lines, first=ALL, now=ALL)


def back(job: Job) -> None:
    provisional.take_back(job.path, KEY)


def what_is_known(job: Job) -> dict[str, bytes]:
    """Of the undo log as a whole, and which intervals there are. What was made again has other numbers in the notes of the
    end."""
    undo = Path(job.path, "undo")
    names = [path for path in undo.iterdir() if not path.name.startswith(("done-", "copies", "end"))]
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in names}


def check_all(
    where: str,
    seed: int,
    choose: random.Random,
    *,
    links: bool = True,
    job_where: str | None = None,
    operations: list[str] = sequences.OPERATIONS,
) -> bool:
    """All intervals since a line are given, taken back, given again, and kept; each is killed now and then. Returns whether
    that had anything to do."""
    with job_of(where, seed, choose.choice([1, 2, 3]), job_where, operations) as job:
        line = choose.randrange(job.epoch)
        job.close()
        restoring.ended(job.path, KEY)
        now, known = tree_of(job.root), what_is_known(job)
        problems: list[Problem] = []
        for step in [*sorted(choose.sample(range(60), 2)), 1000]:
            try:
                with killed_before(step):
                    problems = prepared(job, line).give(LIMIT_BYTES).problems
                if job_where is None:  # else there are names beside
                    assert problems or tree_of(job.root) == job.trees[line], (seed, step)
            except Killed:
                pass
            killed_now_and_then(choose, lambda: back(job))
            assert tree_of(job.root) == now, (seed, step)
            assert not links or what_is_known(job) == known, (seed, step)
            assert not links or not sequences.paths_below(f"{job.path}/undone"), (seed, step)
            assert not changed_since(job.path, KEY), (seed, step)
        waiting = prepared(job, line)
        problems = waiting.give(LIMIT_BYTES).problems
        try:
            with killed_before(choose.randrange(8)):
                waiting.keep()
        except Killed:
            if not os.path.exists(undo_path(job.path, "kept")):
                back(job)
                assert tree_of(job.root) == now, seed
                waiting = prepared(job, line)
                problems = waiting.give(LIMIT_BYTES).problems
                waiting.keep()
            killed_now_and_then(choose, lambda: back(job))
        several = "it had other names, which are not known"
        assert all(not links and several in each.reason for each in problems), (seed, problems)
        then = job.trees[line]
        names = {path for path in then if links or not sequences.has_several_names(then[path])}
        after = tree_of(job.root)
        assert {path: after.get(path) for path in names} == {path: then[path] for path in names}, seed
        assert not links or after == then, seed
        assert all(each.epoch < line for each in intervals(job.path))
        assert not is_given(job.path) and not os.path.exists(undo_path(job.path, "kept"))
        job.undo(0)  # what was made again is known to older intervals
        assert not links or tree_of(job.root) == job.trees[0], seed
        return now != then


def test_all_is_given_and_taken_back_or_kept_killed_at_any_step(where: str) -> None:
    done = sum(check_all(where, seed, random.Random(seed)) for seed in range(SEQUENCES))
    assert done > SEQUENCES // 2


@pytest.mark.rotate(2)
def test_files_that_are_recorded_together_are_given_and_taken_back_killed_at_any_step(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no directory has moved, most changes are recorded before the first of them is made."""
    told: list[Changes | Operation] = []

    class Told(Keeper):
        def ahead(self, changes: Changes) -> list[Uncovered]:
            told.append(changes)
            return super().ahead(changes)

        def before(self, operation: Operation) -> list[Uncovered]:
            told.append(operation)
            return super().before(operation)

    monkeypatch.setattr(provisional, "Keeper", Told)
    monkeypatch.setattr(ahead, "_AT_ONCE", 3)
    done = sum(
        check_all(where, seed, random.Random(seed), operations=sequences.FILES) for seed in range(SEQUENCES)
    )
    assert done > SEQUENCES // 2
    together = [changes for changes in told if isinstance(changes, Changes)]
    several = sum(len(each.names) + len(each.written) for each in together)
    assert several > len(told) - len(together)


def test_a_file_below_a_directory_that_has_moved_is_taken_back(where: str) -> None:
    """Its name leads to it only when the directory has its own name again: it cannot be recorded before."""
    with job_of(where, 0, lines=0) as job:
        rank, root = job.ranks[0], os.path.join(job.root, "0")
        os.mkdir(f"{root}/old")
        Path(root, "old", "state").write_bytes(b"then")
        job.checkpoint()
        rank.rename(f"{root}/old", f"{root}/new")
        for path in (f"{root}/new/other", f"{root}/new/state"):
            rank.tell("rewrite", path)
            Path(path).write_bytes(b"now")
        rank.rename(f"{root}/new/other", f"{root}/new/state")
        now = tree_of(job.root)
        prepared(job, 0).give(LIMIT_BYTES)
        assert tree_of(job.root) == job.trees[0]
        back(job)
        assert tree_of(job.root) == now


def test_all_is_given_and_kept_from_another_file_system(where: str, tmp_path: Path) -> None:
    """The job directory is on another one than the files: no link can be made, and what stands in the way lies beside until
    it is copied to there."""
    if os.stat(where).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("both are on one file system")
    several = range(SEQUENCES // 5)
    done = sum(
        check_all(where, seed, random.Random(seed), links=False, job_where=str(tmp_path)) for seed in several
    )
    assert done > SEQUENCES // 10


def test_all_is_given_and_taken_back_where_no_links_can_be_made(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Rank, "link", Rank.new)
    done = sum(check_all(where, seed, random.Random(seed), links=False) for seed in range(SEQUENCES // 5))
    assert done > SEQUENCES // 10


def test_a_file_that_several_intervals_cut_is_taken_back_whole(where: str) -> None:
    """Only what is cut off is copied, and restored behind what has stayed."""
    with job_of(where, 0, lines=0) as job:
        log = Path(job.root, "0", "log")
        log.write_bytes(b"0" * 600_000)
        for line in range(3):
            job.checkpoint()
            job.ranks[0].tell("append", str(log))
            with log.open("ab") as file:
                file.write(bytes([65 + line]) * 300_000)
        now = tree_of(job.root)
        for line in range(3):
            prepared(job, line).give(LIMIT_BYTES)
            assert tree_of(job.root) == job.trees[line]
            [kept] = Path(undo_path(job.path, "loading"), "rank-00000").glob("[0-9]*")
            assert kept.stat().st_blocks * 512 < (3 - line) * 300_000 + 300_000
            back(job)
            assert tree_of(job.root) == now


def test_what_lies_beside_is_found_when_its_directory_has_been_put_back(where: str, tmp_path: Path) -> None:
    """The newer interval moves a new file out of the way; the older one puts its directory back under another name."""
    if os.stat(where).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("both are on one file system")
    with job_of(where, 0, 0, str(tmp_path)) as job:
        rank, root = job.ranks[0], os.path.join(job.root, "0")
        os.makedirs(f"{root}/old/inner")
        job.checkpoint()
        rank.rename(f"{root}/old", f"{root}/new")
        job.checkpoint()
        rank.new(f"{root}/new/inner/made", "")
        waiting = prepared(job, 0)
        waiting.give(LIMIT_BYTES)
        waiting.keep()
        assert tree_of(job.root) == job.trees[0]
        assert os.listdir(f"{job.path}/undone") == ["0-made"]


def test_what_is_left_to_be_done_for_files_that_stay_is_done_before_the_next_restart(where: str) -> None:
    """It was left there where the controller was killed at its last step, and a later restart took it for its own: what that
    one had put back stayed, though a rank could not load."""
    with job_of(where, 1, lines=2) as job:
        waiting = prepared(job, 1)
        waiting.give(LIMIT_BYTES)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(provisional, "remove_record", raise_killed)
            waiting.keep()
        assert os.path.exists(undo_path(job.path, "kept")) and not is_given(job.path)
        assert not restoring.take_back(job.path, KEY)
        assert not os.path.exists(undo_path(job.path, "kept"))


@pytest.mark.parametrize("from_start", [True, False])
def test_where_nothing_was_recorded_nothing_is_kept_and_the_line_is_left_behind(
    tmp_path: Path, from_start: bool
) -> None:
    """The job has no directory for what is kept; there was an error that said so."""
    waiting = prepare(str(tmp_path), KEY, 1, highest=4, from_start=from_start, first=ALL, now=ALL)
    restored = waiting.give(LIMIT_BYTES)
    assert restored.is_recorded == from_start and not restored.problems
    assert not os.listdir(tmp_path), "the load may fail still"
    waiting.keep()
    assert "epoch 1" in can_put_back(str(tmp_path), KEY, 3, from_start=from_start)
    assert os.listdir(tmp_path / "undo") == ["state"]


def test_files_are_put_back_for_good_where_they_could_not_be_kept(where: str) -> None:
    with job_of(where, 0, lines=1) as job:
        path = Path(job.root, "0", "large")
        path.write_bytes(b"then" * 100)
        job.checkpoint()
        job.ranks[0].tell("rewrite", str(path))
        path.write_bytes(b"now" * 1000)
        now = tree_of(job.root)
        waiting = prepared(job, 1)
        with pytest.raises(NotKept, match="limit"):
            waiting.give(100)
        assert tree_of(job.root) == now and not is_given(job.path)
        assert not prepared(job, 1).apply().problems
        assert tree_of(job.root) == job.trees[1]

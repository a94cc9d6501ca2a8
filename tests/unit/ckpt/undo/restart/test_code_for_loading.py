"""Code is that of the checkpoint while ranks load, and what the program had left afterwards, whatever happens."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ckpt.undo.errors import NotUndone
from ckpt.undo.logs import read_log
from ckpt.undo.restart import code_for_loading
from ckpt.undo.restart.code_for_loading import give, is_given, take_back
from ckpt.undo.restart.ending import changed_since, note_end
from ckpt.undo.restart.plan import Log, Plan, make_plan
from ckpt.undo.restart.state import State
from tests.unit.ckpt.undo import test_sequences as sequences
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


def plans_of(rank: Rank, line: int) -> list[Plan]:
    return [make_plan([Log(each, list(read_log(each, KEY)))]) for each in reversed(rank.directories[line:])]


def give_code(rank: Rank, line: int) -> bool:
    return give(rank.job, KEY, plans_of(rank, line), [], State(since=0))


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
    monkeypatch.setattr(code_for_loading, "_CODE", code)
    with sequences.program(where, seed, job_where) as (rank, trees, _):
        assert rank.keeper is not None
        rank.keeper.close()
        line, choose = rank.random.randrange(len(trees)), random.Random(-seed)
        now = tree_of(rank.root)
        note_end(rank.job, KEY, plans_of(rank, 0), [])
        is_given_whole = False
        try:
            with killed_before(choose.randrange(40)):
                is_given_whole = give_code(rank, line)
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
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

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
        assert give_code(rank, -1)
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
        assert not give_code(rank, -1)
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
                give_code(rank, -1)
        assert tree_of(rank.root) == now and not is_given(rank.job)

"""Single rules of a plan, and of what is done with it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ckpt.undo.copying import tail_digest
from ckpt.undo.planning.plan import Log, Plan, make_plan
from ckpt.undo.records import Content, Name
from ckpt.undo.restart.places import Places
from ckpt.undo.restart.putting_back import put_back
from tests.unit.ckpt.undo.restart.test_places import status_of


def content(path: Path, nbytes: int, written: int, time_ns: int, *, tail: str | None = None) -> Content:
    """A rank had the file open for appending at its checkpoint."""
    status = status_of(path)
    digest = tail_digest(str(path), nbytes) if tail is None else tail
    return Content(str(path), status._replace(nbytes=nbytes), 0, digest, written, 0, time_ns)


@pytest.mark.parametrize("order", [1, -1])
def test_what_a_rank_appended_before_its_checkpoint_is_not_cut(tmp_path: Path, order: int) -> None:
    """The first rank took its checkpoint when the file had 4 bytes, the other when it had 8, of which it wrote the last."""
    path = tmp_path / "log"
    path.write_bytes(b"aaaaBBBBcccc")
    logs = [Log("0", [content(path, 4, 4, 1)]), Log("1", [content(path, 8, 8, 2)])][::order]
    [problem] = put_back(make_plan(logs), str(tmp_path / "undone"), {})
    assert path.read_bytes() == b"aaaaBBBB"
    assert problem.path == str(path) and problem.is_final
    assert "4 bytes may be there twice" in problem.reason


def test_the_first_length_counts_where_nothing_was_appended_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"aaaaBBBBcccc")
    logs = [Log("0", [content(path, 4, 4, 1)]), Log("1", [content(path, 8, 0, 2)])]
    assert not put_back(make_plan(logs), str(tmp_path / "undone"), {})
    assert path.read_bytes() == b"aaaa"


def test_a_file_whose_digest_is_not_known_is_cut(tmp_path: Path) -> None:
    """A program that has a lock on it would have lost the lock."""
    path = tmp_path / "log"
    path.write_bytes(b"aaaacccc")
    assert not put_back(
        make_plan([Log("0", [content(path, 4, 0, 1, tail="")])]), str(tmp_path / "undone"), {}
    )
    assert path.read_bytes() == b"aaaa"


@pytest.mark.parametrize("made", ["d/log", "d"])
def test_what_one_rank_has_made_and_another_one_has_changed_is_new(tmp_path: Path, made: str) -> None:
    """The second rank finds it, and does not know that the file, or its directory, was not there at the checkpoint."""
    path = tmp_path / "d" / "log"
    path.parent.mkdir()
    path.write_bytes(b"aaaa")
    logs = [Log("0", [Name(str(tmp_path / made), None, 0, 1)]), Log("1", [content(path, 4, 0, 2)])]
    assert not put_back(make_plan(logs), str(tmp_path / "undone"), {})
    assert not path.exists()


def test_a_file_that_has_lost_the_name_by_which_it_was_changed_first(tmp_path: Path) -> None:
    """Another name of it is known."""
    path, new = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"aaaacccc")
    records = [content(path, 4, 0, 2, tail="")._replace(path=str(new)), content(path, 4, 0, 3, tail="")]
    logs = [Log("0", [Name(str(new), None, 0, 1)]), Log("1", records)]
    assert not put_back(make_plan(logs), str(tmp_path / "undone"), {})
    assert path.read_bytes() == b"aaaa"


def test_a_file_that_was_changed_by_a_name_that_another_rank_has_given_it(tmp_path: Path) -> None:
    """The name goes, and with it all that is known of where the file is; its contents are put back before."""
    path, new = tmp_path / "file", tmp_path / "new"
    path.write_bytes(b"aaaacccc")
    new.hardlink_to(path)
    logs = [Log("0", [Name(str(new), None, 0, 1)]), Log("1", [content(new, 4, 0, 2, tail="")])]
    assert not put_back(make_plan(logs), str(tmp_path / "undone"), {})
    assert path.read_bytes() == b"aaaa" and not new.exists()


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "renamed"])
def test_a_file_that_cannot_have_another_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """There may be no more links to it (EMLINK), or the file system may have none by now: it is copied, or renamed."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    path, other = tmp_path / "file", tmp_path / ("1" if kept else "other")
    path.write_bytes(b"then")
    records = [Name(str(path), status_of(path), int(kept), 1), Name(str(tmp_path / "other"), None, 0, 1)]
    path.rename(other)
    monkeypatch.setattr(os, "link", refused)
    assert not put_back(make_plan([Log(str(tmp_path), records)]), str(tmp_path / "undone"), {})
    assert path.read_bytes() == b"then"
    assert kept or not other.exists()


@pytest.mark.parametrize("name", ["n" * 255, "ü" * 127, os.fsdecode(b"\xff\xfe" * 100)])
def test_what_is_moved_out_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Its number stands before the name; a name has 255 bytes at most."""
    for _ in range(2):
        path = tmp_path / name
        path.write_text("new")
        plan = make_plan([Log("0", [Name(str(path), None, 0, 1)])])
        assert not put_back(plan, str(tmp_path / "undone"), {})
        assert not path.exists()
    assert len(list((tmp_path / "undone").iterdir())) == 2


def test_equal_names_are_numbered_without_looking_at_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    exists = os.path.lexists

    def counted(path: str) -> bool:
        nonlocal looked
        looked += 1
        return exists(path)

    names = {}
    for number in range(50):
        path = tmp_path / f"{number}" / "state"
        path.parent.mkdir()
        path.write_text("new")
        names[str(path)] = None
    monkeypatch.setattr(os.path, "lexists", counted)
    assert not put_back(Plan(names=names), str(tmp_path / "undone"), {})
    assert looked <= 2 * len(names)


def test_names_of_a_file_are_not_searched_again_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no hard links could be kept, each file is looked for among all names that are known."""
    records: list[Name | Content] = []
    for number in range(50):
        path = tmp_path / f"{number}"
        path.write_text("then")
        status = status_of(path)
        copy = number + 1
        (tmp_path / "kept").mkdir(exist_ok=True)
        (tmp_path / "kept" / f"{copy}").write_text("then")
        records += [Content(str(path), status, copy, "", 0, 0, 1), Name(str(path), status, 0, 1)]
    for number in range(50):
        (tmp_path / f"{number}").unlink()
    looked, look = 0, Places.look

    def counted(self: Places, path: str) -> object:
        nonlocal looked
        looked += 1
        return look(self, path)

    monkeypatch.setattr(Places, "look", counted)
    assert not put_back(make_plan([Log(str(tmp_path / "kept"), records)]), str(tmp_path / "undone"), {})
    assert all((tmp_path / f"{number}").read_text() == "then" for number in range(50))
    assert looked < 20 * 50

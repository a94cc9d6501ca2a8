"""A file system is shared if all hosts see the file that the controller has made, at the same path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.sharing.facts import candidates, look_for, mounts_of, token
from ckpt.controller.sharing.proof import clock_off_ns, prove
from ckpt.undo import shared
from ckpt.undo.keeping import look
from ckpt.undo.shared import Mounts, Shared

OWN = {"/s/job": ("/s", 7), "/home/me": ("/home", 8)}


def said(mount: str = "/s", number: int = 7, *, is_seen: bool = True, off_ns: int = 0) -> dict[str, Any]:
    there = {"mount": mount, "number": number, "is_seen": is_seen}
    return {"found": {"/s/job": there}, "boot": "b", "off_ns": off_ns}


def test_what_all_hosts_see_is_shared() -> None:
    found = prove({"/s/job": ("/s", 7)}, {"a": said(), "b": said()})
    assert found.numbers == {"/s": 7} and not found.refused and not found.unknown_clocks
    assert found.boots == {"b"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said(is_seen=False), "host b does not see the same directory"),
        (None, "host b did not say"),
        (said(mount="/"), "on host b, / is mounted there"),
        (said(number=9), "on host b, /s is mounted there, and looks different"),
    ],
)
def test_what_one_host_does_not_see_is_not_shared(answer: dict[str, Any] | None, reason: str) -> None:
    found = prove({"/s/job": ("/s", 7)}, {"a": said(), "b": answer})
    assert not found.numbers and found.refused["/s/job"].startswith(reason)


def test_a_file_system_that_cannot_be_known_again_is_not_shared() -> None:
    found = prove({"/s/job": ("/s", 0)}, {"a": said(number=0)})
    assert not found.numbers and "not known what is mounted" in found.refused["/s/job"]


def test_each_file_system_is_judged_for_itself() -> None:
    found = prove(OWN, {"a": said()})
    assert found.numbers == {"/s": 7} and list(found.refused) == ["/home/me"]


def test_a_clock_that_may_be_off_is_said() -> None:
    assert "host b may be 0.7 s off" in prove({}, {"a": said(), "b": said(off_ns=700_000_000)}).unknown_clocks
    assert clock_off_ns(answered_ns=150, asked_ns=100, came_ns=300) == 150
    assert clock_off_ns(answered_ns=50, asked_ns=100, came_ns=110) == 60


def test_an_agent_sees_the_file_while_it_is_there(tmp_path: Path) -> None:
    directory = os.path.realpath(tmp_path)
    (found,) = mounts_of([directory]).items()
    with token([directory], "mark"):
        there = look_for([directory], "mark")["found"][directory]
        assert there == {"mount": found[1].path, "number": found[1].number, "is_seen": True}
    assert not look_for([directory], "mark")["found"][directory]["is_seen"]
    assert os.listdir(tmp_path) == []


def test_a_directory_behind_a_symbolic_link_is_not_the_same(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with token([str(tmp_path)], "mark"):
        assert not look_for([str(tmp_path / "link")], "mark")["found"][str(tmp_path / "link")]["is_seen"]


def test_candidates_are_directories_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path / "none"))
    monkeypatch.setenv("WORK", str(tmp_path))
    monkeypatch.delenv("HOME", raising=False)
    assert candidates("/", "/usr") == ["/", "/usr", os.path.realpath(tmp_path)]


def test_files_are_known_by_the_number_of_their_shared_file_system(tmp_path: Path) -> None:
    mount = Mounts().of(str(tmp_path))
    here, before = Shared({mount.path: mount.number}, "n3"), look(str(tmp_path))
    assert before is not None and here.mounts == [mount.path]
    here.use()
    try:
        now = look(str(tmp_path))
    finally:
        shared._status.share({})
    assert now is not None and now.file == before.file._replace(device=mount.number)
    assert here.local_to(str(tmp_path / "x" / "not there")) == "" and here.local_to("/proc/x") == "/proc"


def test_another_file_system_at_the_same_place_is_not_shared(tmp_path: Path) -> None:
    mount = Mounts().of(str(tmp_path))
    here = Shared({mount.path: mount.number + 2}, "n3")
    assert here.mounts == [] and here.local_to(str(tmp_path / "x")) == mount.path

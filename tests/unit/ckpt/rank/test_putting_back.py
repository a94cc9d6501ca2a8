"""What a rank that loads its image takes for a file of the program, and what it waits for."""

from __future__ import annotations

import importlib
import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt.image.files import reopen
from ckpt.rank import putting_back
from ckpt.rank.channel.control import ControlChannel
from ckpt.undo import _watch


class Left(BaseException):
    pass


def leave(code: int, text: str) -> None:
    raise Left(code, text)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[tuple[Any, ControlChannel]]:
    """A rank, and the other end of its channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    job = tmp_path / "job"
    job.mkdir()
    options = {"files_wait": True}
    runtime = SimpleNamespace(
        rank=0,
        control=ControlChannel(theirs.detach()),
        options=dict(options),
        spec={"options": options, "job_dir": str(job), "runtime_dir": "/run/x"},
        early=[],
        leave=leave,
        lock=threading.Lock(),
    )
    controller = ControlChannel(ours.detach())
    yield runtime, controller
    _watch.before_opening(None)
    reopen.begin()
    controller.close()
    runtime.control.close()


def begin(runtime: Any) -> list[int]:
    """A load begins. The list has an element when files have been waited for."""
    waited: list[int] = []
    wait = putting_back.waiting_for_files(runtime)
    assert wait is not None
    open(__file__).close()  # as the image is, before the load begins: nothing waited any more
    reopen.begin(lambda is_all_loaded: waited.append(1))
    return waited


@pytest.mark.parametrize("where", ["file", "directory", "database", "removal"])
def test_what_a_package_opens_by_itself_waits_until_files_are_put_back(
    rank: tuple[Any, ControlChannel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (tmp_path / "file").write_text("x")
    waited = begin(rank[0])
    open(sys.modules["os"].__file__ or "").close()
    open("/proc/self/maps").close()
    open(tmp_path / "job" / "x", "w").close()
    sqlite3.connect(":memory:").close()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError):
        importlib.import_module("no_such_module")  # lists the directory of the program's modules
    assert not waited
    if where == "file":
        (tmp_path / "file").read_text()
    elif where == "directory":
        os.listdir(tmp_path)
    elif where == "database":
        sqlite3.connect(tmp_path / "database").close()
    else:
        (tmp_path / "file").unlink()
    assert waited == [1]
    (tmp_path / "other").write_text("x")
    assert waited == [1]


def test_a_rank_takes_what_the_controller_says_of_files_and_keeps_the_rest(
    rank: tuple[Any, ControlChannel],
) -> None:
    runtime, controller = rank
    wait = putting_back.waiting_for_files(runtime)
    assert wait is not None
    for packet in (
        {"m": "status"},
        {"m": "files", "options": {"files_problems": ["/a"]}, "more": True},
        {"m": "files", "options": {"files_problems": ["/b"], "files_wait": False}, "more": False},
    ):
        controller.send(packet)
    wait(True)
    assert controller.receive() == [{"m": "loaded", "all": True}]
    assert runtime.spec["options"] == {"files_wait": False, "files_problems": ["/a", "/b"]}
    assert runtime.options == runtime.spec["options"]
    assert runtime.early == [{"m": "status"}]
    assert not hasattr(runtime, "said_hello"), "nobody can fail to load any more"


def test_a_rank_that_has_loaded_goes_on_when_all_have(rank: tuple[Any, ControlChannel]) -> None:
    runtime, controller = rank
    wait = putting_back.waiting_for_files(runtime)
    assert wait is not None
    controller.send({"m": "files", "options": {"files_wait": True}, "more": False})
    wait(False)
    assert controller.receive() == [{"m": "loaded", "all": False}]
    waiting = threading.Thread(target=runtime.said_hello)
    waiting.start()
    controller.send({"m": "status"})
    waiting.join(0.05)
    assert waiting.is_alive()
    controller.send({"m": "table", "peers": {}})
    waiting.join()
    assert runtime.early == [{"m": "status"}, {"m": "table", "peers": {}}]


def test_a_rank_that_waits_for_the_others_ends_where_one_has_failed(rank: tuple[Any, ControlChannel]) -> None:
    runtime, controller = rank
    wait = putting_back.waiting_for_files(runtime)
    assert wait is not None
    controller.send({"m": "files", "options": {"files_wait": True}, "more": False})
    wait(False)
    controller.send({"m": "stop", "exit_code": 70, "reason": ""})
    with pytest.raises(Left, match="70"):
        runtime.said_hello()


@pytest.mark.parametrize("packet", [{"m": "stop", "exit_code": 70, "reason": ""}, None])
def test_a_rank_whose_files_nobody_puts_back_ends(
    rank: tuple[Any, ControlChannel], packet: dict[str, Any] | None
) -> None:
    runtime, controller = rank
    wait = putting_back.waiting_for_files(runtime)
    assert wait is not None
    if packet is None:
        controller.close()
    else:
        controller.send(packet)
    with pytest.raises(Left, match="70"):
        wait(True)


def test_files_that_are_put_back_already_are_not_waited_for(rank: tuple[Any, ControlChannel]) -> None:
    rank[0].options["files_wait"] = False
    assert putting_back.waiting_for_files(rank[0]) is None

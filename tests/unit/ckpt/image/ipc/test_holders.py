"""Who has the address that a restart needs: named, and waited for while it is being ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ckpt.image.errors import RestoreError
from ckpt.image.ipc import socket_options
from ckpt.image.ipc.holders import Holder, holders


def test_a_process_that_listens_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = holders(server.getsockname()[1])
        assert [each.pid for each in found] == [os.getpid()]
        assert not found[0].is_ending
        port = server.getsockname()[1]
    assert holders(port) == []


@pytest.mark.parametrize(
    ("status", "is_ending"),
    [
        (
            "Name:\tpython\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n",
            True,
        ),
        (
            "Name:\tpython\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n",
            True,
        ),
        ("Name:\tpython\nState:\tZ (zombie)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", True),
        (
            "Name:\tpython\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000200\n",
            False,
        ),
    ],
)
def test_who_was_killed_and_waits_for_the_disk_is_ending(
    tmp_path: Path, status: str, is_ending: bool
) -> None:
    """SIGKILL is the ninth signal; such a process keeps its sockets, and cannot be made to order."""
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    row = "   0: 0100007F:6017 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100 0\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(head + row.format("0A", 77) + row.format("01", 78))
    (tmp_path / "12" / "fd").mkdir(parents=True)
    (tmp_path / "12" / "fd" / "3").symlink_to("socket:[77]")
    (tmp_path / "12" / "status").write_text(status)
    (tmp_path / "13" / "fd").mkdir(parents=True)
    (tmp_path / "13" / "fd" / "3").symlink_to("socket:[78]")
    assert holders(0x6017, str(tmp_path)) == [Holder(12, "python", is_ending)]


def test_an_address_that_another_process_has_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_options, "_ENDING_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        saved, _ = socket_options.read(server.fileno())
        with pytest.raises(RestoreError, match=rf"in use\. process {os.getpid()} \(.*\) has it: stop"):
            socket_options.make(saved)

"""What a loop knows of this process is known anew after a restart."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ckpt.image.loops import event_loops


def test_the_address_of_a_unix_server_was_left_behind_after_a_restart(tmp_path: Path) -> None:
    """Since Python 3.13, ``Server.close`` removes the file only if its inode is the one that the loop knows."""
    address, gone = str(tmp_path / "address"), socket.socket(socket.AF_UNIX)
    gone.bind(str(tmp_path / "gone"))
    os.unlink(tmp_path / "gone")
    with socket.socket(socket.AF_UNIX) as server, gone:
        server.bind(address)
        known = {gone: 1, server: os.stat(address).st_ino + 1}
        event_loops._know_addresses_again(known)
    assert known == {gone: 1, server: os.stat(address).st_ino}

"""What a call of ``readline`` that waits has taken of a line already."""

from __future__ import annotations

import contextlib
import io
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt.compat.readers import is_in_use, taken_of_line

PATIENCE_S = 10.0


class Line:
    """A connection, of which a thread reads ``first`` bytes and then a line."""

    def __init__(self, first: int = 0) -> None:
        self.sender, self.receiver = socket.socketpair()
        self.file: Any = self.receiver.makefile("rb")
        self.first = first
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        if self.first:
            self.file.read(self.first)
        self.file.readline()

    def close(self) -> None:
        self.sender.close()
        self.thread.join()
        self.file.close()
        self.receiver.close()


def until(found: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (last := found()) != wanted:
        assert time.monotonic() < deadline, last
        time.sleep(0.005)


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    with contextlib.ExitStack() as stack:
        made = [Line(), Line(6), Line()]
        for line in made:
            stack.callback(line.close)
        yield made


def taken(lines: list[Line]) -> list[bytes | None]:
    return [taken_of_line(line.file) for line in lines]


def test_what_has_been_taken_is_found_or_not_known(lines: list[Line]) -> None:
    one, read_before, other = lines
    until(lambda: [is_in_use(line.file) for line in lines], [True] * 3)
    assert taken(lines) == [b"", b"", b""]
    one.sender.sendall(b"hello ")
    until(lambda: taken(lines), [b"hello ", b"", b""])
    read_before.sender.sendall(b"hello ")  # the same bytes, but no part of a line
    until(lambda: taken(lines), [None, None, b""])
    other.sender.sendall(b"hello ")
    until(lambda: taken(lines), [None, None, None])
    other.sender.sendall(b"x")
    until(lambda: taken(lines), [None, None, b"hello x"])
    read_before.sender.sendall(b"\n")
    until(lambda: taken([one, other]), [b"hello ", b"hello x"])


def test_nobody_is_inside_of_a_reader() -> None:
    reader: Any = io.BufferedReader(io.BytesIO(b"abc"))  # type: ignore[arg-type]
    assert not is_in_use(reader)
    assert reader.read(1) == b"a" and not is_in_use(reader)


TEXT = """
import socket, sys, threading, time
from ckpt.compat.readers import has_taken_text

end, other = socket.socketpair()
texts, lines, file = [["what", "a", "variable", "has"]], [], other.makefile(sys.argv[1])  # texts: no part of a line
thread = threading.Thread(target=lambda: lines.append(file.readline()), daemon=True)
thread.start()
for has_taken, piece in ((False, b""), (True, b"half of "), (True, b"a line")):
    end.sendall(piece)
    deadline = time.monotonic() + 20
    while has_taken_text() is not has_taken:
        assert time.monotonic() < deadline, has_taken
        time.sleep(0.01)
end.sendall(b"\\n")
thread.join()
print(lines, has_taken_text())
"""


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_part_of_a_line_of_text_is_noticed(mode: str) -> None:
    """It would be missing after a restart. In a process of its own: what runs in this one may hold lists, too."""
    done = subprocess.run([sys.executable, "-c", TEXT, mode], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("['half of a line\\n'] False\n", "")

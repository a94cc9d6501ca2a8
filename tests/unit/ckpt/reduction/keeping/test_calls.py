"""The table of a rank's calls, and the process that keeps its memory when it is killed."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from ckpt.reduction.keeping import calls  # noqa: E402
from ckpt.reduction.keeping.calls import LONGEST_BYTES, MOST, Calls, Kept  # noqa: E402

ARRAY = np.arange(100_000.0).reshape(100, 1000)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Calls]:
    made = Calls(str(tmp_path / "calls"))
    yield made
    made.close()


def killed(path: Path) -> None:
    """A process that has noted two calls, has forgotten one, and is killed."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            mine = Calls(str(path))
            mine.forget(mine.note("a", np.zeros(3), b"forgotten"))
            note = mine.note("b", ARRAY * 2, b"two")
            mine.keep("b", note)
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # what keeps the memory is no child of the program's
                os.write(writable, b"1")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(readable, 1) == b"1"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(readable)
    os.close(writable)


def keeper_of(path: Path) -> int:
    return int(calls._HEAD.unpack_from(path.read_bytes())[0])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def test_what_a_killed_process_gave_is_read_out_of_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    killed(path)
    kept, keeper = Kept(str(path)), keeper_of(path)
    (call,) = kept.calls()
    assert call.description == b"two" and call.nbytes == ARRAY.nbytes
    into = np.empty_like(ARRAY)
    kept.read(call, into)
    assert (into == ARRAY * 2).all()
    path.unlink()  # nobody needs it any more
    while not is_gone(keeper):
        time.sleep(0.005)
    with pytest.raises(OSError, match=r".*"):
        kept.read(call, into)


def test_another_process_with_that_number_is_not_read(table: Calls) -> None:
    table.note("a", ARRAY, b"")
    with open(table.path, "r+b") as file:
        file.seek(16)
        file.write(bytes(16))  # another badge
    kept = Kept(table.path)
    with pytest.raises(ProcessLookupError, match="is another one"):
        kept.read(next(iter(kept.calls())), np.empty_like(ARRAY))


def test_a_call_is_there_from_its_note_to_its_end(table: Calls) -> None:
    note = table.note("a", ARRAY, b"a")
    table.keep("a", note)
    other = table.note("a", ARRAY, b"of another thread, which was faster")
    assert len(list(Kept(table.path).calls())) == 2
    table.keep("b", other)  # it has become another call
    table.forget(note)  # no effect: it is kept
    assert [each.description for each in Kept(table.path).calls()] == [b"a"]
    table.end("a")
    table.end("a")
    table.end("never called")
    assert not list(Kept(table.path).calls())


def test_what_finds_no_place_is_not_noted(table: Calls) -> None:
    assert table.note("long", ARRAY, bytes(LONGEST_BYTES + 1)) is None
    notes = [table.note(each, ARRAY, b"") for each in range(MOST + 1)]
    assert notes[-1] is None and None not in notes[:-1]
    table.forget(None)
    table.keep("x", None)


def test_a_table_that_is_closed_is_not_there(table: Calls) -> None:
    table.note("a", ARRAY, b"")
    keeper = keeper_of(Path(table.path))
    table.close()
    table.close()
    assert not os.path.exists(table.path) and is_gone(keeper)
    assert table.note("b", ARRAY, b"") is None
    with pytest.raises(FileNotFoundError):
        Kept(table.path)


def test_without_a_process_that_keeps_memory_nothing_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails:
        @staticmethod
        def start(path: str) -> Any:
            raise OSError("no such system call")

    path = tmp_path / "calls"
    for module in (None, Fails):
        monkeypatch.setattr(calls, "_keeper", module)
        assert Calls(str(path)).note("a", ARRAY, b"") is None and not path.exists()
    assert Calls(str(tmp_path / "no such" / "directory")).note("a", ARRAY, b"") is None


def test_the_copy_of_a_process_leaves_the_table_alone_and_an_image_has_none(table: Calls) -> None:
    table.note("a", ARRAY, b"")
    pid = os.fork()
    if not pid:
        table.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(Kept(table.path).calls())) == 1
    assert pickle.loads(pickle.dumps(table)).note("a", ARRAY, b"") is None


def test_a_file_of_another_length_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    path.write_bytes(b"short")
    with pytest.raises(OSError, match="is no table"):
        Kept(str(path))


def test_no_descriptor_of_the_table_stays_open(table: Calls) -> None:
    """An image would have it, and be of no use where /dev/shm is another one: on another host, or after a reboot."""
    before = os.listdir("/proc/self/fd")
    table.note("a", ARRAY, b"")
    assert os.path.exists(table.path) and len(os.listdir("/proc/self/fd")) == len(before)

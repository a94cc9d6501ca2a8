"""Descriptors by their numbers: exchanged with ``os.dup2``, duplicated, far apart, locked, lost; small files that are
gone."""

from __future__ import annotations

import fcntl
import os
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import _drive, image_failure, resumed_output


def went_on(tmp_path: Path, source: str, *names: str) -> dict[str, str]:
    """What the files hold, standard output first, after the original has ended and then an image of its only
    driver_tick() has gone on in their presence. The original must have left the same.
    """
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(textwrap.dedent(source))
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    log = (tmp_path / "log.jsonl").read_text()
    assert "failed" not in log, log
    paths = [out, *(tmp_path / name for name in names)]
    original = {path.name: path.read_text() for path in paths}
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert {path.name: path.read_text() for path in paths} == original
    return original


def test_standard_output_that_the_program_has_put_into_its_log(tmp_path: Path) -> None:
    """What was printed before is kept, what is printed after goes to the log, also through a file object of the same open
    file, and back again."""
    files = went_on(
        tmp_path,
        """
        import os, sys
        print("to the terminal", flush=True)
        log = open("log.txt", "w")
        kept = os.dup(1)
        os.dup2(log.fileno(), 1)
        print("printed before", flush=True)
        os.write(kept, b"past the log\\n")
        print("in the buffer")
        driver_tick()
        print("printed after", flush=True)
        log.write("through the file\\n"); log.flush()
        os.system("echo a child prints, too")
        os.write(kept, b"past the log again\\n")
        sys.stdout.flush()
        os.dup2(kept, 1); os.close(kept)
        print("to the terminal again")
        """,
        "log.txt",
    )
    assert files["log.txt"].splitlines() == [
        "printed before", "in the buffer", "printed after", "through the file", "a child prints, too",
    ]  # fmt: skip
    assert files["out"].splitlines() == [
        "to the terminal", "past the log", "past the log again", "to the terminal again",
    ]  # fmt: skip


def test_standard_input_and_output_elsewhere_and_nowhere(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("one\ntwo\nthree\n")
    files = went_on(
        tmp_path,
        """
        import os, sys
        given = os.open("input.txt", os.O_RDONLY)
        os.dup2(given, 0); os.close(given)
        nothing = os.open(os.devnull, os.O_WRONLY)
        kept = os.dup(1)
        os.dup2(nothing, 1)
        print("nowhere", input())
        driver_tick()
        print("nowhere", flush=True)
        os.write(kept, input().encode() + os.readlink("/proc/self/fd/1").encode())
        assert os.readlink(f"/proc/self/fd/{nothing}") == os.devnull
        """,
    )
    assert files["out"] == "two/dev/null"


def test_standard_output_that_is_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    failed = image_failure(tmp_path, "import os\nout, into = os.pipe()\nos.dup2(into, 1)\ndriver_tick()\n")
    assert "descriptor 1 (standard output): it is an open pipe" in failed


def test_numbers_far_apart_and_what_is_lost(tmp_path: Path) -> None:
    """Any number is the same file again, and that of an eventfd or an event poll is no other file."""
    source = """
        import ctypes, os, resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, soft + 100), hard))
        numbers = [200, 201, 512, min(hard, soft + 100) - 1]
        for number in numbers:
            fd = os.open(f"file {number}", os.O_RDWR | os.O_CREAT)
            os.write(fd, b"%d before;" % number)
            os.dup2(fd, number, inheritable=False)
            os.close(fd)
        low = [os.open(f"file {number}", os.O_RDONLY) for number in numbers]
        twin = os.dup(low[0])
        os.read(twin, 4)
        directory = os.open(".", os.O_RDONLY)
        memory = os.memfd_create("scratch")
        silent = os.eventfd(3, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        lost = [os.eventfd(3), silent, ctypes.CDLL(None).epoll_create1(0), memory]
        driver_tick()
        for number in numbers:
            os.write(number, b"after")
        print([os.read(fd, 100) for fd in low], os.lseek(twin, 0, os.SEEK_CUR))
        print(os.path.samestat(os.fstat(directory), os.stat(".")), os.get_inheritable(numbers[-1]))
        later = [os.open(os.devnull, os.O_RDWR) for _ in range(6)]
        print(set(later) & {*lost, *numbers, *low, twin, directory})
    """
    said = resumed_output(tmp_path, source)
    assert said.endswith("] 16\nTrue False\nset()\n"), said
    lost = source.replace(
        "print([os.read(fd, 100)", "print([use(fd) for fd in lost])\n        print([os.read(fd, 100)"
    )
    lost = lost.replace(
        "import ctypes, os, resource",
        "import ctypes, os, resource\n" + textwrap.indent(textwrap.dedent(_USE), " " * 8),
    )
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(textwrap.dedent(lost))
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    out.write_text("")
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert out.read_text().startswith(f"{['EBADF'] * 4}\n")


_USE = """
    import errno
    def use(fd):
        try:
            return os.write(fd, b"lost!!!!")
        except OSError as failure:
            return errno.errorcode[failure.errno]
"""

_LOCKED = """
    import fcntl, os, subprocess, sys
    flocked = open("flocked", "w")
    fcntl.flock(flocked, fcntl.LOCK_EX)
    raw = os.open("raw", os.O_RDWR | os.O_CREAT)
    fcntl.flock(raw, fcntl.LOCK_SH)
    ranged = open("ranged", "w+b", buffering=0)
    ranged.write(bytes(100))
    fcntl.lockf(ranged, fcntl.LOCK_EX, 10, 20)
    fcntl.lockf(ranged, fcntl.LOCK_SH, 0, 50)
    free = open("free", "w")
    import struct
    whole = open("whole", "w")
    fcntl.fcntl(whole, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    driver_tick()
    print(subprocess.run([sys.executable, "ask.py"], capture_output=True, text=True, check=True).stdout)
"""

_ASK = """
    import fcntl
    for name, kind, *where in (
        ("flocked", fcntl.LOCK_SH), ("raw", fcntl.LOCK_SH), ("raw", fcntl.LOCK_EX), ("free", fcntl.LOCK_EX),
        ("ranged", fcntl.LOCK_SH, 5, 10), ("ranged", fcntl.LOCK_SH, 5, 20), ("ranged", fcntl.LOCK_EX, 1, 90),
        ("ranged", fcntl.LOCK_SH, 1, 90), ("whole", fcntl.LOCK_SH, 1, 90),
    ):
        with open(name, "r+") as file:
            try:
                (fcntl.lockf if where else fcntl.flock)(file, kind | fcntl.LOCK_NB, *where)
                print("free", end=" ")
            except BlockingIOError:
                print("held", end=" ")
"""


def test_locks_are_held_again(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(textwrap.dedent(_ASK))
    assert resumed_output(tmp_path, _LOCKED) == "held free held free free held held free held \n"


def test_a_lock_that_somebody_else_has_now_is_an_error_with_file_and_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ckpt.image.errors import RestoreError
    from ckpt.image.files import file_locks

    path = str(tmp_path / "file")
    with open(path, "w") as mine, open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        locks = file_locks.locks_of(f"lock:\t1: FLOCK  ADVISORY  WRITE {os.getpid()} fe:00:1 0 EOF\n")
        file_locks.note(mine.fileno(), path, locks)
        monkeypatch.setattr(file_locks, "_PATIENCE_S", 0.0)
        with pytest.raises(
            RestoreError, match=f"the lock on '{path}' .* is held by process {os.getpid()} now"
        ):
            file_locks.take_again()
        fcntl.flock(other, fcntl.LOCK_UN)
        file_locks.note(mine.fileno(), path, locks)
        file_locks.take_again()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_holder_of_the_lock_of_an_open_file_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/proc/locks` says -1 of these: they belong to no process."""
    from ckpt.image.errors import RestoreError
    from ckpt.image.files import file_locks

    with open(tmp_path / "file", "w") as mine, open(tmp_path / "file", "w") as other:
        _lock_open_file(other.fileno())
        line = f"lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:{os.fstat(mine.fileno()).st_ino} 0 EOF\n"
        file_locks.note(mine.fileno(), "file", file_locks.locks_of(line))
        monkeypatch.setattr(file_locks, "_PATIENCE_S", 0.0)
        with pytest.raises(RestoreError, match=f"the lock on 'file' .* is held by process {os.getpid()} now"):
            file_locks.take_again()


def _flock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_open_file(fd: int) -> None:
    """`F_OFD_SETLK`: of the open file, not of the process. The module `fcntl` packs no `struct flock`."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


@pytest.mark.parametrize("lock", [_flock, _lock_open_file], ids=["flock", "open-file"])
def test_the_child_that_writes_an_image_holds_no_lock_of_the_program(
    tmp_path: Path, lock: Callable[[int], None]
) -> None:
    """Neither of files closed after the fork, nor of those locked then."""
    from ckpt.image.frames import _frames

    names = [str(tmp_path / name) for name in ("before", "after")]
    before, after = (os.open(name, os.O_RDWR | os.O_CREAT) for name in names)
    lock(before)
    os.write(after, b"content")
    out, into = os.pipe()
    child = _frames.fork(_frames.note_moment())
    if child == 0:
        os.close(into)
        os.read(out, 1)  # until the parent is through
        os._exit(7 if (os.pread(after, 100, 0), os.lseek(after, 0, os.SEEK_CUR)) == (b"content", 7) else 1)
    try:
        lock(after)
        for fd, name in ((before, names[0]), (after, names[1])):
            os.close(fd)
            with open(name, "r+") as again:
                lock(again.fileno())
    finally:
        os.close(out)
        os.close(into)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_temporary_file_that_was_renamed_is_made_again_and_renamed_again(tmp_path: Path) -> None:
    """Its name stands for another file by then, or for none."""
    source = """
        import os
        for step in range(4):
            state = open("state.tmp", "w")
            state.write(f"step {step}: head\\n")
            state.flush()
            if step == 1:
                driver_tick()
            state.write("body\\n")
            state.close()
            os.replace("state.tmp", "state")
            os.link("state", f"state of {step}") if not os.path.exists(f"state of {step}") else None
            print(open("state").read(), end="")
        left = open("state.tmp", "w")
        left.write("quite another beginning of the file")
        left.close()
    """
    files = went_on(tmp_path, source, "state", "state.tmp")
    assert files["state"] == "step 3: head\nbody\n"
    (tmp_path / "state.tmp").unlink()
    out = tmp_path / "out"
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert (tmp_path / "state").read_text() == files["state"] and out.read_text() == files["out"]


def test_scratch_files_that_were_read_and_removed(tmp_path: Path) -> None:
    went_on(
        tmp_path,
        """
        import os
        os.makedirs("scratch")
        with open("scratch/numbers", "w") as file:
            file.write("".join(f"{n}\\n" for n in range(1000)))
        total = 0
        with open("scratch/numbers") as file:
            for line in file:
                total += int(line)
                if total == 1275:
                    driver_tick()
        os.remove("scratch/numbers")
        os.rmdir("scratch")
        print(total)
        """,
    )


def test_a_file_that_others_write_too_keeps_what_they_have_written(tmp_path: Path) -> None:
    """It is the same one still: nothing is put back into it."""
    (tmp_path / "table").write_bytes(b"0" * 8)
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(
        "import os\ntable = open('table', 'r+b', buffering=0)\ntable.write(b'11')\ndriver_tick()\ntable.write(b'11')\n"
    )
    _drive(["calls", str(tmp_path), "[1]", str(script)], out, tmp_path)
    with open(tmp_path / "table", "r+b") as other:
        other.seek(4)
        other.write(b"2222")
    _drive(["resume", str(tmp_path), "[]", str(tmp_path / "image-0")], out, tmp_path)
    assert (tmp_path / "table").read_bytes() == b"11112222"


_FOREIGN = """
    import ctypes
    libc = ctypes.CDLL(None)
    def begin():
        libc.fopen.restype = ctypes.c_void_p
        file = libc.fopen(b"kept in C", b"w")
        libc.fileno.argtypes = [ctypes.c_void_p]
        return libc.fileno(file)
    number = begin()
    del libc, ctypes
    driver_tick()
"""


def test_a_file_that_a_library_in_c_writes_is_refused_by_name(tmp_path: Path) -> None:
    failed = image_failure(tmp_path, _FOREIGN)
    assert (
        "kept in C' is open for writing" in failed
        and "descriptor " in failed
        and "a library in C has" in failed
        and "on_checkpoint" in failed
    )

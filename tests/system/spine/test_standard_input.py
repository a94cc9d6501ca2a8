"""Standard input under `ckpt run`: a file is rank 0's, and goes on where it was; what cannot be read again says so."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.system.libraries.test_hooks import app_of
from tests.system.support import PATIENCE_S, ckpt_command

pytestmark = [pytest.mark.system, pytest.mark.turns(8)]


def run(
    directory: Path, text: str, stdin: IO[bytes] | int, ranks: int = 1
) -> subprocess.CompletedProcess[str]:
    app = app_of(directory, text)
    command = ckpt_command("run", "-n", ranks, "--job", directory / "job", app)
    return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=PATIENCE_S)


KILLED_ONCE = """
    import sys
    import ckpt
    from tools import die_once
    ckpt.enable()
    seen = []
    for number, line in enumerate(sys.stdin):
        seen.append(line.strip())
        if number == 2:
            ckpt.checkpoint()
        if number == 5:
            die_once()
    print(len(seen), seen[:3], seen[-1:])
    """


def test_lines_in_a_loop_go_on_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"Zeile {i} ä\n" for i in range(20_000)))
    with (tmp_path / "lines").open("rb") as lines:
        lines.seek(len("Zeile 0 ä\n".encode()))  # somebody has read the first one, as `read` does in a shell
        done = run(tmp_path, KILLED_ONCE, lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "19999 ['Zeile 1 ä', 'Zeile 2 ä', 'Zeile 3 ä'] ['Zeile 19999 ä']\n"
    assert "restarting" in done.stderr


def test_only_rank_0_gets_it(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1\n2\n")
    with (tmp_path / "lines").open("rb") as lines:
        text = "import sys; from mpi4py import MPI; print(MPI.COMM_WORLD.rank, sys.stdin.read().split())"
        done = run(tmp_path, text, lines, 2)
    assert sorted(done.stdout.splitlines()) == ["0 ['1', '2']", "1 []"], done.stderr


def test_single_lines_go_on_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"first\nsecond\nthird\n" + bytes(100_000) + b"\xff")
    text = """
        import sys
        import ckpt
        from tools import die_once
        ckpt.enable()
        names = [input(), input()]
        ckpt.checkpoint()
        names.append(input())
        die_once()
        print(names)
        """
    with (tmp_path / "lines").open("rb") as lines:
        done = run(tmp_path, text, lines)
    assert done.stdout == "['first', 'second', 'third']\n", done.stderr


def test_a_pipe_is_refused_when_it_is_read(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys; print('before', flush=True); sys.stdin.read()", subprocess.PIPE)
    assert done.returncode == 1 and done.stdout == "before\n"
    assert "standard input is a pipe" in done.stderr and "< FILE" in done.stderr


def test_a_pipe_that_nobody_reads_does_not_matter(tmp_path: Path) -> None:
    done = run(tmp_path, "print(1)", subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_nothing_is_an_empty_file(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys; print(repr(sys.stdin.read()))", subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, "''\n"), done.stderr


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (
            "os.rename('lines', 'elsewhere')",
            "cannot be opened any more: {path}: No such file or directory. Put it back",
        ),
        ("os.rename('lines', 'elsewhere'); open('lines', 'w').write('1')", "({path}) is no longer the file"),
    ],
    ids=["gone", "shorter"],
)
def test_a_file_that_is_gone_at_the_restart(tmp_path: Path, loss: str, said: str) -> None:
    """The program did not start over: it would have had no input, or another one. Put back, it goes on. (Without
    --files off a restart puts it back itself.)"""
    path = tmp_path / "lines"
    path.write_text("".join(f"{i}\n" for i in range(20)))
    app_of(tmp_path, KILLED_ONCE.replace("die_once()", f"import os; {loss}; die_once()"))

    def in_its_place(*arguments: object) -> subprocess.CompletedProcess[str]:
        with (tmp_path / "elsewhere" if not path.exists() else path).open("rb") as lines:
            return subprocess.run(
                ckpt_command(*arguments),
                stdin=lines,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                cwd=tmp_path,
            )

    done = in_its_place("run", "--files", "off", "--job", "job", "app.py")
    assert done.returncode == 13, done.stderr
    assert "standard input" in done.stderr and said.format(path=path) in " ".join(done.stderr.split())
    assert "the start of the program" not in done.stderr
    assert in_its_place("restart", "job").returncode == 13, "nor has it then"
    (tmp_path / "elsewhere").rename(path)
    again = in_its_place("restart", "job")
    assert (again.returncode, again.stdout) == (0, "20 ['0', '1', '2'] ['19']\n"), again.stderr

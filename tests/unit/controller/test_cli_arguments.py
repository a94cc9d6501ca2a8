"""The command line: where the program begins, what JOB means, what is refused."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli import main, split_program
from controller.cli_common import find_job, size_text, split_epoch
from controller.errors import NoSuchJob
from controller.livestatus import innermost_frame


@pytest.mark.parametrize(
    ("words", "options", "program", "module"),
    [
        ("app.py", "", "app.py", False),
        ("-n 4 app.py -n 5", "-n 4", "app.py -n 5", False),
        ("-n4 app.py", "-n4", "app.py", False),
        ("--every=2 --json app.py --json", "--every=2 --json", "app.py --json", False),
        ("--prefix -n 2 -- app.py -m x", "--prefix -n 2", "app.py -m x", False),
        ("-n 2 -m pack.mod --flag", "-n 2", "pack.mod --flag", True),
        ("-n 2 -- -m pack.mod a", "-n 2", "pack.mod a", True),
        ("-n 2", "-n 2", "", False),
        ("--no-mpi4py app.py", "--no-mpi4py", "app.py", False),
    ],
)
def test_where_the_program_begins(words: str, options: str, program: str, module: bool) -> None:
    assert split_program(words.split()) == (options.split(), program.split(), module)


def test_job_and_epoch(tmp_path: Path) -> None:
    assert split_epoch("job@12") == ("job", 12)
    assert split_epoch("job") == ("job", None)
    assert split_epoch("user@host") == ("user@host", None)
    odd = tmp_path / "run@3"
    odd.mkdir()
    assert split_epoch(str(odd)) == (str(odd), None)


def test_without_a_job_the_newest_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoSuchJob):
        find_job(None)
    for name in ("a", "b"):
        directory = tmp_path / ".ckpt" / name
        directory.mkdir(parents=True)
        (directory / "job.json").touch()
    (tmp_path / ".ckpt" / "junk").mkdir()
    assert Path(find_job(None)).name == "b"


@pytest.mark.parametrize(
    "words",
    ["", "sing", "run -n 0 app.py", "run --every 0 app.py", "run --keep 1 app.py", "prune job --keep-last 1"],
)
def test_usage_errors_are_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(words.split())
    assert leaving.value.code == 2


def test_a_script_that_does_not_exist_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--job", str(tmp_path / "job"), str(tmp_path / "missing.py")]) == 2
    assert "missing.py" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()
    assert main(["run", "-n", "2"]) == 2


def test_errors_are_json_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", str(tmp_path / "nowhere")]) == 10
    assert '"exit_code": 10' in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb", ["", "run", "restart", "checkpoint", "stop", "status", "ls", "verify", "prune"]
)
def test_help_names_every_exit_code(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([*verb.split(), "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n  {code} " in text for code in (0, 2, 3, 10, 11, 12, 13, 14, 75))


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, controller.cli\n"
        "try: controller.cli.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'zmq', 'pydantic', 'numpy', 'dill', 'zstandard', 'asyncio', 'ckpt'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_sizes_for_people() -> None:
    assert [size_text(n) for n in (0, 999, 880_000, 1_200_000_000)] == ["0 B", "999 B", "880.0 KB", "1.2 GB"]


def test_the_innermost_frame_of_a_written_stack() -> None:
    text = (
        "Current thread 0x1 (most recent call first):\n"
        '  File "/a b/app.py", line 6 in <module>\n  File "x", line 1 in f\n'
    )
    assert innermost_frame(text) == "/a b/app.py:6 <module>"
    assert innermost_frame("") == "unknown"


def test_help_takes_less_than_150_ms_of_process_time_beyond_the_interpreters() -> None:
    def process_time_s(*arguments: str) -> float:
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return min(times)

    assert process_time_s("-m", "controller", "run", "--help") - process_time_s("-c", "pass") < 0.150

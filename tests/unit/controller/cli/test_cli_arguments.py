"""The command line: where the program begins, what JOB means, what is refused."""

from __future__ import annotations

import argparse
import json
import platform
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckpt.controller.cli.arguments import make_parser, nbytes, seconds
from ckpt.controller.cli.command import split_program
from ckpt.controller.cli.common import find_job, size_text, split_epoch
from ckpt.controller.cli.flags import NAMES
from ckpt.controller.cli.main import main
from ckpt.controller.errors import NoSuchJob
from ckpt.controller.launch.stacks import innermost_frame
from ckpt.version import VERSION


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("app.py", "", "app.py"),
        ("-n 4 app.py -n 5", "-n 4", "app.py -n 5"),
        ("-n4 app.py", "-n4", "app.py"),
        ("-np 4 app.py", "-np 4", "app.py"),
        ("--every=2 --json app.py --json", "--every=2 --json", "app.py --json"),
        ("--prefix -n 2 -- app.py -m x", "--prefix -n 2", "app.py -m x"),
        ("-n 2 -m pack.mod --flag", "-n 2", "-m pack.mod --flag"),
        ("-n 2 -- -m pack.mod a", "-n 2", "-m pack.mod a"),
        ("-n 2 -c code a", "-n 2", "-c code a"),
        ("-n 4 python -u app.py", "-n 4", "python -u app.py"),
        ("-n 2", "-n 2", ""),
        ("--no-mpi4py app.py", "--no-mpi4py", "app.py"),
    ],
)
def test_where_the_program_begins(words: str, options: str, program: str) -> None:
    assert split_program(words.split(), NAMES) == (options.split(), program.split())


def test_an_option_without_a_value_that_is_not_in_the_table_is_no_option_of_run() -> None:
    """It would be taken to have one, and the program's name to be it."""
    verbs = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    with pytest.raises(AssertionError, match=r"--quiet.*flags.py"):
        verbs["run"].add_argument("--quiet", action="store_true")


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("10", 10), ("0.5", 0.5), (".5", 0.5), ("1e3", 1000), ("1s", 1), ("500ms", 0.5), ("2.5m", 150), ("3min", 180),
        ("1h30m", 5400), ("1h 30m", 5400), ("2d", 172800),
    ],
)  # fmt: skip
def test_durations_have_units_or_are_seconds(text: str, duration_s: float) -> None:
    assert seconds(text) == pytest.approx(duration_s)


@pytest.mark.parametrize("text", ["", "s", "1x", "1h30", "30 1h", "-1", "1e9", "nan", "inf", "1s2", "1.2.3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration"):
        seconds(text)


@pytest.mark.parametrize("text", ["0", "0s", "0.0", "0h0m"])
def test_a_duration_of_0_is_too_short(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="too short: give more than 0"):
        seconds(text)


def test_a_mistyped_option_shows_the_usage_of_its_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for words, usage, near in (
        ("run --evry 5 app.py", "usage: ckpt run [options]", "--every"),
        ("checkpoint --stopp job", "usage: ckpt checkpoint", "--stop"),
        ("ls --jsn", "usage: ckpt ls", "--json"),
    ):
        with pytest.raises(SystemExit) as leaving:
            main(words.split())
        printed = capsys.readouterr().err
        assert leaving.value.code == 2
        assert printed.startswith(usage) and f"did you mean {near}?" in printed


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"ckpt {VERSION} (Python {platform.python_version()})\n"


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
    ["sing", "run -n 0 app.py", "run --every 0 app.py", "run --keep 1 app.py", "prune job --keep-last 1"],
)
def test_usage_errors_are_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(words.split())
    assert leaving.value.code == 2


@pytest.mark.parametrize("option", ["--hosts", "--hostfile"])
def test_no_hosts_are_not_this_host(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`ckpt run --hosts "$HOSTS"` with HOSTS unset ran all ranks on this host."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", option, "", "app.py"])
    assert f"argument {option}: it is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--job", "", "--resume", "auto", "app.py"],
        ["run", "--job=", "app.py"],
        ["run", "--ports", "", "app.py"],
        ["submit", "--job", " ", "app.py"],
        ["restart", ""],
        ["restart", "--chdir", "", "job"],
        ["stop", ""],
    ],
)
def test_what_an_unset_variable_leaves_empty_is_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`ckpt run --job "$JOB" --resume auto` with JOB unset began a new job each time, and did not say where."""
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "it is empty" in capsys.readouterr().err


def test_a_program_from_standard_input_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["run", "-"], ["run", "-n", "2", "-"], ["doctor", "-"], ["run", "python", "-"]):
        assert main(words) == 2
        assert "standard input" in capsys.readouterr().err


def test_a_script_that_does_not_exist_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--job", str(tmp_path / "job"), str(tmp_path / "missing.py")]) == 2
    assert "missing.py" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()
    assert main(["run", "-n", "2"]) == 2


def test_errors_are_json_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", str(tmp_path / "nowhere")]) == 10
    assert '"exit_code": 10' in capsys.readouterr().out


@pytest.mark.parametrize("words", ["prune --json job --keep-last 1", "ls --json --mistyped", "verify --json"])
def test_wrong_options_are_json_when_asked(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was printed there: a script that reads JSON failed over that."""
    with pytest.raises(SystemExit) as leaving:
        main(words.split())
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert leaving.value.code == told["exit_code"] == 2 and told["ok"] is False
    assert "usage:" in said.err and told["reason"].partition(": ")[2] in said.err


@pytest.mark.parametrize("words", ["--fenced host", "--chdir /"])
def test_what_is_said_of_a_job_that_is_gone_on_with_is_no_option_of_a_new_one(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had no effect: `--chdir` was taken for the directory to work in."""
    assert main(["run", "--job", f"{tmp_path}/job", *words.split(), "-c", "pass"]) == 2
    assert f"{words.split()[0]} is for a job that is gone on with" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    "verb", ["", "run", "restart", "checkpoint", "stop", "status", "ls", "verify", "prune"]
)
def test_help_names_every_exit_code(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([*verb.split(), "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n  {code} " in text for code in (0, 2, 3, 10, 11, 12, 13, 14, 75, 120, 124, 141))


@pytest.mark.parametrize("words", [["help"], ["--help"]])
def test_help_is_a_verb_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().out
    assert ended.value.code == 0 and "Go on with a job" in said
    with pytest.raises(SystemExit):
        main(["help", "restart"])
    assert "usage: ckpt restart" in capsys.readouterr().out


def test_without_a_verb_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """It was an error about a word VERB, without what there is to choose from."""
    assert main([]) == 2
    assert "Go on with a job" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, ckpt.controller.cli.main\n"
        "try: ckpt.controller.cli.main.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'zmq', 'pydantic', 'numpy', 'dill', 'asyncio', 'ckpt.image', 'ckpt.store'} & set(sys.modules)\n"
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


@pytest.mark.serial
@pytest.mark.timing
def test_help_takes_less_than_150_ms_of_process_time_beyond_the_interpreters() -> None:
    def process_time_s(*arguments: str) -> float:
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return min(times)

    assert process_time_s("-m", "ckpt", "run", "--help") - process_time_s("-c", "pass") < 0.150


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("", None),
        ("--files off", "off"),
        ("--files=auto", "auto"),
        ("--files out --files !*.log", ["out", "!*.log"]),
        ("--files auto --files !*.log", ["auto", "!*.log"]),
    ],
)
def test_which_files_go_back(words: str, files: object) -> None:
    for verb in (["run"], ["restart", "job"]):
        assert make_parser().parse_args([*verb, *words.split()]).files == files


def test_words_about_files_that_make_no_sense_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (("off", "off goes with no pattern"), ("auto", "auto covers all files, out among")):
        with pytest.raises(SystemExit) as left:
            make_parser().parse_args(["run", "--files", "out", "--files", words])
        assert left.value.code == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1", 1), ("100000", 100_000), ("2G", 2 << 30), ("1.5 GiB", 3 << 29), ("500m", 500 << 20), (".5K", 512),
     ("1TB", 1 << 40)],
)  # fmt: skip
def test_sizes_have_units_or_are_bytes(text: str, size_bytes: int) -> None:
    assert nbytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "G", "1X", "0.1", "1e9", "1 2", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        nbytes(text)


@pytest.mark.parametrize("moment", ["arguments.parse", "main._run_verb"])
def test_ctrl_c_before_a_job_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It was one of the command's imports, where it came in the first half second."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"ckpt.controller.cli.{moment}", interrupted)
    assert main(["status", "job"]) == 128 + signal.SIGINT

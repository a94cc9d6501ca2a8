"""What an engine brings to its agents on their standard input: the key of the job, where that is safe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ckpt.controller.errors import LaunchFailed
from ckpt.controller.hosts import engine as engines
from ckpt.controller.hosts.engine import Engine, key_from_engine

KEY = "5a" * 32 + "\n"


def brought(engine: Engine, directory: Path) -> bytes:
    """The standard input of an agent. No word of a command has the key."""
    out = directory / "out"
    script = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, open(sys.argv[1], 'wb'))"

    def words(index: int | None) -> list[str]:
        return [sys.executable, "-c", script, str(out)]

    for started in engine.start({1: "h1"}, words, str(directory), key=KEY).values():
        assert started.process.wait(30) == 0, started.said()
        assert KEY.strip() not in " ".join(map(str, started.process.args))  # type: ignore[arg-type]
    return out.read_bytes()


def through_a_pipe(line: bytes) -> str:
    inner, outer = os.pipe()
    try:
        os.write(outer, line)
        os.close(outer)
        return key_from_engine(inner)
    finally:
        os.close(inner)


def ssh(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """As ssh: it gives the words to a shell on the other side."""
    stand_in = directory / "ssh"
    stand_in.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    stand_in.chmod(0o755)
    return Engine.of_template(f"{stand_in} {{host}} {{agent}}")


def test_ssh_brings_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert through_a_pipe(brought(ssh(tmp_path, monkeypatch), tmp_path)) == KEY


@pytest.mark.parametrize("command", ["env A={host} {agent}", "env A={hosts} {agent}"])
def test_a_command_that_may_not_encrypt_brings_nothing(tmp_path: Path, command: str) -> None:
    assert brought(Engine.of_template(command), tmp_path) == b""


def test_slurm_without_munge_brings_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    line = brought(Engine([sys.executable, "-c", _RUN, "{hosts}", "{agent}"], name="slurm"), tmp_path)
    assert KEY.strip().encode() not in line
    with pytest.raises(LaunchFailed, match="there is no munge here"):
        through_a_pipe(line)


_RUN = "import os, sys; os.execv(sys.argv[2], sys.argv[2:])"


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"x\n", b"[]\n", b"1\n", b"{}\n", b'{"munge": "MUNGE:"}\n', b"\xff\n", b'{"key": "5a'],
)
def test_an_agent_that_is_brought_no_key_says_so(line: bytes) -> None:
    with pytest.raises(LaunchFailed, match="has not brought it"):
        through_a_pipe(line)


def test_a_command_that_keeps_standard_input_open_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "_CHANNEL_LIMIT_S", 0.05)
    inner, outer = os.pipe()
    try:
        with pytest.raises(LaunchFailed, match="has not brought it"):
            key_from_engine(inner)
    finally:
        os.close(inner)
        os.close(outer)


def test_of_what_an_engine_prints_the_last_lines_are_told_without_control_characters(tmp_path: Path) -> None:
    script = "for i in range(900): print('line', i)\nprint('\\x1b[2J\\x07why\\xff')\nraise SystemExit(3)"

    def words(index: int | None) -> list[str]:
        return [sys.executable, "-X", "utf8", "-c", script]

    (started,) = (
        Engine.of_template("env A={host} {agent}").start({1: "h1"}, words, str(tmp_path), key=KEY).values()
    )
    assert started.process.wait(30) == 3
    end = started.end()
    assert end is not None and end.startswith("the engine's command ended with exit code 3: line ")
    assert end.endswith("line 899\n[2Jwhyÿ") and len(end.splitlines()) <= 12

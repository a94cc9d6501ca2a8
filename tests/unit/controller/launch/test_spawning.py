"""Starting an agent: what it gets, what it does not get, and that nothing is left of one that nobody wants."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt.controller.cli import main
from ckpt.controller.errors import LaunchFailed
from ckpt.controller.launch import procinfo, spawning
from ckpt.controller.launch.spawning import Spawned, spawn_agent


@pytest.fixture
def spawned() -> Iterator[Spawned]:
    agent = spawn_agent(hash_seed=7)
    yield agent
    agent.discard()


@contextlib.contextmanager
def up(agent: Spawned) -> Iterator[dict[str, Any]]:
    """The agent's first words, once it is up and waits for more; it is told to end afterwards."""
    with socket.socket(fileno=agent.take()) as connection:
        connection.settimeout(60)
        connection.sendall(b'{"a": "attach", "generation": 1}\n')
        yield json.loads(connection.makefile("rb").readline())
        connection.sendall(b'{"a": "end"}\n')
        assert agent.process.wait(60) == 0


def test_an_agent_comes_up_and_ends_when_told(spawned: Spawned) -> None:
    with up(spawned) as state:
        assert state["e"] == "state" and state["pid"] == spawned.process.pid


def test_it_ends_by_itself_when_the_connection_is_closed(spawned: Spawned) -> None:
    os.close(spawned.take())
    assert spawned.process.wait(60) == 0


def test_one_that_nobody_wants_is_killed_and_reaped(spawned: Spawned) -> None:
    ticks = procinfo.start_ticks(spawned.process.pid)
    spawned.discard()
    spawned.discard()
    assert spawned.process.status == -9
    assert procinfo.start_ticks(spawned.process.pid) != ticks


def test_one_that_was_taken_is_not_discarded(spawned: Spawned) -> None:
    fd = spawned.take()
    spawned.discard()
    assert spawned.process.status is None
    os.close(fd)
    spawned.process.wait(60)


def test_it_has_no_descriptor_that_was_handed_down_to_us(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        os.set_inheritable(file.fileno(), True)
        with up(spawn_agent(hash_seed=7)) as state:
            held = {os.readlink(entry) for entry in Path(f"/proc/{state['pid']}/fd").iterdir()}
    assert held and str(tmp_path / "file") not in held


def test_its_hash_seed_its_session_and_where_it_is(tmp_path: Path) -> None:
    here = os.getcwd()
    with up(spawn_agent(hash_seed=11, cwd=str(tmp_path))) as state:
        process = Path(f"/proc/{state['pid']}")
        assert b"PYTHONHASHSEED=11" in (process / "environ").read_bytes().split(b"\0")
        assert os.getsid(state["pid"]) == state["pid"]
        assert os.readlink(process / "cwd") == str(tmp_path)
        assert os.readlink(process / "fd" / "0") == os.devnull
    assert os.getcwd() == here


@pytest.mark.parametrize("asked", ["0", "42", "4294967295"])
def test_a_hash_seed_that_the_user_asks_for_is_the_jobs(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", asked)
    assert spawning.new_hash_seed() == int(asked)


@pytest.mark.parametrize("asked", ["random", "", "4294967296", "-1", None])
def test_without_one_each_job_has_its_own(asked: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if asked is not None:
        monkeypatch.setenv("PYTHONHASHSEED", asked)
    seeds = {spawning.new_hash_seed() for _ in range(3)}
    assert len(seeds) == 3 and all(1 <= seed <= 4294967295 for seed in seeds)


def test_a_directory_that_is_gone_is_no_reason_not_to_start(tmp_path: Path) -> None:
    with up(spawn_agent(hash_seed=11, cwd=str(tmp_path / "gone"))) as state:
        assert os.readlink(f"/proc/{state['pid']}/cwd") == os.getcwd()


def test_an_interpreter_that_cannot_be_started_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(LaunchFailed, match="cannot be started"):
        spawn_agent(hash_seed=1)


def test_waiting_has_an_end(spawned: Spawned) -> None:
    os.kill(spawned.process.pid, 19)  # SIGSTOP: it will not end by itself
    with pytest.raises(TimeoutError):
        spawned.process.wait(0.01)


def test_streams_that_were_closed_are_not_taken_for_the_connection() -> None:
    program = "from ckpt.controller.launch import spawning; a = spawning.spawn_agent(hash_seed=1); "
    program += "print(a.take()); a.process.kill()"
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) > 2


@pytest.mark.parametrize(
    "before",
    ["exec 2>&-", "exec >&- 2>&-; exec >$0.out", "exec 190</dev/null; ulimit -n 150"],
    ids=["no standard error", "neither", "a descriptor above the limit"],
)
def test_an_agent_starts_whatever_its_parent_has_closed_or_left_open(before: str, tmp_path: Path) -> None:
    """posix_spawn refuses to duplicate what is closed, and to close what is above the limit."""
    program = (
        "from ckpt.controller.launch import spawning; a = spawning.spawn_agent(hash_seed=1); import os, socket\n"
        'with socket.socket(fileno=a.take()) as s: s.sendall(b\'{"a": "query"}\\n\'); told = s.recv(9)\n'
        "a.process.wait(60); os._exit(len(told))"
    )
    script = f'{before}; exec "$1" -c "$2"'
    done = subprocess.run(
        ["/bin/bash", "-c", script, tmp_path / "x", sys.executable, program], stderr=subprocess.PIPE
    )
    assert done.returncode == 9, done.stderr


@pytest.mark.parametrize(
    ("options", "program", "begun"),
    [
        ([], ["app.py"], True),
        (["-n", "4", "--job", "there"], ["app.py", "--help"], True),
        ([], [], False),
        (["--help"], ["app.py"], False),
        ([], ["missing.py"], False),
        ([], ["-m", "pkg"], True),
        ([], ["python", "app.py"], False),  # perhaps another interpreter
        # An earlier job has a hash seed and a directory of its own
        (
            ["--resume", "auto"],
            ["app.py"],
            False,
        ),
        (["--resume=auto"], ["app.py"], False),
        (["--entry", "a:b"], ["app.py"], False),
    ],
)
def test_an_agent_is_begun_ahead_for_new_jobs_only(
    options: list[str], program: list[str], begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").touch()
    agent = main._spawn_early(options, program)
    assert (agent is not None) == begun
    if agent is not None:
        agent.discard()


def test_a_wrong_option_leaves_no_agent_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Spawned] = []

    def spawn(**how: object) -> Spawned:
        begun.append(spawning.spawn_agent(hash_seed=1))
        return begun[0]

    monkeypatch.setattr(main, "spawn_agent", spawn)
    (tmp_path / "app.py").touch()
    with pytest.raises(SystemExit):
        main.main(["run", "-n", "none", str(tmp_path / "app.py")])
    assert begun[0].process.status == -9


def test_the_command_imports_next_to_nothing_before_it_has_started_the_agent() -> None:
    """Only then does the one import what ranks need while the other reads its options and makes the job."""
    program = f"import sys; sys.path.append({spawning._root()!r}); import ckpt.controller.cli.main; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    costly = "argparse dataclasses enum json re selectors signal socket subprocess threading typing"
    assert not set(costly.split()) & set(done.stdout.split())

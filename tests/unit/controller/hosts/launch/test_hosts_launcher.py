"""The launcher for several hosts with real agents, all on this host."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.controller.errors import LaunchFailed
from ckpt.controller.hosts.engine import Engine
from ckpt.controller.hosts.launch.launcher import HostsLauncher
from ckpt.controller.hosts.lease import JOIN_LIMIT_LEASES, margin_ns
from ckpt.controller.hosts.routes import Door, knock, others_of
from ckpt.controller.launch.spawning import spawn_agent
from ckpt.controller.supervision.plan import Node
from ckpt.store import JobDirectory

LEASE_NS = 1_000_000_000


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", command=["app.py"], size=2)


def launcher_of(tmp_path: Path, command: str, limit_s: float = 60.0) -> HostsLauncher:
    return HostsLauncher(
        [Node("a", 1), Node("b", 1)],
        engine=Engine.of_template(command),
        lease_ns=LEASE_NS,
        interface="lo",
        limit_s=limit_s,
        cwd=str(tmp_path),
        spawned=spawn_agent(hash_seed=1),
    )


@pytest.fixture
def launcher(tmp_path: Path, job: JobDirectory) -> Iterator[HostsLauncher]:
    found = launcher_of(tmp_path, "env CKPT_TEST_HOST={host} {agent}")
    try:
        found.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        yield found
    finally:
        found.close()


@pytest.mark.rotate(2)
def test_a_controller_that_is_held_up_for_longer_than_a_lease_loses_no_host(launcher: HostsLauncher) -> None:
    """By a disk, say. Renewals are answered beside what holds it up."""
    assert len(launcher.nodes(2)) == 2
    time.sleep(2 * (LEASE_NS + margin_ns(LEASE_NS)) / 1e9)
    launcher.receive()
    assert [node.name for node in launcher.nodes(2)] == ["a", "b"]


def test_an_engine_that_hangs_is_named_after_the_time_limit(tmp_path: Path, job: JobDirectory) -> None:
    launcher = launcher_of(tmp_path, "sh -c 'exec sleep 600' {host} {agent}", limit_s=0.3)
    try:
        with pytest.raises(
            LaunchFailed, match=r"host a: its agent did not dial in within 0.3 s; host b: its agent"
        ):
            launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        assert all(started.end() is not None for started in launcher.agents.started.values()), (
            "the commands are ended"
        )
    finally:
        launcher.close()


SEES_ANOTHER_SCRIPT = """
import os, sys
script, kind, host, *agent = sys.argv[1:]
if host == "b":
    if kind == "version":
        os.chdir(os.path.dirname(script) + "/other")
    else:
        os.chdir(os.path.dirname(script) + "/empty")
    agent[agent.index("--cwd") + 1] = os.getcwd()
os.execv(agent[0], agent)
"""


@pytest.mark.parametrize(
    ("kind", "says"), [("version", "another version of the program than here"), ("none", "no such program")]
)
def test_a_host_with_another_program_is_refused_by_name(tmp_path: Path, kind: str, says: str) -> None:
    """Its ranks would have run it."""
    for name in ("other", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "app.py").write_text("print(1)")
    (tmp_path / "other" / "app.py").write_text("print(2)")
    options = {"script": {"path": "app.py", "sha256": ""}}
    job = JobDirectory.create(tmp_path / "job", command=["app.py"], size=2, options=options)
    (tmp_path / "start.py").write_text(SEES_ANOTHER_SCRIPT)
    start = f"{sys.executable} {tmp_path}/start.py {tmp_path}/app.py {kind} {{host}} {{agent}}"
    launcher = launcher_of(tmp_path, start)
    try:
        with pytest.raises(LaunchFailed, match=f"host b: it has {says}"):
            launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        assert [len(hosts) for hosts in launcher.processors().values()] == [1], "b is not there"
    finally:
        launcher.close()


@pytest.fixture
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that the controller's host and host a have, and b has not; the engine's command."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "only_here.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "packages")])
    return f"sh -c 'test $0 = b || export PYTHONPATH={tmp_path}/packages; exec \"$@\"' {{host}} {{agent}}"


@pytest.mark.parametrize("words", [["app.py"], ["-m", "app"], ["-c", "import only_here"]])
def test_a_host_without_a_module_of_the_program_is_refused_by_name(
    tmp_path: Path, only_here: str, words: list[str]
) -> None:
    """Ranks would be started there after the loss of another host, end at once, and with them the job."""
    (tmp_path / "app.py").write_text("import only_here")
    job = JobDirectory.create(tmp_path / "job", command=words, size=2)
    launcher = launcher_of(tmp_path, only_here)
    try:
        with pytest.raises(
            LaunchFailed, match=r"host b: its Python \(/.*\) has no module only_here, which the"
        ):
            launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        assert [len(hosts) for hosts in launcher.processors().values()] == [1], "b is not there"
    finally:
        launcher.close()


def test_a_module_that_is_imported_in_a_function_is_told_and_ranks_run_there(
    tmp_path: Path, only_here: str
) -> None:
    (tmp_path / "app.py").write_text("def plot():\n import only_here")
    job = JobDirectory.create(tmp_path / "job", command=["app.py"], size=2)
    launcher = launcher_of(tmp_path, only_here)
    try:
        launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        assert [node.name for node in launcher.nodes(2)] == ["a", "b"]
        noted = [each["fields"] for each in launcher.receive() if each.get("event") == "modules-missing"]
        (fields,) = noted
        assert (fields["host"], fields["modules"]) == ("b", ["only_here"])
        assert "has no module only_here, which the program imports in a function or" in fields["reason"]
    finally:
        launcher.close()


def test_one_machine_under_two_names_is_told(tmp_path: Path, job: JobDirectory) -> None:
    """Where one of them was meant as a spare for the other, there was none, without a word."""
    launcher = launcher_of(tmp_path, "sh -c 'exec \"$@\"' {host} {agent}")
    try:
        launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
        (fields,) = [each["fields"] for each in launcher.receive() if each.get("event") == "same-machine"]
        assert {fields["host"], fields["other"]} == {"a", "b"}
        assert fields["reason"].startswith(f"it is host {fields['other']} under another name")
    finally:
        launcher.close()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("ckpt", "host b: it has version 0.0 of ckpt, this is"),
        ("python", "host b: it has Python 2.7.1, the job runs under"),
    ],
)
def test_a_host_with_another_version_is_refused_by_name(
    tmp_path: Path, job: JobDirectory, word: str, says: str
) -> None:
    code = (
        "import os, platform, sys; import ckpt.controller.hosts.agent as a; from ckpt.controller.cli.main import main; "
        f"b = os.environ['CKPT_TEST_HOST'] == 'b'; "
        f"b and '{word}' == 'ckpt' and setattr(a, 'VERSION', '0.0'); "
        f"b and '{word}' == 'python' and setattr(platform, 'python_version', lambda: '2.7.1'); "
        "sys.exit(main(sys.argv[sys.argv.index('agent'):]))"
    )
    launcher = launcher_of(tmp_path, f'env CKPT_TEST_HOST={{host}} {sys.executable} -c "{code}" {{agent}}')
    try:
        with pytest.raises(LaunchFailed, match=says):
            launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
    finally:
        launcher.close()


def test_doors_that_open_and_doors_that_do_not() -> None:
    door = Door("127.0.0.1")
    shut = Door("127.0.0.1")
    shut.close()
    try:
        failed = knock({"1": door.address, "2": shut.address, "3": "192.0.2.1:9"}, 0.3)
    finally:
        door.close()
    assert failed.keys() == {"2", "3"}
    assert failed["2"] == "Connection refused"


def test_with_many_hosts_each_knocks_at_those_that_follow() -> None:
    doors = {index: f"h:{index}" for index in range(1, 101)}
    assert list(others_of(99, doors))[:3] == ["100", "1", "2"]
    assert len(others_of(5, doors)) == 64
    assert others_of(1, {1: "h:1", 2: "h:2"}) == {"2": "h:2"}


@pytest.mark.rotate(2)
def test_an_agent_that_dials_in_too_late_ends_with_its_controller(tmp_path: Path, job: JobDirectory) -> None:
    """Its engine's command is slow, and lives on when that is killed here, as behind ssh."""
    begun = tmp_path / "begun"
    begun.mkdir()
    slow = tmp_path / "slow.sh"
    slow.write_text(
        f'host=$1; shift\nsetsid sh -c \'echo $$ >{begun}/$0; sleep 1; exec "$@"\' $host "$@" &\nwait\n'
    )
    launcher = launcher_of(tmp_path, f"bash {slow} {{host}} {{agent}}", limit_s=0.5)
    try:
        with pytest.raises(LaunchFailed, match="2 ranks need more hosts than have answered"):
            launcher.serve(job_dir=job.path, runtime_dir=str(tmp_path), generation=1)
    finally:
        launcher.close()
    pids = [path.read_text().strip() for path in begun.iterdir()]
    assert len(pids) == 2
    deadline = time.monotonic() + JOIN_LIMIT_LEASES * LEASE_NS / 1e9 / 2
    while left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    for host in "ab":
        assert "the controller has ended" in Path(job.path, "output", f"host-{host}.log").read_text()

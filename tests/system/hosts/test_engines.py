"""Every engine through the same tests: what a job on several hosts is owed, whatever starts its agents.

each        a command for each host
one         one command for all of them (hydra over a command for each, where MPICH is)
slurm       a step of a real Slurm's allocation
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts, needs_hosts
from tests.system.hosts.slurmbed import Slurm, needs_slurm
from tests.system.hosts.test_hosts import LEASE_S, STEPS, is_rank, result_of, where
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

NETWORK = "10.88.0.0/16"
ENGINES = ["each", "one", "hydra", "slurm"]


class Ground:
    """h2, h3 and h4, two slots on each, and an engine that reaches them from h1."""

    def __init__(self, engine: str, hosts: Hosts, directory: Path, start: Callable[..., Job]) -> None:
        self.hosts = hosts
        self.directory = directory
        self._start = start
        self.slurm = Slurm(hosts, directory / "slurm") if engine == "slurm" else None
        self.within: tuple[str, ...] = hosts.on("h1")
        self.options: dict[str, object] = {"interface": NETWORK, "lease": LEASE_S}
        self.environment: dict[str, str] = {}
        if self.slurm is not None:
            self.slurm.start()
            self.environment = {name: self.slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
            self.within += ("salloc", "--quiet", "--nodes=3", "--ntasks-per-node=2", "--no-kill")
        else:
            self.options |= {"hosts": "h2:2,h3:2,h4:2", "engine_command": self._command(engine)}

    def _command(self, engine: str) -> str:
        if engine == "each":
            return self.hosts.engine()
        every = self.directory / "every.sh"
        every.write_text(
            "#!/bin/bash\nshift\nfor host in h2 h3 h4; do\n"
            f'    {self.hosts.engine().replace("{host}", "$host").replace("{agent}", "")} "$@" &\ndone\nwait\n'
        )
        every.chmod(0o755)
        if engine == "one":
            return f"{every} {{hosts}} {{agent}}"
        launcher = self.directory / "launcher.sh"  # hydra calls it as it calls ssh: [-x] HOST COMMAND
        launcher.write_text(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\n"
            f'exec {self.hosts.engine().replace("{host}", "$host").replace("{agent}", "sh -c")} "$*"\n'
        )
        launcher.chmod(0o755)
        hydra = f"mpiexec.hydra -launcher ssh -launcher-exec {launcher} -iface eth0 -hosts h2,h3,h4"
        return f"{hydra} -n {{hosts}} -ppn 1 {{agent}}"

    def start(self, app: Path, **options: object) -> Job:
        given = {"ranks": 4, "every": 0.3, "within": self.within, "env": self.environment}
        return self._start(app, STEPS, 0.003, **{**given, **self.options, **options})

    def is_empty(self) -> bool:
        """Is nothing of a job left on the hosts?"""
        if self.slurm is not None:
            return not self.slurm.left()
        return not any(self.hosts.processes(name) for name in self.hosts.names)

    def close(self) -> None:
        if self.slurm is not None:
            self.slurm.stop()


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path, start: Callable[..., Job]) -> Iterator[Ground]:
    needs_hosts()
    if request.param == "slurm":
        needs_slurm()
    if request.param == "hydra" and shutil.which("mpiexec.hydra") is None:
        pytest.skip("needs mpiexec.hydra (package mpich)")
    hosts = Hosts(4)
    found = None
    try:
        hosts.lay()
        found = Ground(request.param, hosts, tmp_path, start)
        yield found
    finally:
        if found is not None:
            found.close()
        hosts.remove()


@pytest.mark.rotate(3)
@pytest.mark.parametrize("ground", ["each", "one", "slurm"], indirect=True)
def test_a_host_is_killed_and_its_ranks_go_on_on_the_spare(
    ground: Ground, ring: Path, tmp_path: Path
) -> None:
    """The same bytes; the others stay where they are; nothing is left; the event log says what happened."""
    job = ground.start(ring)
    job.wait_event("committed", 2)
    assert where(job, 0) == {0: "h2", 1: "h2", 2: "h3", 3: "h3"}
    ground.hosts.kill("h3")
    assert job.wait_event("host-fenced")["proof"] == "lease"
    job.wait_event("restarted")
    assert where(job, 1) == {0: "h2", 1: "h2", 2: "h4", 3: "h4"}
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert [event["host"] for event in job.events("host-lost")] == ["h3"]
    job_is_gone(ground)


def job_is_gone(ground: Ground) -> None:
    if ground.slurm is not None:
        ground.slurm.wait("nothing of the job", ground.is_empty, 60)
    else:
        ground.hosts.wait_until_empty(ground.hosts.names)


@pytest.mark.nightly
@pytest.mark.parametrize("ground", ENGINES, indirect=True)
def test_a_rank_is_killed_and_no_host_is_lost(ground: Ground, ring: Path, tmp_path: Path) -> None:
    job = ground.start(ring)
    job.wait_event("committed", 2)
    os.kill(next(p for p in ground.hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert not job.events("host-lost")
    job_is_gone(ground)


@pytest.mark.nightly
@pytest.mark.parametrize("ground", ENGINES, indirect=True)
def test_the_controller_is_killed_and_a_restart_goes_on(ground: Ground, ring: Path, tmp_path: Path) -> None:
    job = ground.start(ring)
    job.wait_event("committed", 2)
    os.kill(job.wait_event("controller")["pid"], signal.SIGKILL)
    job.process.wait(60)
    job.go()
    done = subprocess.run(
        (*ground.within, sys.executable, "-m", "ckpt", "restart", str(job.directory)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **ground.environment, "CKPT_TEST_GO": str(tmp_path / "job.go")},
    )
    assert done.returncode == 0, done.stderr
    assert job.output(0) == result_of(ring, 4, tmp_path)
    job_is_gone(ground)


@pytest.mark.nightly
@pytest.mark.parametrize("ground", ENGINES, indirect=True)
def test_the_doctor_says_what_holds_on_the_hosts(ground: Ground, tmp_path: Path) -> None:
    words = ["--engine", "slurm", "--interface", NETWORK]
    if ground.slurm is None:
        words = ["--hosts", str(ground.options["hosts"]), "--interface", NETWORK]
        words += ["--engine-command", str(ground.options["engine_command"])]
    done = subprocess.run(
        (*ground.within, sys.executable, "-m", "ckpt", "doctor", "--json", *words),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **ground.environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {name: facts["address"] for name, facts in found["facts"].items()} == {
        name: f"10.88.0.{name[1:]}" for name in ("h2", "h3", "h4")
    }
    assert {facts["node"] for facts in found["facts"].values()} == {"h2", "h3", "h4"}
    assert sorted(facts["won"] for facts in found["facts"].values()) == [False, False, True]
    assert {facts["lock"] for facts in found["facts"].values()} == {"held"}
    if ground.slurm is not None:
        assert "Slurm job 1 may be queued again" in found["notes"]
    assert not list(tmp_path.glob("ckpt-doctor-*"))
    job_is_gone(ground)


@pytest.mark.nightly
@pytest.mark.parametrize("ground", ["hydra"], indirect=True)
def test_hydra_ends_everything_when_it_loses_a_host_and_a_restart_goes_on_without_it(
    ground: Ground, ring: Path, tmp_path: Path
) -> None:
    """That is MPICH's way, not ours: where a lost host is not to cost the others, the engine has to leave them alone."""
    job = ground.start(ring)
    job.wait_event("committed", 2)
    ground.hosts.kill("h3")
    assert job.process.wait(60) == 16
    assert "mpiexec" in job.wait_event("engine-ended")["reason"]
    assert "no host is left" in job.stderr
    job_is_gone(ground)
    job.go()
    words = ("-m", "ckpt", "restart", "--hosts", "h2:2,h4:2", str(job.directory))
    command = ground.options["engine_command"]
    assert isinstance(command, str)
    done = subprocess.run(
        (*ground.within, sys.executable, *words, "--engine-command", command.replace("h2,h3,h4", "h2,h4")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert job.output(0) == result_of(ring, 4, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("ground", ["one"], indirect=True)
def test_hosts_outlive_the_command_that_has_started_them_all(
    ground: Ground, ring: Path, tmp_path: Path
) -> None:
    """Whether its end is theirs, the leases say."""
    job = ground.start(ring)
    job.wait_event("committed", 2)
    os.kill(ground.hosts.named("h1", "/bin/bash\0" + str(tmp_path / "every.sh")), signal.SIGKILL)
    assert "signal 9" in job.wait_event("engine-ended")["reason"]
    job.wait_event("committed", len(job.events("committed")) + 2)
    assert job.finish() == 0, job.report()
    assert job.output(0) == result_of(ring, 4, tmp_path)
    assert not job.events("host-lost") and not job.events("restarting")
    job_is_gone(ground)

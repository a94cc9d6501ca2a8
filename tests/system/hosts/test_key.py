"""Hosts that cannot read the key of the job: the engine brings it, where it is safe; else they are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.hosts.bed import SSHD, Hosts, needs_hosts
from tests.system.hosts.slurmbed import Slurm, needs_slurm
from tests.system.hosts.test_hosts import LEASE_S, STEPS, is_rank, result_of
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.timeout(400), pytest.mark.nightly]

CAPABILITIES = "-dac_override,-dac_read_search"
NOT_ALL = ("setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}")
"""Without these root may not read a file of mode 000."""


def where_it_is(job: Job, hosts: Hosts) -> list[str]:
    """The command lines, environments and files of the job (but its own) that have the key."""
    key = (job.directory / "key").read_bytes().strip()
    found = [
        str(path)
        for path in job.directory.rglob("*")
        if path.name != "key" and path.is_file() and key in path.read_bytes()
    ]
    for name in hosts.names:
        for pid in hosts.processes(name):
            for kind in ("cmdline", "environ"):
                try:
                    text = Path(f"/proc/{pid}/{kind}").read_bytes()
                except OSError:
                    continue
                if key in text:
                    found.append(f"{kind} of {text[:100]!r} on {name}")
    return found


def test_ssh_brings_it(start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path) -> None:
    """To h3, which cannot read it, and to the ranks there, also those that go on from an image."""
    if not os.path.exists(SSHD):
        pytest.skip(f"needs {SSHD} (package openssh-server)")
    script = tmp_path / "unreadable.sh"
    script.write_text(
        f'#!/bin/sh\nchmod 000 {tmp_path}/job/key\nexec {" ".join(NOT_ALL)} sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    script.chmod(0o755)
    servers = [hosts.sshd("h2", tmp_path), hosts.sshd("h3", tmp_path, force=str(script))]
    try:
        ssh = f"ssh -F {tmp_path}/ssh_config -o BatchMode=yes {{host}} {{agent}}"
        options = {"lease": LEASE_S, "interface": hosts.network, "hosts": "h2:2,h3:2"}
        job = start(ring, STEPS, 0.003, every=0.3, engine_command=ssh, within=hosts.on("h1"), **options)
        job.wait_event("committed", 2)
        os.kill(next(p for p in hosts.processes("h3") if is_rank(p)), signal.SIGKILL)
        job.wait_event("restarted")
        job.wait_event("committed", len(job.events("committed")) + 1)
        assert not where_it_is(job, hosts)
        assert job.finish() == 0, job.report()
        assert job.output(0) == result_of(ring, 4, tmp_path)
        assert job.events("restarting")[0]["from_epoch"]
    finally:
        for server in servers:
            server.kill()
            server.wait()
            assert server.stderr is not None
            server.stderr.close()


def test_an_engine_that_may_not_encrypt_does_not_and_the_host_is_named(
    start: Callable[..., Job], hosts: Hosts, ring: Path, tmp_path: Path
) -> None:
    hidden = f"sh -c 'chmod 000 {tmp_path}/job/key; exec {' '.join(NOT_ALL)} \"$@\"' sh"
    engine = hosts.engine().replace("{agent}", f"{hidden} {{agent}}")
    options = {"lease": LEASE_S, "interface": hosts.network, "within": hosts.on("h1")}
    job = start(ring, STEPS, ranks=2, hosts="h2:2", engine_command=engine, **options)
    assert job.process.wait(60) == 1
    assert "host h2: the job's key cannot be read (Permission denied)" in job.stderr
    assert "the engine's command has not brought it: ssh does, and srun where there is munge" in job.stderr


@pytest.mark.parametrize("munge", ["there", "missing"])
def test_slurm_brings_it_wrapped_by_munge(
    start: Callable[..., Job], ring: Path, tmp_path: Path, munge: str
) -> None:
    needs_hosts()
    needs_slurm()
    hosts = Hosts(3)
    slurm = Slurm(hosts, tmp_path / "slurm")
    slurm.before["h3"] = NOT_ALL
    try:
        hosts.lay()
        slurm.start()
        within = (*hosts.on("h1"), "salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", "--no-kill")
        names = {name: slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
        options = {"lease": LEASE_S, "interface": hosts.network, "within": within, "env": names}
        job = start(ring, STEPS, 0.003, every=0.3, **options)
        job.wait_event("committed", 2)
        stop = (*hosts.on("h1"), sys.executable, "-m", "ckpt", "stop", str(job.directory))
        assert subprocess.run(stop, timeout=60, check=False).returncode == 0
        job.process.wait(60)
        (job.directory / "key").chmod(0)
        job.go()
        env = {**os.environ, **names, "CKPT_TEST_GO": str(tmp_path / "job.go")}
        if munge == "missing":
            env["PATH"] = without_munge(tmp_path / "bin", names["PATH"])
        words = (*within, sys.executable, "-m", "ckpt", "restart", str(job.directory))
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=env)
        if munge == "missing":
            assert done.returncode == 1
            assert "host h3: the job's key cannot be read (Permission denied)" in done.stderr
            assert "there is no munge here" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert job.output(0) == result_of(ring, 4, tmp_path)
        assert not where_it_is(job, hosts)
    finally:
        slurm.stop()
        hosts.remove()


def without_munge(directory: Path, path: str) -> str:
    """A PATH with all commands but munge's."""
    directory.mkdir()
    for place in reversed(path.split(os.pathsep)):
        if os.path.isdir(place):
            for name in os.listdir(place):
                if name != "munge":
                    (directory / name).unlink(missing_ok=True)
                    (directory / name).symlink_to(os.path.join(place, name))
    return str(directory)

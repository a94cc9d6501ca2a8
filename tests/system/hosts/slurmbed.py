"""A real Slurm on the hosts of `bed`: slurmctld and munged on h1, a slurmd on each other host.

A host whose first process is killed loses its slurmd and all that has run under it.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
PATIENCE_S = 180.0
# The first process of a host: it names the host, and reaps. What it starts is one session, and is killed with it.
_HOST = 'hostname "$0"; "$@" & wait; while :; do sleep 1000 & wait; done'
_CONFIGURATION = """
ClusterName=test
SlurmctldHost=h1(10.88.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout=10
KillWait=2
MinJobAge=300
SchedulerParameters=bf_interval=1,sched_interval=1
JobRequeue=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def needs_slurm() -> None:
    """Skip the test, and say why, where there is no Slurm."""
    missing = [name for name in NEEDED if shutil.which(name, path=SEARCHED) is None]
    if missing:
        pytest.skip(f"needs Slurm (packages slurm-wlm, munge): no {', '.join(missing)}")


class Slurm:
    """Slurm on all hosts but the first. `environment`: in which its commands reach it; they run on h1."""

    def __init__(self, hosts: Hosts, place: Path) -> None:
        self.hosts = hosts
        self.place = place
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf"), "PATH": SEARCHED}
        self.before: dict[str, tuple[str, ...]] = {}
        """By host: words before the command of its daemon."""
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        (self.place / "state").mkdir(parents=True)
        self.place.chmod(0o755)
        key = self.place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        nodes = "\n".join(
            f"NodeName={name} NodeAddr=10.88.0.{name[1:]} CPUs=2 State=UNKNOWN" for name in self.nodes
        )
        text = _CONFIGURATION.format(user=getpass.getuser(), place=self.place, nodes=nodes)
        (self.place / "slurm.conf").write_text(text)
        (self.place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        places = (
            f"--{kind}={self.place}/munge.{kind}" for kind in ("socket", "pid-file", "log-file", "seed-file")
        )
        self._daemon("h1", "munged", "--foreground", "--force", f"--key-file={key}", *places)
        self.wait("munge", (self.place / "munge.socket").exists)
        self._daemon("h1", "slurmctld", "-D", "-f", str(self.place / "slurm.conf"))
        for name in self.nodes:
            self.plug(name)
        self.wait(
            "idle nodes",
            lambda: (
                len(self.run("sinfo", "-h", "-N", "-t", "idle", codes=(0, 1)).split("\n")) > len(self.nodes)
            ),
        )

    @property
    def nodes(self) -> list[str]:
        return self.hosts.names[1:]

    def plug(self, name: str) -> None:
        """The host starts, and its slurmd."""
        (self.place / f"spool.{name}").mkdir(exist_ok=True)
        self._daemon(name, "slurmd", "-D", "-f", str(self.place / "slurm.conf"), "-N", name)

    def _daemon(self, host: str, program: str, *words: str) -> None:
        path = shutil.which(program, path=SEARCHED)
        assert path is not None
        own = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--uts", "sh", "-c", _HOST, host)
        with open(self.place / "out", "ab") as out:
            daemon = subprocess.Popen(
                (*self.hosts.on(host), *self.before.get(host, ()), *own, path, *words),
                env=self.environment,
                stdout=out,
                stderr=out,
                cwd="/",
            )
        self._daemons.append(daemon)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()

    def within(self) -> tuple[str, ...]:
        """Words before a command that is to reach this Slurm."""
        return self.hosts.on("h1")

    def run(self, *words: str, cwd: Path | None = None, codes: Sequence[int] = (0,)) -> str:
        """What a command prints that reaches this Slurm."""
        done = subprocess.run(
            (*self.within(), *words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd,
        )
        assert done.returncode in codes, f"{words}: {done.stderr}"
        return done.stdout

    def shown(self, job: str, word: str) -> str:
        """A value that `scontrol show job` has for the job."""
        found = re.search(rf"\b{word}=(\S+)", self.run("scontrol", "show", "job", job))
        return found[1] if found else ""

    def wait(self, what: str, is_there: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + limit_s
        while not is_there():
            assert time.monotonic() < deadline, (
                f"{what} did not come: {(self.place / 'slurmctld.log').read_text()[-2000:]}"
            )
            time.sleep(0.1)

    def left(self) -> list[str]:
        """The command lines of agents and ranks that run on the nodes."""
        found = []
        for name in self.nodes:
            for pid in self.hosts.processes(name):
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                is_of_slurm = b"slurm" in words.partition(b"\0")[0] or b"/slurmd\0" in words
                if b"ckpt" in words and not is_of_slurm:
                    found.append(words.decode())
        return found

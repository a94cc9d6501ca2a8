"""The batch script of docs/batch.md under a real Slurm: at its limit it checkpoints, is queued again, and goes on.

The daemons (munged, slurmctld, slurmd) are the tests' own, on loopback, in a directory of their own, and are ended with the
test.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
pytestmark = [
    pytest.mark.system,
    pytest.mark.root,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not all(shutil.which(name, path=SEARCHED) for name in NEEDED),
        reason="Slurm is not installed (slurm-wlm, munge)",
    ),
]

APP = """
import os, time, ckpt
comm = ckpt.enable()
total = 0
for step in range(60):
    total += comm.allreduce(step)
    while step == 30 and not os.path.exists("second-start"):
        time.sleep(0.05)
print(comm.rank, total, ckpt.restarts() > 0, flush=True)
"""
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MinJobAge=300
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(
    what: str, is_there: object, daemons: list[subprocess.Popen[bytes]], limit_s: float = 180
) -> None:
    deadline = time.monotonic() + limit_s
    while not is_there():  # type: ignore[operator]
        assert all(daemon.poll() is None for daemon in daemons), "a daemon has ended"
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.2)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch reaches a Slurm of one node."""
    place = tmp_path / "slurm"
    for name in ("state", "spool"):
        (place / name).mkdir(parents=True)
    place.chmod(0o755)
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(
        host=host, ctld=free_port(), slurmd=free_port(), user=getpass.getuser(), place=place
    )
    (place / "slurm.conf").write_text(text)
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf"), "PATH": SEARCHED}
    options = {
        "munged": [
            "--foreground",
            "--force",
            f"--key-file={key}",
            *(f"--{kind}={place}/munge.{kind}" for kind in ("socket", "pid-file", "log-file", "seed-file")),
        ],
        "slurmctld": ["-D", "-f", str(place / "slurm.conf")],
        "slurmd": ["-D", "-f", str(place / "slurm.conf"), "-N", host],
    }
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        with open(place / "out", "wb") as out:
            for name, words in options.items():
                program = shutil.which(name, path=SEARCHED)
                assert program is not None
                daemons.append(
                    subprocess.Popen([program, *words], env=environment, stdout=out, stderr=out, cwd=place)
                )
                if name == "munged":
                    wait_for("munge", (place / "munge.socket").exists, daemons)

        def is_idle() -> bool:
            done = subprocess.run(
                ["sinfo", "-h", "-t", "idle"], env=environment, capture_output=True, text=True, check=False
            )
            return host in done.stdout

        wait_for("an idle node", is_idle, daemons)
        yield environment
        subprocess.run(["scancel", "--user", getpass.getuser()], env=environment, check=False)
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(daemons):
            daemon.wait(60)


def documented_script() -> str:
    text = (Path(__file__).resolve().parents[3] / "docs" / "batch.md").read_text()
    found = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.timeout(600)
def test_at_its_limit_the_job_checkpoints_is_queued_again_and_goes_on(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    script = (
        documented_script()
        .replace("-n 16", "-n 2")
        .replace("04:00:00", "00:10:00")
        .replace("B:USR1@300", "B:USR1@30")
    )
    (tmp_path / "script.sh").write_text(script)
    slurm["PATH"] = os.path.dirname(sys.executable) + os.pathsep + slurm["PATH"]
    done = subprocess.run(
        ["sbatch", "--parsable", "script.sh"],
        cwd=tmp_path,
        env=slurm,
        capture_output=True,
        text=True,
        check=True,
    )
    number = done.stdout.strip()

    def shown(word: str) -> str:
        text = subprocess.run(
            ["scontrol", "show", "job", number], env=slurm, capture_output=True, text=True, check=True
        ).stdout
        found = re.search(rf"\b{word}=(\S+)", text)
        return found[1] if found else ""

    log = tmp_path / "run1" / "events.jsonl"
    wait_for("the ranks", lambda: log.exists() and '"running"' in log.read_text(), [])
    # what Slurm does before the limit: the signal of --signal=B:USR1, to the script only
    subprocess.run(["scancel", "--batch", "--signal=USR1", number], env=slurm, check=True)
    wait_for("the second start", lambda: shown("Restarts") == "1", [])
    (tmp_path / "second-start").touch()
    wait_for("the end", lambda: shown("JobState") in ("COMPLETED", "FAILED"), [])
    text = (tmp_path / "run1.log").read_text()
    assert shown("JobState") == "COMPLETED", text
    assert sorted(re.findall(r"^\d 3540 True$", text, re.MULTILINE)) == ["0 3540 True", "1 3540 True"], text

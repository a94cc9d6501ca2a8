"""`ckpt submit` under a real Slurm: limits, lost nodes, requeueing by hand and its prohibition; each with the same bytes.

The signal before the limit is what Slurm sends then, to the script only: `scancel --batch --signal=USR1`. One test has a
real limit.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts, needs_hosts
from tests.system.hosts.slurmbed import Slurm, needs_slurm
from tests.system.hosts.test_hosts import LEASE_S, STEPS, is_rank, result_of
from tests.system.support import Job

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(600)]


class Submitted:
    """A job of four ranks that was submitted; it waits half-way until `go`."""

    def __init__(
        self,
        slurm: Slurm,
        directory: Path,
        app: Path,
        *options: str,
        program: tuple[str, ...] = (),
        lease: str = str(LEASE_S),
    ) -> None:
        self.slurm = slurm
        self.directory = directory / "job"
        self._go = directory / "job.go"
        slurm.environment["CKPT_TEST_GO"] = str(self._go)
        words = ["-n", "4", "--ntasks-per-node=2", "--every", "0.3", "--interface", "10.88.0.0/16"]
        words += ["--lease", lease, "--job", str(self.directory), *options]
        said = self.ckpt("submit", *words, "--", str(app), *(program or (str(STEPS), "0.003")))
        self.number = said.split(":")[0].removeprefix("Slurm job ")

    def ckpt(self, *words: str, codes: tuple[int, ...] = (0, 10)) -> str:
        return self.slurm.run(sys.executable, "-m", "ckpt", *words, cwd=self.directory.parent, codes=codes)

    def events(self, name: str) -> list[dict[str, object]]:
        return Job.events(self, name)  # type: ignore[arg-type]

    def wait_event(self, name: str, count: int = 1) -> dict[str, object]:
        self.slurm.wait(f"{count} × {name}", lambda: len(self.events(name)) >= count)
        return self.events(name)[count - 1]

    def wait_running(self, start: int) -> None:
        """Until the ranks of this start of the script run."""
        self.wait_event("controller", start)
        self.wait_event("rank-started", 4 * start)

    @property
    def log(self) -> str:
        path = self.directory.with_name("job.log")
        return path.read_text() if path.exists() else ""

    def go(self) -> None:
        self._go.touch()

    def notice(self, number: str = "") -> None:
        """What comes before the time limit."""
        self.slurm.run("scancel", "--batch", "--signal=USR1", number or self.number)

    def finish(self, number: str = "") -> None:
        self.go()
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
        self.slurm.wait("the end", lambda: self.slurm.shown(number or self.number, "JobState") in ends)
        assert self.slurm.shown(number or self.number, "JobState") == "COMPLETED", self.log
        self.slurm.wait("nothing of the job", lambda: not self.slurm.left())

    def output(self) -> str:
        return (self.directory / "output" / "rank-0.out").read_text()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    needs_hosts()
    needs_slurm()
    hosts = Hosts(4)
    found = Slurm(hosts, tmp_path / "slurm")
    try:
        hosts.lay()
        found.start()
        yield found
    finally:
        found.stop()
        hosts.remove()


def test_the_limit_is_hit_three_times(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, ring, "--spares", "1", "--time", "10")
    for turn in range(1, 4):
        job.wait_running(turn)
        status = job.ckpt("status", str(job.directory))
        assert "h2:2,h3:2,h4:2 (slurm); if stopped before its end: Slurm queues it again" in status
        job.notice()
        job.wait_event("job-finished", turn)
        slurm.wait("the next start", lambda turn=turn: slurm.shown(job.number, "Restarts") == str(turn))
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)
    assert "queued again 3 times" in job.log
    assert [event["exit_code"] for event in job.events("job-finished")] == [75, 75, 75, 0]


def test_a_real_limit(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """Slurm may send the signal up to a minute early."""
    job = Submitted(slurm, tmp_path, ring, "--time", "1", "--lead", "40")
    assert job.wait_event("job-finished")["exit_code"] == 75
    slurm.wait("the next start", lambda: slurm.shown(job.number, "Restarts") == "1")
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)


def test_where_requeueing_is_forbidden_a_second_job_waits(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, ring, "--no-requeue")
    job.wait_event("committed")
    assert "stopped before its end: job 2 starts when this one has ended" in job.log
    job.notice()
    slurm.wait("the second job", lambda: slurm.shown("2", "JobState") == "RUNNING")
    job.wait_running(2)
    assert "job 3 starts" in job.log
    job.finish("2")
    assert job.output() == result_of(ring, 4, tmp_path)
    assert slurm.shown("3", "JobState") == "CANCELLED", "nothing is left to do"


def test_a_node_with_ranks_is_lost_and_the_spare_takes_them(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """The allocation lives on (--no-kill), and so does the step."""
    job = Submitted(slurm, tmp_path, ring, "--spares", "1")
    job.wait_event("committed", 2)
    slurm.hosts.kill("h3")
    assert job.wait_event("host-fenced")["host"] == "h3"
    assert job.wait_event("ranks-moved")["to"] == {"2": "h4", "3": "h4"}
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)
    assert slurm.shown(job.number, "Restarts") == "0"


def test_a_node_that_is_cut_off_is_drained_with_the_fault_as_the_reason(
    slurm: Slurm, ring: Path, tmp_path: Path
) -> None:
    """Only that one, and the record for other tools has the same text."""
    record = tmp_path / "faults.json"
    options = ("--spares", "1", "--drain-faulty", "slurm", "--fault-record", str(record))
    job = Submitted(slurm, tmp_path, ring, *options)
    job.wait_event("committed", 2)
    slurm.hosts.cable("h3", "down")
    located = job.wait_event("fault-located")
    assert located["hosts"] == ["h3"], located
    drained = job.wait_event("host-drained")
    assert (drained["host"], drained["reason"]) == ("h3", None), drained
    shown = slurm.run("scontrol", "show", "node", "h3")
    assert "DRAIN" in shown and f"Reason=ckpt: {located['text']}" in shown, shown
    for other in ("h2", "h4"):
        assert "DRAIN" not in slurm.run("scontrol", "show", "node", other)
    [line] = [json.loads(each) for each in record.read_text().splitlines()]
    assert line["node"] == "h3" and line["conditions"][0]["message"] == located["text"]
    slurm.hosts.cable("h3", "up")  # so that Slurm can end there what is left of the step
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)


def test_the_node_with_the_controller_is_lost(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """Slurm queues the job again, and a controller on another node takes it over when the hosts of the first one have ended
    their ranks, whether or not that one lives."""
    job = Submitted(slurm, tmp_path, ring)
    job.wait_event("committed", 2)
    slurm.hosts.kill("h2")
    slurm.wait("the second start", lambda: slurm.shown(job.number, "Restarts") == "1")
    job.wait_event("waiting-for-leases")
    assert job.events("fenced")[-1]["reason"] == "taken over from host h2"
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)
    assert "h3:2,h4:2 (slurm)" in job.log


def test_requeued_by_hand(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """Slurm kills everything, and starts the script again."""
    job = Submitted(slurm, tmp_path, ring)
    job.wait_event("committed", 2)
    slurm.run("scontrol", "requeue", job.number)
    slurm.wait("the second start", lambda: slurm.shown(job.number, "Restarts") == "1")
    job.wait_running(2)
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)


def test_the_controller_is_killed(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """By the kernel, when memory runs out, say: the script starts another one at once, which goes on with the ranks. Twice;
    the second time a rank is killed, too: then all are started again, when the leases are over."""
    job = Submitted(slurm, tmp_path, ring, lease="10")
    job.wait_event("committed", 2)
    os.kill(slurm.hosts.named("h2", "ckpt\0run\0"), signal.SIGKILL)
    job.wait_event("adopted")
    job.wait_event("committed", len(job.events("committed")) + 1)
    assert len(job.events("rank-started")) == 4, "nothing was started again"
    os.kill(slurm.hosts.named("h2", "ckpt\0run\0"), signal.SIGKILL)
    os.kill(next(pid for pid in slurm.hosts.processes("h3") if is_rank(pid)), signal.SIGKILL)
    assert job.wait_event("not-adopted")["reason"] in ("rank 2 has ended", "rank 3 has ended")
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)
    assert slurm.shown(job.number, "Restarts") == "0"


def test_the_step_is_killed(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """With its `srun` all agents end: the script has itself queued again."""
    job = Submitted(slurm, tmp_path, ring)
    job.wait_event("committed", 2)
    os.kill(slurm.hosts.named("h2", "srun\0--jobid"), signal.SIGKILL)
    slurm.wait("the second start", lambda: slurm.shown(job.number, "Restarts") == "1")
    assert "no host is left" in job.log
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)


def test_the_slurm_daemon_of_a_node_is_killed_and_the_job_does_not_notice(
    slurm: Slurm, ring: Path, tmp_path: Path
) -> None:
    job = Submitted(slurm, tmp_path, ring)
    job.wait_event("committed", 2)
    daemon = next(p for p in slurm.hosts.processes("h3") if Path(f"/proc/{p}/comm").read_text() == "slurmd\n")
    os.kill(daemon, signal.SIGKILL)
    job.wait_event("committed", len(job.events("committed")) + 5)
    job.finish()
    assert job.output() == result_of(ring, 4, tmp_path)
    assert not job.events("host-lost") and not job.events("restarting")


def test_a_job_without_progress_is_not_queued_for_ever(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    job = Submitted(slurm, tmp_path, ring, "--every", "1h", "--timeout", "1ms")
    for turn in range(1, 4):
        job.wait_running(turn)
        job.notice()
        job.wait_event("job-finished", turn)
    slurm.wait("the end", lambda: slurm.shown(job.number, "JobState") == "FAILED")
    assert slurm.shown(job.number, "ExitCode") == "14:0"
    assert "the last 3 starts have brought no new checkpoint" in job.log
    slurm.wait("nothing of the job", lambda: not slurm.left())


def test_a_script_without_no_kill_is_named(slurm: Slurm, ring: Path, tmp_path: Path) -> None:
    """That of `ckpt submit` has it."""
    job = Submitted(slurm, tmp_path, ring, "--time", "10", "--dry-run")
    job.go()
    script = tmp_path / "job.sh"
    for text, is_named in ((script.read_text(), False), (script.read_text().replace(" --no-kill", ""), True)):
        script.write_text(text)
        number = slurm.run("sbatch", "--parsable", str(script)).strip()
        job.finish(number)
        assert ("does not say `#SBATCH --no-kill`" in job.log) == is_named, job.log
        shutil.rmtree(job.directory)
        job.directory.with_name("job.log").unlink()

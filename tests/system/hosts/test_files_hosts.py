"""Files go back with the program where ranks are on several hosts: those on file systems that all hosts share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts, needs_hosts
from tests.system.hosts.test_takeover import named
from tests.system.points.catalogue import Point
from tests.system.support import Job, environment, jobs_fixture, run_ckpt, write_app
from tests.unit.ckpt.undo.test_sequences import tree_of, without_times

pytestmark = [pytest.mark.system, pytest.mark.turns(2)]

LEASE_S = 2

# Each rank changes files of its own in all ways; all ranks append to one file, one after another. At step 6, behind the
# line that is taken at step 4, the ranks wait until the test has made the file "go".
WRITERS = """
    import os, sys, time
    import ckpt
    from ckpt import MPI
    ckpt.enable()
    world = MPI.COMM_WORLD
    rank, (top, private, marks) = world.rank, sys.argv[1:4]
    os.makedirs(f"{top}/out", exist_ok=True)
    directory = f"{top}/out/{rank}"
    os.makedirs(directory)
    with open(f"{directory}/counter", "wb") as file:
        file.write(b"0" * 8)
    held = open(f"{directory}/held", "a")
    for n in range(1, 9):
        with open(f"{directory}/state.tmp", "w") as file:
            file.write(f"{n}\\n" * 5)
        os.replace(f"{directory}/state.tmp", f"{directory}/state")
        with open(f"{directory}/counter", "r+b") as file:
            file.write(b"%08d" % n)
        held.write(f"held {n}\\n")
        held.flush()
        os.mkdir(f"{directory}/dir-{n}")
        if n > 2:
            os.rename(f"{directory}/dir-{n - 1}", f"{directory}/kept-{n - 1}")
        for turn in range(world.size):
            if turn == rank:
                with open(f"{top}/all", "a") as file:
                    file.write(f"rank {rank}: {n}\\n")
            world.Barrier()
        with open(f"{private}/scratch-{rank}-{n}", "w") as file:
            file.write(str(n))
        if n == 4:
            ckpt.checkpoint()
        if n == 6 and os.path.isdir(marks):
            open(f"{marks}/at-6-{rank}", "w").close()
            while not os.path.exists(f"{marks}/go"):
                time.sleep(0.01)
        world.Barrier()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    needs_hosts()
    found = Hosts(4)
    try:
        found.lay()
        yield found
    finally:
        found.remove()


@pytest.fixture
def restart(hosts: Hosts) -> Iterator[Callable[..., Job]]:
    """`ckpt restart` of a job, on a host."""
    started: list[Job] = []

    def run(job: Job, name: str, *options: object) -> Job:
        later = Job(job.directory, *options, job.directory, verb="restart", within=named(hosts, name))
        started.append(later)
        return later

    yield run
    for job in started:
        job.close()


class Ground:
    """A job of four ranks on h2 and h3, with its controller on h1. ``tree``: where its files are, ``private``: a directory
    of which each host has its own."""

    def __init__(
        self,
        start: Callable[..., Job],
        hosts: Hosts,
        place: Path,
        slots: str,
        lease: int = LEASE_S,
        env: dict[str, str] | None = None,
    ) -> None:
        self.hosts, self.place = hosts, place
        self.tree, self.private, self.marks = place / "tree", place / "private", place / "marks"
        for each in (self.tree, self.private, self.marks):
            each.mkdir()
        app = write_app(place, WRITERS, "writers.py")
        more = {
            "interface": hosts.network,
            "lease": lease,
            "files": f"!{self.marks}",
            "engine_command": hosts.engine(private=self.private),
        }
        words = (self.tree, self.private, self.marks)
        self.job = start(app, *words, ranks=4, hosts=slots, within=hosts.on("h1"), every=600, env=env, **more)
        self.app = app

    def wait_at_6(self) -> None:
        self.job.wait_event("committed")
        self.job.wait_for(lambda: len(list(self.marks.glob("at-6-*"))) == 4, "all ranks at step 6")

    def go(self) -> None:
        (self.marks / "go").touch()

    def expected(self) -> object:
        """What an undisturbed run on one host leaves."""
        plain, private = self.place / "plain", self.place / "plain-private"
        plain.mkdir()
        private.mkdir()
        words = (plain, private, self.place / "none")
        done = run_ckpt(
            "run", "-n", 4, "--job", self.place / "plain-job", self.app, *words, env=environment()
        )
        assert done.returncode == 0, done.stderr
        return without_times(tree_of(str(plain)))

    def found(self) -> object:
        return without_times(tree_of(str(self.tree)))


def rank_killed(hosts: Hosts, name: str) -> None:
    os.kill(next(pid for pid in hosts.processes(name) if is_rank(pid)), signal.SIGKILL)


def is_rank(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"--control-fd" in words and os.getpgid(pid) == pid and os.getsid(pid) != pid
    except OSError:
        return False


def test_files_on_a_shared_file_system_go_back(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    """A rank is killed; all go back to their line, and the files with them. What is local to a host is named."""
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2")
    ground.wait_at_6()
    rank_killed(hosts, "h3")
    ground.job.wait_event("restarted")
    ground.go()
    assert ground.job.finish() == 0, ground.job.report()
    assert ground.found() == ground.expected()
    (put_back,) = ground.job.events("files-put-back")
    assert put_back["intervals"] == 1 and put_back["files"] >= 4 * 3
    named = {(each["path"].rpartition("-")[0], each["reason"].split()[3][:2]) for each in local(ground.job)}
    assert named == {
        (f"{ground.private}/scratch-{rank}", host) for rank, host in enumerate(["h2", "h2", "h3", "h3"])
    }
    assert {each["path"] for each in ground.job.events("files-not-put-back")} <= {
        each["path"] for each in local(ground.job)
    }


def local(job: Job) -> list[dict[str, object]]:
    return [each for each in job.events("files-not-covered") if each["reason"].startswith("local to host")]


@pytest.mark.nightly
def test_a_host_is_killed_and_the_files_of_its_ranks_go_back(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path
) -> None:
    """Its ranks go on on h4."""
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2,h4:2")
    ground.wait_at_6()
    hosts.kill("h3")
    ground.job.wait_event("restarted")
    assert ground.job.events("ranks-moved")
    ground.go()
    assert ground.job.finish() == 0, ground.job.report()
    assert ground.found() == ground.expected()


@pytest.mark.nightly
def test_all_is_killed_and_goes_on_on_one_host(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, restart: Callable[..., Job]
) -> None:
    """What h2 and h3 have changed is put back by a controller on h4, where all ranks are then."""
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2")
    ground.wait_at_6()
    ground.job.process.kill()
    ground.job.process.wait()
    for name in ("h2", "h3"):
        hosts.kill(name)
    later = restart(ground.job, "h4", "--hosts", "h4:4")
    later.wait_event("restarted")
    ground.go()
    assert later.finish() == 0, later.report()
    assert ground.found() == ground.expected()


@pytest.mark.nightly
def test_a_controller_that_has_adopted_the_ranks_puts_their_files_back(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, restart: Callable[..., Job]
) -> None:
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2", lease=10)
    ground.wait_at_6()
    ground.job.process.kill()
    ground.job.process.wait()
    later = restart(ground.job, "h4")
    later.wait_event("adopted")
    rank_killed(hosts, "h2")
    later.wait_event("restarted")
    ground.go()
    assert later.finish() == 0, later.report()
    assert ground.found() == ground.expected()


MOMENTS = {
    "before the first step": Point("", "controller", "ckpt.undo.restart.restoring:_undo", "before"),
    "in the middle": Point(
        "", "controller", "ckpt.undo.restart.putting_back:_PuttingBack._put_file", "before", nth=5
    ),
    "all is put back, and can be taken back": Point(
        "", "controller", "ckpt.undo.restart.restoring:Prepared.keep", "before"
    ),
    "all is put back for good, and the interval is in the chain": Point(
        "", "controller", "ckpt.undo.restart.provisional:retire", "before"
    ),
    "behind the last step": Point("", "controller", "ckpt.undo.restart.restoring:Prepared.keep", "after"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_controller_is_killed_while_files_are_put_back(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, restart: Callable[..., Job], moment: str
) -> None:
    """The next one, on another host, goes on with it."""
    armed = tmp_path / "marks" / "armed"
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2", env=MOMENTS[moment].environment(armed))
    ground.wait_at_6()
    armed.touch()
    rank_killed(hosts, "h3")
    assert ground.job.process.wait(60) == -signal.SIGKILL, ground.job.report()
    assert armed.with_name("armed.reached").exists()
    later = restart(ground.job, "h4")
    later.wait_event("restarted")
    ground.go()
    assert later.finish() == 0, later.report()
    assert ground.found() == ground.expected()
    hosts.wait_until_empty(hosts.names)


@pytest.mark.nightly
def test_files_of_several_hosts_are_not_put_back_on_one(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, restart: Callable[..., Job]
) -> None:
    """Without hosts, the numbers by which files are known mean nothing: refused by name, and nothing is changed."""
    ground = Ground(start, hosts, tmp_path, "h2:2,h3:2")
    ground.wait_at_6()
    ground.job.process.kill()
    ground.job.process.wait()
    for name in ("h2", "h3"):
        hosts.kill(name)
    before = ground.found()
    later = restart(ground.job, "h1", "--engine", "local")
    assert later.finish() == 13, later.report()
    assert "with ranks on several hosts" in later.report()
    assert ground.found() == before

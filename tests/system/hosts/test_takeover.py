"""A controller on another host takes a job over while the former one lives, and the lock does not reach it: never two.

The lock is removed, as on a file system whose locks are of one host. The former controller takes no checkpoints, so that it
does not find out by one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system import apps
from tests.system.hosts.bed import Hosts
from tests.system.hosts.test_hosts import LEASE_S
from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(300)]

WRITER = (
    apps._HELD
    + """
    import time
    import ckpt

    comm = ckpt.enable()
    with open(f"trail-{comm.rank}", "a", buffering=1) as trail:
        while comm.allreduce(held(), max):
            print(os.environ["GENERATION"], file=trail)
            time.sleep(0.01)
    print("done")
"""
)


def named(hosts: Hosts, name: str) -> tuple[str, ...]:
    """Words before a command that is to run on this host, under its name."""
    return (*hosts.on(name), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)


def alive(former: Job) -> None:
    """It finds the takeover in the journal."""


def frozen(former: Job) -> None:
    os.kill(former.events("controller")[0]["pid"], signal.SIGSTOP)


@pytest.mark.parametrize("adopts", [True, False], ids=["adopted", "started again"])
@pytest.mark.parametrize("state", [alive, frozen])
def test_a_controller_that_lives_is_taken_over(
    start: Callable[..., Job],
    hosts: Hosts,
    tmp_path: Path,
    state: Callable[[Job], None],
    adopts: bool,
) -> None:
    """The later one goes on with the ranks; on other hosts than before it starts them again."""
    app = write_app(tmp_path, WRITER)
    options = {
        "hosts": "h2:1,h3:1",
        "engine_command": hosts.engine(),
        "interface": "10.88.0.0/16",
        "lease": LEASE_S,
        "files": "off",  # the trail is to have what all ranks have written, those that are gone too
    }
    options |= {"ranks": 2, "resume": "auto"}
    former = start(app, within=named(hosts, "h1"), env={"GENERATION": "1"}, **options)
    former.wait_event("rank-started", 2)
    trail = tmp_path / "trail-0"
    former.wait_for(trail.exists, "the trail")
    state(former)
    (former.directory / "lock").unlink()
    if not adopts:
        options["hosts"] = "h2:1,h3:1,h4:1"
    later = start(app, within=named(hosts, "h4"), env={"GENERATION": "2"}, **options)
    later.wait_event("waiting-for-leases")
    if adopts:
        later.wait_event("adopted")
    else:
        later.wait_for(lambda: "2" in trail.read_text().split(), "ranks of the later one", 120)
    os.kill(former.events("controller")[0]["pid"], signal.SIGCONT)
    assert former.process.wait(60) == 11, former.stderr
    assert "Another controller serves the job" in former.stderr or "has taken the job" in former.stderr
    assert later.finish() == 0, later.report()
    assert len(later.events("rank-started")) == (2 if adopts else 4)
    for rank in range(2):
        lines = (tmp_path / f"trail-{rank}").read_text().split()
        assert lines == sorted(lines), "ranks of the former one have written beside those of the later one"
    hosts.wait_until_empty(hosts.names)

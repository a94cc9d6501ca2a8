"""Parallel files of ranks on several hosts: the first rank reads and writes for all, also after a host is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.hosts.bed import Hosts
from tests.system.mpi.test_parallel_files import FIELD, NAMES
from tests.system.support import Job, jobs_fixture, write_app

pytestmark = [pytest.mark.system, pytest.mark.nightly]

TURNS = 150


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    yield from jobs_fixture(tmp_path)


@pytest.mark.parametrize("lost", ["h2", "h3"])
def test_a_host_is_killed_and_the_files_have_the_same_bytes(
    start: Callable[..., Job], hosts: Hosts, tmp_path: Path, lost: str
) -> None:
    """h2 has the rank that writes; its ranks go on on h4."""
    program = write_app(tmp_path, FIELD)
    for name in ("plain", "hosts"):
        (tmp_path / name).mkdir()
    plain = start(program, tmp_path / "plain", TURNS, name="plain-job")
    assert plain.finish() == 0, plain.report()
    more = {
        "interface": hosts.network,
        "lease": 2,
        "engine_command": hosts.engine(),
        "within": hosts.on("h1"),
    }
    job = start(program, tmp_path / "hosts", TURNS, every=0.3, hosts="h2:2,h3:2,h4:2", **more)
    job.wait_event("committed", 2)
    hosts.kill(lost)
    job.wait_event("restarted")
    assert job.finish() == 0, job.report()
    for rank in range(4):
        assert job.output(rank) == plain.output(rank)
    for name in NAMES:
        assert (tmp_path / "hosts" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes(), name

"""A program that has just enough memory for itself is not killed for its checkpoints: with control groups of the kernel.

Where no limit can be set, there are no such tests; made-up groups and killed writers are in
`tests/unit/ckpt/capture/test_memory_groups.py`, `test_image_mode.py`. A controller is in one hierarchy at a
time: where the first version has that of memory, the second has the groups (their paths are tested), and no limits.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.support import Job, write_app

pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.turns(8)]

Start = Callable[..., Job]

WRITES_EVERYWHERE = """
    import hashlib, os, sys, time
    import ckpt

    comm = ckpt.enable()
    data = bytearray(int(sys.argv[1]) << 20)
    for i in range(0, len(data), 1 << 16):
        data[i : i + (1 << 16)] = hashlib.sha512(b"%d" % i).digest() * 1024
    steps = 0
    while not os.path.exists(os.environ["CKPT_TEST_GO"]):
        for i in range(0, len(data), 4096):
            data[i] = data[i] + 1 & 255
        steps += 1
    for i in range(0, len(data), 4096):
        data[i] = data[i] - steps & 255
    comm.barrier()
    print(comm.rank, hashlib.sha256(data).hexdigest(), flush=True)
"""


def _controller() -> tuple[Path, str] | None:
    """Where a group with a limit can be made, and the file with its limit."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), None)
    if own is not None:
        return Path("/sys/fs/cgroup/memory") / own.lstrip("/"), "memory.limit_in_bytes"
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        if "memory" in (root / "cgroup.subtree_control").read_text():
            return root, "memory.max"
    return None


def _new_group(mebibytes: int) -> Path:
    """OSError where none can be made, or limited."""
    found = _controller()
    if found is None:
        raise OSError("no controller of memory here")
    directory = found[0] / f"ckpt-test-{os.getpid()}-{time.monotonic_ns()}"
    directory.mkdir()
    try:
        (directory / found[1]).write_text(f"{mebibytes}M")
    except OSError:
        directory.rmdir()
        raise
    return directory


def _can_be_set() -> bool:
    try:
        _new_group(300).rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def limit() -> Iterator[Callable[[int], Path]]:
    """limit(mebibytes): a new group, for processes that write themselves into its cgroup.procs."""
    made: list[Path] = []

    def make(mebibytes: int) -> Path:
        made.append(_new_group(mebibytes))
        return made[-1]

    yield make
    for directory in made:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _run_in(directory: Path, start: Start, app: Path, ranks: int = 2, **options: object) -> Job:
    """The controller goes into the group, and so all that it starts."""
    wrapper = app.with_name("in_group.sh")
    wrapper.write_text(f'#!/bin/sh\necho $$ > {directory}/cgroup.procs\nexec "$@"\n')
    wrapper.chmod(0o755)
    return start(app, 60, ranks=ranks, within=(str(wrapper),), **options)


def test_memory_for_the_program_alone_is_enough_for_its_checkpoints(
    start: Start, limit: Callable[[int], Path], tmp_path: Path
) -> None:
    job = _run_in(limit(300), start, write_app(tmp_path, WRITES_EVERYWHERE), every=0.2)
    job.wait_event("committed", 2)
    assert job.finish() == 0, job.report()
    assert not job.events("rank-died")
    assert "for each of 2 ranks" in job.events("image-mode")[0]["reason"]


@pytest.mark.parametrize("options", [{}, {"image_mode": "fork"}], ids=["auto", "fork"])
def test_where_the_writer_is_killed_for_memory_the_program_lives_and_writes_the_next_itself(
    start: Start, limit: Callable[[int], Path], tmp_path: Path, options: dict[str, str]
) -> None:
    """There seems to be memory for fork, but all of it is written to.

    The kernel takes the memory of a killed writer back within milliseconds. A rank that asks for more meanwhile may be
    killed as well (seen in the kernel's log, 2 ms later): then the job goes on from its last checkpoint.
    """
    env = {"PYTHONPATH": str(Path(__file__).parents[3]), "HINDRANCE": "optimism"}
    job = _run_in(
        limit(190), start, write_app(tmp_path, WRITES_EVERYWHERE), 1, every=0.2, env=env,
        entry="tests.system.hindered_rank:run_rank", **options,
    )  # fmt: skip
    job.wait_event("committed", 2)
    assert job.finish() == 0, job.report()
    failed = [event["reason"] for event in job.events("failed")]
    assert failed and set(failed) == {"the image writer died (signal 9)"}, failed
    assert len(job.events("rank-died")) <= len(failed), job.report()
    assert job.events("image-mode", mode="sync")[0]["reason"].startswith(
        "the image writer was killed, as it is where memory runs out"
    )


# ---------------------------------------------------------------------- the second version: where the groups are

_WHERE = """
import os, sys
from ckpt.capture.memory_groups import _groups
found = [directory for directory, _, version in _groups("/proc/self") if version == 2]
with open("/proc/self/cgroup") as file:
    print([line.strip() for line in file if line.startswith("0::")][0], end=" ")
for directory in found:
    with open(directory + "/cgroup.procs") as file:
        print(str(os.getpid()) in file.read().split(), end=" ")
print()
"""
_ENTERS = """
set -e
mount -t cgroup2 none "$1"
trap 'echo $$ > "$1"/cgroup.procs; cd "$1/$4"; rmdir inner/leaf inner other; cd "$1"; rmdir "$4"' EXIT
mkdir -p "$1/$4/inner/leaf" "$1/$4/other"
echo $$ > "$1/$4/inner/leaf/cgroup.procs"; "$2" -c "$3"
echo $$ > "$1/$4/inner/cgroup.procs"
unshare -C -m sh -c 'umount -l -a -t cgroup2; mount -t cgroup2 none "$1"; "$2" -c "$3"
    echo $$ > "$1/leaf/cgroup.procs"; "$2" -c "$3"' sh "$@"
unshare -C -m sh -c 'echo $$ > "$1/$4/other/cgroup.procs"
    umount -l -a -t cgroup2; mount -t cgroup2 none "$1"; "$2" -c "$3"' sh "$@"
"""


def test_groups_of_the_second_version_are_found_in_namespaces_too(tmp_path: Path) -> None:
    """Of the kernel, with no controller: where a process is, by paths alone."""
    group = f"ckpt-test-{os.getpid()}-{time.monotonic_ns()}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", _ENTERS, "sh", tmp_path, sys.executable, _WHERE, group],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip(f"no groups of the second version can be made here: {done.stderr[-200:]}")
    outside, top, below, beside = done.stdout.splitlines()
    assert outside.split()[0] == f"0::/{group}/inner/leaf" and set(outside.split()[1:]) == {"True"}
    assert top.split() == ["0::/", "True"] and below.split() == ["0::/leaf", "True"]
    assert beside.split() == ["0::/../other"], "what is mounted says nothing of it"


if not _can_be_set():
    for _test in (
        test_memory_for_the_program_alone_is_enough_for_its_checkpoints,
        test_where_the_writer_is_killed_for_memory_the_program_lives_and_writes_the_next_itself,
    ):
        _test.__test__ = False  # type: ignore[attr-defined]

"""What control groups leave a process: of both versions, in containers, with limits far above its own group."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.capture.memory_groups import MemoryLeft, least_memory_left

MIB = 1 << 20
UNLIMITED = 9223372036854771712


class Machine:
    """A made-up /proc/self and the hierarchies it tells of."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.mounts: list[str] = []
        self.lines: list[str] = []

    def hierarchy(self, version: int, path: str, *, root: str = "/", controllers: str = "rw,memory") -> Path:
        """Mounted with `root` at its top; this process is in `path`."""
        point = self.root / f"groups {version} {len(self.mounts)}"
        point.mkdir()
        kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", controllers)
        shown = str(point).replace(" ", "\\040")
        self.mounts.append(f"31 24 0:27 {root} {shown} rw,nosuid shared:9 - {kind} cgroup {options}")
        self.lines.append(f"0::{path}" if version == 2 else f"{len(self.lines) + 3}:memory:{path}")
        return point

    def least_memory_left(self) -> MemoryLeft | None:
        (self.proc / "mountinfo").write_text(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "\n".join(self.mounts) + "\n"
        )
        (self.proc / "cgroup").write_text("2:cpu:/elsewhere\n" + "\n".join(self.lines) + "\n")
        return least_memory_left(str(self.proc))


def group(directory: Path, **values: int | str) -> None:
    """`memory_max=…` is the file memory.max."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (directory / name.replace("_", ".", 1)).write_text(f"{value}\n")


def test_the_nearest_limit_counts_wherever_it_stands(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, "/slice/unit/scope")
    group(top / "slice", memory_max=1000 * MIB, memory_current=300 * MIB)
    group(top / "slice/unit", memory_max=500 * MIB, memory_current=100 * MIB)
    group(top / "slice/unit/scope", memory_max="max", memory_current=90 * MIB)
    assert machine.least_memory_left() == MemoryLeft(400 * MIB, kills_group=False)
    group(top / "slice", memory_current=900 * MIB)
    assert machine.least_memory_left() == MemoryLeft(100 * MIB, kills_group=False), (
        "others of the slice have taken the rest"
    )
    group(top / "slice/unit", memory_high=150 * MIB)
    assert machine.least_memory_left() == MemoryLeft(50 * MIB, kills_group=False), (
        "beyond that it would hardly run"
    )


def test_the_first_version_has_limits_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.hierarchy(2, "/")
    machine.hierarchy(1, "/a/b", controllers="rw,cpu")
    machine.lines.pop()
    top = machine.hierarchy(1, "/a/b")
    group(top, memory_limit_in_bytes=UNLIMITED, memory_usage_in_bytes=7000 * MIB)
    group(top / "a", memory_limit_in_bytes=330 * MIB, memory_usage_in_bytes=320 * MIB)
    group(top / "a/b", memory_limit_in_bytes=UNLIMITED, memory_usage_in_bytes=320 * MIB)
    assert machine.least_memory_left() == MemoryLeft(10 * MIB, kills_group=False)
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {100 * MIB}\ntotal_active_file {50 * MIB}"
    group(top / "a", memory_stat=stat)
    assert machine.least_memory_left() == MemoryLeft(135 * MIB, kills_group=False), (
        "pages of files go before anybody is killed"
    )


def test_in_a_container_the_paths_begin_elsewhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    bound = machine.hierarchy(1, "/docker/0123/sub", root="/docker/0123")
    group(bound, memory_limit_in_bytes=200 * MIB, memory_usage_in_bytes=150 * MIB)
    group(bound / "sub", memory_limit_in_bytes=UNLIMITED, memory_usage_in_bytes=1)
    assert machine.least_memory_left() == MemoryLeft(50 * MIB, kills_group=False)


def test_of_a_group_that_cannot_be_seen_the_top_is_looked_at(tmp_path: Path) -> None:
    """A mount of the host's in a container: the path is of the host, too."""
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, "/kubepods/pod7/0123")
    group(top, memory_max=200 * MIB, memory_current=150 * MIB, **{"memory_oom.group": 1})
    assert machine.least_memory_left() == MemoryLeft(50 * MIB, kills_group=True)


def test_what_is_killed_together_is_said_by_any_group_up_to_the_limit(tmp_path: Path) -> None:
    """As in `mem_cgroup_get_oom_group`: the container's group says it, and the limit stands on the pod's."""
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, "/pod/container/scope")
    group(top / "pod", memory_max=500 * MIB, memory_current=100 * MIB)
    group(top / "pod/container", memory_max="max", memory_current=100 * MIB, **{"memory_oom.group": 1})
    group(top / "pod/container/scope", memory_max="max", memory_current=1, **{"memory_oom.group": 0})
    assert machine.least_memory_left() == MemoryLeft(400 * MIB, kills_group=True)
    group(top / "pod/container", **{"memory_oom.group": 0})
    group(top, **{"memory_oom.group": 1})
    assert machine.least_memory_left() == MemoryLeft(400 * MIB, kills_group=False), (
        "what is above the limit is not killed for it"
    )


def test_memory_that_is_throttled_is_not_there_even_where_some_is_left_until_the_limit(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, "/job/step")
    group(top / "job", memory_max=1000 * MIB, memory_high=300 * MIB, memory_current=350 * MIB)
    group(top / "job/step", memory_max=1000 * MIB, memory_high="max", memory_current=350 * MIB)
    assert machine.least_memory_left() == MemoryLeft(0, kills_group=False)
    group(top / "job", memory_stat=f"anon 5\ninactive_file {100 * MIB}\nactive_file {20 * MIB}\nshmem {MIB}")
    assert machine.least_memory_left() == MemoryLeft(60 * MIB, kills_group=False), (
        "of this version's sums those of the groups below are a part"
    )


@pytest.mark.parametrize(
    ("path", "root", "left"),
    [
        ("/", "/", 50),
        ("/sub", "/", 10),
        ("/", "/../..", 50),
        ("/../..", "/../..", 50),
        ("/../../sub", "/../..", 10),
    ],
)
def test_in_a_namespace_of_groups_the_part_that_is_mounted_is_found(
    tmp_path: Path, path: str, root: str, left: int
) -> None:
    """The lines are those of a kernel: in the namespace, with a hierarchy mounted inside (`/`) or outside (`/../..`)."""
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, path, root=root)
    group(top, memory_max=200 * MIB, memory_current=150 * MIB)
    group(top / "sub", memory_max=110 * MIB, memory_current=100 * MIB)
    assert machine.least_memory_left() == MemoryLeft(left * MIB, kills_group=False)


@pytest.mark.parametrize("path", ["/..", "/../..", "/../other"])
def test_a_group_outside_of_what_is_mounted_has_none_of_its_limits(tmp_path: Path, path: str) -> None:
    """The path led out of the mount point, to whatever was there."""
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, path)
    group(top, memory_max=200 * MIB, memory_current=150 * MIB)
    for elsewhere in (tmp_path, tmp_path / "other"):
        group(elsewhere, memory_max=MIB, memory_current=MIB)
    assert machine.least_memory_left() is None


def test_both_versions_at_once_the_smaller_counts(tmp_path: Path) -> None:
    """A hybrid of which the second has the controller, and a first that was mounted by hand."""
    machine = Machine(tmp_path)
    second, first = machine.hierarchy(2, "/unit"), machine.hierarchy(1, "/unit")
    group(second / "unit", memory_max=300 * MIB, memory_current=100 * MIB)
    group(first / "unit", memory_limit_in_bytes=400 * MIB, memory_usage_in_bytes=300 * MIB)
    assert machine.least_memory_left() == MemoryLeft(100 * MIB, kills_group=False)


def test_no_limit_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    top = machine.hierarchy(2, "/user")
    group(top / "user", memory_max="max", memory_high="max", memory_current=5)
    assert machine.least_memory_left() is None
    assert least_memory_left(str(tmp_path / "nothing")) is None

"""How many processes a host has room for, from files of the kernel that are laid out in a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpt.controller.launch.procinfo import most_processes

MIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with 1 GiB of memory and of swap, on which nothing else is limited."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    _write(tmp_path, "proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB\nSwapTotal:  1048576 kB\n")
    _write(tmp_path, "proc/sys/kernel/pid_max", "4194304\n")
    _write(tmp_path, "proc/self/cgroup", "0::/batch/job\n")
    _write(tmp_path, "sys/fs/cgroup/batch/job/pids.max", "max\n")
    return tmp_path


def _write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _most(root: Path) -> tuple[int, str]:
    return most_processes(MIB, f"{root}/")


def test_memory_and_swap_bound_the_processes(host: Path) -> None:
    assert _most(host) == (2048, "memory and swap")


def test_the_kernel_bounds_them(host: Path) -> None:
    _write(host, "proc/sys/kernel/pid_max", "300\n")
    assert _most(host) == (300, "kernel.pid_max")


def test_the_control_group_and_those_above_it_bound_them(host: Path) -> None:
    _write(host, "sys/fs/cgroup/batch/pids.max", "70\n")
    assert _most(host) == (70, "/sys/fs/cgroup/batch/pids.max")
    _write(host, "sys/fs/cgroup/batch/job/memory.max", f"{10 * MIB}\n")
    assert _most(host) == (10, "/sys/fs/cgroup/batch/job/memory.max")


def test_control_groups_of_the_first_version_have_a_directory_for_each_controller(host: Path) -> None:
    _write(host, "proc/self/cgroup", "9:pids:/slurm/job\n4:cpu,memory:/slurm\n")
    _write(host, "sys/fs/cgroup/pids/slurm/job/pids.max", "50\n")
    assert _most(host) == (50, "/sys/fs/cgroup/pids/slurm/job/pids.max")


def test_the_limit_of_a_user_bounds_them(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("resource.getrlimit", lambda which: (20, 30))
    assert _most(host) == (20, "ulimit -u")


def test_where_nothing_is_known_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _most(tmp_path)[0] >= 1 << 31


def test_this_host_has_room_for_some() -> None:
    assert most_processes()[0] > 10

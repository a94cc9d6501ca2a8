"""What the facts of hosts mean: each thing that can be wrong is said once, with the host's name."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.cli.main import main
from ckpt.controller.hosts.health import Health, judge

GOOD: dict[str, Any] = {
    "node": "a",
    "python": "3.11.7",
    "ckpt": "1",
    "cpu": "x",
    "address": "10.0.0.1",
    "packages": {"numpy": "2.0", "dill": "1.0"},
    "fork": "",
    "marker": "m",
    "wrote": "",
    "won": False,
    "lock": "held",
    "open_files": [1024, 20000],
    "shm_bytes": 1 << 30,
    "offset_s": 0.1,
    "offset_error_s": 0.5,
}


def judged(seen: bool = True, **other: Any) -> Health:
    """Two hosts: `a`, which is as it should be, and `b`, which is so but for `other`."""
    hosts = {"a": {**GOOD, "won": True}, "b": {**GOOD, **other}}
    return judge(hosts, marker="m", seen={"a": True, "b": seen}, here=GOOD)


def test_hosts_that_are_as_they_should_be() -> None:
    assert judged() == Health()


def test_where_no_host_answers_nothing_is_said_of_what_hosts_do() -> None:
    assert judge({}, marker="m", seen={}, here=GOOD) == Health()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"python": "3.12.1"}, "host b: Python 3.12.1, here 3.11.7"),
        ({"ckpt": "2"}, "host b: ckpt 2, here 1"),
        (
            {"packages": {"numpy": "1.9"}},
            "host b: other packages: dill missing (here 1.0), numpy 1.9 (here 2.0)",
        ),
        ({"fork": "exit code 1: no memory"}, "host b: a process cannot fork: exit code 1: no memory"),
        ({"marker": "old"}, "host b: it does not see the same directory: what was written here is not there"),
        (
            {"marker": "error: No such file"},
            "host b: it does not see the same directory: error: No such file",
        ),
        ({"seen": False}, "host b: it does not see the same directory"),
        ({"won": True}, "was created by a, b: exactly one must succeed"),
        ({"won": "Operation not supported"}, "host b: no hard links in the job directory"),
        ({"open_files": [256, 512]}, "host b: at most 512 open files"),
    ],
)
def test_problems(other: dict[str, Any], says: str) -> None:
    found = judged(**other)
    assert [says in each for each in found.problems] == [True]
    assert not found.notes


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"python": "3.11.9"}, "host b: Python 3.11.9, here 3.11.7"),
        ({"offset_s": -9.0}, "host b: its clock is -9.0 s off"),
        ({"shm_bytes": 1 << 20}, "host b: /dev/shm has 1 MiB"),
        ({"lock": "free"}, "file locks do not reach b"),
        ({"cpu": "y"}, "last digits may differ: x: a; y: b"),
    ],
)
def test_what_is_worth_knowing(other: dict[str, Any], says: str) -> None:
    found = judged(**other)
    assert [says in each for each in found.notes] == [True]
    assert not found.problems


def test_a_program_is_not_tried_on_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--hosts", "a", "app.py"]) == 2
    assert "leave the program out" in capsys.readouterr().err

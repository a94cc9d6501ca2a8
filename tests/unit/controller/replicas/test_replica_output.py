"""The output of replicas: printed once, in whole lines, also when the program is started again in the middle of a line."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from ckpt.controller.errors import UsageError
from ckpt.controller.replicas.driver import check_open_files
from ckpt.controller.replicas.output import ReplicaOutput
from ckpt.controller.replicas.text import Conflict


class Job:
    """Files of two replicas of one rank."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.printed: dict[str, bytes] = {"out": b"", "err": b""}
        self.said: list[str] = []
        self.conflicts: list[Conflict] = []
        self.output = ReplicaOutput(
            str(directory),
            1,
            2,
            self.emit,
            self.said.append,
            lambda rank, conflict: self.conflicts.append(conflict),
        )

    def emit(self, rank: int, stream: str, data: bytes) -> None:
        self.printed[stream] += data

    def write(self, replica: int, text: bytes, stream: str = "out") -> None:
        with (self.directory / f"rank-0.replica-{replica}.{stream}").open("ab") as file:
            file.write(text)
        self.output.poll()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_text_is_printed_when_both_have_written_it(job: Job) -> None:
    job.write(0, b"one\ntwo\n")
    assert job.printed["out"] == b""
    job.write(1, b"one\ntw")
    assert job.printed["out"] == b"one\n"
    job.write(1, b"o\n")
    assert job.printed["out"] == b"one\ntwo\n"
    assert (job.directory / "rank-0.out").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("cut", range(9))
def test_a_new_start_in_the_middle_of_a_line_prints_nothing_twice_and_loses_nothing(
    job: Job, cut: int
) -> None:
    for replica in (0, 1):
        job.write(replica, b"one\ntwo\n"[:cut])
    job.output.begin_again()
    for replica in (0, 1):
        job.write(replica, b"one\n")
        job.write(replica, b"two\nthree\n")
    job.output.finish()
    assert job.printed["out"] == b"one\ntwo\nthree\n"
    assert not job.said


def test_other_text_after_a_new_start_is_printed_and_said(job: Job) -> None:
    for replica in (0, 1):
        job.write(replica, b"one\ntw")
    job.output.begin_again()
    for replica in (0, 1):
        job.write(replica, b"one\nsix\n")
    job.output.finish()
    assert job.printed["out"] == b"one\nsix\n"
    assert "differs from byte" in job.said[0]


def test_different_text_on_standard_output_is_a_conflict_and_is_not_printed(job: Job) -> None:
    job.write(0, b"one\nX\n")
    job.write(1, b"one\nY\n")
    assert job.conflicts[0] == Conflict((), 4)
    assert job.printed["out"] == b"one\n"


def test_of_a_line_in_which_they_differ_nothing_is_printed(job: Job) -> None:
    job.write(0, b"one\npid 123\n")
    job.write(1, b"one\npid 124\n")
    job.output.finish()
    assert job.printed["out"] == b"one\n" == (job.directory / "rank-0.out").read_bytes()


def test_a_line_that_a_former_run_has_begun_is_not_printed_where_the_last_run_has_not_written_it(
    job: Job,
) -> None:
    for replica in (0, 1):
        job.write(replica, b"pid 1")
    job.output.begin_again()
    job.output.finish()
    assert job.printed["out"] == b"" == (job.directory / "rank-0.out").read_bytes()


def test_a_last_line_without_an_end_is_printed_where_all_have_written_it(job: Job) -> None:
    job.write(0, b"one\ntwo")
    job.write(1, b"one\ntwo")
    job.output.finish()
    assert job.printed["out"] == b"one\ntwo"


def test_different_text_on_standard_error_is_printed_as_the_lowest_replica_wrote_it(job: Job) -> None:
    job.write(0, b"at 0x1\n", "err")
    job.write(1, b"at 0x2\n", "err")
    job.write(0, b"more\n", "err")
    job.output.finish()
    assert job.printed["err"] == b"at 0x1\nmore\n"
    assert not job.conflicts


def test_a_copy_begins_with_what_its_donor_had_written_and_has_a_voice_when_it_joins(job: Job) -> None:
    for replica in (0, 1):
        job.write(replica, b"one\ntwo")
    job.write(0, b"\nthree")
    job.output.prepare(2, 0, {(0, "out"): 7})
    assert (job.directory / "rank-0.replica-2.out").read_bytes() == b"one\ntwo"
    job.output.drop([1])
    job.write(0, b"\n")  # one is left
    job.write(2, b"\nthr")
    job.output.join(2)
    job.write(0, b"four\n")
    assert job.printed["out"] == b"one\ntwo\nthree\n"  # both have to write it now
    job.write(2, b"ee\nfour\n")
    assert job.printed["out"].endswith(b"four\n") and not job.conflicts
    job.output.begin_again()
    assert not (job.directory / "rank-0.replica-2.out").exists()


def test_a_copy_cannot_begin_where_text_is_missing(job: Job) -> None:
    with pytest.raises(OSError, match="only 3 of 7 bytes"):
        job.write(0, b"one")
        job.output.prepare(2, 0, {(0, "out"): 7})


def test_more_processes_than_may_have_their_output_open_are_refused_by_name() -> None:
    """There was a traceback of the controller."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        pytest.skip("there is no limit of open files")
    with pytest.raises(UsageError, match=rf"{3 * most} processes, whose output takes {8 * most} open files"):
        check_open_files(most, 3)
    check_open_files(2, 3)

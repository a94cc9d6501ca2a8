"""Jobs with replicas: what follows from a loss, a difference, an error, silence. Process N·h + k is replica k of rank h."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt.controller.errors import EXIT_INCOMPATIBLE, EXIT_REPLICAS_DIFFER
from ckpt.controller.replicas.coordinator import AGAIN_MAX, AGAIN_NS, ReplicaCoordinator
from ckpt.controller.replicas.ends import Ends
from ckpt.controller.replicas.events import (
    CopyFailed,
    LinePrinted,
    LineTold,
    OutputRead,
    ReadOutput,
    Reported,
    StartCopy,
    TextDiffers,
    reported,
)
from ckpt.controller.replicas.lines import RERUNS_MAX
from ckpt.controller.replicas.silence import LOOK_NS, SILENT_NS, START_NS
from ckpt.controller.replicas.supervisor import (
    ENDS_NS,
    LAST_PLANE_NS,
    ReplicaSupervisor,
)
from ckpt.controller.supervision.events import (
    Begin,
    Captured,
    CheckpointRequested,
    ControlWritten,
    Died,
    End,
    Failed,
    Fence,
    Fenced,
    FilesKept,
    Finished,
    Hello,
    KeepFiles,
    Launch,
    Loaded,
    Log,
    ProgramError,
    PutFilesBack,
    Ready,
    Say,
    Send,
    Terminate,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions

MARK = [(1, "aa")]
OTHER = [(1, "bb")]


class Job:
    """A supervisor that runs, and the actions that it has returned."""

    def __init__(self, ranks: int = 2, replicas: int = 3, clones: int = 0) -> None:
        self.size, self.replicas, self.now_ns = ranks * replicas, replicas, 0
        options = RoundOptions(every_ns=None, timeout_ns=10**12, mode="auto", asks=not clones)
        coordinator = ReplicaCoordinator(self.size, replicas=replicas, options=options)
        more: dict[str, Any] = {"clones": clones, "reserved": clones, "start_over": True, "max_restarts": 10}
        self.supervisor = ReplicaSupervisor(coordinator, replicas=replicas, **more)
        self.actions: list[Any] = []
        self.feed(Begin())
        self.start()

    def start(self) -> None:
        for process in range(self.size):
            self.feed(Hello(process, self.run, f"address {process}"))
        assert self.supervisor.phase == "running"

    @property
    def run(self) -> int:
        return self.supervisor.incarnation

    def feed(self, event: Any) -> None:
        self.actions += self.supervisor.handle(event, now_ns=self.now_ns)

    def tell(self, process: int, marks: Any = (), **more: Any) -> None:
        self.feed(Reported(process, self.run, {"point": marks} if marks else {}, **more))

    def answer_all(self, details: dict[int, Any] | None = None) -> None:
        """The processes answer both questions of the controller."""
        for _ in range(2):
            for process in sorted(set(range(self.size)) - self.supervisor.gone):
                told = (details or {}).get(process, {})
                counts = {name: rows[-1][0] for name, rows in told.items()}
                self.tell(process, details=told, counts=counts, question=self.supervisor.questions)

    def finish(self, *planes: int) -> None:
        for process in range(self.size):
            if process % self.replicas in planes:
                self.feed(Finished(process, self.run, 0))

    def read_output(self) -> None:
        assert any(isinstance(action, ReadOutput) for action in self.actions)
        self.feed(OutputRead(self.run))

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [dict(each.fields) for each in self.actions if isinstance(each, Log) and each.event == event]

    def killed(self) -> set[int]:
        kills = [each for each in self.actions if isinstance(each, Terminate) and each.number == 9]
        return {process for each in kills for process in each.ranks or ()}

    def end(self) -> End | None:
        return self.supervisor.outcome


def test_a_killed_replica_takes_its_plane_with_it_and_the_others_go_on() -> None:
    job = Job()
    job.feed(Died(4, job.run, signal=9))
    (lost,) = job.logged("replica-lost")
    assert (lost["rank"], lost["replica"], lost["process"]) == (1, 1, 4)
    assert job.killed() == {1, 4}
    told = [each for each in job.actions if isinstance(each, Send) and each.packet["m"] == "failed"]
    assert set(told[-1].ranks or ()) == {0, 2, 3, 5}
    job.finish(0, 2)
    job.read_output()
    assert job.end() == End(0, "all ranks have finished")
    assert job.logged("result-compared")[0]["verified"]


def test_a_lost_leader_is_followed_by_the_next_and_this_is_said() -> None:
    job = Job()
    job.feed(Died(0, job.run, signal=9))
    assert job.logged("leader-changed")[0]["replica"] == 1


def test_one_replica_that_is_left_goes_on_unverified_and_this_is_said() -> None:
    job = Job()
    job.feed(Died(0, job.run, signal=9))
    job.feed(Died(5, job.run, signal=9))
    assert job.logged("cluster-unverified")
    job.finish(1)
    job.read_output()
    assert not job.logged("result-compared")[0]["verified"]
    assert job.end() == End(0, "all ranks have finished")


def test_when_the_last_replica_is_killed_the_program_starts_again() -> None:
    job = Job(ranks=1, replicas=2)
    job.feed(Died(0, job.run, signal=9))
    job.feed(Died(1, job.run, signal=9))
    assert isinstance(job.actions[-1], Fence)
    job.feed(Fenced(0))
    assert isinstance(job.actions[-1], Launch)
    job.start()
    job.finish(0, 1)
    job.read_output()
    assert job.end() == End(0, "all ranks have finished")


def test_a_replica_that_is_killed_while_it_loads_is_not_waited_for_by_those_that_have_loaded() -> None:
    job = Job(ranks=1, replicas=3)
    for process in range(3):
        job.feed(Died(process, job.run, signal=9))
    job.feed(Fenced(0))
    assert isinstance(job.actions[-1], Launch)
    for process in (0, 2):
        job.feed(Loaded(process, job.run))
    assert not any(isinstance(each, PutFilesBack) for each in job.actions)
    job.feed(Died(1, job.run, signal=9))
    assert sum(isinstance(each, PutFilesBack) for each in job.actions) == 1
    for process in (0, 2):
        job.feed(Hello(process, job.run, f"address {process}"))
    assert job.actions[-1] == KeepFiles(job.run)
    job.feed(FilesKept(job.run))
    assert job.supervisor.phase == "running"


@pytest.mark.parametrize(
    ("code", "what"), [(EXIT_INCOMPATIBLE, "failed with exit code 13"), (12, "cannot go on")]
)
def test_who_cannot_load_its_image_is_called_by_its_rank_and_not_by_the_number_of_its_process(
    code: int, what: str
) -> None:
    job = Job(ranks=2, replicas=3)
    job.supervisor.phase, job.supervisor.resumed, job.supervisor.addresses = "starting", 5, {}
    job.supervisor.lines.epochs = [5]
    job.feed(ProgramError(4, job.run, code, "why"))
    job.feed(ProgramError(3, job.run, code, "another reason"))
    said = " ".join(each.text for each in job.actions if isinstance(each, Say))
    ends = "" if (end := job.end()) is None else end.reason
    assert f"replica 1 of rank 1 {what}" in said + ends and "rank 4" not in said + ends
    assert "replica 0 of rank 1 cannot go on from epoch 5 either: another reason" in said


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_the_odd_one_of_three_is_named_where_it_began(odd: int) -> None:
    job = Job()
    for replica in range(3):
        job.tell(3 + replica, OTHER if replica == odd else MARK)  # rank 1 is seen first,
    details = {
        process: {"point": [(1, "ab" if process % 3 == odd else "ok", 100 if process < 3 else 200)]}
        for process in range(6)
    }
    job.answer_all(details)  # but rank 0 has sent something else before
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"], named["process"]) == (0, odd, odd)
    assert (named["first"], named["last"]) == (1, 1)
    assert job.killed() == {odd, 3 + odd}


def test_a_process_that_does_not_answer_is_not_waited_for() -> None:
    job = Job()
    for replica in range(3):
        job.tell(replica, OTHER if replica == 2 else MARK)
    assert not job.logged("replica-differs")
    while not job.logged("replica-differs"):
        job.now_ns = job.supervisor.deadline_ns() or 0
        job.feed(Tick())
    (named,) = job.logged("replica-differs")
    assert (named["replica"], named["rank"], named["seen_in"]) == (2, None, 0)


def test_two_that_differ_run_again_and_in_the_end_nobody_is_called_right() -> None:
    job = Job(replicas=2)
    for _ in range(RERUNS_MAX):
        job.tell(0, MARK)
        job.tell(1, OTHER)
        job.answer_all()
        job.feed(Fenced(job.run))
        job.start()
    job.tell(0, MARK)
    job.tell(1, OTHER)
    job.answer_all()
    end = job.end()
    assert end is not None and end.exit_code == EXIT_REPLICAS_DIFFER
    assert all(named["replica"] is None for named in job.logged("replica-differs"))


def test_an_error_that_most_replicas_come_to_is_the_programs() -> None:
    job = Job()
    job.feed(ProgramError(3, job.run, 7, "ValueError: no"))
    job.answer_all()
    assert job.end() is None and not job.killed()
    job.feed(ProgramError(5, job.run, 7, "ValueError: no"))
    job.answer_all()
    assert job.end() == End(7, "rank 1 failed with exit code 7")
    assert not job.logged("replica-differs")


def test_an_error_of_one_replica_alone_is_its_own() -> None:
    job = Job()
    job.feed(ProgramError(3, job.run, 7, "ValueError: no"))
    job.answer_all()
    job.finish(1, 2)
    job.answer_all()
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"]) == (1, 0)
    job.read_output()
    assert job.end() == End(0, "all ranks have finished")


def test_an_error_of_one_replica_is_not_blamed_on_it_while_another_one_may_be_wrong() -> None:
    job = Job()
    job.feed(ProgramError(0, job.run, 7, "ValueError: no"))
    first = {"point": [(1, "ok", 5)]}
    job.answer_all({3: first, 4: {"point": [(1, "wrong", 5)]}, 5: first})
    assert not job.logged("replica-differs")
    job.tell(4, OTHER)
    job.tell(3, MARK)
    job.tell(5, MARK)
    job.answer_all({3: first, 4: {"point": [(1, "wrong", 5)]}, 5: first})
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"]) == (1, 1)


def test_of_two_replicas_that_end_differently_nobody_is_named() -> None:
    job = Job(replicas=2)
    job.feed(ProgramError(0, job.run, 7, "ValueError: no"))
    job.answer_all()
    job.finish(1)
    job.answer_all()
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"]) == (0, None)
    assert isinstance(job.actions[-1], Fence)


@pytest.mark.parametrize("replicas", [2, 3])
def test_an_error_that_all_ranks_come_to_names_nobody_whichever_rank_came_first(replicas: int) -> None:
    job = Job(ranks=3, replicas=replicas)
    for plane in range(replicas):  # in each plane another rank comes first
        job.feed(ProgramError(plane * replicas + plane, job.run, 1, "ValueError: no"))
        job.answer_all()
    assert job.end() is None
    for plane in range(replicas):
        job.feed(ProgramError(2 * replicas + plane, job.run, 1, "ValueError: no"))
        job.answer_all()
    assert not job.logged("replica-differs")
    assert not any(isinstance(each, Fence) for each in job.actions)
    assert job.supervisor.phase == "stopping"  # the job ends with that error


def test_a_replica_whose_rank_fails_with_another_exit_code_is_named() -> None:
    job = Job()
    for process, code in ((0, 1), (1, 1), (2, 7)):
        job.feed(ProgramError(process, job.run, code))
        job.answer_all()
    assert not job.logged("replica-differs")  # two of three have ended alike: the third changes nothing
    job = Job()
    for process, code in ((2, 7), (0, 1), (1, 1)):
        job.feed(ProgramError(process, job.run, code))
        job.answer_all()
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"]) == (0, 2)


def test_replicas_that_fail_with_the_same_exit_code_at_different_places_are_not_alike() -> None:
    """Two of three had got different errors, and failed with code 1 both: the job ended with it, without the output of
    the one that was right (case 326 of the soak)."""
    job = Job()
    for process, count in ((1, 5), (2, 8)):
        job.tell(process, [(count, f"{process}")])
        job.feed(ProgramError(process, job.run, 1))
        job.answer_all()
    assert job.supervisor.phase == "running" and job.end() is None
    job.finish(0)
    job.now_ns += ENDS_NS
    job.feed(Tick())
    job.answer_all()
    assert job.end() is None and any(isinstance(each, Fence) for each in job.actions)  # the program goes back
    job = Job()
    for process in (1, 2):
        job.tell(process, [(5, "same")])
        job.feed(ProgramError(process, job.run, 1))
        job.answer_all()
    assert job.supervisor.phase == "stopping"  # so did the program


def test_what_a_replica_failed_with_before_it_was_replaced_is_forgotten() -> None:
    ends = Ends()
    ends.failed(2, 0, 7)
    ends.forget(2)
    ends.failed(2, 0, 1)
    ends.failed(1, 0, 1)
    assert ends.ballots({1: ("failed", 0, 1), 2: ("failed", 0, 1)}) == {("failed", 0, 1): [1, 2]}


def test_errors_in_different_ranks_only_are_waited_for_and_then_nobody_is_called_right() -> None:
    job = Job(replicas=2)
    job.feed(ProgramError(0, job.run, 1))
    job.feed(ProgramError(3, job.run, 1))
    job.answer_all()
    assert not job.logged("replica-differs")
    job.now_ns += ENDS_NS
    job.feed(Tick())
    job.answer_all()
    (named,) = job.logged("replica-differs")
    assert named["replica"] is None
    assert isinstance(job.actions[-1], Fence)


def test_a_replica_that_prints_something_else_is_named() -> None:
    job = Job()
    job.feed(TextDiffers(1, (2,), 17))
    job.answer_all()
    (named,) = job.logged("replica-differs")
    assert (named["rank"], named["replica"], named["what"], named["byte"]) == (1, 2, "standard output", 17)


def test_the_output_of_those_that_are_left_is_compared_once_more_before_anything_is_released() -> None:
    job = Job()
    job.finish(0, 1, 2)
    job.feed(TextDiffers(1, (2,), 17))
    job.feed(TextDiffers(1, (), 18))  # in vain: who is wrong at 17 is being asked
    job.feed(OutputRead(job.run))
    assert job.end() is None
    job.answer_all()
    assert job.logged("replica-differs")[-1]["replica"] == 2
    assert job.end() is None and isinstance(job.actions[-1], ReadOutput)
    job.feed(TextDiffers(1, (), 18))
    job.feed(OutputRead(job.run))
    job.answer_all()
    assert job.logged("replica-differs")[-1]["replica"] is None
    assert isinstance(job.actions[-1], Fence)


def test_nothing_is_released_before_the_output_has_been_compared() -> None:
    job = Job()
    job.finish(0, 1, 2)
    assert job.end() is None
    job.read_output()
    assert job.end() is not None


def test_a_replica_that_has_sent_more_than_the_others_is_named_at_the_end() -> None:
    job = Job()
    for replica in range(3):
        job.tell(replica, [(1, "aa"), (2, "bb")] if replica == 1 else MARK)
    job.finish(0, 1, 2)
    job.read_output()
    job.answer_all()
    assert job.logged("replica-differs")[0]["replica"] == 1


def test_a_stopped_replica_is_lost_when_it_has_been_silent_for_long_and_the_others_have_not() -> None:
    job = Job()
    while not job.logged("replica-lost"):
        job.now_ns += LOOK_NS // 2
        for process in (0, 2, 3, 4, 5):
            job.tell(process)
        job.feed(Tick())
        assert job.now_ns < 3 * SILENT_NS
    assert job.now_ns >= SILENT_NS
    assert job.logged("replica-lost")[0]["replica"] == 1
    assert job.killed() == {1, 4}


def test_a_replica_that_starts_later_than_the_others_is_waited_for_for_a_minute() -> None:
    job = Job(ranks=1, replicas=3)
    for process in range(3):
        job.feed(Died(process, job.run, signal=9))
    job.feed(Fenced(0))
    assert isinstance(job.actions[-1], Launch)
    began_ns = job.now_ns = 100 * SILENT_NS
    for second in range(1, 200):
        job.now_ns += LOOK_NS
        if second == 9:  # the machine is slow
            for process in (0, 1):
                job.feed(Hello(process, job.run, f"address {process}"))
        job.feed(Tick())
        if lost := job.logged("replica-lost")[3:]:
            break
    assert lost[0]["replica"] == 2 and "has not started for 60 s" in lost[0]["reason"]
    assert 0 <= job.now_ns - began_ns - START_NS <= 20 * LOOK_NS
    assert job.supervisor.phase == "running"


def test_time_in_which_the_controller_gets_no_processor_makes_nobody_silent() -> None:
    job = Job()
    for _ in range(100):
        job.now_ns += 15 * LOOK_NS
        for process in (0, 1, 3, 4):  # what these have told is read first
            job.tell(process)
        job.feed(Tick())
        for process in (2, 5):
            job.tell(process)
    assert not job.logged("replica-lost")


def test_a_replica_that_is_slower_at_the_end_and_comes_on_is_waited_for_as_long_as_it_does() -> None:
    job = Job()
    job.finish(0, 1)
    for count in range(1, 20):
        job.now_ns += LAST_PLANE_NS - LOOK_NS
        job.tell(2), job.tell(5, sent=count)
        job.feed(Tick())
    assert not job.logged("replica-lost")
    job.now_ns += LAST_PLANE_NS + LOOK_NS
    job.feed(Tick())
    assert job.logged("replica-lost")[0]["replica"] == 2


def test_a_job_that_computes_in_silence_loses_nobody() -> None:
    job = Job()
    job.now_ns = 10 * SILENT_NS
    job.feed(Tick())
    assert not job.logged("replica-lost")


def test_a_replica_that_is_slower_at_the_end_is_waited_for_and_then_left_behind() -> None:
    job = Job()
    job.finish(0, 2)
    job.now_ns += LAST_PLANE_NS
    job.feed(Tick())
    assert job.logged("replica-lost")[0]["replica"] == 1
    job.read_output()
    assert job.end() == End(0, "all ranks have finished")


def test_a_replica_that_only_a_wrong_leader_could_serve_starts_the_program_again() -> None:
    job = Job()
    job.tell(1, stuck=True)
    assert isinstance(job.actions[-1], Fence)


def test_reports_of_an_earlier_run_count_nothing() -> None:
    job = Job(replicas=2)
    job.tell(0, MARK)
    job.feed(Reported(1, job.run - 1, {"point": OTHER}))
    assert not job.logged("replica-differs")


class Lines(Job):
    """A job whose coordinator asks nobody before a round; `image` takes one."""

    def image(self, process: int, epoch: int, parts: int = 1, told: int = 1) -> None:
        for part in range(told):
            marks = {f"stream {part}": (4, "aa")}
            self.feed(LineTold(process, self.run, epoch, marks, parts, 0))
        self.feed(Voted(process, self.run, epoch, (0, epoch), "image", "", {}))

    def begin(self) -> None:
        self.feed(CheckpointRequested(None))
        for process in range(0, self.size, self.replicas):
            self.feed(Ready(process, self.run, 1))

    def asked(self) -> list[Send]:
        return [each for each in self.actions if isinstance(each, Send) and "line" in each.packet]


def test_only_the_leading_plane_is_asked_for_images_and_the_others_for_what_they_have_sent() -> None:
    job = Lines()
    job.begin()
    assert any(isinstance(each, Send) and each.packet["m"] == "checkpoint" for each in job.actions)
    job.image(0, 1)
    job.image(3, 1, parts=2, told=2)
    assert [(each.packet["counts"], each.ranks) for each in job.asked()] == [
        ({"stream 0": 4}, (1, 2)),
        ({"stream 0": 4, "stream 1": 4}, (4, 5)),
    ]
    job.feed(LinePrinted(1))
    for process, marks in ((1, {"stream 0": (4, "aa")}), (5, {"stream 0": (4, "aa"), "stream 1": (4, "aa")})):
        assert not any(isinstance(each, WriteControl) for each in job.actions)
        job.feed(LineTold(process, job.run, 1, marks, 1))
    (line,) = [each for each in job.actions if isinstance(each, WriteControl)]
    assert line.verified and [vote.rank for vote in line.votes] == [0, 1]


def test_the_other_replicas_are_told_of_a_round_when_all_its_images_are_taken() -> None:
    """A replica that had the number of the round already brought it to the leader, which waited for that replica inside a
    change of files: so four of ten checkpoints failed of a program that writes files often, or all of them."""
    job = Lines()
    job.begin()

    def told() -> list[tuple[int, ...] | None]:
        return [
            each.ranks for each in job.actions if isinstance(each, Send) and each.packet["m"] == "checkpoint"
        ]

    assert told() == [(0, 3)]
    job.feed(Captured(3, job.run, 1, 0))
    assert told() == [(0, 3)]
    job.feed(Captured(0, job.run, 1, 0))
    assert told() == [(0, 3), None]


def test_an_image_without_all_of_its_digests_is_no_part_of_a_line() -> None:
    job = Lines()
    job.begin()
    job.image(0, 1)
    job.image(3, 1, parts=2, told=1)
    assert "process 3 has not told" in job.logged("round-aborted")[0]["reason"]


def test_a_replica_that_remembers_its_messages_no_more_cannot_verify_a_line() -> None:
    job = Lines(replicas=2)
    job.begin()
    job.image(0, 1)
    job.image(2, 1)
    job.feed(LineTold(1, job.run, 1, {"stream 0": (4, "")}, 1))
    assert "replica 1 of rank 0 is too far ahead" in job.logged("round-aborted")[0]["reason"]


def test_the_others_are_told_how_far_the_slowest_replica_is() -> None:
    job = Job(ranks=2, replicas=3)
    for process, sent in ((0, 10), (1, 20_000), (2, 30)):
        job.tell(process, sent=sent)
    told = [each for each in job.actions if isinstance(each, Send) and "floor" in each.packet]
    assert [(each.packet["floor"], each.ranks) for each in told] == [(0, (0, 1, 2)), (10, (0, 1, 2))]


def copy_of_the_leader(job: Job) -> None:
    """Replica 0 is killed, and a copy of replica 1 is started."""
    job.feed(Died(0, job.run, signal=9))
    for process in (1, 2):
        job.tell(process, held=3)
    assert any(isinstance(each, Send) and each.packet["m"] == "checkpoint" for each in job.actions)
    marks = {"point": (1, "aa")}
    job.feed(LineTold(1, job.run, 1, marks, 1, written=0))
    job.feed(Voted(1, job.run, 1, (0, 1), "image", "", {}))
    job.feed(LineTold(2, job.run, 1, marks, 1))
    job.feed(LinePrinted(1))
    job.feed(ControlWritten(1))


def test_a_copy_that_is_lost_is_spoken_of_by_its_own_number() -> None:
    """Not by that of the replica whose place it had taken, which was lost long ago."""
    job = Job(ranks=1, clones=1)
    copy_of_the_leader(job)
    job.feed(Hello(3, job.run, "address 3"))
    job.feed(Died(3, job.run, signal=9))
    job.now_ns += 10**10
    job.feed(Tick())
    (said,) = [each.text for each in job.actions if isinstance(each, Say) and "not replaced now" in each.text]
    assert said.startswith("replica 3 of the ranks")
    assert job.logged("not-replaced")[0]["place"] == 0


def test_the_replicas_are_told_which_image_a_copy_is_made_from_before_it_is_asked_for() -> None:
    """One that took the image of a checkpoint that was under way waited from there on for a copy that was not to come."""
    job = Job(ranks=1, clones=1)
    job.feed(CheckpointRequested(None))
    job.feed(Died(2, job.run, signal=9))
    for process in (0, 1):
        job.tell(process, held=3)
    (told,) = [each for each in job.actions if isinstance(each, Send) and each.packet.get("step") == "image"]
    assert (told.packet["copy"], told.packet["after"], told.ranks) == (3, 1, (0, 1))
    marks = {"point": (1, "aa")}
    job.feed(LineTold(0, job.run, 1, marks, 1, written=0))
    job.feed(Voted(0, job.run, 1, (0, 1), "image", "", {}))
    job.feed(LineTold(1, job.run, 1, marks, 1))
    job.feed(LinePrinted(1))
    job.feed(ControlWritten(1))
    assert not any(isinstance(each, StartCopy) for each in job.actions)
    asked = [each for each in job.actions if isinstance(each, Send) and each.packet["m"] == "checkpoint"]
    assert asked[-1].packet["epoch"] == 2 and job.actions.index(told) < job.actions.index(asked[-1])


def test_the_numbers_of_a_copy_that_could_not_be_started_are_not_waited_for_at_the_end() -> None:
    job = Job(ranks=1, clones=1)
    copy_of_the_leader(job)
    assert any(isinstance(each, StartCopy) for each in job.actions) and job.supervisor.size == 4
    job.feed(CopyFailed(3, job.run, "no space left"))
    assert job.logged("clone-failed")[0]["reason"] == "no space left"
    job.finish(1, 2)
    job.read_output()
    for process in (1, 2):
        job.feed(Died(process, job.run, code=0))
    assert any(isinstance(each, Fence) for each in job.actions)


def test_the_exit_code_of_a_copy_that_was_given_up_is_not_that_of_the_job() -> None:
    """It has told why it cannot go on, and leaves when the others have been released already."""
    job = Job(ranks=1, clones=1)
    copy_of_the_leader(job)
    job.feed(ProgramError(3, job.run, 13, "it has hooks"))
    assert job.logged("not-replaced")
    job.finish(1, 2)
    job.read_output()
    job.feed(Died(3, job.run, code=13))
    assert job.end() == End(0, "all ranks have finished")


def test_a_replica_that_is_outvoted_is_named_and_of_two_that_disagree_nobody_is() -> None:
    """It holds its message, and may never come to a place that the others report, too."""
    job = Job(ranks=1)
    job.feed(Reported(2, job.run, {}, disagree=("point", 7, True)))
    for process in (2, 0, 1):
        job.feed(Reported(process, job.run, {}, details={}, counts={}, question=1))
    (differs,) = job.logged("replica-differs")
    assert (differs["replica"], differs["first"]) == (2, 7) and job.killed() == {2}
    job = Job(ranks=1, replicas=2)
    job.feed(Reported(1, job.run, {}, disagree=("point", 7, False)))
    for process in (0, 1):
        job.feed(Reported(process, job.run, {}, details={}, counts={}, question=1))
    assert job.logged("replica-differs")[0]["replica"] is None
    assert any(isinstance(each, Fence) for each in job.actions)


def test_packets_about_messages_that_are_held() -> None:
    told = reported(3, 1, {"disagree": ["point", 7, True]})
    assert isinstance(told, Reported) and told.disagree == ("point", 7, True)
    for bad in (["point", 7], ["point", 7, 1], [7, "point", True], 7, None):
        assert reported(3, 1, {"disagree": bad}) == Reported(3, 1, {}, counts={})
    assert reported(3, 1, {"late": [2], "at": "message"}) == Reported(
        3, 1, {}, counts={}, late=(2,), at="message"
    )


def test_who_does_not_come_to_a_change_of_files_is_lost_or_all_go_back() -> None:
    job = Job(ranks=1)
    job.feed(Reported(1, job.run, {}, late=(0, 2)))
    assert not job.logged("replica-lost"), "one of three says nothing against two"
    job.feed(Reported(0, job.run, {}, late=(2,)))
    assert job.logged("replica-lost")[0]["replica"] == 2 and job.killed() == {2}
    job = Job(ranks=1, replicas=2)
    job.feed(Reported(0, job.run, {}, late=(1,)))
    assert any(isinstance(each, Fence) for each in job.actions)


def look_for(job: Job, seconds: int, *planes: int) -> None:
    """So many seconds pass; all processes of these planes answer, and send nothing."""
    for _ in range(seconds):
        job.now_ns += LOOK_NS
        for plane in planes:
            for rank in range(job.size // job.replicas):
                process = rank * job.replicas + plane
                if process not in job.supervisor.finished:
                    job.tell(process)
        job.feed(Tick())


def test_a_plane_that_waits_for_ever_is_left_behind() -> None:
    job = Job()
    for process in (0, 1):
        job.tell(process, MARK, sent=1)
    look_for(job, 58, 0, 1, 2)
    assert job.supervisor.planes == {0, 1, 2}
    look_for(job, 5, 0, 1, 2)
    (lost,) = job.logged("replica-lost")
    assert (lost["rank"], lost["replica"]) == (None, 2) and job.killed() == {2, 5}
    look_for(job, 500, 0, 1)
    assert job.supervisor.planes == {0, 1}


def test_two_planes_of_three_that_wait_for_ever_lead_back() -> None:
    """Each may be wrong, and wait for what the others never make: it waited until somebody stopped it."""
    job = Job()
    job.tell(0, MARK, sent=1)
    job.tell(4, MARK, sent=1)
    look_for(job, 70, 0, 1, 2)
    assert any(isinstance(action, Fence) for action in job.actions) and not job.logged("replica-lost")


def test_one_that_has_gone_on_where_two_wait_is_left_behind() -> None:
    job = Job()
    job.tell(0, MARK, sent=1)
    job.feed(Reported(0, job.run, {}, late=(1, 2), at="message"))
    look_for(job, 70, 0, 1, 2)
    assert [each["replica"] for each in job.logged("replica-lost")] == [0] and job.killed() == {0, 3}


def test_one_of_three_that_waits_while_the_others_end_otherwise_holds_nobody_up() -> None:
    """One has failed, one has finished, one waits for ever: nothing followed from that."""
    job = Job()
    job.feed(ProgramError(0, job.run, 1, "ValueError"))
    job.finish(2)
    look_for(job, 70, 1)
    assert [each["replica"] for each in job.logged("replica-lost")] == [1]
    look_for(job, 20)
    assert any(isinstance(action, Fence) for action in job.actions)


def test_a_difference_that_a_receiver_has_seen_is_that_of_the_sending_rank() -> None:
    job = Job()
    # Replica 1 of rank 1 has received it
    job.feed(Reported(4, job.run, {}, disagree=("point", 7, True), of=0))
    job.answer_all()
    (differs,) = job.logged("replica-differs")
    assert (differs["rank"] if differs["rank"] is not None else differs["seen_in"], differs["replica"]) == (
        0,
        1,
    )
    assert differs["what"] == "messages to rank 1" and job.killed() == {1, 4}
    assert reported(4, 1, {"disagree": ["point", 7, True], "of": 0}).of == 0  # type: ignore[union-attr]
    wrong = Job()
    wrong.feed(Reported(4, wrong.run, {}, late=(2,), at="message", of=99))
    assert [each["rank"] for each in wrong.logged("replica-lost")] == [1]


def test_a_round_that_a_rank_gives_up_is_tried_again_soon_and_not_for_ever() -> None:
    """The leader waited inside of a write: the next try came when a short job had ended."""
    every_ns, second = 1_000_000_000, 1_000_000_000
    options = RoundOptions(every_ns=every_ns, timeout_ns=10**12, mode="auto", asks=False)
    rounds = ReplicaCoordinator(6, replicas=3, options=options)
    rounds.ready(0, now_ns=0)
    waits = []
    for _ in range(AGAIN_MAX + 1):
        assert rounds.due_ns is not None
        now_ns = rounds.due_ns
        rounds.handle(Tick(), now_ns=now_ns)
        assert rounds.round is not None
        failed = Failed(0, 0, rounds.round.epoch, "the program may need what cannot come", held_ns=second)
        rounds.handle(failed, now_ns=now_ns)
        waits.append(rounds.due_ns - now_ns)
    assert waits[:-1] == [AGAIN_NS] * AGAIN_MAX and waits[-1] == 33 * second


@pytest.mark.parametrize("has_told", [True, False])
def test_who_fails_after_it_has_sent_something_wrong_is_named_by_what_it_tells_before_it_ends(
    has_told: bool,
) -> None:
    job = Job()
    if has_told:  # at 5 ns rank 0 sent what rank 1 answered wrongly, at 9 ns; then it failed by that answer
        job.tell(1, details={"point": [(1, "X", 5)]}, counts={"point": 1})
    job.feed(ProgramError(1, job.run, 1, "MpiException: of rank 1"))
    job.feed(Died(1, job.run, code=1))
    told: dict[int, Any] = {4: {"3.w": [(1, "failed", 9)]}}
    for plane in (0, 2):
        told[plane], told[3 + plane] = {"point": [(1, "right", 5)]}, {"3.w": [(1, "data", 9)]}
    job.answer_all(told)
    if not has_told:
        job.tell(4, [])
        for plane in (0, 1, 2):  # the answers differ
            job.feed(Reported(3 + plane, job.run, {"3.w": [(1, told[3 + plane]["3.w"][0][1])]}))
        job.answer_all(told)
    (differs,) = job.logged("replica-differs")
    assert (differs["rank"], differs["replica"]) == ((0, 1) if has_told else (None, 1))


def test_what_one_told_before_it_failed_counts_when_the_question_comes_after_it_has_gone() -> None:
    """Of two replicas one fails of a wrong message, and is gone when the other one finishes. Nobody was named then: its last
    messages, which were right, were asked for in vain."""
    job = Job(replicas=2)
    job.tell(0, details={"point": [(1, "right", 5)]}, counts={"point": 1})
    job.feed(ProgramError(0, job.run, 1, "what rank 1 has sent cannot be read"))
    job.feed(Died(0, job.run, code=1))
    job.finish(1)
    told = {1: {"point": [(1, "right", 5)]}, 2: {"point": [(1, "wrong", 4)]}, 3: {"point": [(1, "other", 4)]}}
    job.answer_all(told)
    (differs,) = job.logged("replica-differs")
    assert (differs["rank"], differs["replica"], differs["first"]) == (1, None, 1)

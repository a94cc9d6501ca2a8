"""A job with replicas as its supervisor sees it, in any order of events: images, answers, a flipped bit, deaths.

The supervisor and its coordinator are those that ship. What processes would do is chosen here, one event at a time
(`events`, `do`); `key` tells states apart. Checked at every step (`Violation`):

    a line is committed as verified     only if most replicas of each rank have sent the same before it, and have printed it
    … as not verified                   only if fewer planes are left than are needed
    the images of a line                are all of one plane, one of each rank
    the job goes on from a line         only from a verified one; and from none that may hold an error which has been seen
"""

from __future__ import annotations

import copy
from typing import Any

from ckpt.controller.replicas.events import AwaitPrinted, LinePrinted, LineTold, Reported
from ckpt.controller.supervision.events import (
    Begin,
    CheckpointRequested,
    ControlWritten,
    Died,
    End,
    Event,
    Fence,
    Fenced,
    Hello,
    Launch,
    Send,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions

RIGHT, WRONG = "aa", "bb"


class Violation(AssertionError):
    """A rule does not hold."""


class World:
    """`classes`: of the supervisor and of the coordinator. The error, if any, is in the memory of one plane's rank 0."""

    def __init__(self, classes: tuple[Any, Any], ranks: int, replicas: int, bounds: dict[str, int]) -> None:
        self.ranks, self.replicas, self.left = ranks, replicas, dict(bounds)
        self.size = ranks * replicas
        make, make_rounds = classes
        coordinator = make_rounds(self.size, replicas=replicas, options=RoundOptions(asks=False))
        self.supervisor = make(coordinator, replicas=replicas, start_over=True)
        self.verified: dict[int, int] = {}  # committed as verified: epoch -> incarnation
        self.tainted: set[int] = set()  # epochs in whose images the error is
        self.seen: set[int] = set()  # incarnations in which replicas have been seen to differ
        self.ended = False
        self.marks = 0
        self.begin()
        self.feed(Begin())

    def begin(self) -> None:
        self.wrong: set[int] = set()  # planes with the error in memory
        self.sent: set[int] = set()  # and that have sent it
        self.images: list[tuple[int, int]] = []  # (process, epoch) that are due
        self.questions: list[tuple[int, int]] = []
        self.answers: dict[tuple[int, int, int], bool] = {}  # epoch, rank, plane -> has it sent the same?
        self.cut_wrong: set[int] = set()  # epochs before which the plane of the images has sent the error
        self.print_of: int | None = None
        self.printed: set[int] = set()

    def clone(self) -> World:
        twin = copy.copy(self)
        twin.supervisor = self.supervisor.clone()
        for name, value in vars(self).items():
            if isinstance(value, (dict, set, list)):
                setattr(twin, name, value.copy())
        return twin

    def key(self) -> object:
        job = self.supervisor
        rounds = job.coordinator
        open_round = rounds.round
        vote = rounds.vote
        return (
            job.phase,
            tuple(sorted(job.planes)),
            tuple(job.lines.epochs),
            tuple(job.taken),
            tuple(job.unverified),
            tuple(sorted(job.gone)),
            None if open_round is None else (open_round.epoch, tuple(sorted(open_round.votes))),
            None if vote is None else (str(vote.answers), tuple(sorted(vote.others))),
            rounds.is_printed,
            *(str(sorted(each)) for each in (self.wrong, self.sent, self.images, self.questions)),
            *(str(sorted(each)) for each in (self.tainted, self.seen, self.cut_wrong, self.printed)),
            str(sorted(self.answers.items())),
            self.print_of,
            str(sorted(self.left.items())),
            job.incarnation,
        )

    # ---- what may happen ---------------------------------------------------------------------------------

    def events(self) -> list[tuple[Any, ...]]:
        if self.ended:
            return []
        job = self.supervisor
        planes = sorted(job.planes)
        found: list[tuple[Any, ...]] = [("image", *each) for each in self.images]
        for process, epoch in self.questions:
            found.append(("answer", process, epoch, True))
            if process % self.replicas in self.sent and process < self.replicas:
                found.append(("answer", process, epoch, False))
        if self.print_of is not None:
            found.append(("print",))
        if self.left["requests"] and job.coordinator.round is None:
            found.append(("request",))
        if self.left["flips"]:
            found += [("flip", plane) for plane in planes]
        found += [("send", plane) for plane in sorted(self.wrong - self.sent) if plane in planes]
        if self.sent & set(planes) and len(planes) > 1:
            found.append(("differ",))
        if self.left["deaths"]:
            found += [("die", plane) for plane in planes]
        return found

    def do(self, event: tuple[Any, ...]) -> None:
        job = self.supervisor
        match event:
            case ("request",):
                self.left["requests"] -= 1
                self.feed(CheckpointRequested(None))
            case ("image", process, epoch):
                self.images.remove((process, epoch))
                self.take(process, epoch)
            case ("answer", process, epoch, is_same):
                self.questions.remove((process, epoch))
                rank, plane = divmod(process, self.replicas)
                is_wrong = not is_same
                self.answers[epoch, rank, plane] = is_wrong == (rank == 0 and epoch in self.cut_wrong)
                marks = {"point": (1, WRONG if is_wrong else RIGHT)}
                self.feed(LineTold(process, job.incarnation, epoch, marks, 1))
            case ("print",):
                epoch, self.print_of = self.print_of, None
                assert epoch is not None
                self.printed.add(epoch)
                self.feed(LinePrinted(epoch))
            case ("flip", plane):
                self.left["flips"] -= 1
                self.wrong.add(plane)
            case ("send", plane):
                self.sent.add(plane)
            case ("differ",):
                self.differ()
            case ("die", plane):
                self.left["deaths"] -= 1
                self.feed(Died(plane, job.incarnation, signal=9))

    def take(self, process: int, epoch: int) -> None:
        rank, plane = divmod(process, self.replicas)
        if rank == 0 and plane in self.wrong:
            self.tainted.add(epoch)
        has_sent = rank == 0 and plane in self.sent
        if has_sent:
            self.cut_wrong.add(epoch)
        run = self.supervisor.incarnation
        marks = {"point": (1, WRONG if has_sent else RIGHT)}
        self.feed(LineTold(process, run, epoch, marks, 1, written=3))
        self.feed(Voted(process, run, epoch, (0, epoch), f"image-{process}", "", {}))

    def differ(self) -> None:
        """All replicas of rank 0 report their marks, and answer the controller's questions without any news."""
        job = self.supervisor
        self.seen.add(job.incarnation)
        self.marks += 1
        for plane in sorted(job.planes):
            mark = [(self.marks, WRONG if plane in self.sent else RIGHT)]
            self.feed(Reported(plane, job.incarnation, {"point": mark}))
        for _ in range(2):
            for process in range(self.size):
                told = {"details": {}, "counts": {}, "question": job.questions}
                self.feed(Reported(process, job.incarnation, {}, **told))

    # ---- what the supervisor does ------------------------------------------------------------------------

    def feed(self, event: Event | LineTold | LinePrinted | Reported) -> None:
        for action in self.supervisor.handle(event, now_ns=0):
            self.perform(action)

    def perform(self, action: Any) -> None:
        job = self.supervisor
        match action:
            case Send(packet=packet, ranks=processes) if packet["m"] == "checkpoint":
                donor = min(job.planes)
                self.images = [(rank * self.replicas + donor, packet["epoch"]) for rank in range(self.ranks)]
            case Send(packet=packet, ranks=processes) if packet["m"] == "layer" and "line" in packet:
                assert processes is not None
                self.questions += [(process, packet["line"]) for process in processes]
            case Send(packet=packet) if packet["m"] == "abort":
                self.images = [each for each in self.images if each[1] != packet["epoch"]]
            case AwaitPrinted(epoch=epoch):
                self.print_of = epoch
            case WriteControl():
                self.check_line(action)
                self.feed(ControlWritten(action.epoch))
            case Fence(incarnation=incarnation):
                self.feed(Fenced(incarnation))
            case Launch(epoch=epoch):
                self.check_launch(epoch)
                self.begin()
                for process in range(self.size):
                    self.feed(Hello(process, action.incarnation, "address"))
            case End():
                self.ended = True
        self.images = [each for each in self.images if each[0] % self.replicas in job.planes]
        self.questions = [each for each in self.questions if each[0] % self.replicas in job.planes]

    # ---- rules -------------------------------------------------------------------------------------------

    def check_line(self, line: WriteControl) -> None:
        planes, epoch, needed = self.supervisor.planes, line.epoch, self.replicas // 2 + 1
        images = [vote.manifest for vote in line.votes]
        for donor in range(self.replicas):
            if images == [f"image-{rank * self.replicas + donor}" for rank in range(self.ranks)]:
                break
        else:
            raise Violation(f"images of several planes: {images}")
        if donor not in planes:
            raise Violation("images of a plane that is lost")
        if epoch not in self.printed:
            raise Violation("its output has not been printed")
        if not line.verified and len(planes) >= needed:
            raise Violation("not verified, though there are replicas enough")
        if not line.verified:
            return
        for rank in range(self.ranks):
            same = [plane for plane in planes - {donor} if self.answers.get((epoch, rank, plane))]
            if 1 + len(same) < needed:
                raise Violation(f"verified by {same} of rank {rank}")
        self.verified[epoch] = self.supervisor.incarnation

    def check_launch(self, epoch: int | None) -> None:
        if epoch is None:
            return
        if epoch not in self.verified:
            raise Violation(f"going on from {epoch}, which is not verified")
        if epoch in self.tainted and self.verified[epoch] in self.seen:
            raise Violation(f"going on from {epoch}, which holds an error that was seen")

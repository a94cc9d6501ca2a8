"""A job with replicas as its supervisor sees it, in any order of events: images, answers, a flipped bit, deaths, copies.

The supervisor and its coordinator are those that ship. What processes would do is chosen here, one event at a time
(`events`, `do`); `key` tells states apart. Checked at every step (`Violation`):

    a line is committed as verified     only if most replicas of each rank have sent the same before it, and have printed it
    … as not verified                   only if fewer planes are left than are needed
    the memory of a line                counts as compared only if it was, and was the same
    the images of a line                are all of one plane, one of each rank
    the job goes on from a line         only from a verified one; and from none that may hold an error which has been seen;
                                        from one whose memory was not compared only if there is no other, and it is said
    a line whose memory was compared    is kept until a newer one was, too
    a replica is called wrong           only if it is
    a copy is started                   only from images that were taken when all had held their choices already
    … and joins                         only while its donor lives
"""

from __future__ import annotations

import copy
from typing import Any

from ckpt.controller.replicas.events import (
    AwaitPrinted,
    LinePrinted,
    LineTold,
    MemoryTold,
    Reported,
    StartCopy,
)
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
    Log,
    Send,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.redundancy.memory.comparison import Record

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
        copies = self.left.setdefault("copies", 0)
        self.supervisor = make(
            coordinator, replicas=replicas, clones=copies, reserved=copies, start_over=True
        )
        self.numbers = self.supervisor.numbers
        self.verified: dict[int, int] = {}  # committed as verified: epoch -> incarnation
        self.tainted: set[int] = set()  # epochs in whose images the error is
        self.seen: set[int] = set()  # incarnations in which replicas have been seen to differ
        self.full: set[int] = set()  # epochs whose memory was compared, and was the same
        self.distrusted: set[int] = set()
        self.said: set[int] = set()  # epochs of which it was said that their memory was not compared
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
        self.holds: list[tuple[int, int]] = []  # (process, plane of the copy): answers that are due
        self.held: set[tuple[int, int]] = set()
        self.held_before: dict[int, set[tuple[int, int]]] = {}  # by epoch, when its images began to be taken
        # By epoch: is the donor wrong, and has it sent the error?
        self.image_of: dict[int, tuple[bool, bool]] = {}
        self.hellos: list[int] = []
        self.donor_of: dict[int, int] = {}
        self.was_alone = False
        # Rank -> epoch and place at which its memory is asked for
        self.asked: dict[int, tuple[int, int]] = {}

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
            *self.copies_key(),
            str(sorted(self.asked.items())),
            *(str(sorted(each)) for each in (self.full, self.distrusted, self.said, job.compared)),
            (job.memories.epoch, job.memories.next_epoch, len(job.memories.comparisons)),
        )

    def copies_key(self) -> tuple[object, ...]:
        clones = self.supervisor.clones
        copy_ = clones.copy
        return (
            None
            if copy_ is None
            else (copy_.plane, copy_.state, tuple(sorted(copy_.open)), copy_.after, copy_.donor),
            (
                tuple(clones.empty),
                tuple(sorted(clones.places.items())),
                clones.next_plane,
                clones.not_before_ns,
            ),
            tuple(sorted(self.supervisor.lineage.origins.items())),
            *(tuple(sorted(each)) for each in (self.holds, self.held, self.hellos)),
            str(sorted(self.image_of.items())),
            self.was_alone,
        )

    def plane(self, process: int) -> int:
        return self.numbers.parts(process)[1]

    # ---- what may happen ---------------------------------------------------------------------------------

    def events(self) -> list[tuple[Any, ...]]:
        if self.ended:
            return []
        job = self.supervisor
        planes = sorted(job.planes)
        found: list[tuple[Any, ...]] = [("image", *each) for each in self.images]
        for process, epoch in self.questions:
            found.append(("answer", process, epoch, True))
            rank, plane = self.numbers.parts(process)
            if plane in self.sent and rank == 0:
                found.append(("answer", process, epoch, False))
        if self.print_of is not None:
            found.append(("print",))
        if self.asked:
            found.append(("compare",))
        if self.left["requests"] and job.coordinator.round is None:
            found.append(("request",))
        if self.left["flips"]:
            found += [("flip", plane) for plane in planes]
        found += [("send", plane) for plane in sorted(self.wrong - self.sent) if plane in planes]
        if self.sent & set(planes) and len(planes) > 1:
            found.append(("differ",))
        if self.left["deaths"]:
            found += [("die", plane) for plane in planes]
            found += [("die", self.plane(process)) for process in job.clones.voiceless[:1]]
        found += [("held", *each) for each in self.holds] + [("hello", process) for process in self.hellos]
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
                rank, plane = self.numbers.parts(process)
                is_wrong = not is_same
                self.answers[epoch, rank, plane] = is_wrong == (rank == 0 and epoch in self.cut_wrong)
                marks = {"point": (1, WRONG if is_wrong else RIGHT)}
                self.feed(LineTold(process, job.incarnation, epoch, marks, 1))
            case ("print",):
                epoch, self.print_of = self.print_of, None
                assert epoch is not None
                self.printed.add(epoch)
                self.feed(LinePrinted(epoch))
            case ("compare",):
                self.compare()
            case ("flip", plane):
                self.left["flips"] -= 1
                self.wrong.add(plane)
            case ("send", plane):
                self.sent.add(plane)
            case ("differ",):
                self.differ()
            case ("die", plane):
                self.left["deaths"] -= 1
                self.feed(Died(self.numbers.process(0, plane), job.incarnation, signal=9))
            case ("held", process, plane):
                self.holds.remove((process, plane))
                self.held.add((process, plane))
                self.feed(Reported(process, job.incarnation, {}, held=plane))
            case ("hello", process):
                self.hellos.remove(process)
                self.feed(Hello(process, job.incarnation, "address"))

    def take(self, process: int, epoch: int) -> None:
        rank, plane = self.numbers.parts(process)
        if rank == 0 and plane in self.wrong:
            self.tainted.add(epoch)
        has_sent = rank == 0 and plane in self.sent
        if rank == 0:
            self.image_of[epoch] = plane in self.wrong, has_sent
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
            for rank in range(self.ranks):
                told = mark if rank == 0 else [(self.marks, RIGHT)]
                process = self.numbers.process(rank, plane)
                self.feed(Reported(process, job.incarnation, {"point": told}, sent=self.marks))
        self.no_news()

    def compare(self) -> None:
        """All replicas tell their memory, at the same place."""
        job = self.supervisor
        run, epoch = job.incarnation, job.memories.epoch
        # `memories.planes` are those that the next comparison will be between: a copy may have joined since.
        planes = sorted(job.planes & job.memories.comparisons[0].planes)
        if len({plane in self.wrong for plane in planes}) > 1:
            self.seen.add(run)
        elif len(planes) > 1:
            self.full.add(epoch)
        while job.incarnation == run and any(each[0] == epoch for each in self.asked.values()):
            rank, (_, place) = self.asked.popitem()
            for plane in planes:
                process = self.numbers.process(rank, plane)
                content = WRONG if plane in self.wrong and rank == 0 else RIGHT
                blocks = {"u": Record("f", 1, 1, (content,), ())}
                at: dict[str, Any] = {"blocks": blocks} if place else {"at": 1}
                self.feed(MemoryTold(process, run, epoch, place, **at))
        self.no_news()

    def no_news(self) -> None:
        """The controller's questions are answered, without any messages to tell."""
        job = self.supervisor
        for _ in range(2):
            for process in range(job.size):
                answer = {"details": {}, "counts": {}, "question": job.questions}
                self.feed(Reported(process, job.incarnation, {}, **answer))

    # ---- what the supervisor does ------------------------------------------------------------------------

    def feed(self, event: Event | LineTold | LinePrinted | MemoryTold | Reported) -> None:
        for action in self.supervisor.handle(event, now_ns=0):
            self.perform(action)
        self.was_alone = self.was_alone or len(self.supervisor.planes) == 1

    def perform(self, action: Any) -> None:
        job = self.supervisor
        match action:
            case Send(packet=packet, ranks=processes) if packet["m"] == "checkpoint":
                donor = min(job.planes)
                self.images = [(process, packet["epoch"]) for process in self.numbers.of_plane(donor)]
                self.held_before[packet["epoch"]] = set(self.held)
            case Send(packet=packet, ranks=processes) if packet.get("step") == "hold":
                self.holds = [(process, packet["copy"]) for process in processes or ()]
            case Send(packet=packet) if packet.get("step") == "let go":
                self.holds, self.hellos = [], []
                self.held = {each for each in self.held if each[1] != packet["copy"]}
            case Send(packet=packet) if packet.get("step") == "join":
                if self.donor_of[packet["copy"]] not in job.planes:
                    raise Violation("the donor of a copy was lost before the copy has joined")
            case StartCopy():
                self.start_copy(action)
            case Send(packet=packet, ranks=processes) if "memory" in packet:
                assert processes is not None
                self.asked[self.numbers.parts(processes[0])[0]] = packet["memory"], packet["place"]
            case Log(event="lines-distrusted", fields=fields):
                self.distrusted |= set(fields["epochs"])
            case Log(event="memory-not-compared", fields=fields):
                self.said.add(fields["epoch"])
            case Log(event="memory-compared", fields=fields):
                if fields["verified"] and fields["epoch"] not in self.full:
                    raise Violation("counts as compared, and was not")
                self.asked = {}
            case Log(event="replica-differs", fields=fields) if fields["replica"] is not None:
                if fields["replica"] not in self.wrong:
                    raise Violation(f"replica {fields['replica']} is called wrong")
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
                full = self.full - self.distrusted
                if full and max(full) not in job.needed_lines:
                    raise Violation("the newest line that was compared may be removed")
            case Fence(incarnation=incarnation):
                self.feed(Fenced(incarnation))
            case Launch(epoch=epoch):
                self.check_launch(epoch)
                self.begin()
                for process in range(self.size):
                    self.feed(Hello(process, action.incarnation, "address"))
            case End():
                self.ended = True
        self.images = [each for each in self.images if self.plane(each[0]) in job.planes]
        self.questions = [each for each in self.questions if self.plane(each[0]) in job.planes]
        self.holds = [each for each in self.holds if self.plane(each[0]) in job.planes]

    def start_copy(self, action: StartCopy) -> None:
        for process in self.supervisor.processes(action.living):
            if (process, action.plane) not in self.held_before[action.epoch]:
                raise Violation(f"process {process} did not hold its choices when the images were taken")
        self.donor_of[action.plane] = action.donor
        self.hellos = list(self.numbers.of_plane(action.plane))
        is_wrong, has_sent = self.image_of[action.epoch]
        self.wrong |= {action.plane} if is_wrong else set()
        self.sent |= {action.plane} if has_sent else set()

    # ---- rules -------------------------------------------------------------------------------------------

    def check_line(self, line: WriteControl) -> None:
        planes, epoch, needed = self.supervisor.planes, line.epoch, self.replicas // 2 + 1
        images = [vote.manifest for vote in line.votes]
        for donor in [*range(self.replicas), *self.donor_of]:
            if images == [f"image-{process}" for process in self.numbers.of_plane(donor)]:
                break
        else:
            raise Violation(f"images of several planes: {images}")
        if donor not in planes:
            raise Violation("images of a plane that is lost")
        if epoch not in self.printed:
            raise Violation("its output has not been printed")
        if line.verified and self.was_alone:
            raise Violation("verified, though nothing was compared for a time")
        if not line.verified and len(planes) >= needed and not self.was_alone:
            raise Violation("not verified, though there are replicas enough")
        if not line.verified:
            return
        for rank in range(self.ranks):
            same = [plane for plane in planes - {donor} if self.answers.get((epoch, rank, plane))]
            if 1 + len(same) < needed:
                raise Violation(f"verified by {same} of rank {rank}")
        self.verified[epoch] = self.supervisor.incarnation

    def check_launch(self, epoch: int | None) -> None:
        full = self.full - self.distrusted
        if epoch not in full and full:
            raise Violation(f"going on from {epoch}, though the memory of {max(full)} was compared")
        if epoch is None:
            return
        if epoch not in full and epoch not in self.said:
            raise Violation(f"going on from {epoch}, whose memory was not compared, silently")
        if epoch not in self.verified:
            raise Violation(f"going on from {epoch}, which is not verified")
        if epoch in self.tainted and self.verified[epoch] in self.seen:
            raise Violation(f"going on from {epoch}, which holds an error that was seen")

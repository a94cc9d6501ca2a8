"""The life of a job whose ranks are computed by several processes each. Pure.

Process N·h + k is replica k of rank h; all processes with the same k are *plane* k, a whole copy of the job: nothing but
choices goes from one plane to another (:mod:`ckpt.redundancy.layer`). So a replica that is lost, or wrong, takes its plane
with it: the others of the plane would wait for it, or have its wrong data. The other planes go on and do not wait.

    computes ──a process died───────────────────────────────▶ lost
             ──digests, text or result differ from most─────▶ lost, as wrong
             ──a process is silent for SILENT_NS, while most
               other planes are not (stopped: SIGSTOP)───────▶ lost
             ──its program ended with an error, or left──────▶ ended: its outcome still counts
             ──all its processes have finished───────────────▶ finished

The outcome of a plane is: finished; or the rank that failed first, with its exit code. The job has the outcome that more
than half of the planes have that it began with. Then

    finished     the others have LAST_PLANE_NS to finish too, for the comparison; a stopped process is not waited for longer
    an error     the job ends with that exit code

Where replicas differ and no majority can be had (two that differ; three that all differ; outcomes that differ), nobody knows
who is right: all planes go back, to a line that is older than the error, or to the beginning where there is none; RERUNS_MAX
times at most to the same one, then the job ends with EXIT_REPLICAS_DIFFER.

Which line is older than the error? All replicas of an incarnation begin alike, from one image, so what makes them differ has
happened since then. A verified line is one before which all have sent the same; but an error may have been in the memory of
the plane that has given the images, and not been sent yet. So a plane that was wrong takes with it the lines that it has
given in this incarnation; where it is not known which plane was wrong, all lines of this incarnation are passed over.

Where no plane is left, the program is started again as after any death, from the last verified line. One plane that is left
goes on, and is not compared: this is logged and said.

This module is long because the life of a job is one state machine; the events are in events.py.

Not here: the vote on messages (`ckpt.redundancy.vote`) and on text (`text`), files, processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ckpt.controller.errors import EXIT_REPLICAS_DIFFER
from ckpt.controller.replicas.coordinator import ReplicaCoordinator
from ckpt.controller.replicas.events import (
    DropVoices,
    Inquiry,
    LinePrinted,
    LineTold,
    OutputRead,
    ReadOutput,
    Reported,
    TextDiffers,
)
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import (
    Action,
    AgentLost,
    ControlWritten,
    Died,
    End,
    Event,
    Finished,
    Hello,
    Log,
    ProgramError,
    Say,
    Send,
    Terminate,
    Tick,
)
from ckpt.controller.supervision.failure_policy import Decision, restart_if_left, signal_name
from ckpt.controller.supervision.supervisor import Supervisor
from ckpt.redundancy.ahead import Floors
from ckpt.redundancy.origin import Details, Origin, origin
from ckpt.redundancy.vote import Verdict, Vote

LAST_PLANE_NS: Final = 5_000_000_000
INQUIRY_NS: Final = 1_000_000_000
SECOND_NS: Final = 5_000_000_000
AGAIN_NS: Final = 100_000_000
SILENT_NS: Final = 10_000_000_000
LOOK_NS: Final = 1_000_000_000
RERUNS_MAX: Final = 2
KILL: Final = 9
TERM: Final = 15

Outcome = tuple[Any, ...]
"""("finished",), or ("failed", rank, exit code)."""


class ReplicaSupervisor(Supervisor):
    """`replicas`: N; the coordinator's size is the number of processes, n·N."""

    coordinator: ReplicaCoordinator

    def __init__(self, coordinator: ReplicaCoordinator, *, replicas: int, **options: Any) -> None:
        super().__init__(coordinator, **options)
        self.replicas = replicas
        self.needed = replicas // 2 + 1
        self.reruns = 0
        self.questions = 0
        self.patience_ns: int | None = None
        self.unverified: list[int] = []
        """Lines since the newest verified one that are on disk, and that no restart uses by itself."""
        self.rerun_from: int | None = None
        self._begin()

    def _begin(self) -> None:
        self.coordinator.begin()
        self.taken: list[tuple[int, int]] = []
        """The verified lines of this incarnation, each with the plane that has given the images."""
        self.planes = set(range(self.replicas))
        """Those that compute or have finished."""
        self.floors = Floors(self.size // self.replicas, self.planes, 0)
        self.outcomes: dict[int, Outcome] = {}
        self.votes = [Vote(self.replicas) for _ in range(self.size // self.replicas)]
        self.patience_ns = None
        self.is_read = False
        self.inquiry: Inquiry | None = None
        self.heard_ns: dict[int, int] = {}
        self.look_ns: int | None = None

    @property
    def voices(self) -> set[int]:
        """Planes that compute, or have an outcome, and are neither lost nor wrong."""
        return self.planes | self.outcomes.keys()

    def processes(self, planes: Collection[int]) -> tuple[int, ...]:
        return tuple(p for p in range(self.size) if p % self.replicas in planes)

    def describe(self) -> list[dict[str, Any]]:
        """Per rank: its replicas with a voice, and how many messages have been compared."""
        return [
            {"rank": rank, "replicas": sorted(self.planes), "compared": vote.compared}
            for rank, vote in enumerate(self.votes)
        ]

    def deadline_ns(self) -> int | None:
        inquiry = self.inquiry
        asked = (None, None) if inquiry is None else (inquiry.until_ns, inquiry.again_ns)
        all_times = (super().deadline_ns(), self.patience_ns, self.look_ns, *asked)
        times = [when for when in all_times if when is not None]
        return min(times, default=None)

    # ---- events ------------------------------------------------------------------------------------------

    def _dispatch(
        self, event: Event | Reported | TextDiffers | OutputRead | LineTold | LinePrinted, now_ns: int
    ) -> list[Action]:
        match event:
            case Reported():
                return self._reported(event, now_ns) if event.incarnation == self.incarnation else []
            case LineTold():
                self.heard_ns[event.rank] = max(now_ns, self.heard_ns.get(event.rank, 0))
                is_present = event.incarnation == self.incarnation
                return self.coordinator.line_told(event, now_ns) if is_present else []
            case LinePrinted(epoch=epoch):
                return self.coordinator.printed(epoch, now_ns)
            case ControlWritten(epoch=epoch):
                return self._line_written(event, now_ns)
            case TextDiffers():
                return self._text_differs(event, now_ns)
            case OutputRead(incarnation=incarnation):
                self.is_read = incarnation == self.incarnation
                return self._check_outcomes(now_ns)
            case Tick():
                actions = super()._dispatch(event, now_ns)
                actions = [*actions, *self._look_at_inquiry(now_ns)]
                if self.patience_ns is not None and now_ns >= self.patience_ns:
                    actions = [*actions, *self._out_of_patience(now_ns)]
                if self.look_ns is not None and now_ns >= self.look_ns:
                    actions = [*actions, *self._look_for_silence(now_ns)]
                return actions
            case AgentLost():
                self.patience_ns = None
        return super()._dispatch(event, now_ns)

    def _look_at_inquiry(self, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None:
            return []
        if now_ns >= inquiry.until_ns:
            return self._conclude(inquiry, now_ns)
        if inquiry.again_ns is not None and now_ns >= inquiry.again_ns:
            return self._ask_again(inquiry, now_ns)
        return []

    @property
    def last_line(self) -> int | None:
        return self.unverified[-1] if self.unverified else super().last_line

    @property
    def needed_lines(self) -> Collection[int]:
        return {epoch for epoch in (self.resumed, self.lines.newest) if epoch is not None}

    def _line_written(self, event: ControlWritten, now_ns: int) -> list[Action]:
        """A line that is not verified counts only where somebody asks for it by its number."""
        if self.coordinator.round is None or self.coordinator.round.verified:
            self.taken.append((event.epoch, self.coordinator.donor))
            return super()._dispatch(event, now_ns)
        say = [] if self.unverified else [Say(f"checkpoint {event.epoch} is not verified: {_ONE_LEFT}")]
        self.unverified.append(event.epoch)
        return [*say, *self.coordinator.handle(event, now_ns=now_ns)]

    def _distrust(self, planes: Collection[int], why: str) -> list[Action]:
        """One of these planes has computed wrongly, since it was started with this incarnation. The images that it has given
        may hold that error, also where it had not sent it yet: no restart uses them."""
        bad = [epoch for epoch, donor in self.taken if donor in planes]
        if not bad:
            return []
        self.taken = [each for each in self.taken if each[0] not in bad]
        self.lines.keep([epoch for epoch in self.lines.epochs if epoch not in bad])
        self.lines.needs_branch = True
        self.coordinator.wanted = True  # a new one, as soon as it can be had
        numbers = ", ".join(map(str, bad))
        text = f"{_count(bad)} {numbers} may hold the error, and will not be used"
        return [Log("lines-distrusted", {"epochs": bad, "reason": why}), Say(text)]

    def _carry_out(self, decision: Decision, now_ns: int) -> list[Action]:
        """Whoever starts again goes back behind lines that are not verified, and says so."""
        if not self.unverified or decision.verdict == "end" or self.stop is not None:
            return super()._carry_out(decision, now_ns)
        passed, self.unverified = self.unverified, []
        self.lines.needs_branch = True
        numbers = ", ".join(map(str, passed))
        fields = {"epochs": passed, "reason": decision.reason}
        say = Say(f"no restart from what is not verified: passing over {_count(passed)} {numbers}")
        return [Log("unverified-passed-over", fields), say, *super()._carry_out(decision, now_ns)]

    def _launch(self, reason: str, now_ns: int) -> list[Action]:
        self._begin()
        self.floors = Floors(self.size // self.replicas, self.planes, now_ns)
        self.look_ns = now_ns + LOOK_NS
        self.heard_ns = dict.fromkeys(range(self.size), now_ns)
        return super()._launch(reason, now_ns)

    def _hello(self, event: Hello, now_ns: int) -> list[Action]:
        if self.phase == "starting":
            self.heard_ns[event.rank] = now_ns + SILENT_NS  # it tells nothing before all are there
        return [*super()._hello(event, now_ns), *self._check_outcomes(now_ns)]

    def _reported(self, event: Reported, now_ns: int) -> list[Action]:
        rank, replica = divmod(event.rank, self.replicas)
        self.heard_ns[event.rank] = max(now_ns, self.heard_ns.get(event.rank, 0))
        if self.phase not in ("starting", "running") or replica not in self.voices:
            return []
        floors = [] if event.sent is None else self._tell(self.floors.sent(rank, replica, event.sent, now_ns))
        if event.details is not None:
            return self._answered(event, event.details, now_ns)
        if event.stuck:
            why = (
                f"replica {replica} of rank {rank} waits for what only a replica that was wrong has received"
            )
            return self._run_again(why, now_ns)
        found = None
        for stream, marks in event.marks.items():  # all of them count, whatever the first one shows
            verdict = self.votes[rank].report(replica, stream, marks)
            found = found or verdict
        return floors if found is None else [*floors, *self._differ(rank, found.odd, _where(found), now_ns)]

    def _tell(self, floors: Iterable[tuple[int, int | None]]) -> list[Action]:
        """Tell the replicas of these ranks how far the slowest one is."""
        found: list[Action] = []
        for rank, floor in floors:
            processes = tuple(rank * self.replicas + plane for plane in sorted(self.planes))
            found.append(Send(messages.layer(floor=floor), processes))
        return found

    def _text_differs(self, event: TextDiffers, now_ns: int) -> list[Action]:
        if self.phase not in ("starting", "running") or not self.voices.issuperset(event.odd):
            return []
        return self._differ(event.rank, event.odd, {"what": "standard output", "byte": event.at}, now_ns)

    def _differ(self, rank: int, odd: Iterable[int], where: dict[str, Any], now_ns: int) -> list[Action]:
        odd = [replica for replica in odd if replica in self.voices]
        return self._inquire(odd, rank, where, now_ns)

    def _inquire(
        self,
        odd: Collection[int],
        rank: int | None,
        where: dict[str, Any],
        now_ns: int,
        *,
        is_certain: bool = True,
    ) -> list[Action]:
        """Ask for messages one by one, to learn where it began: see `Inquiry`."""
        if self.inquiry is not None:
            return []  # one after the other: what differs, differs again
        plane = min(odd) if odd else min(self.voices)
        right = tuple(sorted(each for each in self.voices if each not in odd and each != plane))
        agreed = [vote.agreed(plane) for vote in self.votes]
        inquiry = self.inquiry = Inquiry(odd, (plane, right), (rank, where), agreed, is_certain=is_certain)
        inquiry.until_ns = now_ns + INQUIRY_NS
        self.questions += 1
        inquiry.question = self.questions
        asked = [process for process in self.processes([plane]) if process not in self.gone]
        inquiry.open = set(asked)
        question: list[Action] = [
            Send(messages.layer(question=self.questions, after=agreed[process // self.replicas]), (process,))
            for process in asked
        ]
        return question + self._check_inquiry(now_ns)

    def _answered(self, event: Reported, details: Details, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None or event.question != inquiry.question or event.rank not in inquiry.open:
            return []
        if not inquiry.is_second:
            inquiry.first[event.rank] = details
            inquiry.counts[event.rank] = event.counts or {}
            inquiry.open.discard(event.rank)
            return self._check_inquiry(now_ns)
        inquiry.second[event.rank] = details
        counts = event.counts or {}
        wanted = inquiry.ranges(event.rank, self.replicas)
        has_ended = event.rank in self.finished or event.rank % self.replicas not in self.planes
        if has_ended or all(counts.get(name, 0) >= last for name, (_, last) in wanted.items()):
            inquiry.open.discard(event.rank)
        return self._check_inquiry(now_ns)

    def _check_inquiry(self, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None or not inquiry.open <= self.gone:
            return []
        if inquiry.is_second or not inquiry.right:
            return self._conclude(inquiry, now_ns)
        inquiry.open = {p for p in self.processes(inquiry.right) if inquiry.ranges(p, self.replicas)}
        inquiry.until_ns = now_ns + SECOND_NS
        return self._ask_again(inquiry, now_ns)

    def _ask_again(self, inquiry: Inquiry, now_ns: int) -> list[Action]:
        """The second question, to those that have not come so far yet."""
        inquiry.again_ns = now_ns + AGAIN_NS
        asked = sorted(inquiry.open - self.gone)
        question: list[Action] = [
            Send(
                messages.layer(question=inquiry.question, ranges=inquiry.ranges(process, self.replicas)),
                (process,),
            )
            for process in asked
        ]
        return question if asked else self._conclude(inquiry, now_ns)

    def _conclude(self, inquiry: Inquiry, now_ns: int) -> list[Action]:
        """Name the replicas that are wrong, as far as it is known where it began, and take their planes out."""
        self.inquiry = None
        odd = [plane for plane in inquiry.odd if plane in self.voices]
        if self.phase not in ("starting", "running") or (inquiry.odd and not odd):
            return []
        began = self._began(inquiry)
        if began is None and not inquiry.is_certain:
            return self._check_outcomes(now_ns)
        rank, fields = None, inquiry.fields
        if began is not None:
            rank, fields = (
                began.rank,
                {"what": _what(began.stream), "first": began.number, "last": began.number},
            )
        elif self._all_messages_agree(inquiry):
            rank = inquiry.rank
        seen = {} if rank is not None else {"seen_in": inquiry.rank}
        where = f" of rank {rank if rank is not None else inquiry.rank}"
        if not odd:
            why = (
                f"the replicas{where} differ in {_text(fields)}, and it cannot be told which of them is right"
            )
            log = Log("replica-differs", {"rank": rank, "replica": None, **seen, **fields, "reason": why})
            return [log, *self._run_again(why, now_ns)]
        logs: list[Action] = []
        for plane in odd:
            process = None if rank is None else rank * self.replicas + plane
            logs.append(
                Log("replica-differs", {"rank": rank, "replica": plane, "process": process, **seen, **fields})
            )
        names = " and ".join(map(str, odd))
        why = f"replica {names}{where} differs from the others in {_text(fields)}"
        if rank is None:
            why += " (where it began is not known)"
        return [*logs, *self._lose(odd, why, "wrong", now_ns)]

    def _all_messages_agree(self, inquiry: Inquiry) -> bool:
        """Is it known of every message that the wrong plane has sent that it is right? Then it began where it was seen."""
        plane = inquiry.plane
        for rank, vote in enumerate(self.votes):
            process = rank * self.replicas + plane
            told, agreed = inquiry.first.get(process, {}), vote.agreed(plane)
            others = [inquiry.second.get(rank * self.replicas + right, {}) for right in inquiry.right]
            for name, count in (inquiry.counts.get(process) or vote.counts(plane)).items():
                last = told[name][-1][0] if told.get(name) else inquiry.agreed[rank].get(name, 0)
                if max(last, agreed.get(name, 0)) < count:
                    return False
                if not any(len(other.get(name, ())) >= len(told.get(name, ())) for other in others):
                    return False
        return bool(inquiry.right)

    def _began(self, inquiry: Inquiry) -> Origin | None:
        """Where the plane began to differ from all others of which that is known. None: that is not known, or they differ
        among themselves, or they are too few to call one wrong of which nothing else is known."""
        odd = [inquiry.first.get(process) for process in self.processes([inquiry.plane])]
        found = []
        for plane in inquiry.right:
            right = [inquiry.second.get(process) for process in self.processes([plane])]
            began = origin(odd, right, inquiry.agreed)
            if began is not None:
                found.append(began)
        if not found or any(each != found[0] for each in found):
            return None
        return found[0] if inquiry.is_certain or len(found) >= self.needed else None

    def _lose(self, planes: Collection[int], why: str, cause: str, now_ns: int) -> list[Action]:
        """These planes have no voice any more; those that are left go on."""
        led = min(self.planes, default=0)
        distrusted = self._distrust(planes, why) if cause == "wrong" else []
        actions = [*distrusted, *self._leave_behind(planes, cause, why, now_ns)]
        for plane in planes:
            self.outcomes.pop(plane, None)
        for vote in self.votes:
            vote.drop(list(planes))
        actions.append(DropVoices(tuple(sorted(planes))))  # type: ignore[arg-type]
        if not self.voices:
            decision = restart_if_left(
                f"{why}, the last", restarts=self.restarts, max_restarts=self.max_restarts
            )
            return actions + self._carry_out(decision, now_ns)
        actions.append(Say(f"{why}; the job goes on with the other replicas"))
        if self.planes and min(self.planes) != led:
            actions.append(Log("leader-changed", {"replica": min(self.planes), "former": led, "reason": why}))
        if len(self.voices) == 1:
            actions += [
                Log("cluster-unverified", {"replica": min(self.voices), "reason": why}),
                Say("one replica of each rank is left: from now on nothing is compared"),
            ]
        return actions + self._check_there(now_ns) + self._check_outcomes(now_ns)

    def _leave_behind(
        self, planes: Collection[int], cause: str, why: str, now_ns: int, *, kill: bool = True
    ) -> list[Action]:
        """Tell the processes of the other planes that these have left; `kill`: and end them."""
        gone = self.processes(planes)
        self.planes -= set(planes)
        self.failed |= set(gone)
        packet = {**messages.failed(self.failed), "cause": cause}
        told: list[Action] = [Send(packet, self.processes(self.planes))]
        if self.planes:
            told += self._tell(self.floors.left(self.planes, now_ns))
            told += self.coordinator.left(self.planes, why, now_ns)
        return [*told, Terminate(KILL, gone)] if kill else told

    # ---- ends of processes -------------------------------------------------------------------------------

    def _died(self, event: Died, now_ns: int) -> list[Action]:
        if self.phase in ("stopping", "fencing", "releasing"):
            return super()._died(event, now_ns)
        if self._is_loading(event.rank) and event.signal is None:
            return super()._died(event, now_ns)
        self.gone.add(event.rank)
        rank, replica = divmod(event.rank, self.replicas)
        how = {"signal": event.signal} if event.signal is not None else {"code": event.code}
        process = {"replica": replica, "process": event.rank, "incarnation": self.incarnation, **how}
        fields = {"rank": rank, **process}
        if replica not in self.planes or (event.rank in self.finished and event.code == 0):
            return [Log("rank-left", {"rank": event.rank, **process}), *self._check_inquiry(now_ns)]
        who = f"replica {replica} of rank {rank}"
        if event.signal is not None:
            why = f"{who} was killed by {signal_name(event.signal)}"
            cause = "lost" if event.signal in (KILL, TERM) else "wrong"  # a crash may come of a wrong value
            return [
                Log("replica-lost", {**fields, "reason": why}),
                *self._lose([replica], why, cause, now_ns),
            ]
        outcome = ("failed", rank, event.code or 1)
        return [
            Log("rank-died", {"rank": event.rank, **process}),
            *self._ended(replica, outcome, f"{who} left", now_ns),
        ]

    def _failed_after_release(self, event: Died) -> bool:
        """A process that is killed after the release changes nothing: the result has been compared."""
        super()._failed_after_release(Died(event.rank, event.incarnation, None, event.code))
        return False

    def _program_error(self, event: ProgramError, now_ns: int) -> list[Action]:
        rank, replica = divmod(event.rank, self.replicas)
        if self._is_loading(event.rank):
            return super()._program_error(event, now_ns)
        if self.phase not in ("starting", "running") or replica not in self.planes:
            return []
        last_line = event.traceback.rstrip().rpartition("\n")[2]
        fields = {
            "rank": event.rank,
            "replica": replica,
            "exit_code": event.exit_code,
            "traceback": event.traceback,
        }
        outcome = ("failed", rank, event.exit_code)
        who = f"replica {replica} of rank {rank} failed with exit code {event.exit_code}"
        why = f"{who}: {last_line}" if last_line else who
        return [Log("rank-failed", fields), *self._ended(replica, outcome, why, now_ns)]

    def _ended(self, replica: int, outcome: Outcome, why: str, now_ns: int) -> list[Action]:
        """A program has failed: its plane cannot go on, but others may come to the same end."""
        led = min(self.planes)
        self.outcomes[replica] = outcome
        # Perhaps it was wrong, and has failed because of that: its choices count as those of one that was wrong. The other
        # processes of its plane stay, and tell what they have sent.
        actions = self._leave_behind([replica], "wrong", why, now_ns, kill=False)
        if self.planes and min(self.planes) != led:
            actions.append(Log("leader-changed", {"replica": min(self.planes), "former": led, "reason": why}))
        actions += self._check_there(now_ns)
        if self.phase == "running" and len(self.voices) > self.needed:
            where = {"what": "the end", "reason": why}
            actions += self._inquire([replica], outcome[1], where, now_ns, is_certain=False)
        return actions + self._check_outcomes(now_ns)

    def _finished(self, event: Finished, now_ns: int) -> list[Action]:
        if self.phase == "stopping" and self.passed_on_ns is not None:
            return super()._finished(event, now_ns)
        replica = event.rank % self.replicas
        if self.phase not in ("starting", "running") or replica not in self.planes:
            return []
        if event.exit_code:
            error = ProgramError(event.rank, event.incarnation, event.exit_code)
            return self._program_error(error, now_ns)
        self.finished[event.rank] = 0
        fields = {"rank": event.rank, "replica": replica, "exit_code": 0}
        if all(process in self.finished for process in self.processes([replica])):
            self.outcomes[replica] = ("finished",)
        return [Log("rank-finished", fields), *self._check_outcomes(now_ns)]

    # ---- the outcome -------------------------------------------------------------------------------------

    def _check_finished(self) -> list[Action]:
        return []  # what planes have come to: `_check_outcomes`

    def _check_outcomes(self, now_ns: int) -> list[Action]:
        if self.phase != "running" or self.inquiry is not None:
            return []
        ballots: dict[Outcome, list[int]] = {}
        for plane, outcome in self.outcomes.items():
            ballots.setdefault(outcome, []).append(plane)
        open_ = self.planes - self.outcomes.keys()
        outcome = max(ballots, key=lambda each: len(ballots[each]), default=("none",))
        if not ballots or len(ballots[outcome]) < min(self.needed, len(self.voices)):
            if open_ or not ballots:
                return []
            ends = "; ".join(_came_to(plane, each) for plane, each in sorted(self.outcomes.items()))
            ranks = [each[1] for _, each in sorted(self.outcomes.items()) if len(each) > 1]
            return self._inquire([], ranks[0], {"what": "the end", "reason": ends}, now_ns)
        others = [plane for plane in self.outcomes if self.outcomes[plane] != outcome]
        if others:
            return self._wrong_end(others, outcome, now_ns)
        if outcome[0] == "failed":
            return self._all_failed(outcome, now_ns)
        if open_:
            if self.patience_ns is None:
                self.patience_ns = now_ns + LAST_PLANE_NS
            return []
        return self._all_finished(now_ns)

    def _wrong_end(self, planes: list[int], right: Outcome, now_ns: int) -> list[Action]:
        mine = self.outcomes[planes[0]]
        ends = "; ".join(_came_to(plane, self.outcomes[plane]) for plane in planes)
        where = {"what": "the end", "reason": ends}
        return self._inquire(planes, mine[1] if len(mine) > 1 else None, where, now_ns)

    def _all_failed(self, outcome: Outcome, now_ns: int) -> list[Action]:
        _, rank, code = outcome
        reason = f"rank {rank} failed with exit code {code}"
        self.ending = None
        return [Say(reason), *self._stop_now(End(code, reason), now_ns)]

    def _all_finished(self, now_ns: int) -> list[Action]:
        """All planes with a voice have finished: compare what is left, then let them leave."""
        if not self.is_read:
            return [ReadOutput(self.incarnation)]  # type: ignore[list-item]
        for rank, vote in enumerate(self.votes):
            verdict = vote.finish()
            if verdict is not None:
                where = _where(verdict)
                where["what"] = f"the number of {where['what']}"
                return self._differ(rank, verdict.odd, where, now_ns)
        self.patience_ns = None
        self.phase = "releasing"
        self.outcome = End(0, "all ranks have finished")
        compared = {
            "replicas": sorted(self.planes),
            "verified": len(self.voices) >= self.needed,
            "compared": sum(vote.compared for vote in self.votes),
        }
        log = Log("result-compared", compared)
        return [
            log,
            *self.coordinator.closed(self.outcome.reason),
            Send(messages.release()),
            *self._check_gone(),
        ]

    def _out_of_patience(self, now_ns: int) -> list[Action]:
        self.patience_ns = None
        slow = self.planes - self.outcomes.keys()
        if self.phase != "running" or not slow:
            return []
        why = f"replica {' and '.join(map(str, sorted(slow)))} of the ranks has not finished with the others"
        log = Log("replica-lost", {"rank": None, "replica": min(slow), "reason": why})
        return [log, *self._lose(slow, why, "lost", now_ns)]

    def _look_for_silence(self, now_ns: int) -> list[Action]:
        """Take a plane out of which a process has told nothing for long, while most others are well."""
        self.look_ns = now_ns + LOOK_NS if self.phase in ("starting", "running") else None
        if self.look_ns is None:
            return []
        floors = self._tell(self.floors.look(now_ns))
        silent_ns = {
            plane: now_ns
            - min(
                (self.heard_ns[p] for p in self.processes([plane]) if p not in self.finished), default=now_ns
            )
            for plane in self.planes
        }
        well = {plane for plane in self.planes if silent_ns[plane] < 2 * LOOK_NS}
        lost = {plane for plane in self.planes if silent_ns[plane] >= SILENT_NS}
        if not lost or len(well) < min(self.needed, len(self.voices) - 1) or not well:
            return floors
        why = f"replica {' and '.join(map(str, sorted(lost)))} of a rank has not answered for {SILENT_NS / 1e9:g} s"
        log = Log("replica-lost", {"rank": None, "replica": min(lost), "reason": why})
        return [*floors, log, *self._lose(lost, why, "lost", now_ns)]

    def _run_again(self, why: str, now_ns: int) -> list[Action]:
        """Nobody knows who is right: back to the last line that is older than the error, or to the beginning."""
        distrusted = self._distrust(range(self.replicas), why)
        if self.lines.newest != self.rerun_from:
            self.reruns, self.rerun_from = 0, self.lines.newest  # it has come further meanwhile
        if self.reruns >= RERUNS_MAX:
            reason = (
                f"{why}. This was run {self.reruns + 1} of the program: it does not compute the same each time "
                "(docs/redundancy.md names usual reasons), or this machine computes wrongly"
            )
            return [*distrusted, *self._stop_now(End(EXIT_REPLICAS_DIFFER, reason, "interrupted"), now_ns)]
        self.reruns += 1
        decision = restart_if_left(why, restarts=self.restarts, max_restarts=self.max_restarts)
        if decision.verdict == "end":
            end = End(EXIT_REPLICAS_DIFFER, decision.reason, "interrupted")
            return [*distrusted, *self._stop_now(end, now_ns)]
        return [*distrusted, *self._carry_out(decision, now_ns)]


_ONE_LEFT = "one replica of each rank is left, and nothing is compared"


def _count(lines: Sequence[int]) -> str:
    return "checkpoint" if len(lines) == 1 else "checkpoints"


def _what(stream: str) -> str:
    return {"point": "messages", "result": "results"}.get(stream, f"messages of collectives ({stream})")


def _where(verdict: Verdict) -> dict[str, Any]:
    return {"what": _what(verdict.stream), "first": verdict.first, "last": verdict.last}


def _text(where: Mapping[str, Any]) -> str:
    if "first" not in where and "byte" not in where:
        return f"{where['what']}: {where['reason']}"
    if "byte" in where:
        return f"{where['what']}, at byte {where['byte']}"
    numbers = (
        f"{where['first']}" if where["first"] == where["last"] else f"{where['first']} to {where['last']}"
    )
    return f"{where['what']} (number {numbers})"


def _came_to(plane: int, outcome: Outcome) -> str:
    if outcome[0] == "finished":
        return f"replica {plane} of all ranks finished"
    return f"replica {plane} of rank {outcome[1]} failed with exit code {outcome[2]}"

"""The life of a job whose ranks are computed by several processes each. Pure.

Process N·h + k is replica k of rank h; all processes with the same k are *plane* k, a whole copy of the job: nothing but
choices goes from one plane to another (:mod:`ckpt.redundancy.layer`). So a replica that is lost, or wrong, takes its plane
with it: the others of the plane would wait for it, or have its wrong data. The other planes go on and do not wait.

    computes ──a process died───────────────────────────────▶ lost
             ──digests, text or result differ from most─────▶ lost, as wrong
             ──a process is silent, while most other planes
               are not (stopped: SIGSTOP; `silence`)─────────▶ lost
             ──it does not come on, though it answers, while
               another one has come further (`stalls`)──────▶ lost; or the others are, or all go back
             ──its program ended with an error, or left──────▶ ended: its outcome still counts
             ──all its processes have finished───────────────▶ finished

The outcome of a plane is: finished; or the ranks that failed, with their exit codes (`ends`). The job has the outcome that
more than half of the planes have that it began with; those that have failed in other ranks get ENDS_NS for it. Then

    finished     the others have LAST_PLANE_NS to finish too, for the comparison; a stopped process is not waited for longer
    an error     the job ends with that exit code

Where replicas differ and no majority can be had (two that differ; three that all differ; outcomes that differ; copies of one
another that agree against one that is none), nobody knows who is right: all planes go back (`lines`).

A plane that is lost is replaced by a copy (`copies`), which gets a new number.

Where no plane is left, the program is started again as after any death, from the last verified line. One plane that is left
goes on, and is not compared: this is logged and said.

This module is long because the life of a job is one state machine; the events are in events.py.

Not here: the vote on messages (`ckpt.redundancy.vote`) and on text (`text`), files, processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from ckpt.controller.errors import EXIT_INCOMPATIBLE
from ckpt.controller.replicas.copies import Copies
from ckpt.controller.replicas.ends import FINISHED, Ends, came_to
from ckpt.controller.replicas.events import (
    CopyFailed,
    DropVoices,
    LinePrinted,
    LineTold,
    MemoryTold,
    OutputRead,
    ReadOutput,
    Reported,
    TextDiffers,
)
from ckpt.controller.replicas.inquiries import Outcome, what_of, where_of
from ckpt.controller.replicas.memory import Memories
from ckpt.controller.replicas.silence import LOOK_NS, SILENT_NS, START_NS, Silence
from ckpt.controller.replicas.stalls import Stalls
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
from ckpt.controller.supervision.failure_policy import restart_if_left, signal_name
from ckpt.redundancy.ahead import Floors

LAST_PLANE_NS: Final = 5_000_000_000
ENDS_NS: Final = 10_000_000_000
KILL: Final = 9
TERM: Final = 15


class ReplicaSupervisor(Copies):
    """`replicas`, `coordinator`: see `lines`. `clones`, `reserved`: see `copies`."""

    def _begin(self) -> None:
        super()._begin()
        former: Memories | None = getattr(self, "memories", None)
        unlike = None if former is None else former.unlike  # the program is the same
        self.memories = Memories(self.numbers, self.lineage, self.needed, unlike)
        self.floors = Floors(self.numbers.ranks, self.planes, 0)
        self.stalls = Stalls(self.numbers.ranks, self.planes, 0)
        self.ends = Ends()
        self.ends_ns: int | None = None
        self.is_late = False
        self.patience_ns: int | None = None
        self.is_read = False
        self.silence = Silence(0)
        self.look_ns: int | None = None

    def describe(self) -> list[dict[str, Any]]:
        """Per rank: its replicas with a voice, and how many messages have been compared."""
        return [
            {"rank": rank, "replicas": sorted(self.planes), "compared": vote.compared}
            for rank, vote in enumerate(self.votes)
        ]

    def deadline_ns(self) -> int | None:
        inquiry = self.inquiry
        asked = (None, None) if inquiry is None else (inquiry.until_ns, inquiry.again_ns)
        copies = self.clones.deadline_ns() if self._may_copy else None
        all_times = (
            super().deadline_ns(),
            self.patience_ns,
            self.ends_ns,
            self.look_ns,
            self.last_until_ns,
            copies,
            *asked,
        )
        times = [when for when in all_times if when is not None]
        return min(times, default=None)

    # ---- events ------------------------------------------------------------------------------------------

    def handle(self, event: Any, *, now_ns: int) -> list[Action]:
        actions = super().handle(event, now_ns=now_ns)
        return [*actions, *self._look_at_memories(now_ns), *self._look_at_copies(now_ns)]

    def _dispatch(
        self,
        event: Event | Reported | TextDiffers | OutputRead | LineTold | MemoryTold | LinePrinted | CopyFailed,
        now_ns: int,
    ) -> list[Action]:
        match event:
            case Reported():
                return self._reported(event, now_ns) if event.incarnation == self.incarnation else []
            case LineTold():
                self.silence.heard(event.rank)
                is_present = event.incarnation == self.incarnation
                return self.coordinator.line_told(event, now_ns) if is_present else []
            case MemoryTold():
                return self._memory_told(event, now_ns)
            case LinePrinted(epoch=epoch):
                return self.coordinator.printed(epoch, now_ns)
            case ControlWritten(epoch=epoch):
                donor, present = self.coordinator.donor, self.coordinator.round
                is_verified = present is not None and present.verified
                actions = [*self._line_written(event, now_ns), *self._start_copy(epoch, donor, now_ns)]
                return [*actions, *(self.memories.begin(epoch, self.planes) if is_verified else [])]
            case CopyFailed(plane=plane, reason=reason, incarnation=incarnation):
                if incarnation != self.incarnation:
                    return []
                self.gone |= set(self.numbers.of_plane(plane))  # they have never lived
                return self.clones.give_up(reason, now_ns) if self.clones.is_starting(plane) else []
            case TextDiffers():
                return self._text_differs(event, now_ns)
            case OutputRead(incarnation=incarnation):
                # While planes are asked, text that differs has been told in vain: then it has to be read again.
                self.is_read = incarnation == self.incarnation and self.inquiry is None
                return self._check_outcomes(now_ns)
            case Tick():
                actions = super()._dispatch(event, now_ns)
                actions = [*actions, *self._look_at_inquiry(now_ns)]
                if self.patience_ns is not None and now_ns >= self.patience_ns:
                    actions = [*actions, *self._out_of_patience(now_ns)]
                if self.ends_ns is not None and now_ns >= self.ends_ns:
                    self.ends_ns, self.is_late = None, True
                    actions = [*actions, *self._check_outcomes(now_ns)]
                if self.look_ns is not None and now_ns >= self.look_ns:
                    actions = [*actions, *self._look_for_silence(now_ns)]
                return actions
            case AgentLost():
                self.patience_ns = self.ends_ns = None
        return super()._dispatch(event, now_ns)

    def _launch(self, reason: str, now_ns: int) -> list[Action]:
        self._begin()
        self.floors = Floors(self.numbers.ranks, self.planes, now_ns)
        self.stalls = Stalls(self.numbers.ranks, self.planes, now_ns)
        self.look_ns = now_ns + LOOK_NS
        self.silence = Silence(now_ns)
        return super()._launch(reason, now_ns)

    def _hello(self, event: Hello, now_ns: int) -> list[Action]:
        if event.rank in self.clones.voiceless:
            self.addresses[event.rank] = event.address
            return self._join(now_ns) if self.clones.there(event.rank) else []
        return [*super()._hello(event, now_ns), *self._check_outcomes(now_ns)]

    def _reported(self, event: Reported, now_ns: int) -> list[Action]:
        rank, replica = self.numbers.parts(event.rank)
        self.silence.heard(event.rank)
        if event.held is not None:
            self.clones.held(event.rank, event.held)
            return []
        if self.phase not in ("starting", "running") or replica not in self.voices:
            return []
        floors: list[Action] = []
        if event.sent is not None:
            floors = self._tell(self.floors.sent(rank, replica, event.sent, now_ns))
            self.stalls.sent(rank, replica, event.sent, now_ns)
        if event.details is not None:
            answered = self._answered if event.question else self._told_last
            return answered(event, event.details, now_ns)
        if event.late:
            return self._come_too_late(event, replica, now_ns)
        if event.disagree is not None:
            stream, number, is_odd = event.disagree
            what = what_of(stream) if event.of is None else f"{what_of(stream)} to rank {rank}"
            where = {"what": what, "first": number, "last": number}
            return self._differ(self._maker(event), [replica] if is_odd else [], where, now_ns)
        if event.stuck:
            why = (
                f"replica {replica} of rank {rank} waits for what only a replica that was wrong has received"
            )
            return self._run_again(why, now_ns)
        found = None
        for stream, marks in event.marks.items():  # all of them count, whatever the first one shows
            verdict = self.votes[rank].report(replica, stream, marks)
            found = found or verdict
        if found is not None:
            return [*floors, *self._differ(rank, found.odd, where_of(found), now_ns)]
        caught_up = self.clones.sent(rank, replica, event.sent, now_ns) if event.sent is not None else []
        return [*floors, *caught_up]

    def _memory_told(self, event: MemoryTold, now_ns: int) -> list[Action]:
        self.silence.heard(event.rank)
        actions = self.memories.told(event) if event.incarnation == self.incarnation else []
        self.compared |= self.memories.verified
        return actions

    def _look_at_memories(self, now_ns: int) -> list[Action]:
        """Arrays of replicas differ: see `memory`. One inquiry after the other."""
        memories = self.memories
        if self.phase != "running" or self.inquiry is not None or not memories.found:
            return []
        (rank, found), *memories.found = memories.found
        if not found.odd or self.voices.issuperset(found.odd):
            return self._differ(rank, found.odd, {"what": "memory", "reason": found.text}, now_ns)
        return []

    def _tell(self, floors: Iterable[tuple[int, int | None]]) -> list[Action]:
        """Tell the replicas of these ranks how far the slowest one is."""
        found: list[Action] = []
        for rank, floor in floors:
            processes = tuple(self.numbers.process(rank, plane) for plane in sorted(self.planes))
            found.append(Send(messages.layer(floor=floor), processes))
        return found

    def _text_differs(self, event: TextDiffers, now_ns: int) -> list[Action]:
        if self.phase not in ("starting", "running") or not self.voices.issuperset(event.odd):
            return []
        return self._differ(event.rank, event.odd, {"what": "standard output", "byte": event.at}, now_ns)

    def _differ(self, rank: int, odd: Iterable[int], where: dict[str, Any], now_ns: int) -> list[Action]:
        odd = [replica for replica in odd if replica in self.voices]
        return self._inquire(odd, rank, where, now_ns)

    def _lose(self, planes: Collection[int], why: str, cause: str, now_ns: int) -> list[Action]:
        """These planes have no voice any more; those that are left go on."""
        led = min(self.planes, default=0)
        distrusted = self._distrust(planes, why) if cause == "wrong" else []
        actions = [*distrusted, *self._leave_behind(planes, cause, why, now_ns)]
        for plane in planes:
            self.outcomes.pop(plane, None)
            self.ends.forget(plane)
        self.is_late = self.is_read = False  # without them, the text of those that are left may differ
        for vote in self.votes:
            vote.drop(list(planes))
        actions += self.clones.lost(planes, why, now_ns=now_ns)
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
            self.coordinator.was_alone = True
            actions += [
                Log("cluster-unverified", {"replica": min(self.voices), "reason": why}),
                Say("one replica of each rank is left: from now on nothing is compared"),
            ]
        return actions + self._check_loaded() + self._check_there(now_ns) + self._check_outcomes(now_ns)

    def _leave_behind(
        self, planes: Collection[int], cause: str, why: str, now_ns: int, *, kill: bool = True
    ) -> list[Action]:
        """Tell the processes of the other planes that these have left; `kill`: and end them."""
        gone = self.processes(planes)
        self.planes -= set(planes)
        self.failed |= set(gone)
        packet = {**messages.failed(self.failed), "cause": cause}
        told = [*self.clones.left(planes, why, now_ns), Send(packet, self.processes(self.planes))]
        told += self.memories.left(self.planes)
        self.compared |= self.memories.verified
        self.stalls.left(self.planes)
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
        if event.rank in self.clones.voiceless:
            how_it_ended = f"exit code {event.code}" if event.signal is None else signal_name(event.signal)
            return self.clones.give_up(f"process {event.rank} of the copy ended ({how_it_ended})", now_ns)
        rank, replica = self.numbers.parts(event.rank)
        how = {"signal": event.signal} if event.signal is not None else {"code": event.code}
        process = {"replica": replica, "process": event.rank, "incarnation": self.incarnation, **how}
        fields = {"rank": rank, **process}
        if replica not in self.planes or (event.rank in self.finished and event.code == 0):
            left = Log("rank-left", {"rank": event.rank, **process})
            failed = self._failed_too(rank, replica, event.code, now_ns) if event.code else []
            return [left, *failed, *self._check_inquiry(now_ns)]
        who = self._called(event.rank)
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

    def _called(self, rank: int) -> str:
        return "replica {1} of rank {0}".format(*self.numbers.parts(rank))

    def _failed_after_release(self, event: Died) -> bool:
        """A process that is killed after the release changes nothing: the result has been compared. Nor does one of a plane
        that was lost, or of a copy that was given up."""
        if self.numbers.parts(event.rank)[1] not in self.planes:
            return False
        super()._failed_after_release(Died(event.rank, event.incarnation, None, event.code))
        return False

    def _program_error(self, event: ProgramError, now_ns: int) -> list[Action]:
        rank, replica = self.numbers.parts(event.rank)
        if self._is_loading(event.rank):
            return super()._program_error(event, now_ns)
        if event.rank in self.clones.voiceless:
            why = event.exception or f"exit code {event.exit_code}"
            return self.clones.give_up(why, now_ns, hopeless=event.exit_code == EXIT_INCOMPATIBLE)
        if self.phase not in ("starting", "running"):
            return super()._program_error(event, now_ns)
        if replica not in self.planes:
            return self._failed_too(rank, replica, event.exit_code, now_ns, self._sent(rank, replica))
        fields = {
            "rank": event.rank,
            "replica": replica,
            "exit_code": event.exit_code,
            "traceback": event.traceback,
        }
        outcome = ("failed", rank, event.exit_code, *self._sent(rank, replica))
        who = f"{self._called(event.rank)} failed with exit code {event.exit_code}"
        why = f"{who}: {event.exception}" if event.exception else who
        return [Log("rank-failed", fields), *self._ended(replica, outcome, why, now_ns)]

    def _ended(self, replica: int, outcome: Outcome, why: str, now_ns: int) -> list[Action]:
        """A program has failed: its plane cannot go on, but others may come to the same end."""
        led = min(self.planes)
        self.outcomes[replica] = outcome
        _, rank, code, *sent = outcome
        self.ends.failed(replica, rank, code, tuple(sent))
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

    def _sent(self, rank: int, replica: int) -> tuple[int, ...]:
        """How many messages and changes of files this replica's program has made; it has told its last ones."""
        counts = self.votes[rank].counts(replica)
        return tuple(counts.get(stream, 0) for stream in ("point", "files"))

    def _failed_too(
        self, rank: int, replica: int, code: int, now_ns: int, sent: tuple[int, ...] = ()
    ) -> list[Action]:
        """A rank has failed in a plane in which another one had failed before."""
        if self.phase not in ("starting", "running") or self.outcomes.get(replica, FINISHED) == FINISHED:
            return []
        self.ends.failed(replica, rank, code, sent)
        return self._check_outcomes(now_ns)

    def _finished(self, event: Finished, now_ns: int) -> list[Action]:
        if self.phase == "stopping" and self.stopping.passed_on_ns is not None:
            return super()._finished(event, now_ns)
        rank, replica = self.numbers.parts(event.rank)
        if self.phase not in ("starting", "running") or replica not in self.planes:
            return []
        if event.exit_code:
            error = ProgramError(event.rank, event.incarnation, event.exit_code)
            return self._program_error(error, now_ns)
        self.finished[event.rank] = 0
        self.stalls.finished(rank, replica, now_ns)
        fields = {"rank": event.rank, "replica": replica, "exit_code": 0}
        if all(process in self.finished for process in self.processes([replica])):
            self.outcomes[replica] = ("finished",)
        caught_up = self.clones.sent(rank, replica, None, now_ns)
        return [Log("rank-finished", fields), *caught_up, *self._check_outcomes(now_ns)]

    # ---- the outcome -------------------------------------------------------------------------------------

    def _check_finished(self) -> list[Action]:
        return []  # what planes have come to: `_check_outcomes`

    def _check_outcomes(self, now_ns: int) -> list[Action]:
        if self.phase != "running" or self.inquiry is not None:
            return []
        ballots = self.ends.ballots(self.outcomes)
        open_ = self.planes - self.outcomes.keys()
        if not ballots:
            return []
        outcome = max(ballots, key=lambda each: (self._suffice(ballots[each]), len(ballots[each])))
        if not self._suffice(ballots[outcome]):
            if open_ or (self.ends.may_agree(self.outcomes) and self._wait_for_ends(now_ns)):
                return []
            ends = "; ".join(came_to(plane, each) for plane, each in sorted(self.outcomes.items()))
            ranks = [each[1] for _, each in sorted(self.outcomes.items()) if len(each) > 1]
            return self._inquire([], ranks[0], {"what": "the end", "reason": ends}, now_ns)
        others = [plane for plane in self.outcomes if plane not in ballots[outcome]]
        wrong = [plane for plane in others if self.ends.is_contrary(plane, self.outcomes[plane], outcome)]
        if wrong:
            return self._wrong_end(wrong, outcome, now_ns)
        if others and self._wait_for_ends(now_ns):
            return []
        if outcome[0] == "failed":
            return self._all_failed(outcome, now_ns)
        if open_:
            if self.patience_ns is None:
                self.patience_ns = now_ns + LAST_PLANE_NS
            return []
        return self._all_finished(now_ns)

    def _wait_for_ends(self, now_ns: int) -> bool:
        """May planes that have failed in different ranks still come to the same end? For ENDS_NS."""
        if not self.is_late and self.ends_ns is None:
            self.ends_ns = now_ns + ENDS_NS
        return not self.is_late

    def _suffice(self, planes: Collection[int]) -> bool:
        """Are these, which have come to the same end, enough to say that it is the right one?"""
        others = self.voices - set(planes)
        enough = min(self.needed, len(self.voices))
        return len(planes) >= enough and self.lineage.decides(planes, others)

    def _wrong_end(self, planes: list[int], right: Outcome, now_ns: int) -> list[Action]:
        mine = self.outcomes[planes[0]]
        ends = "; ".join(came_to(plane, self.outcomes[plane]) for plane in planes)
        where = {"what": "the end", "reason": ends}
        return self._inquire(planes, mine[1] if len(mine) > 1 else None, where, now_ns)

    def _all_failed(self, outcome: Outcome, now_ns: int) -> list[Action]:
        _, rank, code, *_ = outcome
        reason = f"rank {rank} failed with exit code {code}"
        self.stopping.ending = None
        return [Say(reason), *self._stop_now(End(code, reason), now_ns)]

    def _all_finished(self, now_ns: int) -> list[Action]:
        """All planes with a voice have finished: compare what is left, then let them leave."""
        if not self.is_read:
            return [ReadOutput(self.incarnation)]  # type: ignore[list-item]
        for rank, vote in enumerate(self.votes):
            verdict = vote.finish()
            if verdict is not None:
                where = where_of(verdict)
                where["what"] = f"the number of {where['what']}"
                return self._differ(rank, verdict.odd, where, now_ns)
        self.patience_ns = None
        self.phase = "releasing"
        self.outcome = End(0, "all ranks have finished")
        compared = {
            "replicas": sorted(self.planes),
            "verified": len(self.voices) >= self.needed and not self.coordinator.was_alone,
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
        came_on_ns = max(map(self.stalls.came_on_ns, slow))
        if now_ns < came_on_ns + LAST_PLANE_NS:  # slow is not wrong
            self.patience_ns = came_on_ns + LAST_PLANE_NS
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
        longest_ns, what = SILENT_NS, "answered"
        if self.phase == "starting":
            longest_ns, what = START_NS, "started"
            for process in self.loaded.keys() | self.addresses.keys():
                self.silence.waits(process)
        planes = {plane: set(self.processes([plane])) - self.finished.keys() for plane in self.planes}
        well, lost = self.silence.look(planes, min(self.needed, len(self.voices) - 1), longest_ns, now_ns)
        stalled = self.stalls.look(well, now_ns)
        if not lost:
            return floors + self._leave_stalled(stalled, self.stalls.alike(stalled), now_ns)
        why = f"replica {' and '.join(map(str, sorted(lost)))} of a rank has not {what} for {longest_ns / 1e9:g} s"
        log = Log("replica-lost", {"rank": None, "replica": min(lost), "reason": why})
        return [*floors, log, *self._lose(lost, why, "lost", now_ns)]

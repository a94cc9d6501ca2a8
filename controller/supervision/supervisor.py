"""The life of a job: start, death, rollback, stop, end. Pure (no clock, no I/O).

    new ──Begin──▶ starting ──all said hello──▶ running ──all finished──▶ releasing ──all gone──┐
                      ▲  │ death by signal,        │                                            │
                      │  │ agent lost               │                                           ▼
               Launch │  ▼                          │                                        fencing ──▶ ended
                      └─ fencing ◀─────────────────┤                                            ▲
                                                   └── program error · stop ──▶ stopping ───────┘

Rules
- Global rollback: after a death the whole incarnation is fenced (killed *and* reaped) before a process of the next
  incarnation is forked. The next incarnation resumes from the newest committed line, or starts the program anew if there is
  no line.
- A death by signal (or of the agent) is an accident: the job is restarted, within the number of allowed restarts. An
  exception, an exit code other than 0, or an exit with status 0 without the packet `finished`, is caused by the program: a
  restart would not help. The job ends with that code, and the other ranks are told.
- Ranks that resume from images load them first. Where a restart has files to put back, they wait for that; it is done when
  all of them have said that they have loaded what needs no file. It can be taken back until all have said `hello`, and no
  rank goes on before it stays (`files`). So an image that cannot be loaded changes no file.
- If a rank that resumes from an image fails before it has sent `hello`, it could not read that image: the line is excluded,
  and the next older line is tried (`lines`). If the interpreter does not fit the image, the line is not at fault.
- Ranks that are told to stop get a `stop` packet, and are ended if they do not leave (`stopping`). This is done after a last
  checkpoint, which no further work shall follow, and after a failure of the program. After a failure the failed rank comes
  first: it ends as an interpreter does, and still flushes the program's files.
- Ranks that are released end as an interpreter does too, without a time limit. If such a rank does not exit with code 0, it
  has not written all its output. If a signal has killed it, this is an accident like any other death; else its exit code
  becomes the job's.
- A signal that stops the job (or `ckpt stop`) stops the program: the ranks get the signal, their handlers run, and all
  ranks have a time to end (`stopping`). The job's exit code is the signal's in any case.
- Where the program handles failures itself (`on_failure` "continue"), the death of a rank neither ends nor restarts the job:
  the other ranks are told at once and go on; later lines have no image of the dead rank (it is absent). The job is finished
  when all remaining ranks have finished, and interrupted when no rank remains. An exception or an exit code other than 0
  still ends the job. A rank that is lost with its host while it loads a line says nothing about that line.
- Ranks that are absent from a line are not started from it: they have failed, and the others are told. If the program asks
  to go back, it wants the ranks again that it has lost: the job goes back to the newest line that lacks none of those with
  which this incarnation began. That line is kept, however old it is.
- A program may start more processes (`spares`). From then on there are no checkpoints, which have the ranks alone. These
  processes are members of the job as the ranks are.
- The job does not end before everything is fenced: no rank and no image child survives the job.
- A controller may go on with ranks that run (`Adopt`), all of one incarnation: they are sent the table, since some may
  wait for it, and the newest commit, since the controller before may have ended between commit and announcement; the number
  of its open round is burnt. With `on_failure` "continue" some may be dead: the others are told (once more).
- Each incarnation number is used once. Events of another incarnation than the present one are ignored.
- Every decision carries its reason.

The supervisor owns the `Coordinator` (checkpoint rounds) and tells it when ranks are connected and when they end.

Not here: processes and sockets (`launch`, `service`), where ranks run (`plan`).

This module is long because the life of a job is one state machine: every event may move it in every phase. Its parts with a
life of their own are failure_policy.py, lines.py, spares.py and stopping.py.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from ckpt.controller.errors import (
    EXIT_CHECKPOINTED,
    EXIT_FAILURE,
    EXIT_INCOMPATIBLE,
    EXIT_RESTARTS_USED_UP,
)
from ckpt.controller.supervision import messages, spares
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Adopt,
    AgentLost,
    BackRequested,
    Begin,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Died,
    Discard,
    End,
    Event,
    Fence,
    Fenced,
    FilesDamaged,
    FilesKept,
    FilesRefused,
    Finished,
    Hello,
    KeepFiles,
    Launch,
    Loaded,
    Log,
    ProgramError,
    PutFilesBack,
    Reply,
    Say,
    Send,
    SetBranch,
    SpawnRequested,
    SpawnVoid,
    StopRequested,
    Tick,
)
from ckpt.controller.supervision.failure_policy import (
    Decision,
    OnFailure,
    judge,
    restart_if_left,
)
from ckpt.controller.supervision.lines import NOBODY, Lines, ranks_text
from ckpt.controller.supervision.stopping import GRACE_NS, STOP_TOKEN, Stopping
from ckpt.transport.records import replace

_MS = 1_000_000

EndKind = Literal["finished", "stopped", "interrupted"]
Files = Literal["as they are", "back", "being kept", "kept"]
"""The program's files in this incarnation: ``back``: put back, which can be taken back."""
Phase = Literal["new", "starting", "running", "releasing", "stopping", "fencing", "ended"]


class Supervisor:
    """The state machine of one job under one controller.

    `lines`, `start_over`, `needs_branch`, `absent`: see `lines.Lines`; `incarnation`: the number of the first launch, above
    all used numbers; `grace_ns`: see `stopping.Stopping`; `spare_processes`: how many the program may start.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        incarnation: int = 0,
        lines: Iterable[int] = (),
        max_restarts: int = 10,
        on_failure: OnFailure = "restart",
        start_over: bool = False,
        needs_branch: bool = False,
        absent: Mapping[int, Iterable[int]] = MappingProxyType({}),
        grace_ns: int = GRACE_NS,
        spare_processes: int = 0,
    ) -> None:
        self.coordinator = coordinator
        self.on_failure = on_failure
        self.size = coordinator.size
        self.phase: Phase = "new"
        self.incarnation = incarnation
        self.max_restarts = max_restarts
        self.restarts = 0
        self.lines = Lines(lines, start_over=start_over, needs_branch=needs_branch, absent=absent)
        self.resumed: int | None = None  # epoch that the present incarnation resumed from
        self.loaded: dict[int, bool] = {}  # ranks that wait until files are put back -> have they loaded all?
        self.files: Files = "as they are"
        self.cannot_load: list[str] = []  # why ranks cannot load their images: what has been told
        self.addresses: dict[int, str] = {}
        self.finished: dict[int, int] = {}
        self.gone: set[int] = set()
        self.absent: frozenset[int] = frozenset()  # ranks without which the present incarnation began
        self.failed: set[int] = set()  # dead ranks, without which the others go on, absent ones too
        self.diagnoses: dict[int, Mapping[str, Any]] = {}  # of failed ranks
        self.outcome: End | None = None  # how the job will end; None: after fencing, launch again
        self.relaunch_reason = "started"
        self.since_ns = 0  # time of the launch or the death, from which `restarted` measures
        self.stopping = Stopping(grace_ns)
        self.spares = spares.Spares(self.size, spare_processes)

    # ---- interface ---------------------------------------------------------------------------------------

    def handle(self, event: Event, *, now_ns: int) -> list[Action]:
        """Handle one event; returns the actions that follow, in order."""
        if self.phase == "ended":
            return []
        actions = self._dispatch(event, now_ns)
        if self.spares.waiting and self.phase == "running" and not self.coordinator.is_taking:
            waiting, self.spares.waiting = self.spares.waiting, []
            for request in waiting:
                actions += self._spawn_requested(request)
        return self._after_last_checkpoint(actions, now_ns)

    def deadline_ns(self) -> int | None:
        """When the next `Tick` is due; None: not before another event."""
        times = [when for when, _ in self.stopping.steps[:1]]
        rounds = self.coordinator.deadline_ns()
        if rounds is not None:
            times.append(rounds)
        return min(times, default=None)

    @property
    def last_line(self) -> int | None:
        """The line that the state of the ranks follows from: the one that was committed last, or that they resumed from."""
        return self.lines.newest

    @property
    def members(self) -> range:
        """The processes of this incarnation, dead ones too: of the ranks, and those that the program has started."""
        return range(self.size + self.spares.used)

    @property
    def wanted(self) -> set[int]:
        """The members without those that were started for a request that has failed."""
        return {member for member in self.members if not self.spares.is_unwanted(member)}

    @property
    def needed_lines(self) -> Collection[int]:
        """Lines that are kept, however old they are."""
        whole = self.lines.newest_with(self.absent) if self.lines.absent else None
        return () if whole is None else (whole,)

    def keep_lines(self, epochs: Collection[int]) -> None:
        """Only these lines are left on disk (older ones were pruned)."""
        self.lines.keep(epochs)

    def clone(self) -> Supervisor:
        """An independent copy, for tests that explore all interleavings."""
        return copy.deepcopy(self)

    # ---- events ------------------------------------------------------------------------------------------

    def _dispatch(self, event: Event, now_ns: int) -> list[Action]:
        match event:
            case Begin():
                assert self.phase == "new", self.phase
                reason = "resumed" if self.lines.epochs else "started"
                return self._launch(reason, now_ns)
            case Adopt():
                return self._adopt(event, now_ns)
            case Fenced():
                return self._fenced(event, now_ns)
            case FilesDamaged(reason=reason):
                return self._set_line_aside(None, reason, now_ns) if self.phase == "starting" else []
            case FilesKept(incarnation=incarnation):
                if incarnation != self.incarnation:
                    return []
                self.files = "kept"
                return self._check_there(now_ns)
            case FilesRefused(exit_code=code, reason=reason):
                end = End(code, reason, "interrupted")
                return self._stop_now(end, now_ns) if self.phase == "starting" else []
            case AgentLost():
                return self._agent_lost(event, now_ns)
            case StopRequested():
                return self._stop_requested(event, now_ns)
            case Tick():
                return self._tick(now_ns)
            case CheckpointRequested(token=token):
                if self.phase in ("starting", "running", "fencing") and self.outcome is None:
                    return self.coordinator.handle(event, now_ns=now_ns)
                return [] if token is None else [Reply(token, False, {"reason": "the job is ending"})]
            case ControlWritten(epoch=epoch):
                written = self.coordinator.round
                assert written is not None and written.writing, event
                self.lines.committed(epoch, written.absent)
                return self.coordinator.handle(event, now_ns=now_ns)
            case ControlFailed():
                return self.coordinator.handle(event, now_ns=now_ns)
        if event.incarnation != self.incarnation or event.rank not in self.members:
            return []  # a packet of an older incarnation, which has been fenced or will be
        match event:
            case Loaded():
                self.loaded[event.rank] = event.is_all
                return self._check_loaded()
            case Hello():
                return self._hello(event, now_ns)
            case Finished():
                return self._finished(event, now_ns)
            case ProgramError():
                return self._program_error(event, now_ns)
            case BackRequested():
                return self._back_requested(event, now_ns)
            case SpawnRequested():
                return self._spawn_requested(event)
            case SpawnVoid(token=token):
                return self.spares.void(token)
            case Died():
                return self._died(event, now_ns)
            case _:
                return self.coordinator.handle(event, now_ns=now_ns)

    def _launch(self, reason: str, now_ns: int) -> list[Action]:
        self.phase = "starting"
        self.resumed = self.lines.newest
        self.absent = self.lines.without(self.resumed)
        self.addresses, self.finished, self.gone, self.failed = {}, {}, set(self.absent), set(self.absent)
        self.diagnoses, self.cannot_load = {}, []
        self.loaded, self.files = {}, "as they are"
        self.spares.begin()
        self.since_ns = self.since_ns or now_ns
        launch = Launch(self.incarnation, self.resumed, reason, self.absent)
        return [*self._say_absent(), launch]

    def _say_absent(self) -> list[Action]:
        if not self.absent:
            return []
        actions: list[Action] = [
            Log("rank-absent", {"rank": rank, "incarnation": self.incarnation, "epoch": self.resumed})
            for rank in sorted(self.absent)
        ]
        who = ranks_text(self.absent)
        older = self.lines.newest_with(NOBODY)
        hint = "" if older is None else f"; epoch {older} has all ranks"
        return [*actions, Say(f"going on without {who}, dead before epoch {self.resumed}{hint}")]

    def _check_loaded(self) -> list[Action]:
        """Files are put back when nothing that can be known before forbids to go on from this line."""
        if self.phase != "starting" or not self.loaded or len(self.loaded.keys() | self.failed) < self.size:
            return []
        stays = all(self.loaded.values())
        self.loaded, self.files = {}, "kept" if stays else "back"
        return [PutFilesBack(stays)]

    def _hello(self, event: Hello, now_ns: int) -> list[Action]:
        if event.rank >= self.size:
            return self._spare_hello(event)
        if self.phase != "starting":
            return []
        self.addresses[event.rank] = event.address
        return self._check_there(now_ns)

    def _check_there(self, now_ns: int) -> list[Action]:
        if self.phase != "starting" or len(self.addresses.keys() | self.failed) < self.size:
            return []
        if self.files == "back":
            self.files = "being kept"
            return [KeepFiles(self.incarnation)]
        if self.files == "being kept":
            return []
        self.phase = "running"
        took_ms = round((now_ns - self.since_ns) / _MS, 3)
        fields = {"incarnation": self.incarnation, "from_epoch": self.resumed, "ms": took_ms}
        self.lines.loaded()
        set_branch: list[Action] = [SetBranch(self.resumed)] if self.lines.needs_branch else []
        self.lines.needs_branch = False
        actions: list[Action] = [
            *set_branch,  # before any rank goes on
            *([Send(messages.failed(sorted(self.failed), self.diagnoses))] if self.absent else []),
            self._table(),
            Log("restarted" if self.restarts or self.resumed is not None else "running", fields),
        ]
        actions += self.coordinator.ready(self.incarnation, now_ns=now_ns, absent=frozenset(self.failed))
        return actions + self._check_finished()

    def _spawn_requested(self, event: SpawnRequested) -> list[Action]:
        if self.phase == "starting" or self.coordinator.is_taking:
            self.spares.waiting.append(event)
            return []
        if event.rank in self.gone or event.rank in self.failed:
            return []
        if self.phase != "running":
            return spares.refused(event, "the job is ending")
        actions, started = self.spares.requested(event)
        if not started:
            return actions
        # Before they are forked: no image is taken from now on, and their frames carry the highest number that is in use.
        who = f"processes were started by rank {event.rank}"
        burnt = self.coordinator.refuse(f"{who}: a checkpoint has the ranks alone")
        return [*burnt, Send(messages.spawning()), *actions]

    def _spare_hello(self, event: Hello) -> list[Action]:
        if self.phase != "running" or not self.spares.is_starting(event.rank):
            return []
        self.addresses[event.rank] = event.address
        living = {rank: at for rank, at in self.addresses.items() if rank not in self.failed}
        told = self.spares.hello(event.rank, living, self.incarnation)
        if told and self.failed:  # they have not been told of those that died before
            told = [Send(messages.failed(sorted(self.failed), self.diagnoses)), *told]
        return told

    def _unwanted_left(self, rank: int, log: Log) -> list[Action]:
        """A process that was started for a request that has failed has ended: nobody knows it."""
        self.failed.add(rank)
        return [Send(messages.failed(sorted(self.failed), self.diagnoses)), log, *self._check_finished()]

    def _table(self) -> Send:
        return Send(
            messages.table(
                {
                    rank: (self.incarnation, address)
                    for rank, address in self.addresses.items()
                    if rank not in self.failed
                }
            )
        )

    def _adopt(self, event: Adopt, now_ns: int) -> list[Action]:
        assert self.phase == "new" and len(event.addresses) + len(event.failed) == self.size, (
            self.phase,
            event,
        )
        self.phase = "running"
        self.incarnation, self.resumed = event.incarnation, self.lines.newest
        self.addresses, self.finished = dict(event.addresses), dict(event.finished)
        self.failed, self.gone, self.absent = set(event.failed), set(event.failed), event.absent
        committed, highest = self.lines.newest or 0, self.coordinator.highest
        actions: list[Action] = [
            Log("adopted", {"incarnation": self.incarnation, "committed": self.lines.newest}),
            Say(f"going on with the ranks that run; the newest checkpoint is {committed or 'none'}"),
            self._table(),
        ]
        if committed:
            actions.append(Send(messages.committed(committed)))
        if highest > committed:
            reason = "its controller was lost"
            if event.open_round is not None and event.open_round > committed:
                actions.append(Log("round-aborted", {"epoch": event.open_round, "reason": reason}))
            actions += [Send(messages.abort(highest, reason)), Discard(highest)]
        actions += self.coordinator.ready(self.incarnation, now_ns=now_ns, absent=event.failed)
        return actions + self._adopt_failures(event, now_ns) + self._check_finished()

    def _adopt_failures(self, event: Adopt, now_ns: int) -> list[Action]:
        """Whom the controller before has told of which dead rank is not known: all are told of all."""
        if not event.failed:
            return []
        failed = sorted(event.failed)
        actions: list[Action] = [Send(messages.failed(failed, self.diagnoses))]
        for rank in sorted(event.failed - event.told):
            fields = {"rank": rank, "incarnation": self.incarnation}
            actions += [Log("rank-died", fields), Log("continuing", {**fields, "failed": failed})]
            actions.append(Say(f"rank {rank} has ended meanwhile; the job goes on without it"))
        for rank in failed:
            actions += self.coordinator.lost(rank, f"rank {rank} has ended", now_ns=now_ns)
        return actions

    def _finished(self, event: Finished, now_ns: int) -> list[Action]:
        if self.phase == "stopping" and self.stopping.passed_on_ns is not None:
            self.finished[event.rank] = event.exit_code
            log = Log("rank-finished", {"rank": event.rank, "exit_code": event.exit_code})
            return [log, *self._release_the_stopped()]
        if self.phase not in ("starting", "running"):
            return []
        if event.exit_code:
            error = ProgramError(event.rank, event.incarnation, event.exit_code)
            return self._program_error(error, now_ns)
        self.finished[event.rank] = event.exit_code
        log = Log("rank-finished", {"rank": event.rank, "exit_code": event.exit_code})
        return [log, *self._check_finished()]

    def _check_finished(self) -> list[Action]:
        if self.phase != "running" or not self.wanted <= self.finished.keys() | self.failed:
            return []
        reason = "all ranks have finished"
        if self.failed:
            reason = f"all ranks but {', '.join(map(str, sorted(self.failed)))}, which failed, have finished"
        self.phase = "releasing"
        self.outcome = End(max(self.finished.values()), reason)
        if min(self.finished) >= self.size:
            reason = "all ranks have failed; what they had started has finished"
            self.outcome = End(EXIT_FAILURE, reason, "interrupted")
        actions = self.coordinator.closed(reason)
        return [*actions, Send(messages.release()), *self._check_gone()]

    def _program_error(self, event: ProgramError, now_ns: int) -> list[Action]:
        exception = event.exception
        if self.phase not in ("starting", "running"):
            return self._cannot_load_either(event.rank, exception)
        if self.spares.is_unwanted(event.rank):
            return []
        if self.spares.is_starting(event.rank):  # the program cannot be read, or the process cannot be set up
            why = exception or f"exit code {event.exit_code}"
            return self.spares.lost(event.rank, f"process {event.rank} could not be started: {why}")
        if self._is_loading(event.rank):
            self.cannot_load.append(exception)
            if event.exit_code != EXIT_INCOMPATIBLE:
                return self._set_line_aside(event.rank, exception or f"exit code {event.exit_code}", now_ns)
        fields = {"rank": event.rank, "exit_code": event.exit_code, "traceback": event.traceback}
        reason = f"{self._called(event.rank)} failed with exit code {event.exit_code}"
        say: list[Action] = [Log("rank-failed", fields)]
        # A program's traceback is on the rank's standard error, which the user sees.
        say.append(Say(f"{reason}: {exception}" if exception else reason))
        self.stopping.ending = None if event.rank in self.gone else event.rank
        kind: EndKind = "interrupted" if self._is_loading(event.rank) else "finished"
        return say + self._stop_now(End(event.exit_code, reason, kind), now_ns)

    def _cannot_load_either(self, rank: int, why: str) -> list[Action]:
        """Another rank has failed to load its image, and all are being ended for that. Another reason than those that are
        known is told, since the user has to mend both; the same one is not, however many ranks have it."""
        if not self.cannot_load or rank in self.addresses or why in self.cannot_load:
            return []
        self.cannot_load.append(why)
        fields = {"epoch": self.resumed, "rank": rank, "reason": why}
        return [
            Log("line-unusable", fields),
            Say(f"{self._called(rank)} cannot go on from epoch {self.resumed} either: {why}"),
        ]

    def _called(self, rank: int) -> str:
        """The name of a process in what is said."""
        return f"rank {rank}"

    def _is_loading(self, rank: int) -> bool:
        return self.phase == "starting" and self.resumed is not None and rank not in self.addresses

    def _set_line_aside(self, rank: int | None, why: str, now_ns: int) -> list[Action]:
        who = "" if rank is None else self._called(rank)
        actions, end = self.lines.exclude(rank, why, who)
        if end is not None:
            return actions + self._stop_now(end, now_ns)
        return actions + self._fence(None, f"epoch {self.resumed} cannot be read")

    def _died(self, event: Died, now_ns: int) -> list[Action]:
        self.gone.add(event.rank)
        how: dict[str, object] = (
            {"signal": event.signal} if event.signal is not None else {"code": event.code}
        )
        if event.host is not None:
            how = {"host": event.host}
        fields = {"rank": event.rank, "incarnation": event.incarnation, **how}
        if self.phase == "stopping":
            self.stopping.left(event.rank, self.incarnation, now_ns)
            return [Log("rank-left", fields), *self._release_the_stopped(), *self._check_gone()]
        if self.phase == "fencing":
            return []  # fencing has killed it
        if self.phase == "releasing" and not self._failed_after_release(event):
            return [Log("rank-left", fields), *self._check_gone()]
        decision = judge(
            event, restarts=self.restarts, max_restarts=self.max_restarts, on_failure=self.on_failure
        )
        log = Log("rank-died", fields)
        ended = self.spares.lost(event.rank, f"{decision.reason} before all processes were there")
        if self.spares.is_unwanted(event.rank):
            return [*ended, *self._unwanted_left(event.rank, log)]
        if event.diagnosis is not None:
            self.diagnoses[event.rank] = event.diagnosis
        if self._is_loading(event.rank) and self._cannot_be_loaded(event):
            return [log, *self._set_line_aside(event.rank, decision.reason, now_ns)]
        if decision.verdict == "continue":
            return [*ended, *self._go_on_without(event.rank, decision.reason, log, now_ns)]
        return [log, *self._carry_out(decision, now_ns)]

    def _back_requested(self, event: BackRequested, now_ns: int) -> list[Action]:
        """As after a death without `--on-failure continue`. What other ranks ask is of an older incarnation then."""
        if self.phase != "running":
            return []
        what = f"rank {event.rank} asks to go back: {event.reason}"
        decision = restart_if_left(what, restarts=self.restarts, max_restarts=self.max_restarts)
        if decision.verdict == "restart":
            self.lines.go_back(self.absent)
        return self._carry_out(decision, now_ns)

    def _cannot_be_loaded(self, event: Died) -> bool:
        """Has a rank died because the line cannot be read? Yes, if the rank exits by itself while it loads the line."""
        if event.host is not None:
            return False
        return self.lines.died_loading() if event.signal is not None else event.code != EXIT_INCOMPATIBLE

    def _failed_after_release(self, event: Died) -> bool:
        """Was a released rank killed by a signal before it ended? An exit code other than 0 becomes the job's exit code."""
        assert self.outcome is not None
        if event.code and not self.outcome.exit_code:
            reason = f"rank {event.rank} left with exit code {event.code}"
            self.outcome = replace(self.outcome, exit_code=event.code, reason=reason)
        if event.signal is None or self.on_failure == "continue":
            return False
        self.outcome = None
        return True

    def _go_on_without(self, rank: int, why: str, log: Log, now_ns: int) -> list[Action]:
        self.failed.add(rank)
        if self.wanted <= self.failed:
            return [log, *self._stop_now(End(EXIT_FAILURE, f"{why}, the last one", "interrupted"), now_ns)]
        failed = sorted(self.failed)
        fields = {"rank": rank, "incarnation": self.incarnation, "failed": failed}
        actions: list[Action] = [
            Send(messages.failed(failed, self.diagnoses)),  # first, since the other ranks wait for it
            log,
            Log("continuing", fields),
            Say(f"{why}; the job goes on without it"),
            *self.coordinator.lost(rank, why, now_ns=now_ns),
        ]
        return actions + self._check_loaded() + self._check_there(now_ns) + self._check_finished()

    def _agent_lost(self, event: AgentLost, now_ns: int) -> list[Action]:
        log = Log("agent-lost", {"reason": event.reason})
        if self.outcome is not None:
            return [log, *self._fence(self.outcome, self.outcome.reason)]
        what = f"the agent was lost ({event.reason})"
        decision = restart_if_left(what, restarts=self.restarts, max_restarts=self.max_restarts)
        if self.phase == "fencing":
            return [log, Fence(self.incarnation)]
        if self.on_failure == "continue":
            end = End(EXIT_FAILURE, f"{what}, and all ranks with it", "interrupted")
            return [log, *self._stop_now(end, now_ns)]
        return [log, *self._carry_out(decision, now_ns)]

    def _carry_out(self, decision: Decision, now_ns: int) -> list[Action]:
        if decision.verdict == "end":
            kind: EndKind = "interrupted" if decision.exit_code == EXIT_RESTARTS_USED_UP else "finished"
            outcome = End(decision.exit_code, decision.reason, kind)
            # `service` prints the reason of an interruption as its last message.
            say: list[Action] = [Say(decision.reason)] if kind == "finished" else []
            return say + self._stop_now(outcome, now_ns)
        if (request := self.stopping.request) is not None:
            reason = f"{decision.reason} while the job was being stopped"
            return self._fence(End(request.exit_code, reason, "stopped"), reason)
        self.restarts += 1
        self.since_ns = now_ns
        notice = Say(f"{decision.reason}; restarting from {self.lines.origin()}")
        return [notice, *self._fence(None, decision.reason)]

    # ---- fencing, stopping -------------------------------------------------------------------------------

    def _fence(self, outcome: End | None, reason: str) -> list[Action]:
        """Kill all processes of the incarnation; then launch again (`outcome` None) or end the job."""
        self.phase = "fencing"
        self.outcome = outcome
        self.relaunch_reason = reason
        self.stopping.steps = []
        # Both burn the open round. Requests for a checkpoint are kept only if there is a next incarnation.
        tell = self.coordinator.interrupted if outcome is None else self.coordinator.closed
        return [*tell(reason), Fence(self.incarnation)]

    def _fenced(self, event: Fenced, now_ns: int) -> list[Action]:
        if self.phase != "fencing" or event.incarnation != self.incarnation:
            return []
        if self.outcome is not None:
            return self._end()
        self.incarnation += 1
        epoch = self.lines.newest
        fields = {"from_epoch": epoch, "incarnation": self.incarnation, "reason": self.relaunch_reason}
        return [Log("restarting", fields), *self._launch(self.relaunch_reason, now_ns)]

    def _end(self) -> list[Action]:
        assert self.outcome is not None
        self.phase = "ended"
        return [*self.stopping.ended(self.outcome), self.outcome]

    def _stop_now(self, outcome: End, now_ns: int) -> list[Action]:
        """Tell the ranks to leave; those that do not are killed later."""
        self.phase = "stopping"
        self.outcome = outcome
        self.stopping.force(self.incarnation, now_ns)
        closing = [*self.coordinator.closed(outcome.reason), *self.spares.stopped(outcome.reason)]
        return [*closing, Send(messages.stop(outcome.exit_code)), *self._check_gone()]

    def _pass_on(self, outcome: End, number: int, now_ns: int) -> list[Action]:
        """Send the signal `number` to the ranks, and give the program time to end by itself."""
        self.phase = "stopping"
        self.outcome = outcome
        closing = [*self.coordinator.closed(outcome.reason), *self.spares.stopped(outcome.reason)]
        left = tuple(rank for rank in self.members if rank not in self.finished and rank not in self.gone)
        signal = self.stopping.pass_on(number, left, self.incarnation, now_ns)
        actions = [*closing, signal, *self._release_the_stopped(), *self._check_gone()]
        return [*actions, self.stopping.say_passed_on(number)]

    def _release_the_stopped(self) -> list[Action]:
        return self.stopping.release(self.finished, self.gone, len(self.members))

    def _at_once(self, now_ns: int) -> list[Action]:
        """A second signal has come during the ranks' time to end: kill them, unless it came too early to be meant."""
        if self.phase != "stopping" or not self.stopping.is_again(now_ns):
            return []
        self.phase, self.stopping.steps = "fencing", []
        return [Log("ended-at-once", {"incarnation": self.incarnation}), Fence(self.incarnation)]

    def _stop_for(self, request: StopRequested, reason: str, now_ns: int) -> list[Action]:
        outcome = End(request.exit_code, reason, "stopped")
        if request.signal is None:
            return self._stop_now(outcome, now_ns)
        return self._pass_on(outcome, request.signal, now_ns)

    def _check_gone(self) -> list[Action]:
        if len(self.gone) < len(self.members):
            return []
        self.phase = "fencing"  # all ranks have ended; image children may still live
        self.stopping.steps = []
        return [Fence(self.incarnation)]

    def _stop_requested(self, event: StopRequested, now_ns: int) -> list[Action]:
        stopping = self.stopping
        stopping.asked(event)
        if self.phase in ("releasing", "stopping") and not stopping.steps:
            return self._do_not_wait(event, now_ns)
        if self.outcome is not None:
            return self._at_once(now_ns) if event.token is None else []  # the job is ending already
        log = Log("stop-requested", {"reason": event.reason, "checkpoint": event.checkpoint})
        first = stopping.request is None
        stopping.request = event
        if event.checkpoint and first:
            return [log, *self.coordinator.handle(CheckpointRequested(STOP_TOKEN), now_ns=now_ns)]
        if self.phase == "fencing":
            self.outcome = End(event.exit_code, event.reason, "stopped")
            return [log, *self.coordinator.closed(event.reason), Fence(self.incarnation, final=True)]
        return [log, *self._stop_for(event, event.reason, now_ns)]

    def _do_not_wait(self, event: StopRequested, now_ns: int) -> list[Action]:
        """The job is ending already without a time limit, and a stop request sets one."""
        log = Log("stop-requested", {"reason": event.reason, "checkpoint": event.checkpoint})
        if self.phase == "releasing":
            return [log, *self._stop_for(event, event.reason, now_ns)]
        if event.signal is None or (ending := self.stopping.ending) is None:
            self.stopping.force(self.incarnation, now_ns, waits=False)
            return [log]
        return [log, self.stopping.pass_on(event.signal, (ending,), self.incarnation, now_ns)]

    def _after_last_checkpoint(self, actions: list[Action], now_ns: int) -> list[Action]:
        """Take the answer to the supervisor's own request (the last checkpoint before a stop) out of `actions`, and stop."""
        kept, answer = self.stopping.take_answer(actions)
        request = self.stopping.request
        if answer is None or request is None or self.outcome is not None:
            return kept
        if answer.ok:
            self.stopping.committed(answer)
            reason = f"{request.reason}; checkpoint {answer.fields['epoch']} is committed"
            return kept + self._stop_now(End(EXIT_CHECKPOINTED, reason, "stopped"), now_ns)
        why = answer.fields.get("reason")
        if request.only_if_committed:
            return kept + self.stopping.give_up(answer)
        reason = f"{request.reason}; the last checkpoint failed: {why}"
        return kept + self._stop_for(request, reason, now_ns)

    def _tick(self, now_ns: int) -> list[Action]:
        actions = self.stopping.due(now_ns)
        if any(isinstance(step, Fence) for step in actions):
            self.phase = "fencing"
        return actions + self.coordinator.handle(Tick(), now_ns=now_ns)

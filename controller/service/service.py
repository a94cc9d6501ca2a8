"""The controller's event loop: connects the pure state machines to processes, sockets, clock, signals and job directory.

There is one thread and one selector. Each input becomes an event for the `Supervisor`. The actions that the supervisor
returns are carried out in order (`_perform`), and their completions go back to it as events. Sources of events:

    agent       packets of the ranks, deaths                            (`launch`)
    clients     ckpt checkpoint, stop, status                           (`clients`)
    signals     signals that stop the job, or are passed to ranks       (`signals`)
    faults      links between hosts that are down, and the diagnosis    (`ckpt.controller.faults`)
    clock       deadlines of the supervisor; the ranks' output files    (`passthrough`)

The control file is written synchronously: nothing may happen between the last vote and the commit. It takes milliseconds.

Not here: decisions (`supervisor`, `coordinator`), what is different for jobs with replicas (`ckpt.controller.replicas`).

This module is long because all sources of events meet in one loop, and each action is carried out where its answer is
awaited.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import EXIT_TIMEOUT, LaunchFailed
from ckpt.controller.launch.launcher import AgentGone, Launcher
from ckpt.controller.service.clients import ClientServer, remove_sockets
from ckpt.controller.service.commit import commit_line, remove_burnt, remove_old_lines, set_branch
from ckpt.controller.service.files import JobFiles
from ckpt.controller.service.livestatus import LiveStatus, SlowStart, describe_start
from ckpt.controller.service.passthrough import Passthrough
from ckpt.controller.service.placing import Placer
from ckpt.controller.service.report import Reporter
from ckpt.controller.service.signals import PASSES, STOPS, SignalSource
from ckpt.controller.supervision import messages, packet_events, past, plan
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    Adopt,
    AgentLost,
    Begin,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Discard,
    End,
    Fence,
    FilesDamaged,
    FilesKept,
    FilesRefused,
    KeepFiles,
    Launch,
    LaunchMore,
    Log,
    PutFilesBack,
    Reply,
    Say,
    Send,
    SetBranch,
    StopRequested,
    Terminate,
    Tick,
    WriteControl,
)
from ckpt.controller.supervision.failure_policy import OnFailure, signal_name
from ckpt.controller.supervision.history import History
from ckpt.controller.supervision.lines import Lines
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.stopping import GRACE_NS
from ckpt.controller.supervision.supervisor import Supervisor
from ckpt.store import JobDirectory, LockHandle, list_epochs
from ckpt.transport.records import dataclass, field, replace

if TYPE_CHECKING:
    from ckpt.controller.adoption.roster import Adopted
    from ckpt.controller.faults.locator import FaultLocator, FaultOptions
    from ckpt.controller.replicas.driver import ReplicaPart
    from ckpt.controller.replicas.output import ReplicaOutput


_SAID = {
    "host-failed": "host {host} takes no part: {reason}",
    "modules-missing": "host {host}: {reason}",
    "same-machine": "host {host}: {reason}",
}
"""Notes of hosts that the user is told, too."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Options of a run. `keep`: how many committed lines to keep on disk, None: all. `rank_options`: passed to the ranks.

    `replicas`: how many processes compute each rank; `clones`: how often each of them may be replaced in an hour;
    `compare_memory`: "all", or "arrays" alone; `compare`: "late" or "sender".
    `spares`: how many processes the program may start. `grace_ns`: see `supervisor`; `time_limit_ns`: of the whole run;
    `checkpoint_on_signal`: take a last checkpoint before a signal stops the job. `faults`: of a job on several hosts.
    """

    rounds: RoundOptions = field(default_factory=RoundOptions)
    max_restarts: int = 10
    on_failure: OnFailure = "restart"
    grace_ns: int = GRACE_NS
    keep: int | None = None
    time_limit_ns: int | None = None
    checkpoint_on_signal: bool = False
    replicas: int = 1
    clones: int = 0
    compare_memory: str = "all"
    compare: str = "late"
    spares: int = 0
    rank_options: dict[str, Any] = field(default_factory=dict)
    faults: FaultOptions | None = None


class Service:
    """One controller, which holds the job's lock, until its exit code is known.

    `lines`: the lines to resume from; `history`: the job's event log before this controller, summarised; `adopted`: the
    ranks that run, and with which it goes on.
    """

    def __init__(
        self,
        job: JobDirectory,
        lock: LockHandle,
        launcher: Launcher,
        reporter: Reporter,
        options: ServiceOptions,
        *,
        history: History,
        lines: Lines,
        adopted: Adopted | None = None,
    ) -> None:
        self.job = job
        self.lock = lock
        self.launcher = launcher
        self.reporter = reporter
        self.options = options
        assert lock.record.location is not None, "a controller has recorded its location"
        self.runtime_dir = lock.record.location.runtime
        highest = max([history.highest_epoch, job.highest_epoch(), *lines.epochs])
        self.first: Adopt | Begin = Begin()
        if adopted is not None:
            highest = max(highest, adopted.epoch)
            addresses = {rank: facts.address for rank, facts in adopted.ranks.items()}
            finished = {r: each.finished for r, each in adopted.ranks.items() if each.finished is not None}
            told, absent = adopted.failed & history.failed, history.absent
            who = (adopted.incarnation, addresses, finished, history.open_round)
            self.first = Adopt(*who, failed=adopted.failed, told=told, absent=absent)
        self.processes = job.size * options.replicas
        self.replicas = self._replica_part()
        make_rounds = Coordinator if self.replicas is None else self.replicas.coordinator
        coordinator = make_rounds(
            self.processes, highest=highest, committed=lines.newest, options=options.rounds
        )
        make: Any = Supervisor if self.replicas is None else self.replicas.supervisor
        more = {"spare_processes": options.spares} if options.spares else {}
        self.supervisor: Supervisor = make(
            coordinator,
            incarnation=history.incarnation + 1,
            lines=lines.epochs,
            start_over=lines.start_over,
            needs_branch=lines.needs_branch,
            absent=lines.absent,
            max_restarts=options.max_restarts,
            on_failure=options.on_failure,
            grace_ns=options.grace_ns,
            **more,
        )
        self.selector = selectors.DefaultSelector()
        self.clients = ClientServer(self.runtime_dir, self.selector, self._question)
        self.passthrough = self._output_of_ranks(history)
        self.signals = SignalSource()
        self.placer = Placer(self.processes, launcher, self._log)
        self.locator = self._fault_locator()
        shared = getattr(launcher, "shared", None)  # on several hosts
        self.files = JobFiles(job, options.rank_options, reporter.say, self._log, shared)
        self.pids: dict[int, int] = {}
        self.launched: tuple[plan.Program, plan.Placement] | None = None
        if adopted is not None:
            self._take_over(adopted)
        self.questions: list[LiveStatus] = []
        self.slow_start = SlowStart(options.rounds.timeout_ns)
        self.events: deque[Any] = deque()
        self.end: End | None = None
        self.output_due_ns = 0
        self.limit_ns: int | None = None
        self.watched: int | None = None

    def _take_over(self, adopted: Adopted) -> None:
        """Know of the ranks that run what events of their start would have told."""
        for rank, facts in adopted.ranks.items():
            self.pids[rank] = facts.pid
            self.placer.found(rank, facts.host)
            if self.locator is not None:
                event = {"e": "started", "rank": rank, "incarnation": adopted.incarnation, "host": facts.host}
                self.locator.agent_event(event, time.monotonic_ns())

    def _replica_part(self) -> ReplicaPart | None:
        """What only a job with replicas has; its modules are not imported for others."""
        if self.options.replicas == 1:
            return None
        from ckpt.controller.replicas.driver import ReplicaPart

        reporter, options = self.reporter, self.options
        return ReplicaPart(
            self.job,
            options.replicas,
            reporter.output,
            reporter.say,
            self._feed,
            self._start_more,
            options.clones,
            options.compare_memory,
            options.compare,
        )

    def _fault_locator(self) -> FaultLocator | None:
        """What only a job on several hosts has."""
        if self.options.faults is None:
            return None
        from ckpt.controller.faults.locator import FaultLocator

        return FaultLocator(self.options.faults, self.selector, self._log, self.reporter.say)

    def _output_of_ranks(self, history: History) -> Passthrough | ReplicaOutput:
        if self.replicas is not None:
            return self.replicas.output
        job, reporter = self.job, self.reporter
        paths = [
            (rank, stream, job.output_path(rank, stream))
            for rank in range(job.size)
            for stream in ("out", "err")
        ]
        return Passthrough(
            paths,
            reporter.output,
            reporter.say,
            from_end=history.incarnation >= 0,
            is_far=self.launcher.is_far,
        )

    # ---- loop --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run the job to its end; returns the exit code. Raises LockLost, LaunchFailed and FilesNotPutBack.

        Signals that come behind the end change nothing any more, until `close`."""
        self.selector.register(self.signals.fileno(), selectors.EVENT_READ, self._on_signals)
        try:
            if self.options.time_limit_ns is not None:
                self.limit_ns = time.monotonic_ns() + self.options.time_limit_ns
            self._feed(self.first)
            self._watch_agent()
            while (end := self.end) is None:
                self._run_once()
            self.files.ranks_ended(end.exit_code)
        finally:
            if self.locator is not None:
                self.locator.close()
            self.launcher.close()
            self.clients.close()
            self.passthrough.finish()
            self.selector.unregister(self.signals.fileno())
            remove_sockets(self.runtime_dir)
        self.files.ended(end.exit_code)
        self._log("job-finished", {"exit_code": end.exit_code, "reason": end.reason, "kind": end.kind})
        if end.kind != "finished":
            self.reporter.say(end.reason)
        return end.exit_code

    def close(self) -> None:
        """What is left to do may be interrupted by signals again."""
        self.signals.restore()

    def _run_once(self) -> None:
        now_ns = time.monotonic_ns()
        due = [self.output_due_ns, *(question.deadline_ns() for question in self.questions)]
        supervisor_ns = self.supervisor.deadline_ns()
        if supervisor_ns is not None:
            due.append(supervisor_ns)
        if self.limit_ns is not None:
            due.append(self.limit_ns)
        if (slow_ns := self.slow_start.deadline_ns()) is not None:
            due.append(slow_ns)
        if self.locator is not None and (fault_ns := self.locator.deadline_ns()) is not None:
            due.append(fault_ns)
        for key, _ in self.selector.select(max(0, min(due) - now_ns) / 1e9):
            key.data()
        if self.launcher.fileno() < 0:
            self._agent()
        now_ns = time.monotonic_ns()
        supervisor_ns = self.supervisor.deadline_ns()
        if supervisor_ns is not None and now_ns >= supervisor_ns:
            self._feed(Tick())
        if self.limit_ns is not None and now_ns >= self.limit_ns:
            self.limit_ns = None
            reason = "the time limit is reached"
            self._feed(StopRequested(EXIT_TIMEOUT, reason, checkpoint=True, signal=signal.SIGTERM))
        if self.locator is not None:
            self.locator.tick(now_ns)
        if self.replicas is None and self.slow_start.is_due(self.supervisor, now_ns=now_ns):
            self._ask_all(self._say_slow_start)
        for question in self.questions:
            question.tick(now_ns=now_ns)
        self.questions = [question for question in self.questions if not question.finished]
        self._output(now_ns)

    def _output(self, now_ns: int) -> None:
        self.reporter.flush()
        if now_ns >= self.output_due_ns:
            if not self.reporter.is_full:
                self.passthrough.poll()
                if self.launcher.is_far:
                    assert isinstance(self.passthrough, Passthrough)
                    self.launcher.printed(self.passthrough.taken())
            self.files.poll()
            self.output_due_ns = time.monotonic_ns() + self.passthrough.interval_ns()

    def _feed(self, event: Any) -> None:
        self.events.append(event)
        while self.events:
            event = self.events.popleft()
            for action in self.supervisor.handle(event, now_ns=time.monotonic_ns()):
                self._perform(action)
            if isinstance(event, ControlWritten):  # ranks that wait for the commit go on
                self._remove_old_lines()
                self.files.remove_left()

    def _log(self, name: str, fields: dict[str, Any]) -> None:
        self.job.events.append(name, **fields)
        if name in ("committed", "round-aborted") and (message := past.shorten(self.job, self.lock)):
            self.reporter.say(message)
        self.reporter.event(name, fields)

    # ---- actions -----------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case Send(packet=packet, ranks=ranks):
                self.launcher.send(dict(packet), ranks)
            case Log(event=name, fields=fields):
                self._log(
                    name, dict(fields) if self.replicas is None else self.replicas.located(fields, self.pids)
                )
            case Say(text=text):
                self.reporter.say(text)
            case Reply(token=token, ok=ok, fields=fields):
                assert isinstance(token, int)
                self.clients.answer(token, {"ok": ok, **fields})
            case WriteControl():
                self.events.append(self._commit(action))
            case Discard(epoch=epoch):
                self._discard(epoch)
            case PutFilesBack(stays=stays):
                self._put_files_back(stays)
            case KeepFiles(incarnation=incarnation):
                self.events.append(self.files.keep() or FilesKept(incarnation))
            case Launch():
                self._discard(self.supervisor.coordinator.highest, fenced=True)
                self._launch(action)
            case LaunchMore():
                self._start_spares(action)
            case SetBranch(epoch=epoch):
                set_branch(self.job, self.lock, epoch, above=self.supervisor.coordinator.highest)
            case Fence(incarnation=incarnation, final=final):
                self.launcher.fence(incarnation, final=final)
            case Terminate(number=number, ranks=ranks):
                self.launcher.signal(number, ranks)
            case End():
                self.end = action
            case _ if self.replicas is not None:
                answer = self.replicas.perform(action, self.supervisor.incarnation)
                if answer is not None:
                    self.events.append(answer)

    def _launch(self, action: Launch) -> None:
        lines, highest = self.supervisor.lines, self.supervisor.coordinator.highest
        files = self.files.put_back(action, highest, has_older=lines.has_older)
        if isinstance(files, FilesDamaged):
            self.events.append(files)
            self._watch_agent()  # it answers that no rank is alive
            return
        program = program_of(self.job, self.runtime_dir, {**self.options.rank_options, **files})
        placed = self.placer.place(action.absent)
        more: Callable[[int], Mapping[str, Any]] = plan.no_more
        if self.replicas is not None:
            self.launched = program, placed[0]
            more = self.replicas.described(action.incarnation, action.epoch)
            self.replicas.begin_again(action.epoch)
        elif self.options.spares:
            self.launched = program, placed[0]
            more = plan.with_spares(self.job.size, self.options.spares)
        begins: dict[str, Any] = {"incarnation": action.incarnation, "epoch": action.epoch}
        specs = plan.specs(program, placed, **begins, more=more, absent=action.absent)
        if self.launcher.is_far:
            assert isinstance(self.passthrough, Passthrough)
            specs = [{**spec, "printed": self.passthrough.known(spec["rank"])} for spec in specs]
        self.pids.clear()
        if message := past.record(self.lock, action.incarnation, self.launcher.bring_up()):
            self.reporter.say(message)
        self.files.begin(action)
        self.launcher.start(specs)
        self._watch_agent()

    def _put_files_back(self, stays: bool) -> None:
        told = self.files.put_back_now(stays=stays)
        if isinstance(told, FilesRefused):
            self.events.append(told)
            return
        if self.launched is not None:  # copies of replicas that are started from now on need not wait
            program, first = self.launched
            self.launched = replace(program, options={**program.options, **told, "files_wait": False}), first
        for packet in messages.files(told):
            self.launcher.send(packet, None)

    def _start_more(
        self, epoch: int | None, processes: Sequence[int], more: Callable[[int], Mapping[str, Any]]
    ) -> None:
        """Fork more processes in this incarnation, on the host of the others."""
        assert self.launched is not None
        program, first = self.launched
        placed = [plan.Placement(process, first.node, 0, first.local_size) for process in processes]
        incarnation = self.supervisor.incarnation
        self.launcher.start(plan.specs(program, placed, incarnation=incarnation, epoch=epoch, more=more))

    def _start_spares(self, action: LaunchMore) -> None:
        """Fork the processes that the program asks for. What they print is printed as that of ranks is."""
        assert self.launched is not None and isinstance(self.passthrough, Passthrough)
        program, beside = self.launched
        specs = plan.started(
            program,
            action.request,
            action.counts,
            action.first,
            size=self.job.size,
            spares=self.options.spares,
            node=beside.node,
            epoch=self.supervisor.coordinator.highest,
        )
        for spec in specs:
            number = spec["rank"]
            for stream in ("out", "err"):
                self.passthrough.follow(number, stream, self.job.output_path(number, stream))
        self.launcher.start(specs)

    def _watch_agent(self) -> None:
        fd = self.launcher.fileno()
        if fd == self.watched:
            return
        if self.watched is not None:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(self.watched)
        self.watched = fd if fd >= 0 else None
        if self.watched is not None:
            self.selector.register(self.watched, selectors.EVENT_READ, self._agent)

    def _discard(self, epoch: int, *, fenced: bool = False) -> None:
        committed = max(list_epochs(self.job), default=0)
        problem = remove_burnt(self.job, committed=committed, upto=epoch, fenced=fenced)
        if problem is not None:
            self.reporter.say(f"images of burnt checkpoints could not be removed: {problem}")

    def _commit(self, line: WriteControl) -> ControlWritten | ControlFailed:
        written = commit_line(self.job, self.lock, line, previous=self.supervisor.last_line)
        if isinstance(written, ControlWritten):
            self.files.committed()
        return written

    def _remove_old_lines(self) -> None:
        if self.options.keep is None:
            return
        also = self.supervisor.needed_lines
        left, problem = remove_old_lines(self.job, self.lock, self.options.keep, also)
        self.supervisor.keep_lines(left)
        if problem is not None:
            self.reporter.say(f"old checkpoints could not be removed: {problem}")

    # ---- sources of events -------------------------------------------------------------------------------

    def _agent(self) -> None:
        try:
            events = self.launcher.receive()
        except AgentGone as gone:
            self._watch_agent()
            if not gone.started:
                raise LaunchFailed(f"the agent could not be started: {gone}") from gone
            self._feed(AgentLost(str(gone)))
            return
        for event in events:
            self._agent_event(event)

    def _agent_event(self, event: dict[str, Any]) -> None:
        event_name = event["e"]
        if self.locator is not None:
            self.locator.agent_event(event, time.monotonic_ns())
        if event_name == "packet":
            self._packet(event["rank"], event["incarnation"], event["packet"])
        elif event_name == "started":
            self.pids[event["rank"]] = event["pid"]
            self._log("rank-started", packet_events.process_of(event, "rank", "incarnation"))
        elif event_name == "state" and not event["ranks"]:
            self._log("agent-started", packet_events.process_of(event, "mark"))
        elif event_name == "looked":
            for question in self.questions:
                question.looked(event, now_ns=time.monotonic_ns())
        elif event_name == "question":
            self.clients.take_question(event["question"].content, event["question"].answer)
        elif event_name == "output":
            assert isinstance(self.passthrough, Passthrough)
            where = event["rank"], event["stream"], event["at"]
            self.passthrough.came(*where, event["text"], event["cut"])
            self.output_due_ns = 0
        elif event_name == "note":
            self._log(event["event"], event["fields"])
            if text := _SAID.get(event["event"]):
                self.reporter.say(text.format(**event["fields"]))
        else:
            if event_name == "died":
                self.pids.pop(event["rank"], None)
                if self.locator is not None and "lost" in event:
                    event = {**event, "diagnosis": self.locator.diagnosis_of(event["host"])}
            translated = packet_events.agent_event(event)
            if translated is not None:
                self._feed(translated)

    def _packet(self, rank: int, incarnation: int, packet: dict[str, Any]) -> None:
        if packet["m"] == "status":
            for question in self.questions:
                question.take(rank, packet, now_ns=time.monotonic_ns())
            return
        if packet["m"] == "layer":
            if self.replicas is not None:
                self._feed(self.replicas.event(rank, incarnation, packet))
            return
        self.files.note(rank, packet)
        line = packet_events.log_line(rank, incarnation, packet)
        if line is not None:
            self._log(*line)
        if self.locator is not None and packet["m"] in ("event", "links"):
            self.locator.packet(rank, incarnation, packet, time.monotonic_ns())
        text = packet_events.message(rank, packet)
        if text is not None:
            self.reporter.say(text)
        event = packet_events.rank_event(rank, incarnation, packet)
        if event is not None:
            self._feed(event)

    def _question(self, question: dict[str, Any], token: int) -> None:
        last = question.get("checkpoint") is True
        match question.get("do"):
            case "checkpoint":
                self._checkpoint(
                    token, wait=question.get("wait") is not False, stop=question.get("stop") is True
                )
            case "stop":
                self._feed(_stop("stopped by `ckpt stop`", checkpoint=last, token=token))
            case "status":
                self._ask_all(lambda answer: self.clients.answer(token, answer))
            case other:
                self.clients.answer(token, {"ok": False, "reason": f"unknown question {other!r}"})

    def _ask_all(self, done: Callable[[dict[str, Any]], None]) -> None:
        self.questions.append(
            LiveStatus(
                self.supervisor,
                self.launcher,
                self.runtime_dir,
                self.options.rank_options,
                dict(self.pids),
                done,
                now_ns=time.monotonic_ns(),
            )
        )

    def _say_slow_start(self, answer: dict[str, Any]) -> None:
        if self.supervisor.phase == "starting":
            after_s = self.slow_start.limit_ns / 1e9
            if (told := describe_start(answer, self.supervisor.addresses, after_s)) is not None:
                self._log("start-slow", told[0])
                self.reporter.say(told[1])

    def _checkpoint(self, token: int, *, wait: bool, stop: bool) -> None:
        if not wait:
            self.clients.answer(token, {"ok": True})
        waiting = token if wait else None
        if stop:
            how = "stopped by `ckpt checkpoint --stop`"
            self._feed(_stop(how, checkpoint=True, only_if_committed=True, token=waiting))
        else:
            self._feed(CheckpointRequested(token=waiting))

    # ---- signals -----------------------------------------------------------------------------------------

    def _on_signals(self) -> None:
        for number in self.signals.received():
            if number in STOPS:
                last = self.options.checkpoint_on_signal
                reason = f"stopped by {signal_name(number)}"
                self._feed(StopRequested(128 + number, reason, checkpoint=last, signal=number))
            elif number in PASSES:
                self._log("signal-passed-on", {"signal": int(number)})
                self.launcher.signal(number, caught=True)
            else:
                self.launcher.signal(signal.SIGSTOP)
                self.signals.suspend()
                self.launcher.signal(signal.SIGCONT)


def _stop(reason: str, **how: Any) -> StopRequested:
    """The event for a stop that a client asks for: it has the exit code and the signal of SIGTERM."""
    return StopRequested(128 + signal.SIGTERM, reason, signal=signal.SIGTERM, **how)


def program_of(job: JobDirectory, runtime_dir: str, rank_options: dict[str, Any]) -> plan.Program:
    """The program of the job, from the job directory's record."""
    return plan.Program(
        job_id=job.job_id,
        job_dir=job.path,
        runtime_dir=runtime_dir,
        argv=tuple(plan.words_of(job.command, job.options)),
        options=rank_options,
    )

"""`ckpt agent`: the agent of one host, which an engine starts; it dials in to the job's controller. (driver)

    controller ══ link (tcp, CURVE) ══ this process ── Unix stream ── fork server (`ckpt.controller.launch.agent`) ── ranks

It passes commands on to its fork server, and events of that back; it owns the host's lease, and follows what ranks print.
The fork server may have no thread and no socket of a messaging library, since it forks: so these are two processes. The fork
server ends with this process, and the ranks with it.

While the controller does not answer, this process looks into the job's journal (`ckpt.controller.adoption`), and ranks go on
as long as nobody has taken the job over and this host was not given up. When another controller has taken it over and has
written where it is, this process goes over to that one, which goes on with the ranks if all are there.

When the lease is over, all ranks are killed: the controller has given this host up, or can no longer be reached, and starts
other ranks elsewhere. Then this process is *away*: it asks for a new lease, with which its host is a spare, and obeys
nothing until that begins, since what comes before was meant for the host that was given up. An agent without a lease, this
one or one that has just been started, ends with code 70 when the controller has ended (its port refuses connections) or does
not answer for ten leases; in a job of `ckpt submit` one whose lease is over ends at once.
There it has the job queued again if need be (`orphan`), also while its ranks go on without a controller.

This module is long because controller, fork server, journal, lease and output meet in one event loop.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import errno
import json
import os
import platform
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ckpt.controller.adoption.roster import Roster
from ckpt.controller.adoption.verdict import Verdict
from ckpt.controller.adoption.watching import Watching
from ckpt.controller.errors import LaunchFailed
from ckpt.controller.hosts.addresses import own_address, own_name
from ckpt.controller.hosts.clock import now_ns
from ckpt.controller.hosts.engine import key_from_engine
from ckpt.controller.hosts.examine import facts_of_host, processor, script_of
from ckpt.controller.hosts.lease import JOIN_LIMIT_LEASES, AgentLease
from ckpt.controller.hosts.link import Link, keys_of, rank_of
from ckpt.controller.hosts.orphan import VARIABLE, OrphanWatch, start_the_job_again
from ckpt.controller.hosts.routes import TOKEN, Door, errors_of, knock, twice
from ckpt.controller.launch import procinfo, stacks, strays
from ckpt.controller.launch.following import Following
from ckpt.controller.launch.forked import WHERE_SIGNAL
from ckpt.controller.launch.imports import modules_of
from ckpt.controller.launch.launcher import AgentGone
from ckpt.controller.launch.local import LocalLauncher
from ckpt.controller.launch.spawning import MARK, spawn_agent
from ckpt.controller.supervision import messages
from ckpt.store import JobDirectory, JobMissing, KeyUnreadable, RecordDamaged
from ckpt.store.disk.privacy import make_runtime_directory, open_regular
from ckpt.store.job.location import this_location
from ckpt.transport.wires.addresses import joined, split
from ckpt.transport.wires.hubwire import SpokeWire
from ckpt.version import VERSION

__all__ = ["EXIT_LEASE_OVER", "agent"]

EXIT_LEASE_OVER = 70
_END_PATIENCE_S = 3.0
_INITIAL = "pid:[4026531836]"
"""All process ids of a machine, and not those of a container (PROC_PID_INIT_INO of the kernel)."""
_LOOK_NS = 500_000_000
_LOOK_LIMIT_S = 0.3
"""An agent without a lease looks so often whether there is a controller still, and waits so long for the answer."""
_WRITING_LIMIT_S, _WRITING_LOOK_S = 0.5, 0.02
_SPOOLED = 1000
_LOOKS = 20
"""At most so many looks into the journal in the time of one lease."""


def agent(arguments: argparse.Namespace) -> int:
    """Serve until the controller says `end`, or until the lease is over; returns the exit code."""
    try:
        job, is_given = _open_job(arguments.job)
    except JobMissing:
        raise LaunchFailed(
            f"host {os.uname().nodename} does not see the job directory {arguments.job}: it has to be the same directory on "
            "all hosts, at the same path, on a file system that they share. Name one with --job: checkpoints are written "
            "there, so that those of a host that is lost can be read on others"
        ) from None
    if job.job_id != arguments.job_id:
        raise LaunchFailed(
            f"{job.path} on host {os.uname().nodename} is another job ({job.job_id}) than the controller's "
            f"({arguments.job_id}): the job directory has to be the same directory on all hosts"
        )
    if not _sees_token(job.path, arguments.token):
        raise LaunchFailed(
            f"{job.path} on host {os.uname().nodename} is a copy of the controller's, or an old state of it (the file "
            f"{TOKEN!r} that was just written there is not there): the job directory has to be the same directory on all "
            "hosts, on a file system that they share"
        )
    if not os.path.isdir(arguments.cwd):
        raise LaunchFailed(
            f"host {os.uname().nodename} has no directory {arguments.cwd}: the program runs there on all hosts"
        )
    if arguments.among is not None:
        names = arguments.among.split(",")
        arguments.host = own_name(names, arguments.naming)
        arguments.index = names.index(arguments.host) + 1
    if (problem := _not_writable(job.path, _log_of(arguments.host))) is not None:
        raise LaunchFailed(
            f"host {os.uname().nodename} cannot write in the job directory {job.path} ({problem}): what its ranks print and "
            "their checkpoints are written there. Make it writable there for the user of the job"
        )
    with _only_one(job, arguments):
        mark = f"{job.job_id}-{arguments.host.replace(':', '_')}."  # of all processes that are started here
        arguments.proof = _proof(arguments.host, json.loads(arguments.former), mark) if arguments.life else ""
        above = os.environ.get(MARK)
        os.environ[MARK] = f"{above}:{mark}" if above else mark
        code = _HostAgent(job, arguments, is_given).run()
    if code == EXIT_LEASE_OVER:
        start_the_job_again(os.environ)
    return code


def _open_job(directory: str) -> tuple[JobDirectory, bool]:
    """The job, and whether the engine has brought its key, since the key cannot be read here. Raises StoreError,
    LaunchFailed."""
    try:
        try:
            return JobDirectory.open(directory), False
        except KeyUnreadable as unreadable:
            try:
                return JobDirectory.open(directory, key=key_from_engine(0)), True
            except (LaunchFailed, RecordDamaged, OSError) as failed:
                raise LaunchFailed(f"host {os.uname().nodename}: {unreadable}. {failed}") from None
    finally:
        _close_standard_input()


def _close_standard_input() -> None:
    """Nothing that is started here may read what the engine has brought."""
    empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(empty, 0)
    if empty:
        os.close(empty)


def _sees_token(directory: str, token: str) -> bool:
    try:
        with open(open_regular(os.path.join(directory, TOKEN), os.O_RDONLY), encoding="ascii") as file:
            return file.read(100) == token
    except (OSError, UnicodeDecodeError):
        return False


def _log_of(host: str) -> str:
    """The log of this host's fork server, below the job directory."""
    return f"output/agent-{host}.log"


def _not_writable(directory: str, log: str) -> str | None:
    """Why the log cannot be written; None: it can, and is there from now on. The fork server would die of it at each start,
    and use all restarts of the job up."""
    try:
        os.close(open_regular(os.path.join(directory, log), os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


@contextlib.contextmanager
def _only_one(job: JobDirectory, arguments: argparse.Namespace) -> Iterator[None]:
    """Raise LaunchFailed if another agent of this controller is on this host under this name. (An abstract Unix socket is
    one host's, and goes with its process.)"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        try:
            mark.bind(f"\0ckpt-{job.job_id}-{arguments.generation}-{arguments.host}")
        except OSError:
            raise LaunchFailed(
                f"host {arguments.host}: another agent of this job is here already: the engine is to start one on each host "
                "(-ppn 1, --ntasks-per-node=1)"
            ) from None
        yield


def _proof(host: str, former: Sequence[str], mark: str) -> str:
    """What proves that nothing is left of the agent before this one, which has ended itself (`_only_one`). `former`: its
    `_identity`. Raises LaunchFailed: it cannot be known."""
    *machine, boot, namespace = _identity()
    if list(former) == [*machine, boot, namespace]:
        strays.kill_marked(mark)
        if not strays.is_there(mark):
            return "reaped"
    elif (
        list(former[:2]) == machine
        and all((*machine, *former))
        and former[2] != boot
        and namespace == _INITIAL
    ):
        return "reset"
    raise LaunchFailed(
        f"host {host}: whether the processes of the agent before have ended cannot be known from here: the controller waits "
        "for the end of its lease"
    )


def _identity() -> tuple[str, str, str, str]:
    """The name and the machine id of this host, its present boot, and whose process ids this process sees.

    An engine may start the next agent on another machine, or in a container that was moved to one: that proves nothing. (The
    number of process ids that have all ended may be given again: then nothing is left of them, either.)"""
    here = this_location("", "")
    return here.host, here.machine, here.boot, here.namespace


class _HostAgent:
    def __init__(self, job: JobDirectory, arguments: argparse.Namespace, is_key_given: bool) -> None:
        self.number, self.name = arguments.index, arguments.host
        self.rank, self.proof = rank_of(arguments.index, arguments.life, arguments.hosts), arguments.proof
        self.job, self.hosts = job, arguments.hosts
        self.key = {"key": job.key_text} if is_key_given else {}  # ranks cannot read it, either
        self.controller = arguments.controller
        self.generation = arguments.generation
        self.roster = Roster()
        self.script = script_of(job.options, arguments.cwd)
        self.modules: dict[str, bool] | None = modules_of(job.command, job.options, arguments.cwd).all
        self.is_away = bool(self.proof)  # as one that comes back
        self.listen = own_address(arguments.interface, split(arguments.controller)[0])
        self.ports = arguments.ports
        self.door = Door(self.listen, self.ports)
        self.link = self._dial()
        if self.is_away:
            self._join()  # first of all: others wait for the proof
            self.door.close()
        self.runtime_dir = make_runtime_directory()
        spawned = spawn_agent(hash_seed=arguments.hash_seed, entry=arguments.entry, cwd=arguments.cwd)
        self.ranks = LocalLauncher(cwd=arguments.cwd, spawned=spawned)
        self.ranks.serve(
            job_dir=job.path,
            runtime_dir=self.runtime_dir,
            generation=self.generation,
            log_name=_log_of(arguments.host),
            bound=True,
        )
        self.watching = Watching(job, self.name, self.number, now_ns)
        self.look_behind: int | None = None  # this record of the journal; None: not at all
        self.orphan = OrphanWatch(os.environ)
        self.next_journal_ns = 0
        self.newest = self.generation  # the newest generation that has been found in the journal
        self.spool: collections.deque[tuple[int, dict[str, Any]]] = collections.deque(maxlen=_SPOOLED)
        self.pids: dict[int, int] = {}  # of the ranks here
        self.following = Following(os.path.dirname(job.output_path(0, "out")))
        self.output_due_ns = 0
        self.began_ns = now_ns()
        self.look_ns = self.began_ns + _LOOK_NS
        self.lease = AgentLease(round(arguments.lease * 1e9), self.began_ns)
        self.ending: tuple[int, str] | None = None
        if self.is_away:
            self._report({"e": "back", "number": self.lease.first})
        else:
            self._join()

    def _dial(self) -> Link:
        wire = SpokeWire(self.rank, f"tcp://{self.controller}", curve=keys_of(self.job.key))
        return Link(
            wire, job_id=self.job.job_id, rank=self.rank, hosts=self.hosts, generation=self.generation
        )

    def _join(self) -> None:
        facts: dict[str, Any] = {
            "host": os.uname().nodename,
            "python": platform.python_version(),
            "ckpt": VERSION,
        }
        facts |= {"script": self.script, "modules": self.modules, "prefix": sys.prefix, "cpu": processor()}
        told = {"pid": os.getpid(), "door": self.door.address, "roster": self.roster.told()}
        told |= {"proof": self.proof, "identity": _identity()}
        self._report({"e": "join", **told, **facts})

    def run(self) -> int:
        try:
            while self.ending is None:
                self._watch_lease()
                self._sleep()
                self._watch_lease()  # before anything else: this host may have been frozen
                if self.ending is None:
                    self._turn()
                    # Its fork server ends the ranks then, should this process stand still.
                    self.ranks.lease(self.lease.until_ns())
                    self._follow()
            code, reason = self.ending
            self.ranks.close(at_once=code == EXIT_LEASE_OVER)
            self._report({"e": "ended", "reason": reason})
            if code == 0:
                self.link.flush(0, _END_PATIENCE_S)
            else:
                self._say(reason)
            return code
        finally:
            self.ranks.close()
            self.door.close()
            self.link.close()
            shutil.rmtree(self.runtime_dir, ignore_errors=True)

    def _follow(self) -> None:
        if now_ns() >= self.output_due_ns:
            self._send_output()
            self.output_due_ns = now_ns() + self.following.interval_ns()

    def _send_output(self, ranks: Iterable[int] | None = None) -> None:
        for event in self.following.look(ranks):
            self._report(event)

    def _watch_lease(self) -> None:
        now = now_ns()
        if (stalled_ns := self.lease.stall(now)) is not None:
            self._report({"e": "stalled", "ns": stalled_ns})
        if self.lease.is_over(now):
            reason = "the lease is over: the controller cannot be reached, or has given this host up"
            if VARIABLE in os.environ:
                self.ending = (EXIT_LEASE_OVER, reason)
            else:
                self._give_way(reason)
        elif self.lease.until_ns() is None and now >= self.look_ns and self._controller_has_ended():
            self.ending = (EXIT_LEASE_OVER, "the controller has ended")
        elif not self.lease.has_begun and now - self.began_ns > JOIN_LIMIT_LEASES * self.lease.lease_ns:
            self.ending = (EXIT_LEASE_OVER, "the controller does not answer")
        else:
            if (number := self.lease.renewal(now)) is not None:
                self._report({"e": "back" if self.is_away else "renew", "number": number})
            self._look_into_journal(now)

    def _look_into_journal(self, now: int) -> None:
        is_silent = self.lease.look_is_due(now)
        self.orphan.watch(is_silent and not self.is_away)
        is_due = is_silent and now >= self.next_journal_ns
        if self.look_behind is not None and not self.is_away and is_due:
            self.next_journal_ns = now + self.lease.lease_ns // _LOOKS
            self.watching.begin(self.look_behind, self.generation)

    def _give_way(self, reason: str) -> None:
        """End all ranks, and ask for a new lease."""
        self.ranks.close(at_once=True)
        self.pids.clear()
        self.following.stop()
        self.roster.begin()
        self.spool.clear()
        self.door.close()  # its port may be needed by others now
        self._say(f"{reason}. All ranks here have ended; asking for a new lease")
        self._report({"e": "ended", "reason": reason})
        self.is_away, self.began_ns = True, now_ns()
        self.lease = self.lease.again(self.began_ns)
        self._report({"e": "back", "number": self.lease.first})

    def _come_back(self) -> None:
        self.is_away = False
        try:
            self.door = Door(self.listen, self.ports)
        except LaunchFailed as failed:
            self.ending = (1, str(failed))
            return
        self._report({"e": "door", "door": self.door.address})
        self._say("this host is a spare of the job now")

    def _controller_has_ended(self) -> bool:
        self.look_ns = now_ns() + _LOOK_NS
        return (
            errors_of({"controller": self.controller}, _LOOK_LIMIT_S).get("controller") == errno.ECONNREFUSED
        )

    @staticmethod
    def _say(text: str) -> None:
        with contextlib.suppress(OSError):  # the engine's command may have ended
            print(f"ckpt agent: {text}", file=sys.stderr, flush=True)

    def _sleep(self) -> None:
        fds = [self.link.fileno(), self.door.fileno(), self.ranks.fileno(), self.watching.fileno()]
        fds = [fd for fd in fds if fd >= 0]
        due_ns = self.lease.deadline_ns()
        if self.lease.until_ns() is None:
            due_ns = min(due_ns, self.look_ns)
        if self.look_behind is not None and self.lease.look_is_due(now_ns()):
            due_ns = min(due_ns, self.next_journal_ns)
        if self.following:
            due_ns = min(due_ns, self.output_due_ns)
        readable, _, _ = select.select(fds, [], [], max(0.0, (due_ns - now_ns()) / 1e9))
        if self.door.fileno() in readable:
            self.door.open()

    def _turn(self) -> None:
        verdict = self.watching.take()
        if verdict is not None and verdict.generation >= self.generation and not self.is_away:
            self._believe(verdict)
        for _, command in self.link.take():
            if self.is_away:
                self._hear(command)
            else:
                self._obey(command)
        try:
            events = self.ranks.receive()
        except AgentGone as gone:
            self.roster.lost()
            self._report({"e": "lost", "reason": str(gone)})
            if not gone.started:
                self.ending = (1, f"the fork server could not be started: {gone}")
            return
        for event in events:
            if event["e"] == "started":
                self.pids[event["rank"]] = event["pid"]
            elif event["e"] == "died" and self.pids.get(event["rank"]) == event["pid"]:
                del self.pids[event["rank"]]
                self._send_output([event["rank"]])
            self.roster.heard(event)
            if event["e"] == "packet" and event["packet"]["m"] == "event":
                self.spool.append((now_ns(), event))
            self._report(event)

    def _believe(self, verdict: Verdict) -> None:
        """Do what follows from a look into the journal."""
        if verdict.what == "alone":
            self.lease.looked(verdict.began_ns)
            return
        if verdict.generation > self.newest:
            self.newest = verdict.generation
            self.lease.taken_over(verdict.began_ns)
        if verdict.what == "taken over" and verdict.contact and verdict.generation > self.generation:
            self._say(f"generation {verdict.generation} has taken the job over: going over to it")
            self._go_over(verdict)

    def _go_over(self, verdict: Verdict) -> None:
        """Nothing that the controller before has sent is heard any more: connections have their controller's generation."""
        self.link.close()
        self.generation, self.controller = verdict.generation, verdict.contact
        self.rank = self.number  # it is the first agent of this host that the next controller knows
        self.lease = self.lease.handed_on(now_ns())
        self.began_ns = now_ns()
        self.link = self._dial()
        self.following.another_controller()
        self.script = self.modules = (
            None  # it may have changed while ranks run: that is no reason to end them
        )
        self.ranks.send(messages.alone())  # the round of the controller before is none
        self.ranks.signal(signal.SIGCONT)  # it may have stopped them
        self._join()
        for _, event in self.spool:
            self._report(event)

    def _hear(self, command: dict[str, Any]) -> None:
        """A command while this host is away. What follows the first answer is for the host that has come back: it is
        obeyed; or the answer came too late, and the controller, which would wait, hears once more that all has ended."""
        if command.get("a") in ("renewed", "end"):
            self._obey(command)
        if self.lease.is_over(now_ns()):
            self._give_way("the new lease was over when it came")
        elif self.lease.has_begun:
            self._come_back()

    def _obey(self, command: dict[str, Any]) -> None:
        match command.get("a"):
            case "renewed":
                self.lease.answered(int(command["number"]))
                self._may_look_behind(command.get("journal"))
                while self.spool and self.spool[0][0] < self.lease.heard_ns:
                    self.spool.popleft()
            case "journal":
                self._may_look_behind(command["number"])
            case "knock":
                threading.Thread(target=self._knock, args=(command["doors"],), daemon=True).start()
            case "examine":
                threading.Thread(target=self._examine, args=(command["directory"],), daemon=True).start()
            case "share":
                threading.Thread(target=self._share, args=(command,), daemon=True).start()
            case "survey":
                threading.Thread(target=self._survey, args=(command,), daemon=True).start()
            case "start":
                specs = [
                    {
                        **spec,
                        "runtime_dir": self.runtime_dir,
                        "listen": joined(self.listen, self.ports or "*"),
                        "host_number": self.number,
                        **self.key,
                    }
                    for spec in command["specs"]
                ]
                self.roster.begin()
                self.following.begin((spec["rank"], spec.pop("printed")) for spec in specs)
                with contextlib.suppress(LaunchFailed):  # `receive` says so
                    self.ranks.start(specs)
            case "send":
                self.roster.sent(command["packet"])
                self.ranks.send(command["packet"], command["ranks"])
            case "printed":
                self.following.printed(int(command["bytes"]))
            case "signal":
                self.ranks.signal(command["signal"], command["ranks"], caught=command["caught"])
            case "look":
                self._look([rank for rank in command["silent"] if rank in self.pids])
            case "fence":
                self.ranks.fence(int(command["incarnation"]))
            case "end":
                self.ending = (0, str(command.get("reason", "told to end")))

    def _may_look_behind(self, number: int | None) -> None:
        """The controller knows of all that is in the journal up to this record."""
        if number is not None:
            self.look_behind = number

    def _knock(self, doors: dict[str, str]) -> None:
        """In a thread: the lease is to be renewed meanwhile."""
        self._report({"e": "knocked", "failed": knock(doors)})

    def _look(self, silent: list[int]) -> None:
        """Say in which state the ranks are, and where these are. They need some time to write that down."""
        for rank in silent:
            stacks.clear(self.runtime_dir, rank)
        if silent:
            self.ranks.signal(WHERE_SIGNAL, silent)
        threading.Thread(target=self._looked, args=(dict(self.pids), silent), daemon=True).start()

    def _looked(self, pids: dict[int, int], silent: list[int]) -> None:
        deadline = time.monotonic() + _WRITING_LIMIT_S
        written: dict[int, str] = {}
        while len(written) < len(silent) and time.monotonic() < deadline:
            time.sleep(_WRITING_LOOK_S)
            found = {rank: stacks.innermost(self.runtime_dir, rank) for rank in silent if rank not in written}
            written |= {rank: where for rank, where in found.items() if where != "unknown"}
        where = {rank: written.get(rank, "unknown") for rank in silent}
        states = {rank: procinfo.state(pid) for rank, pid in pids.items()}
        self._report({"e": "looked", "states": list(states.items()), "stacks": list(where.items())})

    def _examine(self, directory: str) -> None:
        """In a thread, as it may take a while."""
        self._report({"e": "examined", "facts": facts_of_host(directory, self.name, self.listen)})

    def _share(self, command: dict[str, Any]) -> None:
        from ckpt.controller.sharing.facts import look_for

        with contextlib.suppress(OSError):  # no answer: nothing is shared with this host
            self._report({"e": "shared", **look_for(command["directories"], command["name"])})

    def _survey(self, command: dict[str, Any]) -> None:
        failed = twice(command["doors"], float(command["limit_s"]))
        self._report({"e": "surveyed", "number": command["number"], "failed": failed})

    def _report(self, event: dict[str, Any]) -> None:
        self.link.send(0, event)

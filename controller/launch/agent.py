"""The agent: the process that forks the ranks, notices their deaths, and forwards packets between ranks and controller.

There is one agent per node and job. The agent imports the modules that a rank needs once, and forks each rank from this
state (a "zygote" process), so a rank starts in milliseconds. Therefore the agent never starts a thread and never opens
a context of a messaging library: a fork would break these.

    controller ──Unix stream, JSON lines──▶ agent ──SOCK_SEQPACKET, one per rank──▶ rank (and its image child)

States

    attached    the agent forwards everything; the controller decides
    alone       there is no controller: none has attached yet, or it was killed. The ranks go on. The module `alone`
                decides how the job ends, and the agent writes the end into the event log.

Rules
- Fencing (`fencing`) kills every rank, by pid and start time, and all processes that ranks have started, also in other
  process groups and sessions: an orphan becomes a child of the agent (subreaper). The agent sends `fenced` when all of
  them have been reaped.
- The agent reports a death only after it has forwarded all earlier packets of that rank.
- The agent refuses a controller whose generation is lower than one it has seen. So there are never two controllers.
- Where a host's agent has a lease (`ckpt.controller.hosts`), this process knows its end, and ends the ranks and itself then:
  the host's agent may stand still alone, and other ranks are started elsewhere after that.
- The agent never waits for a rank or a controller that does not read.
- Signals from outside are the controller's business (`dispositions`). Only while there is no controller, SIGTERM ends the
  ranks.

Not here: decisions about epochs or restarts (`coordinator`, `supervisor`); the code of a rank (`entry`, by default
`ckpt.rank.boot:run_rank`, called in the forked child as ``entry(spec, control_fd)``; the call never returns).

This module is long because the agent is one event loop: what comes from the controller goes to the ranks, and the other way
round. Its parts with a life of their own are `fencing`, `alone`, `forked` and `dispositions`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from ckpt.controller.errors import MalformedPacket
from ckpt.controller.launch import alone, procinfo, strays
from ckpt.controller.launch.dispositions import Dispositions
from ckpt.controller.launch.fencing import Fencing
from ckpt.controller.launch.forked import BUFFER_BYTES, Entry, ForkedRank, fork_rank, load_entry
from ckpt.controller.launch.spawning import MARK
from ckpt.controller.supervision import messages
from ckpt.store.job.location import open_locked

_BACKLOG_BYTES_MAX = 64 << 20
_LONELY_START_S = 60.0
_LEFTOVERS_S = 0.002


class Agent:
    """The agent's event loop.

    `first`: the connection to the controller that started this agent; `entry`: the function that a forked child calls. The
    agent does not know its job at first, since it imports modules while the controller makes the job: see `_serve`.
    """

    def __init__(self, first: socket.socket, entry: Entry, dispositions: Dispositions) -> None:
        self.job_dir = ""
        self.entry = entry
        self.dispositions = dispositions
        self.listener: socket.socket | None = None
        self.selector = selectors.DefaultSelector()
        self.ranks: dict[int, ForkedRank] = {}
        self.generation = 0
        self.was_attached = False
        self.controller: socket.socket | None = None
        self.connections: dict[socket.socket, messages.LineDecoder] = {}
        self.outbox = bytearray()
        self.fencing = Fencing()
        self.alone_ending = alone.Ending()
        self.tolerant = False  # `--on-failure continue`: the other ranks are told of a death, and go on
        self.bound = (
            False  # the agent ends with its controller, which is a host's agent (`ckpt.controller.hosts`)
        )
        self.memory = (-1, -1)  # a file in memory for the ranks of an incarnation: descriptor, incarnation
        self.ended: str | None = None
        self.until_ns: int | None = None  # the end of the host's lease, as its agent has told it last
        self.buffer = bytearray(BUFFER_BYTES)
        self.selector.register(dispositions.fileno(), selectors.EVENT_READ, self._on_signal)
        self._welcome(first)

    # ---- loop --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the controller sends `end`, or until there is no controller and no rank."""
        started_s = time.monotonic()
        while self.ended is None:
            for key, mask in self.selector.select(self._timeout()):
                key.data(key.fileobj, mask)
            if self._left_s() == 0:  # after what has come: that may be another end
                self.ended = "the lease of this host is over, and its agent does nothing"
            self._reap()
            if self.controller is None:
                self._run_alone(started_s)
        self._leave()
        verdict = self.alone_ending.verdict
        if verdict is not None and self.ended == verdict.reason:
            self._log_verdict(verdict)

    def _timeout(self) -> float | None:
        living = {rank.pid for rank in self.ranks.values() if rank.is_alive}
        if self.fencing.is_busy(living):
            return _LEFTOVERS_S  # processes of dead ranks are being killed
        return 0.05 if self.controller is None else self._left_s()

    def _left_s(self) -> float | None:
        """The time until the end of the host's lease."""
        if self.until_ns is None:
            return None
        return max(0, self.until_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9

    def _leave(self) -> None:
        newest = max((rank.incarnation for rank in self.ranks.values()), default=0)
        self.fencing.begin(newest, self.ranks.values())
        deadline = time.monotonic() + 5.0
        self._reap()
        while self.fencing.pending is not None and time.monotonic() < deadline:
            time.sleep(_LEFTOVERS_S)
            self._reap()
        self._send_event({"e": "ended", "reason": self.ended})
        if self.controller is not None:
            self.controller.settimeout(1.0)
            with contextlib.suppress(OSError):
                self.controller.sendall(self.outbox)
        if self.listener is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.listener.getsockname())

    # ---- the controller's side ---------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, _mask: int) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connections[connection] = messages.LineDecoder()
        self.selector.register(connection, selectors.EVENT_READ, self._on_connection)

    def _serve(self, job_dir: str, path: str, log_name: str) -> None:
        """The job is known: listen on `path` for later controllers; stdout and stderr go to the job's log from now on."""
        self.job_dir = job_dir
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # the controller holds the job's lock, and has fenced survivors
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(16)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        log = open_locked(os.path.join(job_dir, log_name))
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def _on_connection(self, connection: socket.socket, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ or connection not in self.connections:
            return
        try:
            data = connection.recv(1 << 18)
            commands = self.connections[connection].feed(data)
        except BlockingIOError:
            return
        except (OSError, MalformedPacket):
            data, commands = b"", []
        if not data:
            self._drop(connection)
        for command in commands:
            self._obey(connection, command)

    def _drop(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self.connections.pop(connection, None)
        connection.close()
        if self.listener is None and not self.connections:
            self.ended = "its controller died before it said which job this is"  # no controller can reach it
        if connection is self.controller:
            self.controller = None
            self.outbox.clear()
            if self.bound:
                self.ended = "the agent of this host is gone"
                return
            data = messages.encode(messages.alone())
            for rank in self._addressed({}):
                rank.send(data)
                self._watch(rank)
            for rank in self._addressed({}):
                # The controller may have stopped them (SIGSTOP), and nobody else would continue them.
                rank.pass_on(signal.SIGCONT)
            self._tell_of_deaths()

    def _tell_of_deaths(self) -> None:
        """While there is no controller, and the job is tolerant, the agent tells the living ranks which ranks are dead."""
        dead = [rank.rank for rank in self.ranks.values() if not rank.is_alive]
        if self.tolerant and self.controller is None and dead:
            for rank in self._addressed({}):
                rank.send(messages.encode(messages.failed(dead)))
                self._watch(rank)

    def _obey(self, connection: socket.socket, command: dict[str, Any]) -> None:
        command_name = command.get("a")
        if command_name == "attach":
            self._attach(connection, int(command["generation"]))
        elif command_name == "query":
            with contextlib.suppress(OSError):
                connection.send(messages.encode_line(self._state()))
        elif connection is not self.controller:
            return  # only the attached controller may command
        elif command_name == "serve":
            self.bound = bool(command.get("bound"))
            self._serve(command["job"], command["path"], command["log"])
        elif command_name == "start":
            self._start(command["specs"])
        elif command_name == "send":
            data = messages.encode(command["packet"])
            for rank in self._addressed(command):
                rank.send(data)
                self._watch(rank)
        elif command_name == "signal":
            for rank in self._addressed(command):
                if not command.get("caught") or procinfo.catches(rank.pid, int(command["signal"])):
                    rank.pass_on(int(command["signal"]))
        elif command_name == "fence":
            self.fencing.begin(int(command["incarnation"]), self.ranks.values())
        elif command_name == "lease":
            self.until_ns = command["until_ns"]
        elif command_name == "end":
            self.ended = str(command.get("reason", "told to end"))

    def _addressed(self, command: dict[str, Any]) -> list[ForkedRank]:
        numbers = command.get("ranks")
        return [
            rank
            for rank in self.ranks.values()
            if rank.is_alive and (numbers is None or rank.rank in numbers)
        ]

    def _attach(self, connection: socket.socket, generation: int) -> None:
        if generation < self.generation:
            with contextlib.suppress(OSError):
                connection.send(messages.encode_line({"e": "refused", "generation": self.generation}))
            self._drop(connection)
            return
        if self.controller is not None and self.controller is not connection:
            self._drop(self.controller)
        self.generation = generation
        self.controller = connection
        self.was_attached = True
        self._send_event(self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "e": "state",
            "pid": os.getpid(),
            "start_ticks": procinfo.start_ticks(os.getpid()),
            "mark": strays.mark_of_this_agent(),
            "generation": self.generation,
            "ranks": [rank.describe() for rank in self.ranks.values()],
        }

    def _send_event(self, event: dict[str, Any]) -> None:
        if self.controller is None:
            return
        self.outbox += messages.encode_line(event)
        if len(self.outbox) > _BACKLOG_BYTES_MAX:
            self._drop(self.controller)  # the controller has stopped reading: treat it as gone
        else:
            self._flush()

    def _flush(self) -> None:
        if self.controller is None:
            return
        try:
            while self.outbox:
                del self.outbox[: self.controller.send(self.outbox[: 1 << 18])]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(self.controller)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.controller, wanted, self._on_connection)

    # ---- the ranks' side ---------------------------------------------------------------------------------

    def _start(self, specs: list[dict[str, Any]]) -> None:
        self.tolerant = any(spec.get("options", {}).get("on_failure") == "continue" for spec in specs)
        present = {spec["incarnation"] for spec in specs} if self.tolerant else set()
        self.ranks = {  # which ranks of this incarnation are dead is told to the others while there is no controller
            number: rank
            for number, rank in self.ranks.items()
            if rank.is_alive or rank.incarnation in present
        }
        self._provide_memory(specs)
        for spec in specs:
            spec["mark"] = os.environ.get(MARK, "")
            rank = fork_rank(spec, self.entry, self._drop_everything)
            self.ranks[rank.rank] = rank
            self.fencing.groups.add(rank.pid)
            self.selector.register(rank.control, selectors.EVENT_READ, self._on_rank)
            self.selector.register(rank.pidfd, selectors.EVENT_READ, self._on_death)
            self._send_event({"e": "started", **rank.describe()})

    def _provide_memory(self, specs: list[dict[str, Any]]) -> None:
        """A file in memory, which the ranks of an incarnation on this host may share (`ckpt.shared_memory`)."""
        for spec in specs:
            if spec["incarnation"] != self.memory[1]:
                self._drop_memory()
                with contextlib.suppress(OSError):  # a sandbox may forbid it
                    self.memory = (os.memfd_create("ckpt-shared", os.MFD_CLOEXEC), spec["incarnation"])
            if self.memory[0] >= 0:
                spec["shared_memory"] = (os.getpid(), self.memory[0])

    def _drop_memory(self) -> None:
        if self.memory[0] >= 0:
            os.close(self.memory[0])
        self.memory = (-1, -1)

    def _drop_everything(self) -> None:
        """In a forked rank: close and forget everything that belongs to the agent."""
        self.dispositions.restore()
        self.selector.close()
        if self.listener is not None:
            self.listener.close()
        self._drop_memory()
        for connection in self.connections:
            connection.close()
        for other in self.ranks.values():
            if other.is_alive:
                other.close()
        self.__dict__.clear()

    def _on_rank(self, control: socket.socket, mask: int) -> None:
        rank = next((rank for rank in self.ranks.values() if rank.control is control), None)
        if rank is None or not rank.is_alive:
            return  # the rank was reaped earlier in this turn of the loop
        if mask & selectors.EVENT_WRITE:
            rank.flush()
            self._watch(rank)
        if mask & selectors.EVENT_READ:
            self._read_rank(rank)

    def _watch(self, rank: ForkedRank) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if rank.outbox else 0)
        with contextlib.suppress(KeyError):
            if self.selector.get_key(rank.control).events != wanted:
                self.selector.modify(rank.control, wanted, self._on_rank)

    def _read_rank(self, rank: ForkedRank) -> None:
        while (data := rank.receive(self.buffer)) is not None:
            if not data:
                with contextlib.suppress(KeyError):
                    self.selector.unregister(rank.control)
                return
            try:
                packet = messages.parse_rank(messages.decode(data))
            except MalformedPacket as error:
                packet = {"m": "event", "event": "malformed-packet", "reason": str(error)}
            rank.note(packet)
            if self.controller is None and packet.get("what") == "void" and packet.get("token"):
                self._end_unknown(packet["token"])
            self._send_event(
                {"e": "packet", "rank": rank.rank, "incarnation": rank.incarnation, "packet": packet}
            )

    def _end_unknown(self, token: str) -> None:
        """While there is no controller: nobody who lives has been told of the processes of this request."""
        for rank in self._addressed({}):
            if rank.token == token:
                rank.kill(signal.SIGKILL)

    # ---- death -------------------------------------------------------------------------------------------

    def _on_death(self, _pidfd: int, _mask: int) -> None:
        """Wakes the loop; `_reap` does the work."""

    def _on_signal(self, _fd: int, _mask: int) -> None:
        """SIGCHLD has come: the loop reaps. Or SIGTERM has come: without a controller, end the job."""
        asked = signal.SIGTERM in self.dispositions.received()
        if asked and self.controller is None and self.ranks and self.alone_ending.verdict is None:
            self.alone_ending.terminate(time.monotonic())
            for rank in self._addressed({}):
                rank.kill(signal.SIGTERM)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            rank = next((r for r in self.ranks.values() if r.pid == pid and r.is_alive), None)
            if rank is not None:
                self._record_death(rank, os.waitstatus_to_exitcode(status))
        fenced = self.fencing.step(self.ranks.values())
        if fenced is not None:
            self._send_event({"e": "fenced", "incarnation": fenced})

    def _record_death(self, rank: ForkedRank, status: int) -> None:
        self._read_rank(rank)  # packets that the rank sent before it died come first
        rank.status = status
        for fileobj in (rank.control, rank.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(fileobj)
        rank.close()
        died = {"e": "died", "rank": rank.rank, "incarnation": rank.incarnation, "pid": rank.pid}
        how = {"signal": -status, "code": None} if status < 0 else {"signal": None, "code": status}
        self._send_event({**died, **how, "ns": time.monotonic_ns()})
        self._tell_of_deaths()

    # ---- alone -------------------------------------------------------------------------------------------

    def _run_alone(self, started_s: float) -> None:
        """One turn of the loop without a controller. `started_s`: the agent's start, on time.monotonic()."""
        if not self.ranks:
            if self.was_attached or time.monotonic() - started_s > _LONELY_START_S:
                self.ended = "no controller and no ranks"
            return
        ranks, now_s = self.ranks.values(), time.monotonic()
        verdict = self.alone_ending.begin(ranks, now_s, tolerant=self.tolerant)
        if verdict is not None:
            code = 1 if verdict.exit_code is None else verdict.exit_code
            last = messages.release() if verdict.release else messages.stop(code, verdict.reason)
            for rank in self._addressed({}):
                rank.send(messages.encode(last))
        self.ended = self.ended or self.alone_ending.reason(ranks, now_s, tolerant=self.tolerant)

    def _log_verdict(self, verdict: alone.Verdict) -> None:
        from ckpt.store import JobDirectory

        events = JobDirectory.open(self.job_dir).events
        if verdict.exit_code is None:
            events.append("job-interrupted", reason=verdict.reason, by="agent")
        else:
            events.append("job-finished", exit_code=verdict.exit_code, reason=verdict.reason, by="agent")


def main() -> None:
    """Main function of the agent process, which only `ckpt.controller.launch.spawning` starts."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    from ckpt.transport import finder  # the command, which imports this module too, does not need it

    control_fd = int(options["--control-fd"])
    dispositions = Dispositions()
    procinfo.become_subreaper()
    first = socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    gc.disable()  # imported objects stay alive, and collections would take a tenth of the import time
    try:
        entry = load_entry(options["--entry"])
        finder.remove()
    except (AttributeError, ImportError) as failure:
        from ckpt.compat.compiled import stale

        if (text := stale(failure)) is None:
            raise
        sys.exit(f"ckpt: {text}")
    agent = Agent(first, entry, dispositions)
    gc.freeze()  # so that the pages of imported objects stay shared with the ranks
    gc.enable()
    agent.run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

"""★ The agent: the process that ranks are forked from, that sees them die, and that carries their packets.

One agent per node and job. It is a zygote: it imports what a rank needs once and forks ranks from that, so a
rank starts in milliseconds. It therefore has no thread and no socket context of any messaging library, ever.

    controller ──Unix stream, JSON lines──▶ agent ──SOCK_SEQPACKET, one per rank──▶ rank (and its image child)

States, and what is different in them

    attached    everything is forwarded; the controller decides
    alone       the controller is gone (before the first `attach`, or killed). Ranks go on. When all have
                finished, the agent releases them, writes `job-finished` into the event log and ends. When one
                dies or fails, it kills the others, writes why, and ends: the last control file is the truth,
                `ckpt restart` goes on from there.

Rules
- A rank is forked into its own process group; fencing kills the group, and is reported (`fenced`) only once
  every process of it has been reaped: the image children of a killed rank are reparented to the agent
  (subreaper), so none survives.
- A death is reported only after everything the rank had said before has been forwarded.
- Ranks die with the agent (parent-death signal).
- A controller of a lower generation than one already seen is refused: never two.
- The rank's buffer may be full (a rank that hangs in C): its packets wait in a queue, nobody else waits.

Not here: any decision about epochs or restarts (`coordinator`, `supervisor`), and what a rank is (`entry`, by
default `ckpt.boot:run_rank`, called in the forked child as ``entry(spec, control_fd)`` and never returning).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from controller import messages
from controller.errors import MalformedPacket
from controller.launch import procinfo

DEFAULT_ENTRY = "ckpt.boot:run_rank"

WHERE_SIGNAL = signal.SIGRTMAX - 1
"""A rank answers this one by writing its main thread's stack to `where_path`."""

_CONTROL_BUFFER_BYTES = 1 << 20
_BACKLOG_BYTES_MAX = 64 << 20
_LONELY_START_S = 60.0
_RELEASE_GRACE_S = 5.0
_STOP_GRACE_S = 1.0

Entry = Callable[[dict[str, Any], int], NoReturn]


class _Rank:
    """One forked rank, alive or just reaped."""

    def __init__(self, rank: int, incarnation: int, pid: int, control: socket.socket) -> None:
        self.rank = rank
        self.incarnation = incarnation
        self.pid = pid
        self.ticks = procinfo.start_ticks(pid) or 0
        self.pidfd = os.pidfd_open(pid)
        self.control = control
        self.outbox: collections.deque[bytes] = collections.deque()
        self.finished: int | None = None
        self.failed: int | None = None
        self.status: int | None = None  # as waitstatus_to_exitcode; None: alive

    def describe(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "incarnation": self.incarnation,
            "pid": self.pid,
            "start_ticks": self.ticks,
            "alive": self.status is None,
            "finished": self.finished,
        }


class Agent:
    """The event loop. `listener` is a listening Unix stream socket; `entry` becomes the rank in the child."""

    def __init__(self, job_dir: str, listener: socket.socket, entry: Entry) -> None:
        self.job_dir = job_dir
        self.entry = entry
        self.listener = listener
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self.ranks: dict[int, _Rank] = {}
        self.generation = 0
        self.was_attached = False
        self.controller: socket.socket | None = None
        self.connections: dict[socket.socket, messages.Lines] = {}
        self.outbox = bytearray()
        self.groups: set[int] = set()  # process groups of which something may still live
        self.fencing: int | None = None
        self.alone_until: float | None = None  # when to kill what is left, while alone and ending
        self.result: tuple[int, str] | None = None  # exit code and reason, while alone
        self.ended: str | None = None
        self.buffer = bytearray(_CONTROL_BUFFER_BYTES)

    # ---- loop --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to end, or until alone with nothing left to do."""
        lonely_since = time.monotonic()
        while self.ended is None:
            for key, mask in self.selector.select(self._timeout()):
                key.data(key.fileobj, mask)
            self._reap()
            if self.controller is None:
                self._alone(lonely_since)
        self._leave()

    def _timeout(self) -> float | None:
        living = {rank.pid for rank in self.ranks.values() if rank.status is None}
        if self.groups - living:
            return 0.002  # leftovers of a dead rank are being killed
        return 0.05 if self.controller is None else None

    def _leave(self) -> None:
        for rank in self.ranks.values():
            self._kill_group(rank.pid)
        deadline = time.monotonic() + 5.0
        while self.groups and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.002)
        self._tell({"e": "ended", "reason": self.ended})
        if self.controller is not None:
            self.controller.setblocking(True)
            with contextlib.suppress(OSError):
                self.controller.sendall(self.outbox)

    # ---- the controller's side ---------------------------------------------------------------------------

    def _accept(self, listener: socket.socket, _mask: int) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        self.connections[connection] = messages.Lines()
        self.selector.register(connection, selectors.EVENT_READ, self._on_connection)

    def _on_connection(self, connection: socket.socket, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ or connection not in self.connections:
            return
        try:
            data = connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        try:
            commands = self.connections[connection].feed(data)
        except MalformedPacket:
            self._drop(connection)
            return
        for command in commands:
            self._obey(connection, command)

    def _drop(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self.connections.pop(connection, None)
        connection.close()
        if connection is self.controller:
            self.controller = None
            self.outbox.clear()

    def _obey(self, connection: socket.socket, command: dict[str, Any]) -> None:
        kind = command.get("a")
        if kind == "attach":
            self._attach(connection, int(command["generation"]))
        elif kind == "query":
            with contextlib.suppress(OSError):
                connection.send(messages.encode_line(self._state()))
        elif connection is not self.controller:
            self._drop(connection)  # commands come from the one controller only
        elif kind == "start":
            self._start(command)
        elif kind == "send":
            self._send(command.get("ranks"), command["packet"])
        elif kind == "signal":
            self._signal(command.get("ranks"), int(command["signal"]))
        elif kind == "fence":
            self._fence(int(command["incarnation"]))
        elif kind == "end":
            self.ended = str(command.get("reason", "told to end"))

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
        self.alone_until = None
        self._tell(self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "e": "state",
            "pid": os.getpid(),
            "start_ticks": procinfo.start_ticks(os.getpid()),
            "generation": self.generation,
            "ranks": [rank.describe() for rank in self.ranks.values()],
        }

    def _tell(self, event: dict[str, Any]) -> None:
        if self.controller is None:
            return
        self.outbox += messages.encode_line(event)
        if len(self.outbox) > _BACKLOG_BYTES_MAX:
            self._drop(self.controller)  # it has stopped reading: as good as gone
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

    def _start(self, command: dict[str, Any]) -> None:
        self.ranks = {number: rank for number, rank in self.ranks.items() if rank.status is None}
        for spec in command["specs"]:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CONTROL_BUFFER_BYTES)
            agent_pid = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become_rank(spec, ours, theirs, agent_pid)
            theirs.close()
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # also done by the child: whoever is first
            ours.setblocking(False)
            rank = _Rank(spec["rank"], spec["incarnation"], pid, ours)
            self.ranks[rank.rank] = rank
            self.groups.add(pid)
            self.selector.register(ours, selectors.EVENT_READ, self._on_rank)
            self.selector.register(rank.pidfd, selectors.EVENT_READ, self._on_death)
            self._tell({"e": "started", **rank.describe()})

    def _become_rank(
        self, spec: dict[str, Any], ours: socket.socket, theirs: socket.socket, agent_pid: int
    ) -> NoReturn:
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            procinfo.die_with_parent(agent_pid)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            _answer_where(spec)
            ours.close()
            self.selector.close()
            self.listener.close()
            for connection in self.connections:
                connection.close()
            for other in self.ranks.values():
                if other.status is None:
                    other.control.close()
                    os.close(other.pidfd)
            control_fd = theirs.detach()
            entry = self.entry
            self.__dict__.clear()  # nothing of the agent lives on in the rank
            entry(spec, control_fd)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)

    def _rank_of(self, control: socket.socket) -> _Rank:
        return next(rank for rank in self.ranks.values() if rank.control is control)

    def _on_rank(self, control: socket.socket, mask: int) -> None:
        if control.fileno() < 0:
            return  # reaped earlier in this turn
        rank = self._rank_of(control)
        if mask & selectors.EVENT_WRITE:
            self._flush_rank(rank)
        if mask & selectors.EVENT_READ:
            self._read_rank(rank)

    def _read_rank(self, rank: _Rank) -> None:
        while True:
            try:
                size = rank.control.recv_into(self.buffer)
            except BlockingIOError:
                return
            except OSError:
                size = 0
            if size == 0:
                with contextlib.suppress(KeyError):
                    self.selector.unregister(rank.control)  # closed; its death comes through the pidfd
                return
            try:
                packet = messages.parse_rank(messages.decode(memoryview(self.buffer)[:size]))
            except MalformedPacket as error:
                packet = {"m": "event", "event": "malformed-packet", "reason": str(error)}
            if packet["m"] == "finished":
                rank.finished = packet["exit_code"]
            elif packet["m"] == "error":
                rank.failed = packet["exit_code"]
            self._tell({"e": "packet", "rank": rank.rank, "incarnation": rank.incarnation, "packet": packet})

    def _send(self, ranks: list[int] | None, packet: dict[str, Any]) -> None:
        data = messages.encode(packet)
        for number, rank in self.ranks.items():
            if rank.status is None and (ranks is None or number in ranks):
                rank.outbox.append(data)
                self._flush_rank(rank)

    def _flush_rank(self, rank: _Rank) -> None:
        try:
            while rank.outbox:
                rank.control.send(rank.outbox[0])
                rank.outbox.popleft()
        except BlockingIOError:
            pass
        except OSError:
            rank.outbox.clear()  # it is dying; the pidfd says so
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if rank.outbox else 0)
        with contextlib.suppress(KeyError):
            if self.selector.get_key(rank.control).events != wanted:
                self.selector.modify(rank.control, wanted, self._on_rank)

    def _signal(self, ranks: list[int] | None, signum: int) -> None:
        for number, rank in self.ranks.items():
            if rank.status is None and (ranks is None or number in ranks):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, signum)

    # ---- death -------------------------------------------------------------------------------------------

    def _on_death(self, _pidfd: int, _mask: int) -> None:
        """Only wakes the loop; `_reap` does the work."""

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            rank = next((r for r in self.ranks.values() if r.pid == pid and r.status is None), None)
            if rank is not None:
                self._buried(rank, os.waitstatus_to_exitcode(status))
        for group in list(self.groups):
            if any(rank.pid == group and rank.status is None for rank in self.ranks.values()):
                continue
            # the rank is gone; whatever of its group is left (image child, subprocesses) goes too
            self._kill_group(group)
        if self.fencing is not None and not self.groups:
            incarnation, self.fencing = self.fencing, None
            self._tell({"e": "fenced", "incarnation": incarnation})

    def _kill_group(self, group: int) -> None:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.groups.discard(group)

    def _buried(self, rank: _Rank, status: int) -> None:
        self._read_rank(rank)  # what it said before it died comes first
        rank.status = status
        for fileobj in (rank.control, rank.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(fileobj)
        rank.control.close()
        os.close(rank.pidfd)
        how = {"signal": -status, "code": None} if status < 0 else {"signal": None, "code": status}
        self._tell({
            "e": "died", "rank": rank.rank, "incarnation": rank.incarnation, "pid": rank.pid,
            "ns": time.monotonic_ns(), **how,
        })  # fmt: skip

    def _fence(self, incarnation: int) -> None:
        self.fencing = incarnation
        for rank in self.ranks.values():
            if rank.incarnation <= incarnation:
                self._kill_group(rank.pid)

    # ---- alone -------------------------------------------------------------------------------------------

    def _alone(self, lonely_since: float) -> None:
        """One step without a controller; see the header."""
        if not self.ranks:
            if self.was_attached or time.monotonic() - lonely_since > _LONELY_START_S:
                self.ended = "no controller and no ranks"
            return
        if self.result is None:
            self.result = self._alone_result()
            if self.result is None:
                return
            if all(rank.finished is not None for rank in self.ranks.values()):
                self._send(None, messages.release())
                self.alone_until = time.monotonic() + _RELEASE_GRACE_S
            else:
                self._send(None, messages.stop(*self.result))
                self.alone_until = time.monotonic() + _STOP_GRACE_S
        alive = any(rank.status is None for rank in self.ranks.values())
        if alive and self.alone_until is not None and time.monotonic() > self.alone_until:
            for rank in self.ranks.values():
                self._kill_group(rank.pid)
        if not alive and not self.groups:
            self._log_result()
            self.ended = self.result[1]

    def _alone_result(self) -> tuple[int, str] | None:
        """Exit code and reason once the job can be said to be over; -1: interrupted, to be restarted."""
        for rank in self.ranks.values():
            if rank.failed:
                return rank.failed, f"rank {rank.rank} failed with exit code {rank.failed}"
            if rank.finished:
                return rank.finished, f"rank {rank.rank} ended with exit code {rank.finished}"
            if rank.status is not None and rank.finished is None:
                if rank.status > 0:
                    return rank.status, f"rank {rank.rank} left with exit code {rank.status}"
                how = f"was killed by signal {-rank.status}" if rank.status < 0 else "left without finishing"
                return -1, f"rank {rank.rank} {how}, and there was no controller"
        if all(rank.finished is not None for rank in self.ranks.values()):
            return 0, "all ranks have finished"
        return None

    def _log_result(self) -> None:
        from ckpt.store import JobDirectory

        assert self.result is not None
        exit_code, reason = self.result
        events = JobDirectory.open(self.job_dir).events
        if exit_code >= 0:
            events.append("job-finished", exit_code=exit_code, reason=reason, by="agent")
        else:
            events.append("job-interrupted", reason=reason, by="agent")


def where_path(runtime_dir: str, rank: int) -> str:
    """The file into which a rank writes where it is when it gets `WHERE_SIGNAL`."""
    return os.path.join(runtime_dir, f"where-{rank}")


def _answer_where(spec: dict[str, Any]) -> None:
    """Let the rank say where it is even while C code keeps the interpreter lock: faulthandler answers in C."""
    runtime_dir = spec.get("runtime_dir")
    if runtime_dir is None:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    fd = os.open(where_path(runtime_dir, spec["rank"]), flags, 0o600)
    faulthandler.register(WHERE_SIGNAL, file=fd, all_threads=False, chain=False)


def load_entry(name: str) -> Entry:
    """Import ``module:function``; a `preload` function beside it is called, to import what ranks need."""
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    preload = getattr(module, "preload", None)
    if preload is not None:
        preload()
    entry: Entry = getattr(module, function)
    return entry


def main(argv: list[str] | None = None) -> None:
    """Entry of the agent process; started by `controller.launch.local` only."""
    parser = argparse.ArgumentParser(prog="ckpt-agent")
    parser.add_argument("--job", required=True)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--entry", default=DEFAULT_ENTRY)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    procinfo.become_subreaper()
    listener = socket.socket(fileno=options.listen_fd)
    os.set_inheritable(listener.fileno(), False)
    path = listener.getsockname()
    agent = Agent(options.job, listener, load_entry(options.entry))
    gc.collect()
    gc.freeze()  # the pages of what was imported stay shared with the ranks
    try:
        agent.run()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)

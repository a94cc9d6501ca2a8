"""Ranks on this machine: one agent process, reached through a socket pair.

The command starts the agent before it makes or opens the job: the agent imports what ranks need while this process does the
rest (`ckpt.controller.launch.spawning`). Later `serve` tells the agent which job it serves. From then on the agent also
listens on a Unix socket in the job's private runtime directory, where a later controller finds it (`fence_survivor`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal as signals
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpt.controller.errors import MalformedPacket
from ckpt.controller.launch import procinfo, strays
from ckpt.controller.launch.launcher import AgentGone
from ckpt.controller.launch.spawning import AgentProcess, Spawned, spawn_agent
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.history import Process
from ckpt.controller.supervision.plan import Node
from ckpt.store.disk.privacy import open_regular
from ckpt.store.job.directory import AGENT_LOG

SOCKET_NAME = "agent.sock"
_END_PATIENCE_S = 5.0


class LocalLauncher:
    """Implements `Launcher`. Call `serve` first. After the agent was lost, `start` starts another with equal parameters."""

    def __init__(self, *, cwd: str, spawned: Spawned) -> None:
        """`spawned`: the agent, which has been started in the directory `cwd`."""
        self.cwd = cwd
        self.hash_seed = spawned.hash_seed
        self.entry = spawned.entry
        self.interpreter = spawned.interpreter
        self.process: AgentProcess | None = None
        self.connection: socket.socket | None = None
        self.was_up = False
        self._serving: dict[str, Any] | None = None
        self._generation = 0
        self._until_ns: int | None = None
        self._log_path: str | None = None
        self._mark = ""  # of the present agent, or of the last one
        self._lines = messages.LineDecoder()
        self._known: list[Process] = []  # ranks that were started, and whose death was not reported yet
        self._local_events: list[dict[str, Any]] = []
        self._take(spawned)

    # ---- bringing up -------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the agent, and return while it imports modules. Raises LaunchFailed."""
        self._take(
            spawn_agent(
                cwd=self.cwd, hash_seed=self.hash_seed, entry=self.entry, interpreter=self.interpreter
            )
        )

    def _take(self, spawned: Spawned) -> None:
        self.process, self.connection = spawned.process, socket.socket(fileno=spawned.take())
        self._mark = spawned.mark
        self.connection.setblocking(False)
        self._lines = messages.LineDecoder()
        self.was_up = False

    def serve(
        self,
        *,
        job_dir: str,
        runtime_dir: str,
        generation: int,
        log_name: str = AGENT_LOG,
        bound: bool = False,
    ) -> None:
        """Tell the agent which job it serves. `generation`: of the job's lock, which this controller holds. `log_name`: of
        the agent's log. `bound`: the agent ends, with all ranks, when this process ends."""
        self._generation = generation
        self._log_path = os.path.join(job_dir, log_name)
        path = os.path.join(runtime_dir, SOCKET_NAME)
        self._serving = {"a": "serve", "job": job_dir, "path": path, "log": log_name, "bound": bound}
        self._introduce()

    @property
    def is_far(self) -> bool:
        return False

    def printed(self, counts: Mapping[int, int]) -> None: ...

    def nodes(self, size: int) -> list[Node]:
        return [Node("localhost", size)]

    def _introduce(self) -> None:
        assert self._serving is not None
        self._command({"a": "attach", "generation": self._generation})
        self._command(self._serving)
        if self._until_ns is not None:
            self._command({"a": "lease", "until_ns": self._until_ns})

    def fileno(self) -> int:
        return -1 if self.connection is None else self.connection.fileno()

    # ---- commands ----------------------------------------------------------------------------------------

    def bring_up(self) -> str:
        if self.connection is None:
            self.spawn()
            self._introduce()
        return self._mark

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        self.bring_up()
        self._command({"a": "start", "specs": list(specs)})

    def send(self, packet: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        self._command({"a": "send", "ranks": None if ranks is None else list(ranks), "packet": packet})

    def signal(self, signum: int, ranks: Sequence[int] | None = None, *, caught: bool = False) -> None:
        to = None if ranks is None else list(ranks)
        self._command({"a": "signal", "ranks": to, "signal": int(signum), "caught": caught})

    def lease(self, until_ns: int | None) -> None:
        """The agent is to end all ranks, and itself, at this time of CLOCK_BOOTTIME, in ns, unless it is told another one
        before; None: not at all."""
        if until_ns != self._until_ns:
            self._until_ns = until_ns
            self._command({"a": "lease", "until_ns": until_ns})

    def look(self, silent: Sequence[int]) -> bool:
        return False

    def fence(self, incarnation: int, *, final: bool = False) -> None:
        if self.connection is not None:
            self._command({"a": "fence", "incarnation": incarnation})
            return
        kill_all(self._known)  # the kernel kills ranks with their agent; this waits for their end
        strays.kill_marked(self._mark)
        strays.reap_adopted()
        self._known = []
        self._local_events.append({"e": "fenced", "incarnation": incarnation})

    def _command(self, command: dict[str, Any]) -> None:
        if self.connection is None:
            return  # AgentGone was raised; the supervisor is about to act on it
        try:
            # Blocking: commands are small, and an agent that does not read them is of no use.
            self.connection.setblocking(True)
            self.connection.sendall(messages.encode_line(command))
            self.connection.setblocking(False)
        except OSError:
            self.connection.setblocking(False)  # `receive` will raise AgentGone

    # ---- events ------------------------------------------------------------------------------------------

    def receive(self) -> list[dict[str, Any]]:
        events, self._local_events = self._local_events, []
        if self.connection is None:
            return events
        try:
            while True:
                data = self.connection.recv(1 << 18)
                if not data:
                    break
                events += self._lines.feed(data)
                if len(data) < 1 << 18:
                    return self._noted(events)
        except BlockingIOError:
            return self._noted(events)
        except (OSError, MalformedPacket):
            pass  # treat the connection as closed
        if events:
            return self._noted(events)  # the next call raises AgentGone
        raise self._gone()

    def _noted(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for event in events:
            if event["e"] == "state":
                self.was_up = True
            elif event["e"] == "started":
                self._known.append(Process(event["pid"], event["start_ticks"]))
            elif event["e"] == "died":
                self._known = [process for process in self._known if process.pid != event["pid"]]
        return events

    def _gone(self) -> AgentGone:
        assert self.connection is not None
        self.connection.close()
        self.connection = None
        reason = "it closed the connection"
        killed = False
        if self.process is not None:
            try:
                status = self.process.wait(1.0)
                killed = status < 0
                reason = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
            except TimeoutError:
                self.process.kill()
                self.process.wait()
                reason = "it stopped answering"
        # An agent that was killed may start the next time; an agent that failed to start would fail again.
        return AgentGone(f"{reason}{self._log_tail()}", started=self.was_up or killed)

    def _log_tail(self, limit_bytes: int = 2000) -> str:
        if self._log_path is None:
            return ""
        try:
            with open(open_regular(self._log_path, os.O_RDONLY), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - limit_bytes))
                text = log.read().decode(errors="replace").strip()
        except OSError:
            return ""
        return f"\n{text}" if text else ""

    def close(self, *, at_once: bool = False) -> None:
        """End the agent and all ranks. `at_once`: kill the ranks first, whether or not the agent obeys."""
        if at_once:
            kill_all(self._known, 0)
        if self.connection is not None:
            self._command({"a": "end", "reason": "the job has ended"})
        if self.process is not None:
            if not self.was_up:
                self.process.kill()  # the agent has not answered yet: it has no ranks
            try:
                by_itself = self.process.wait(_END_PATIENCE_S) == 0
            except TimeoutError:
                self.process.kill()
                self.process.wait()
                by_itself = False
            if not by_itself:  # else the agent has ended all processes
                strays.kill_marked(self._mark)
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        kill_all(self._known)


def kill_all(processes: Iterable[Process], patience_s: float = _END_PATIENCE_S) -> None:
    """SIGKILL these processes and their process groups, and wait until they are dead, at most `patience_s` seconds."""
    mine = list(processes)
    for process in mine:
        procinfo.kill_exactly(process.pid, process.ticks, signals.SIGKILL, group=True)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and any(procinfo.is_alive(p.pid, p.ticks) for p in mine):
        time.sleep(0.002)


def fence_survivor(runtime_dir: str, generation: int, known: Iterable[Process], marks: Iterable[str]) -> bool:
    """End the agent that an earlier controller left behind, and its ranks. Call with the job's lock held.

    The agent is asked to end first. Then all processes that are left are killed, by recorded identity (`known`) and by the
    `marks` of agents. Returns whether a process was alive. `runtime_dir` "": not known. `generation`: of the job's lock.
    """
    known = list(known)
    alive = any(procinfo.is_alive(process.pid, process.ticks) for process in known)
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        try:
            connection.connect(os.path.join(runtime_dir or "/nonexistent", SOCKET_NAME))
            connection.sendall(messages.encode_line({"a": "attach", "generation": generation}))
            connection.sendall(messages.encode_line({"a": "end", "reason": "fenced by a new controller"}))
            alive = True
            _wait_for_end(connection)
        except OSError:
            pass  # no agent listens: the usual case
    kill_all(known)
    strayed = [strays.kill_marked(mark) for mark in marks]
    return alive or any(strayed)


def _wait_for_end(connection: socket.socket) -> None:
    deadline = time.monotonic() + _END_PATIENCE_S
    connection.setblocking(False)
    while (left := deadline - time.monotonic()) > 0:
        if select.select([connection], [], [], left)[0] and not connection.recv(1 << 16):
            return

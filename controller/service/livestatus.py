"""The state of all ranks of a running job: one question of `ckpt status`, sent to all ranks.

The helper thread of a rank answers, also while the program computes. A rank that does not answer within `ASK_NS` runs C code
that keeps the interpreter lock (GIL). Such a rank gets a signal, and its signal handler, written in C (faulthandler), writes
the stack to a file. After `PATIENCE_NS` the client gets its answer; a rank may be missing there ("does not answer").
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.controller.launch import procinfo
from ckpt.controller.launch.forked import WHERE_SIGNAL, where_path
from ckpt.controller.launch.launcher import Launcher
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.supervisor import Supervisor

ASK_NS = 100_000_000
PATIENCE_NS = 250_000_000


class LiveStatus:
    """One question in progress. `options`: of the ranks; `pids`: of those that are asked; `done` is called once, with the
    answer."""

    def __init__(
        self,
        supervisor: Supervisor,
        launcher: Launcher,
        runtime_dir: str,
        options: Mapping[str, Any],
        pids: dict[int, int],
        done: Callable[[dict[str, Any]], None],
        *,
        now_ns: int,
    ) -> None:
        self._supervisor = supervisor
        self._launcher = launcher
        self._runtime_dir = runtime_dir
        self._options = options
        self._pids = pids
        self._done = done
        self._asked_ns = now_ns
        self._signalled = False
        self._answers: dict[int, dict[str, Any]] = {}
        self.finished = False
        launcher.send(messages.status())

    def deadline_ns(self) -> int:
        return self._asked_ns + (PATIENCE_NS if self._signalled else ASK_NS)

    def take(self, rank: int, packet: messages.Packet, *, now_ns: int) -> None:
        self._answers[rank] = {key: value for key, value in packet.items() if key not in ("m", "rank")}
        if len(self._answers) >= len(self._pids):
            self._finish(now_ns)

    def tick(self, *, now_ns: int) -> None:
        if self.finished or now_ns < self.deadline_ns():
            return
        if self._signalled or not self._silent():
            self._finish(now_ns)
            return
        self._signalled = True
        for rank in self._silent():
            with contextlib.suppress(OSError):
                os.truncate(where_path(self._runtime_dir, rank), 0)
        self._launcher.signal(WHERE_SIGNAL, self._silent())

    def _silent(self) -> list[int]:
        return [rank for rank in self._pids if rank not in self._answers]

    def _finish(self, now_ns: int) -> None:
        self.finished = True
        for rank in self._silent():
            self._answers[rank] = {"where": self._stack_of(rank), "answers": False}
        ranks = [
            {"rank": rank, "pid": pid, "state": procinfo.state(pid), "answers": True, **self._answers[rank]}
            for rank, pid in sorted(self._pids.items())
        ]
        supervisor = self._supervisor
        self._done({
            "ok": True,
            "phase": supervisor.phase,
            "incarnation": supervisor.incarnation,
            "restarts": supervisor.restarts,
            "resumed_from": supervisor.resumed,
            "failed": sorted(supervisor.failed),
            "committed": supervisor.coordinator.committed,
            "round": describe_round(supervisor.coordinator, self._answers, now_ns=now_ns),
            "ranks": ranks,
            "files": {name: self._options.get(name) for name in ("files", "files_limit")},
        })  # fmt: skip

    def _stack_of(self, rank: int) -> str:
        """The innermost frame of the stack that the rank's signal handler has written: ``file:line function``."""
        try:
            with open(where_path(self._runtime_dir, rank), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return "unknown"
        return innermost_frame(text)


def innermost_frame(text: str) -> str:
    """``file:line function`` of the first frame in a text of `faulthandler`; or "unknown"."""
    for line in text.splitlines():
        head, found, rest = line.strip().partition('File "')
        if not head and found:
            file, _, rest = rest.partition('", line ')
            number, _, function = rest.partition(" in ")
            return f"{file}:{number} {function}"
    return "unknown"


def describe_round(
    coordinator: Coordinator, answers: dict[int, dict[str, Any]], *, now_ns: int
) -> dict[str, Any] | None:
    """The open round: its age, and for which ranks it waits, why, and where they are; None: no round is open."""
    current = coordinator.round
    if current is None:
        return None
    waits = []
    for rank in range(coordinator.size):
        if rank in current.votes or rank in (current.ready or ()):
            continue
        refusal = current.refusals.get(rank)
        if rank in current.captured:
            what, where = "writing its image", ""
        elif refusal is not None:
            what, where = f"cannot be captured: {refusal.reason}", refusal.where
        else:
            what, where = "has not reached a place where it can be captured", ""
        waits.append({"rank": rank, "what": what, "where": where or answers.get(rank, {}).get("where", "")})
    return {
        "epoch": current.epoch,
        "since_ms": round((now_ns - current.started_ns) / 1e6, 1),
        "writing_control_file": current.writing,
        "waits_for": waits,
    }

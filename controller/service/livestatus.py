"""The state of all ranks of a running job: one question of `ckpt status`, sent to all ranks.

The helper thread of a rank answers, also while the program computes. A rank that does not answer within `ASK_NS` runs C code
that keeps the interpreter lock (GIL). Such a rank gets a signal, and its signal handler, written in C (faulthandler), writes
the stack to a file. After `PATIENCE_NS` the client gets its answer; a rank may be missing there ("does not answer").

On several hosts their agents are asked for the states of processes, and for those stacks (`Launcher.look`): they have
`FAR_PATIENCE_NS` for that.

The controller asks itself, too, once in a start that takes long (`SlowStart`): what does not come back from a checkpoint
waits without end, perhaps, and nobody else would say where.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from ckpt.controller.launch import procinfo, stacks
from ckpt.controller.launch.forked import WHERE_SIGNAL
from ckpt.controller.launch.launcher import Launcher
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.lines import ranks_text
from ckpt.controller.supervision.supervisor import Supervisor

ASK_NS = 100_000_000
PATIENCE_NS = 250_000_000
FAR_PATIENCE_NS = 1_000_000_000


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
        self._states: dict[int, str | None] = {}  # of ranks on other hosts
        self._stacks: dict[int, str] = {}
        self.finished = False
        launcher.send(messages.status())
        self._is_far = launcher.look(())

    def deadline_ns(self) -> int:
        patience_ns = FAR_PATIENCE_NS if self._is_far else PATIENCE_NS
        return self._asked_ns + (patience_ns if self._signalled else ASK_NS)

    def take(self, rank: int, packet: messages.Packet, *, now_ns: int) -> None:
        self._answers[rank] = {key: value for key, value in packet.items() if key not in ("m", "rank")}
        self._finish_if_complete(now_ns)

    def looked(self, event: Mapping[str, Any], *, now_ns: int) -> None:
        """The agent of a host has looked: see `Launcher.look`."""
        self._states.update(event["states"])
        self._stacks.update(event["stacks"])
        self._finish_if_complete(now_ns)

    def _finish_if_complete(self, now_ns: int) -> None:
        if self.finished or (self._is_far and not self._states.keys() >= self._pids.keys()):
            return
        if self._stacks.keys() >= set(self._silent()):
            self._finish(now_ns)

    def tick(self, *, now_ns: int) -> None:
        if self.finished or now_ns < self.deadline_ns():
            return
        if self._signalled or not self._silent():
            self._finish(now_ns)
            return
        self._signalled = True
        if self._is_far:
            self._launcher.look(self._silent())
            return
        for rank in self._silent():
            stacks.clear(self._runtime_dir, rank)
        self._launcher.signal(WHERE_SIGNAL, self._silent())

    def _state_of(self, rank: int, pid: int) -> str | None:
        return self._states.get(rank) if self._is_far else procinfo.state(pid)

    def _silent(self) -> list[int]:
        return [rank for rank in self._pids if rank not in self._answers]

    def _finish(self, now_ns: int) -> None:
        self.finished = True
        for rank in self._silent():
            where = self._stacks.get(rank, "unknown")
            if not self._is_far:
                where = stacks.innermost(self._runtime_dir, rank)
            self._answers[rank] = {"where": where, "answers": False}
        ranks = [
            {
                "rank": rank,
                "pid": pid,
                "state": self._state_of(rank, pid),
                "answers": True,
                **self._answers[rank],
            }
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


class SlowStart:
    """When ranks that start or load their images have taken `limit_ns`: once in each incarnation. Pure."""

    def __init__(self, limit_ns: int) -> None:
        self.limit_ns = limit_ns
        self._incarnation: int | None = None
        self._due_ns: int | None = None

    def deadline_ns(self) -> int | None:
        return self._due_ns

    def is_due(self, supervisor: Supervisor, *, now_ns: int) -> bool:
        if supervisor.phase != "starting":
            self._due_ns = None
        elif supervisor.incarnation != self._incarnation:
            self._incarnation, self._due_ns = supervisor.incarnation, now_ns + self.limit_ns
        elif self._due_ns is not None and now_ns >= self._due_ns:
            self._due_ns = None
            return True
        return False


def describe_start(
    answer: Mapping[str, Any], there: Container[int], after_s: float
) -> tuple[dict[str, Any], str] | None:
    """Fields of an event, and a text for people, of the ranks that are not `there` yet; None: all are. `answer`: of a
    `LiveStatus`."""
    missing = [each for each in answer["ranks"] if each["rank"] not in there]
    if not missing:
        return None
    epoch, who = answer["resumed_from"], ranks_text([each["rank"] for each in missing])
    fields = {
        "incarnation": answer["incarnation"],
        "from_epoch": epoch,
        "s": after_s,
        "ranks": [{key: each.get(key) for key in ("rank", "where", "state")} for each in missing],
    }
    doing = "starting" if epoch is None else f"loading checkpoint {epoch}"
    text = f"{who} {doing} for {after_s:g} s now; rank {missing[0]['rank']} is at {missing[0].get('where')}"
    if epoch is not None:
        text += "; if that does not end: `ckpt stop`, then `ckpt restart JOB@EPOCH` with an older checkpoint (`ckpt ls JOB`)"
    return fields, text


def describe_round(
    coordinator: Coordinator, answers: dict[int, dict[str, Any]], *, now_ns: int
) -> dict[str, Any] | None:
    """The open round: its age, and for which ranks it waits, why, and where they are; None: no round is open."""
    current = coordinator.round
    if current is None:
        return None
    waits = []
    for rank in coordinator.members:
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

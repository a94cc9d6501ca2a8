"""Runs the text scenarios beside this file against the supervisor and its coordinator.

A scenario is a sequence of commands and, after ``----``, all actions that these commands led to, one a
line, up to a blank line. ``at MS`` sets the clock before a command. To accept what the code does now, after
reading it: ``CKPT_REWRITE=1 pytest tests/scenarios/controller`` and look at the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpt.controller.supervision.coordinator import Coordinator
from ckpt.controller.supervision.events import (
    Action,
    AgentLost,
    Begin,
    Captured,
    CheckpointRequested,
    ControlWritten,
    Died,
    Discard,
    End,
    Event,
    Failed,
    Fence,
    Fenced,
    Finished,
    Hello,
    Launch,
    Log,
    ProgramError,
    Reply,
    Say,
    Send,
    SetBranch,
    StopRequested,
    Terminate,
    Tick,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.rounds import RoundOptions
from ckpt.controller.supervision.supervisor import Supervisor

HERE = Path(__file__).parent
MS = 1_000_000


class Interpreter:
    """Executes commands; `run` returns the actions as text."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.job: Supervisor | None = None

    def run(self, command: str) -> list[str]:
        words = command.split()
        if words[0] == "at":
            self.now_ms = int(words[1])
            words = words[2:]
        if words[0] == "job":
            self._new(dict(word.split("=") for word in words[1:]))
            return []
        assert self.job is not None
        event = self._event(words[0], words[1:])
        return [show(action) for action in self.job.handle(event, now_ns=self.now_ms * MS)]

    def _new(self, options: dict[str, str]) -> None:
        lines = tuple(int(word) for word in options.get("lines", "").split(",") if word)
        highest = int(options.get("highest", max(lines, default=0)))
        coordinator = Coordinator(
            int(options["ranks"]),
            highest=highest,
            committed=max(lines, default=None),
            options=RoundOptions(asks=False),
        )
        self.now_ms = 0
        self.job = Supervisor(
            coordinator, incarnation=int(options.get("incarnation", 0)), lines=lines, max_restarts=3
        )

    def _event(self, name: str, words: list[str]) -> Event:
        assert self.job is not None
        values = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        now, current = self.job.incarnation, self.job.coordinator.round
        epoch = current.epoch if current is not None else 0
        token = int(values["token"]) if "token" in values else None
        rank = int(plain[0]) if plain and plain[0].isdecimal() else 0
        text = " ".join(plain[1:])
        code = int(values["code"]) if "code" in values else None
        match name:
            case "begin":
                return Begin()
            case "hello":
                return Hello(rank, now, f"address-{rank}")
            case "request":
                return CheckpointRequested(token)
            case "captured":
                return Captured(rank, now, epoch)
            case "voted":
                return Voted(rank, now, epoch, (epoch - 1, epoch), "m", "d", {}, 1000, 100)
            case "failed":
                return Failed(rank, now, epoch, text)
            case "written":
                return ControlWritten(epoch)
            case "finished":
                return Finished(rank, now, 0)
            case "error":
                return ProgramError(rank, now, code or 1, text)
            case "died":
                signal = int(values["signal"]) if "signal" in values else None
                return Died(rank, now, signal=signal, code=code)
            case "fenced":
                return Fenced(now)
            case "agent-lost":
                return AgentLost("killed by signal 9")
            case "stop":
                only = "only" in plain
                return StopRequested(code or 0, "stopped", "checkpoint" in plain, only, token)
            case "tick":
                return Tick()
        raise ValueError(f"unknown command {name!r}")


def show(action: Action) -> str:
    match action:
        case Launch(incarnation=incarnation, epoch=epoch, reason=reason):
            origin = "the start" if epoch is None else f"epoch {epoch}"
            return f"launch incarnation {incarnation} from {origin}: {reason}"
        case SetBranch(epoch=epoch):
            return f"leave behind what is newer than {'the start' if epoch is None else f'epoch {epoch}'}"
        case Fence(incarnation=incarnation):
            return f"fence incarnation {incarnation}"
        case Send(packet=packet):
            rest = " ".join(f"{key}={value}" for key, value in packet.items() if key != "m")
            return f"send {packet['m']} {rest}".rstrip()
        case Terminate():
            return "terminate"
        case WriteControl(epoch=epoch, votes=votes):
            return f"write control file of epoch {epoch}, {len(votes)} votes"
        case Discard(epoch=epoch):
            return f"discard images up to epoch {epoch}"
        case Log(event=event, fields=fields):
            return f"log {event} " + " ".join(f"{key}={value}" for key, value in fields.items())
        case Reply(token=token, ok=ok, fields=fields):
            what = "ok" if ok else "no"
            return f"reply {token} {what} " + " ".join(f"{key}={value}" for key, value in fields.items())
        case Say(text=text):
            return f"say {text}"
        case End(exit_code=exit_code, reason=reason, kind=kind):
            return f"end {exit_code} {kind}: {reason}"


def play(text: str) -> str:
    """The scenario with the actions that really happened."""
    interpreter = Interpreter()
    out: list[str] = []
    actions: list[str] = []
    expected = False
    for line in text.splitlines():
        if expected:
            if line:
                continue  # what was expected; replaced by what is
            expected = False
        if line == "----":
            out += [line, *actions]
            actions = []
            expected = True
            continue
        out.append(line)
        if line and not line.startswith("#"):
            actions += interpreter.run(line)
    assert not actions, f"actions that nobody looks at: {actions}"
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    happened = play(text)
    if os.environ.get("CKPT_REWRITE"):
        path.write_text(happened, encoding="utf-8")
    assert happened.splitlines() == path.read_text(encoding="utf-8").splitlines()

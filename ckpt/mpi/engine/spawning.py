"""Processes that a program starts (Spawn), and the process that was started so (Get_parent): what one rank knows of them.

    asked ──sent to the controller──▶ the root waits ──answer──▶ done, with the numbers or with a reason
       ▲                                  │
       └── in the image of a checkpoint ──┘   a restart asks again: nothing was started before that checkpoint

Everything here is part of the process image, but no image is taken once processes are started.

Not here: the communicators (comm/comm_inter.py), the words of a command (base/commands.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.mpi.engine import worlds
from ckpt.mpi.engine.operations import Operation

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.engine import Engine


class Asked(Operation):
    """One request for processes, at its root. `packet`: as it is sent. When done: `numbers` of the processes and `counts` by
    command; or `refused`, why there are none."""

    __slots__ = ("counts", "numbers", "packet", "refused")

    is_told = True

    def __init__(self, packet: dict[str, Any]) -> None:
        super().__init__()
        self.packet = packet
        self.numbers: tuple[int, ...] = ()
        self.counts: tuple[int, ...] = ()
        self.refused = ""


class Spawns:
    """`parent`: of a process that was started so: what its description has of the communicator of those that started it."""

    __slots__ = ("handle", "parent", "pending")

    def __init__(self, parent: dict[str, Any] | None = None) -> None:
        self.parent = parent
        self.handle: CommHandle | None = None
        """The communicator with the parents, once it is made."""
        self.pending: dict[str, Asked] = {}

    def answer(self, packet: dict[str, Any]) -> None:
        """The controller has answered. The lock is held."""
        asked = self.pending.pop(packet["token"], None)
        if asked is not None:
            asked.numbers, asked.counts = tuple(packet.get("numbers", ())), tuple(packet.get("counts", ()))
            asked.refused = packet.get("refused", "")
            asked.done = True

    def refuse_all(self, reason: str) -> None:
        """There is no controller that would answer. The lock is held."""
        for token in list(self.pending):
            self.answer({"token": token, "refused": reason})


def spawns_of(engine: Engine) -> Spawns:
    """Those of this rank. The lock is held."""
    if engine.spawns is None:
        engine.spawns = Spawns()
    return engine.spawns


def ask_for(engine: Engine, shared: CommShared, token: str, commands: list[dict[str, Any]]) -> Any:
    """At the root of the communicator `shared`: ask for processes and wait. Returns their numbers, context numbers, and how
    many of each command were started and asked for; or the reason why there are none. PeerFailed: a member has failed."""
    if shared.broken:
        raise engine.failed_ranks.collective_error(shared)
    with engine.lock:
        bases = [engine.next_context() for _ in range(3)]
        parent = {"group": list(shared.group), "bases": bases}
        wanted = [command["count"] for command in commands]
        asked = Asked(
            {"m": "request", "what": "spawn", "token": token, "commands": commands, "parent": parent}
        )
        spawns_of(engine).pending[token] = asked
        refused = worlds.ask(asked.packet)
        if refused is not None:
            del spawns_of(engine).pending[token]
            return refused
        engine.wait(asked)
    return asked.refused or (asked.numbers, bases, asked.counts, wanted)

"""The protocol (``typing.Protocol``) of launchers: a launcher starts the agents of a job for the service.

All agents speak the packets of `ckpt.controller.supervision.messages`, whatever launcher has started them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ckpt.controller.supervision.plan import Node


class Launcher(Protocol):
    """The agents of one job, used as if they were one agent.

    No method waits for the agents' answers; answers and events come through `receive`. After `receive` has raised
    `AgentGone`, `fence` still works (it kills by recorded identity), and `start` brings up new agents.
    """

    @property
    def is_far(self) -> bool:
        """Are there agents on several hosts? They follow the output files of their ranks, from the lengths on that a spec
        has as "printed", and send what is new: events ``output``, with bytes as "text" (`following.py`)."""
        ...

    def printed(self, counts: Mapping[int, int]) -> None:
        """By rank, so many more bytes of that have been printed: agents may send as many more."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when `receive` would return events; -1 while there is no agent."""
        ...

    def bring_up(self) -> str:
        """Start the agents if there are none. Returns their mark: a word in the environment of all processes they start."""
        ...

    def nodes(self, size: int) -> list[Node]:
        """The hosts on which ranks can be started now, with at least `size` slots in all. Raises NoHostLeft."""
        ...

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        """Call `bring_up`, then let the agents fork one rank for each element of `specs`."""
        ...

    def send(self, packet: dict[str, Any], ranks: Sequence[int] | None = None) -> None: ...

    def signal(self, signum: int, ranks: Sequence[int] | None = None, *, caught: bool = False) -> None:
        """Send a signal to these ranks (None: all). `caught`: only to those that have a handler for it."""
        ...

    def look(self, silent: Sequence[int]) -> bool:
        """Let the hosts say in which state their ranks are, and where these do not answer: events ``looked`` with the
        dicts "states" (a letter as in proc(5), or None) and "stacks" by rank. False: all ranks are here: look yourself."""
        ...

    def fence(self, incarnation: int, *, final: bool = False) -> None:
        """Kill and reap all ranks up to this incarnation, and their processes; an event ``fenced`` says when it is done.
        `final`: no others are started after that."""
        ...

    def receive(self) -> list[dict[str, Any]]:
        """Events of the agents (key "e") that have arrived. Raises AgentGone once when an agent is lost."""
        ...

    def close(self) -> None:
        """End the agents and all processes of ranks that are left."""
        ...


class AgentGone(Exception):
    """The connection to an agent is broken. `started`: the agent had answered before, or was killed: a new one may work."""

    def __init__(self, reason: str, *, started: bool) -> None:
        super().__init__(reason)
        self.started = started

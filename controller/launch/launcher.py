"""What starts the agents of a job, as the service sees it. Whatever the engine, an agent speaks the packets of
`ckpt.controller.supervision.messages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Launcher(Protocol):
    """The agents of one job, seen as one.

    All methods return at once; what happens comes back through `receive`. After `receive` has raised
    `AgentGone`, `fence` still works (it kills by recorded identity), and `start` brings up new agents.
    """

    def fileno(self) -> int:
        """Readable when `receive` has something; -1 while there is no agent."""
        ...

    def bring_up(self) -> str:
        """Bring up the agents if there are none; the word in the environment of all that they start."""
        ...

    def start(self, specs: Sequence[dict[str, Any]]) -> None:
        """Fork the ranks; first `bring_up`."""
        ...

    def send(self, packet: dict[str, Any], ranks: Sequence[int] | None = None) -> None: ...

    def signal(self, signum: int, ranks: Sequence[int] | None = None, *, caught: bool = False) -> None:
        """`caught`: only to those that have a handler for it."""
        ...

    def fence(self, incarnation: int) -> None:
        """Kill and reap everything up to this incarnation; answered by an event ``fenced``."""
        ...

    def receive(self) -> list[dict[str, Any]]:
        """Events of the agents (key "e") that have arrived. Raises AgentGone once when an agent is lost."""
        ...

    def close(self) -> None:
        """End agents and whatever is left of the ranks."""
        ...


class AgentGone(Exception):
    """The connection to an agent broke; `started`: it had been up, or was killed, so another one may do better."""

    def __init__(self, reason: str, *, started: bool) -> None:
        super().__init__(reason)
        self.started = started

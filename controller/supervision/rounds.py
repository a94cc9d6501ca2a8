"""One checkpoint round as data: its options, and what is known of it until it is committed or burnt. Pure.

Not here: what follows from that (`coordinator`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ckpt.controller.supervision.cuts.boundaries import Agreement
from ckpt.controller.supervision.events import Refused, Token, Voted
from ckpt.transport.records import dataclass, field

__all__ = ["Round", "RoundOptions"]

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """Options of rounds. `every_ns`: the schedule's interval, None: no schedule. `timeout_ns`: after this time a round is
    burnt. `mode`: "fork", "sync" or "auto" (see `ckpt.capture.choice`). `asks`: several ranks are asked before a round.
    `goes_on`: after the death of a rank that is not restarted, the others take images.
    """

    every_ns: int | None = None
    timeout_ns: int = 120 * _NS
    mode: str = "fork"
    asks: bool = True
    goes_on: bool = True


@dataclass(slots=True)
class Round:
    """The open round. `absent`: ranks that are dead for good, without which it began. `ready`: ranks that have answered that
    they could be captured; None: all were told to take images."""

    epoch: int
    started_ns: int
    deadline_ns: int
    absent: frozenset[int] = frozenset()
    ready: set[int] | None = None
    captured: set[int] = field(default_factory=set)
    first_image_ns: int | None = None  # when the first of these images began
    votes: dict[int, Voted] = field(default_factory=dict)
    refusals: dict[int, Refused] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)  # ranks whose programs wait for this round
    writing: bool = False
    verified: bool | None = None  # see `events.WriteControl`
    agreement: Agreement = field(default_factory=Agreement)

    @property
    def costs_since_ns(self) -> int:
        """Since when the round has cost the program time: since the first image, as far as it is known."""
        return self.started_ns if self.first_image_ns is None else max(self.started_ns, self.first_image_ns)

    def captures(self, rank: int, since_ns: int) -> None:
        """The rank has stood still for its image since then, and goes on."""
        self.captured.add(rank)
        if self.first_image_ns is None or since_ns < self.first_image_ns:
            self.first_image_ns = since_ns

    def who_is_missing(self, ranks: Iterable[int]) -> str:
        """Those of `ranks` that hold the round up, each with the reason."""
        parts = []
        for rank in ranks:
            if rank in self.votes or rank in (self.ready or ()):
                continue
            refusal = self.refusals.get(rank)
            if rank in self.captured:
                parts.append(f"rank {rank} is still writing its image")
            elif refusal is not None:
                parts.append(f"rank {rank} cannot be captured: {refusal.reason} ({refusal.where})")
            else:
                parts.append(f"rank {rank} has not answered")
        return "; ".join(parts)

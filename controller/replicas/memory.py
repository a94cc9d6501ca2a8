"""What replicas hold in memory is compared after every checkpoint that they have verified: who is asked, what follows. Pure.

    a verified line is committed ──▶ one comparison of each rank (:mod:`ckpt.redundancy.memory.comparison`)
                                       ├── all are the same ──▶ logged
                                       ├── one differs ──▶ `found`
                                       └── the next line is committed before ──▶ its comparison follows this one, or after
                                           LINES_MAX lines takes its place

Each replica tells what it holds at the first place of its program, after the image, that none had passed. The donor holds
there what it has made of what is in its image, and whoever goes on from that image comes to the same place. So an error that
is in the image, and matters, is seen there. Who differs is wrong as one whose messages differ: it is lost, with the lines
that it has given; where nobody knows who is right, all go back.

A line counts as verified in full when this comparison has ended, and nothing differs (`verified`); what a restart makes of
lines that are not is in `lines`.

Not here: how a difference is located further (`inquiries`), copies (`clones`).
"""

from __future__ import annotations

from collections.abc import Collection

from ckpt.controller.replicas.events import MemoryTold
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import Action, Log, Send
from ckpt.redundancy.membership import Lineage, Numbering
from ckpt.redundancy.memory.comparison import Comparison, Difference

__all__ = ["LINES_MAX", "Memories"]

UNLIKE_MAX = 20
"""So many names of values that differ everywhere are logged."""

LINES_MAX = 8
"""After so many lines a comparison is given up: the child of a replica has died, or its program computes for long."""


class Memories:
    """The comparisons of all ranks for one line. `found`: ranks that differ, and have not been seen to yet; `verified`:
    lines in which all was the same, as far as it can be compared; `unlike`: see `Comparison`; the ranks run one program."""

    def __init__(
        self, numbers: Numbering, lineage: Lineage, needed: int, unlike: set[str] | None = None
    ) -> None:
        self.numbers, self.lineage, self.needed = numbers, lineage, needed
        self.epoch = self.next_epoch = 0
        self.planes: set[int] = set()
        self.lines_since = 0
        self.comparisons: list[Comparison] = []
        self.found: list[tuple[int, Difference]] = []
        self.verified: set[int] = set()
        self.unlike: set[str] = set() if unlike is None else unlike

    def begin(self, epoch: int, planes: Collection[int]) -> list[Action]:
        """The line of `epoch` is committed; these planes compute."""
        self.planes, self.next_epoch = set(planes), epoch
        self.lines_since += 1
        if self.comparisons and self.lines_since < LINES_MAX:
            return []
        given_up = self._log() if self.comparisons else []
        return [*given_up, *self._next()]

    def told(self, event: MemoryTold) -> list[Action]:
        """A process has told where it is, or a part of what it holds."""
        if event.epoch != self.epoch or not self.comparisons:
            return []
        rank, plane = self.numbers.parts(event.rank)
        comparison = self.comparisons[rank]
        if event.at is not None:
            comparison.was_at(plane, event.place, event.at)
        elif event.none:
            comparison.cannot(plane, event.none, is_excused=event.is_excused)
        else:
            comparison.tells(plane, event.place, event.where, event.parts, event.blocks)
        return self._go_on()

    def left(self, planes: Collection[int]) -> list[Action]:
        """Only these planes compute."""
        self.planes &= set(planes)
        for comparison in self.comparisons:
            comparison.left(planes)
        return self._go_on()

    def _next(self) -> list[Action]:
        self.epoch, self.next_epoch, self.lines_since = self.next_epoch, 0, 0
        if not self.epoch or len(self.planes) < 2:
            return []
        planes, decides = self.planes, self.lineage.decides
        ranks = range(self.numbers.ranks)
        self.comparisons = [Comparison(planes, self.needed, decides, self.unlike) for _ in ranks]
        return self._go_on()

    def _go_on(self) -> list[Action]:
        actions: list[Action] = []
        for rank, comparison in enumerate(self.comparisons):
            if comparison.is_to_ask and not comparison.outcome:
                comparison.is_to_ask = False
                processes = tuple(self.numbers.process(rank, plane) for plane in sorted(comparison.planes))
                actions.append(Send(messages.layer(memory=self.epoch, place=comparison.place), processes))
            if comparison.found is not None:
                self.found.append((rank, comparison.found))
                comparison.found = None
        if self.comparisons and all(comparison.outcome for comparison in self.comparisons):
            actions += [*self._log(), *self._next()]
        return actions

    def _log(self) -> list[Action]:
        """All is known that will be."""
        ranks = [comparison.summary() for comparison in self.comparisons]
        is_verified = all(comparison.is_verified for comparison in self.comparisons)
        if is_verified:
            self.verified.add(self.epoch)
        fields = {
            "epoch": self.epoch,
            "verified": is_verified,
            "same": sum(comparison.outcome == "same" for comparison in self.comparisons),
            "variables": sum(each.get("variables", 0) for each in ranks),
            "not_compared": {
                str(rank): each["reason"] for rank, each in enumerate(ranks) if each.get("reason")
            },
        }
        if self.unlike:
            fields["unlike"] = sorted(self.unlike)[:UNLIKE_MAX]
        self.comparisons = []
        return [Log("memory-compared", fields)]

"""What one rank has in a solve: its place, its numbers, the panels and the update that it or others may need again.

Between two steps it is consistent: `step` says which panels it has applied, `panels` has those that may be needed again,
`update` the last row exchange of which it was the root. What a step changes is changed in parts (`_changing`).

With `verify`, wrong numbers are looked for: in the matrix by sums (verify.py), in panels and the update by digests
(seals.py), before and after they are used, so before anything that was made of them goes to another rank. `Corrupt`: this
rank's numbers are of no use; it drops them, and tells the next meeting.

Not here: where all of this comes from, and in which order (member.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from ckpt.abft.decisions.copies import holders
from ckpt.abft.decisions.course import Course, State
from ckpt.abft.decisions.grid import Place
from ckpt.abft.decisions.steps import trailing_group
from ckpt.abft.numbers.local import Local, Panel, Update
from ckpt.abft.numbers.verify import Corrupt, Sums
from ckpt.abft.solver.link import Link
from ckpt.abft.solver.matrix import Matrix
from ckpt.abft.solver.method import Method

__all__ = ["Holdings"]

Array = npt.NDArray[Any]


class Holdings:
    """What this rank has. `right`: the right-hand sides (n × r). `verify`: look for wrong numbers (verify.py) every so
    many steps; 0: never."""

    def __init__(
        self, link: Link, matrix: Matrix, right: Array, verify: int = 0, method: Method | None = None
    ) -> None:
        self.method = method or Method()
        self.kept: dict[int, Panel] = {}
        self.verify = verify
        self.corrupt = False
        self._corrected = self._redone = 0
        self.link, self.matrix, self.right = link, matrix, right
        self.shape = matrix.shape
        self.course: Course | None = None
        self.place: Place | None = None
        self.local: Local | None = None
        self.step = -1
        self.panels: dict[int, Panel] = {}
        self.update: Update | None = None
        self.solution: Array | None = None
        self._sends: dict[int, list[Any]] = {}
        self._given: dict[str, dict[int, Array]] = {}
        self._ahead: Array | None = None
        self._made: dict[int, Panel] = {}
        self._changing: Iterator[None] = iter(())

    def state(self, **more: Any) -> State:
        low, high = (min(self.panels), max(self.panels) + 1) if self.panels else (0, 0)
        sums = self._sums
        return State(
            self.link.rank,
            step=self.step,
            update=-1 if self.update is None else self.update.k,
            low=low,
            high=high,
            solved=self.solution is not None,
            corrupt=self.corrupt,
            corrected=self._corrected + (0 if sums is None else sums.corrected),
            redone=self._redone + self.link.spoilt + (0 if sums is None else sums.redone),
            kept=tuple(sorted(self.kept)),
            **more,
        )

    @property
    def _sums(self) -> Sums | None:
        return None if self.local is None else self.local.sums

    def give_up_data(self) -> None:
        """The numbers are wrong: the next meeting is told so."""
        self._let_go()
        self.corrupt = True

    def _let_go(self) -> None:
        """Of the numbers, if there are any."""
        if self._sums is not None:
            self._corrected += self._sums.corrected
            self._redone += self._sums.redone
        self.local, self.step, self.update, self._changing = None, -1, None, iter(())

    def look(self, columns: slice | None = None) -> None:
        """Look for wrong numbers in these local columns; in all of them, and in panels that are kept. Raises Corrupt."""
        if self._sums is not None:
            self._sums.verify(columns)
        if columns is None:
            self.see(*self.kept.values())

    def see(self, *used: Panel | Update) -> None:
        """Are these whole? What was made of them is right then. Raises Corrupt."""
        if self.verify and not all(each.is_whole() for each in used):
            self.panels, self.kept = {}, {}  # nobody must get them
            raise Corrupt("numbers that this process has computed with are wrong")

    def _whole_panel(self, k: int) -> Panel:
        """To be used. Raises Corrupt."""
        self.see(self.panels[k])
        return self.panels[k]

    def _sealed(self, update: Update) -> Update:
        return update.sealed() if self.verify else update

    def _empty(self, place: Place) -> Local:
        return self.method.local(self.shape, place.p, self.matrix.dtype, self.right.shape[1])

    def _panel(self, p: int, k: int) -> Panel:
        return self.method.panel(self.shape, p, k, self.matrix.dtype)

    def _keep(self, k: int, panel: Panel) -> None:
        """Keep a copy, if this column is one that does."""
        if not self.method.keep or self.place is None or self.course is None:
            return
        if self.place.v in holders(self.shape.Q, k, self.course.redundant):
            self.kept[k] = panel

    def _keep_all(self) -> None:
        for k, panel in self.panels.items():
            self._keep(k, panel)

    def _watch(self, local: Local) -> None:
        if self.verify:
            local.watch()

    def _here(self) -> tuple[Local, Place]:
        assert self.local is not None and self.place is not None
        return self.local, self.place

    def _start_of(self, k: int) -> int:
        """The first local column that step k changes."""
        _, place = self._here()
        assert self.course is not None
        open_groups = self.course.open_at(k, place.v)
        group = trailing_group(self.shape, k, place.v, open_groups)
        return group * self.shape.nb

    def _width(self, k: int) -> int:
        local, _ = self._here()
        return int(local.numbers.shape[1]) - self._start_of(k)

    def _change(self) -> None:
        """Change the matrix until it is as its step says. May be interrupted, and goes on when it is called again."""
        for _ in self._changing:
            self.link.look()

    def _apply(self, k: int) -> None:
        """Make step k's change. The rank is at the next step from here on."""
        self._change()
        local, place = self._here()
        assert self.update is not None and self.course is not None
        column, panel = self.course.roles.column(place.v), self.panels[k]
        owner = place.v == self.shape.owner(k) and k >= column.since
        changing = local.applying(k, panel, self._start_of(k), self.update, owner)
        self._changing = self._seen_after(changing, panel, self.update)
        self.step = k + 1
        if place.p != self.shape.root(k):
            self.update = None
        self._change()

    def _seen_after(self, changing: Iterator[None], *used: Panel | Update) -> Iterator[None]:
        yield from changing
        self.see(*used)

"""One rank's part of a solve: it carries out the operations of the steps, and what a meeting has decided.

Who does what in which order is decided by pure modules (steps.py, plan.py); the numbers are in local.py; the calls in
link.py; what this rank has, between two steps too, is in holdings.py. Only "apply" changes the matrix, and no
communication is in it. It is done in parts, so that a rank need not end it before it meets the others: its step is the next
one from the first part on, and the rest is done before the matrix is used again. So an `Interrupted` may come out of any
call.

Not here: what is done around the steps (solve.py), the triangular solve at the end (backward.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.abft.decisions.course import Course, Decision, Transfer
from ckpt.abft.decisions.steps import (
    WINDOW,
    Op,
    operations,
    share_operations,
    share_rows,
)
from ckpt.abft.numbers.local import Update
from ckpt.abft.solver.holdings import Holdings
from ckpt.abft.solver.link import Interrupted, tag

__all__ = ["Member"]

Array = npt.NDArray[Any]


class Member(Holdings):
    """This rank in a solve."""

    # -- what a meeting has decided ------------------------------------------------------------------

    def follow(self, decision: Decision) -> None:
        """Take the place that the course gives this rank, and carry out the transfers. May be interrupted."""
        self.course = decision.course
        self._sends.clear()
        if decision.what != "finish":  # then what is held is kept as it is, in case the solution is lost
            self._take_place(decision)
        for transfer in decision.transfers:
            if self.link.rank == transfer.source:
                self._give(transfer)
            elif self.link.rank == transfer.target:
                self._take(transfer)

    def _take_place(self, decision: Decision) -> None:
        course = decision.course
        self.corrupt = False
        if decision.what == "start":
            self._start(course)
        if self.local is not None and self.place is not None:
            self.local.undo_shares([group for v, group in course.settled if v == self.place.v])
        self.panels = {k: panel for k, panel in self.panels.items() if k < course.base}
        self.kept = {k: panel for k, panel in self.kept.items() if k < course.base}
        place = course.roles.place(self.link.rank)
        joins = any(each.kind == "right" and each.target == self.link.rank for each in decision.transfers)
        if place is None or joins:  # what it holds is of no use to its new column
            self._let_go()
            self.panels, self.kept = {}, {}
        self.place = place
        self._keep_all()

    def _start(self, course: Course) -> None:
        place = course.roles.place(self.link.rank)
        if place is None or (place == self.place and self.step == 0):
            return
        self._let_go()
        self.place, self.panels = place, {}
        self.local = self._empty(place)
        self.matrix.fill(self.local, place, course.roles.column(place.v).rows)
        rows = self.shape.row_numbers(place.p)
        inside = rows < self.shape.n
        self.local.right_hand_sides[inside] = self.right[rows[inside]]
        self._watch(self.local)
        self.step = 0

    def _give(self, transfer: Transfer) -> None:
        kind, k, target = transfer.kind, transfer.k, transfer.target
        if kind == "solution":
            assert self.solution is not None
            self.link.send(target, self.solution, tag(kind, 0))
            return
        assert self.local is not None and self.course is not None
        if kind in ("panel", "kept"):
            panel = self.panels[k] if k in self.panels else self.kept[k]
            self.see(panel)
            self.link.send_memory(target, panel.packed, tag(kind, k))
        elif kind == "right":
            assert self.step == k
            self._change()
            self.look(slice(self.shape.groups * self.shape.nb, None))
            self.link.send(target, np.ascontiguousarray(self.local.right_hand_sides), tag(kind, k))
        else:
            assert self.update is not None and self.update.k == k
            self.see(self.update)
            if target == self.link.rank:
                self._apply(k)
                return
            place = self.course.roles.place(target)
            assert place is not None
            self.link.send(target, self._packed_update(place.p), tag(kind, k))

    def _take(self, transfer: Transfer) -> None:
        kind, k, source = transfer.kind, transfer.k, transfer.source
        if kind == "solution":
            shape = self.method.shape(self.shape.n, self.right.shape[1])
            self.solution = self.link.receive(source, shape, self.matrix.dtype, tag(kind, 0))
            return
        assert self.place is not None
        if kind in ("panel", "kept"):
            panel = self._panel(self.place.p, k)
            self.link.receive_into(source, panel.packed, tag(kind, k))
            if kind == "panel":
                self.panels[k] = panel
            self._keep(k, panel)
        elif kind == "right":
            local = self._empty(self.place)
            shape = local.right_hand_sides.shape
            local.right_hand_sides[...] = self.link.receive(source, shape, self.matrix.dtype, tag(kind, k))
            self._watch(local)
            self._let_go()
            self.local, self.step, self.panels = local, k, {}
        else:
            self.update = self._receive_update(source, k)
            self._apply(k)

    # -- steps ---------------------------------------------------------------------------------------

    def run_steps(self, early: bool = False) -> None:
        """From this rank's step to the end of the factorisation; `early`: of the first step, which raises Interrupted."""
        course, place = self.course, self.place
        assert course is not None
        if place is None:
            return
        self._change()
        columns = course.roles.numbers()
        while self.step < self.shape.blocks:
            if early and self.step > 0:
                raise Interrupted("after the first panel")
            self._given, self._made = {}, {}
            self.method.begin(self._here()[0], course, place.v, self.step)
            for op in operations(
                *(self.shape, columns, course.base, self.step, place.p, place.v, course.shares, course.ahead)
            ):
                self._carry_out(op)
        self._given, last = {}, course.shares.get(self.shape.blocks, ())
        for op in share_operations(self.shape, self.shape.blocks, place.p, place.v, last):
            self._carry_out(op)
        self.look()

    def _carry_out(self, op: Op) -> None:
        getattr(self, f"_op_{op.kind.replace(' ', '_')}")(op, op.k, self._rank(op))

    def _rank(self, op: Op) -> int:
        assert self.course is not None
        return self.link.rank if op.peer is None else self.course.roles.rank(*op.peer)

    # each operation of steps.py: op, its step, the rank at the other end

    def _op_ahead(self, op: Op, k: int, rank: int) -> None:
        assert self.update is not None and self.update.k == self.step == k - 1
        self.look(self.shape.group_slice(k // self.shape.Q))
        panel, start = self.panels[k - 1], self._start_of(k - 1)
        self._ahead = self._here()[0].ahead(k - 1, panel, start, self.update)
        self.see(panel, self.update)

    def _part(self, k: int) -> Array:
        """What this process has of panel k before that is factorised."""
        if self.step < k:
            assert self._ahead is not None
            return self._ahead
        return self._here()[0].part(k)

    def _op_give_part(self, op: Op, k: int, rank: int) -> None:
        self.link.send(rank, self._part(k), tag("part", k))

    def _op_get_part(self, op: Op, k: int, rank: int) -> None:
        assert op.peer is not None
        rows = self.shape.local_rows(op.peer[0]) - self.shape.rows_before(op.peer[0], k)
        array = self.link.receive(rank, (rows, self.shape.nb), self.matrix.dtype, tag("part", k))
        self._given.setdefault("part", {})[op.peer[0]] = array

    def _op_factorise(self, op: Op, k: int, rank: int) -> None:
        local, place = self._here()
        parts = {**self._given.get("part", {}), place.p: self._part(k)}
        self._made = dict(enumerate(local.factorise(k, parts)))
        if self.verify:
            for panel in self._made.values():
                panel.seal()
        self.panels[k] = self._made[place.p]
        self._keep(k, self.panels[k])

    def _op_give_piece(self, op: Op, k: int, rank: int) -> None:
        assert op.peer is not None
        self.link.send_memory(rank, self._made[op.peer[0]].packed, tag("piece", k))

    def _op_get_piece(self, op: Op, k: int, rank: int) -> None:
        self._get_panel(k, rank, "piece")

    def _op_get_panel(self, op: Op, k: int, rank: int) -> None:
        self._get_panel(k, rank, "panel")

    def _get_panel(self, k: int, rank: int, kind: str) -> None:
        panel = self._panel(self._here()[1].p, k)
        self.link.receive_into(rank, panel.packed, tag(kind, k))
        self.panels[k] = panel
        self._keep(k, panel)

    def _op_give_panel(self, op: Op, k: int, rank: int) -> None:
        request = self.link.start_send_memory(rank, self.panels[k].packed, tag("panel", k))
        self._sends.setdefault(k, []).append(request)

    def _op_get_token(self, op: Op, k: int, rank: int) -> None:
        self.link.receive(rank, (1,), np.uint8, tag("token", k))

    def _op_give_token(self, op: Op, k: int, rank: int) -> None:
        self.link.send(rank, np.zeros(1, dtype=np.uint8), tag("token", k))

    def _op_give_rows(self, op: Op, k: int, rank: int) -> None:
        rows = self._here()[0].rows_for(k, self._whole_panel(k), self._start_of(k))
        self.link.send(rank, rows, tag("rows", k))

    def _op_get_rows(self, op: Op, k: int, rank: int) -> None:
        assert op.peer is not None
        # After the first rows the panel is not looked at again until it is used: its moves are known (`Local.count_rows`)
        panel = self.panels[k] if "rows" in self._given else self._whole_panel(k)
        count, _ = self._here()[0].count_rows(k, panel, op.peer[0])
        array = self.link.receive(rank, (count, self._width(k)), self.matrix.dtype, tag("rows", k))
        self._given.setdefault("rows", {})[op.peer[0]] = array

    def _op_solve(self, op: Op, k: int, rank: int) -> None:
        given = self._given.get("rows", {})
        self.update = self._sealed(self._here()[0].solve(k, self._whole_panel(k), self._start_of(k), given))

    def _op_give_update(self, op: Op, k: int, rank: int) -> None:
        assert op.peer is not None
        self.link.send(rank, self._packed_update(op.peer[0]), tag("update", k))

    def _op_get_update(self, op: Op, k: int, rank: int) -> None:
        self.update = self._receive_update(rank, k)

    def _packed_update(self, p: int) -> Array:
        assert self.update is not None
        return np.concatenate([self.update.upper, self.update.out[p]])

    def _receive_update(self, rank: int, k: int) -> Update:
        local, place = self._here()
        nb = self.shape.nb
        _, count = local.count_rows(k, self.panels[k], place.p)
        array = self.link.receive(rank, (nb + count, self._width(k)), self.matrix.dtype, tag("update", k))
        return self._sealed(Update(k, array[:nb], {place.p: array[nb:]}))

    def _op_apply(self, op: Op, k: int, rank: int) -> None:
        start = self._start_of(k)
        self._apply(k)
        local, place = self._here()
        if self.verify and self.step % self.verify == 0 and local.sums is not None:
            local.sums.verify_share(self.shape.rows_before(place.p, self.step), start)
        for old in [old for old in self.panels if old < self.step - WINDOW * self.shape.Q]:
            self.link.finish(*self._sends.pop(old, ()))
            del self.panels[old]

    def _op_give_block(self, op: Op, k: int, rank: int) -> None:
        share = self._share(op)
        self.look(self.shape.group_slice(share.group))
        local, place = self._here()
        rows = share_rows(self.shape, k, share.group, place.p)
        self.link.send(rank, local.block_copy(share.group, rows), tag("block", k))

    def _op_get_block(self, op: Op, k: int, rank: int) -> None:
        assert op.peer is not None
        rows = share_rows(self.shape, k, self._share(op).group, self._here()[1].p)
        array = self.link.receive(rank, (rows, self.shape.nb), self.matrix.dtype, tag("block", k))
        self._given.setdefault(f"block {op.detail}", {})[op.peer[1]] = array

    def _op_combine(self, op: Op, k: int, rank: int) -> None:
        (local, place), share = self._here(), self._share(op)
        rows = share_rows(self.shape, k, share.group, place.p)
        local.combine(share, self._given.get(f"block {op.detail}", {}), rows)

    def _share(self, op: Op) -> Any:
        assert self.course is not None
        return self.course.shares[op.k][op.detail]

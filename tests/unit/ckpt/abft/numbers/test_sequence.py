"""Residuals after many deaths: the shipped decisions and numbers on one process row, one column after the other."""

from __future__ import annotations

from statistics import median

import numpy as np

from ckpt.abft.decisions.course import Course, State, final_rows
from ckpt.abft.decisions.encoding import solution
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.plan import decide, first_course
from ckpt.abft.decisions.steps import share_rows, trailing_group
from ckpt.abft.numbers.dense import solve_upper
from ckpt.abft.numbers.local import Local

SHAPE = Shape(1, 10, 400, 4)


class Solve:
    """A solve whose ranks are all between the same two steps; `deaths`: steps at which the owner of the next panel dies."""

    def __init__(self, seed: int, deaths: list[int]) -> None:
        random = np.random.default_rng(seed)
        n = SHAPE.n
        self.matrix, self.right = random.uniform(-0.5, 0.5, (n, n)), random.uniform(-0.5, 0.5, (n, 1))
        ranks = tuple(range(SHAPE.Q + 1 + len(deaths)))
        self.course, self.alive, self.deaths = first_course(SHAPE, ranks, 1), set(ranks), deaths
        blocks = self.matrix.reshape(n, SHAPE.groups, SHAPE.Q, SHAPE.nb)
        self.locals: dict[int, Local] = {}
        for v, column in self.course.roles.columns():
            local = self.locals[column.ranks[0]] = self._empty(self.right)
            for group in range(SHAPE.groups):
                much = column.rows[group] if v >= SHAPE.Q else [float(q == v) for q in range(SHAPE.Q)]
                local.block(group)[...] = sum(c * blocks[:, group, q] for q, c in enumerate(much))

    def _empty(self, right: np.ndarray) -> Local:
        local = Local(SHAPE, 0, self.matrix.dtype, 1)
        local.right_hand_sides[...] = right
        return local

    def at(self, v: int) -> Local:
        return self.locals[self.course.roles.rank(0, v)]

    def residual(self) -> float:
        for k in range(SHAPE.blocks):
            if k in self.deaths:
                self._die(k)
            self._shares(k)
            self._step(k)
        self._shares(SHAPE.blocks)
        upper = np.stack([self.at(q).numbers[:, :-1] for q in range(SHAPE.Q)], axis=1)
        upper = upper.reshape(SHAPE.n, SHAPE.Q, SHAPE.groups, SHAPE.nb).swapaxes(1, 2)
        wide = np.triu(upper.reshape(SHAPE.n, SHAPE.n)).astype(np.longdouble)
        y = solve_upper(wide, self.at(0).right_hand_sides.astype(np.longdouble))
        x = solution(y, final_rows(self.course), SHAPE.Q, SHAPE.nb)
        return float(np.abs(self.matrix @ x - self.right).max() / np.abs(x).max())

    def _die(self, k: int) -> None:
        dead = self.course.roles.rank(0, k % SHAPE.Q)
        self.alive.remove(dead)
        del self.locals[dead]
        states = {
            rank: State(rank, step=k, update=k - 1, low=max(0, k - 40), high=k)
            if rank in self.locals
            else State(rank)
            for rank in self.alive
        }
        decision = decide(self.course, states)
        self.course: Course = decision.course
        for transfer in decision.transfers:
            assert transfer.kind == "right"
            self.locals[transfer.target] = self._empty(self.locals[transfer.source].right_hand_sides)

    def _shares(self, k: int) -> None:
        for share in self.course.shares.get(k, ()):
            rows = share_rows(SHAPE, k, share.group, 0)
            given = {q: self.at(q).block_copy(share.group, rows) for q in range(SHAPE.Q) if q != share.column}
            self.at(share.column).combine(share, given, rows)

    def _step(self, k: int) -> None:
        owner = self.at(SHAPE.owner(k))
        panel = owner.factorise(k, {0: owner.part(k)})[0]
        for v, column in self.course.roles.columns():
            local = self.at(v)
            start = trailing_group(SHAPE, k, v, self.course.open_at(k, v)) * SHAPE.nb
            update = local.solve(k, panel, start, {})
            for _ in local.applying(k, panel, start, update, v == SHAPE.owner(k) and k >= column.since):
                pass


def test_the_residual_does_not_grow_with_every_death() -> None:
    """Found: block columns whose panels are made of checksums (the group under way was turned back last), and the rounding
    of the sums with which blocks are computed back. 1.6 to 2.5 times that of no death now; with plain sums 3.2 to 5.4."""
    deaths = [1 + 98 * number // 16 for number in range(16)]
    ratios = [Solve(seed, deaths).residual() / Solve(seed, []).residual() for seed in range(3)]
    assert median(ratios) < 3, ratios

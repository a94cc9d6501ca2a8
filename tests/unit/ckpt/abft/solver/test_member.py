"""A rank that is interrupted while it changes its matrix: it counts as being at the next step, and does the rest later."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest

from ckpt import MPI
from ckpt.abft.decisions.course import Decision
from ckpt.abft.decisions.plan import decide, first_course
from ckpt.abft.numbers import local as local_numbers
from ckpt.abft.numbers.verify import Corrupt
from ckpt.abft.operations.factors import _LU, _QR, _Cholesky
from ckpt.abft.solver.link import Interrupted
from ckpt.abft.solver.matrix import Grid
from ckpt.abft.solver.member import Member
from ckpt.abft.solver.method import Method

ORDER, PARTS_BYTES = 48, 5 * 8 * 8


class Alone:
    """The link of the only rank; every look has this chance of an interruption."""

    rank = spoilt = 0

    def __init__(self, choose: random.Random, chance: float) -> None:
        self._choose, self._chance = choose, chance

    def finish(self, *requests: Any) -> None:
        assert not requests

    def look(self) -> None:
        if self._choose.random() < self._chance:
            raise Interrupted("somebody has died")


def factorised(method: Method, verify: int, chance: float) -> tuple[np.ndarray, list[int]]:
    """The numbers at the end, and the steps at which this rank was interrupted."""
    numbers = np.random.default_rng(1).normal(size=(ORDER, ORDER))
    matrix = Grid(1, 1, redundant=0).matrix(ORDER, nb=8, fill=numbers @ numbers.T + np.eye(ORDER))
    link = cast(Any, Alone(random.Random(1), chance))
    member = Member(link, matrix, np.zeros((ORDER, 0)), verify, method)
    decision = Decision("start", first_course(member.shape, (0,), 0, keep=method.keep))
    steps = []
    while True:
        try:
            member.follow(decision)
            member.run_steps()
            assert member.local is not None
            return member.local.numbers, steps
        except Interrupted:
            steps.append(member.step)
            assert member.course is not None
            decision = decide(member.course, {0: member.state()})


@pytest.mark.parametrize(
    "method", [Method(), _LU(), _Cholesky(), _QR()], ids=["solve", "lu", "cholesky", "qr"]
)
@pytest.mark.parametrize("verify", [0, 1])
def test_a_rank_meets_the_others_before_it_has_changed_all_of_its_matrix(
    monkeypatch: pytest.MonkeyPatch, method: Method, verify: int
) -> None:
    monkeypatch.setattr(local_numbers, "_PRODUCT_BYTES", PARTS_BYTES)
    expected, never = factorised(method, verify, 0.0)
    found, steps = factorised(method, verify, 0.3)
    assert not never and len(steps) > 10
    assert any(one == other for one, other in pairwise(steps)), "interrupted again within the same change"
    assert np.array_equal(found, expected)
    assert MPI.COMM_WORLD.size == 1


@pytest.mark.parametrize("what", ["pivots", "lower"])
def test_a_panel_that_is_wrong_when_it_is_to_be_used_is_not_used_or_given(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A row number that no row has: it was an IndexError, and the end of the job."""
    factorise = Member._op_factorise

    def spoiling(self: Member, op: Any, k: int, rank: int) -> None:
        factorise(self, op, k, rank)
        if k == 2:
            getattr(self.panels[k], what).view(np.uint8).reshape(-1)[37] ^= 64

    monkeypatch.setattr(Member, "_op_factorise", spoiling)
    numbers = np.random.default_rng(1).normal(size=(ORDER, ORDER))
    matrix = Grid(1, 1, redundant=0).matrix(ORDER, nb=8, fill=numbers)
    member = Member(cast(Any, Alone(random.Random(1), 0.0)), matrix, np.zeros((ORDER, 0)), 1)
    member.follow(Decision("start", first_course(member.shape, (0,), 0)))
    with pytest.raises(Corrupt):
        member.run_steps()
    member.give_up_data()
    said = member.state()
    assert said.corrupt and said.step == -1 and said.low == said.high == 0

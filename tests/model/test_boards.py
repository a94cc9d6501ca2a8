"""Collectives on boards: every order of steps within small bounds, and each rule taken out (tests/model/boards.py)."""

from __future__ import annotations

import pytest

from tests.model.boards import ALL, Edit, RuleBroken, Rules, explore

BOARD, EXCHANGE = "board.py", "exchange.py"
_TRUST = "self._number_of(member, PUBLISHED_AT) <= self._number_of(self.rank, CAPTURED_AT)"

MUTANTS: dict[str, tuple[Rules, tuple[Edit, ...]]] = {
    "a contribution of a later epoch is taken": (
        Rules(),
        ((BOARD, f"        return {_TRUST}\n", "        return True\n"),),
    ),
    "what a member of a later epoch has done is trusted": (
        Rules(),
        ((BOARD, f"trusted = {_TRUST}", "trusted = True"),),
    ),
    "a reader that is behind gets no message": (
        Rules(),
        ((BOARD, "and self._number_of(member, CAPTURED_AT) >= published", "and True"),),
    ),
    "who sleeps gets no message": (Rules(), ((BOARD, "and self._word(member) == AWAKE", "and True"),)),
    "nothing becomes a message before an image": (Rules(settles=False), ()),
    "nothing becomes a message before an image that is tried again": (Rules(settles_each_time=False), ()),
    "messages are not in the order of numbers": (Rules(sends_in_order=False), ()),
    "a member sleeps without another look": (Rules(looks_again=False), ()),
    "a writer looks who sleeps before it writes": (Rules(writes_before_it_looks=False), ()),
    "who does not look at the area gets no message": (
        Rules(mapped=False, epochs=0),
        ((BOARD, "self._is_read_by(member)\n                and", "self.areas[member] is not None\n                and"),),
    ),
    "a slot is written again while it is needed": (
        Rules(script=(0, 0, 0, 0, 0), epochs=0),
        ((BOARD, "            if self._needed(slot):\n                return False\n", ""),),
    ),
    "a message that comes a second time is taken": (
        Rules(),
        ((EXCHANGE, "return bool(found == number)", "return True"),
         (EXCHANGE, "if found >= number:", "if found >= 0:")),
    ),
}  # fmt: skip

WHOLE = {
    "a member that is not looked at yet": Rules(script=(ALL,), mapped=False),
}
LARGER = {
    "two collectives, an image": Rules(),
    "a broadcast behind a collective": Rules(script=(ALL, 0)),
    "two images": Rules(epochs=2),
    "three members": Rules(members=3, script=(ALL,), may_fail=False),
    "five broadcasts": Rules(script=(0, 0, 0, 0, 0)),
    "broadcasts of both": Rules(script=(0, 1, ALL)),
    "areas that are looked at late": Rules(mapped=False),
}


@pytest.mark.parametrize("rules", WHOLE.values(), ids=WHOLE)
def test_every_order_of_steps_is_right(rules: Rules) -> None:
    states, lines = explore(rules)
    assert states > 1000 and lines > 10


@pytest.mark.nightly
@pytest.mark.parametrize("rules", LARGER.values(), ids=LARGER)
def test_larger_bounds(rules: Rules) -> None:
    states, lines = explore(rules, most=400_000)
    assert states > 1000 and lines > 10


LONG = ("messages are not in the order of numbers", "a slot is written again while it is needed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name for name in MUTANTS]
)
def test_each_rule_is_needed(name: str) -> None:
    rules, edits = MUTANTS[name]
    with pytest.raises(RuleBroken):
        explore(rules, edits)

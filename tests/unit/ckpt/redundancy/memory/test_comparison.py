"""Whether the replicas of a rank hold the same arrays: places, votes, and every order in which replicas answer."""

from __future__ import annotations

from itertools import permutations

import pytest

from ckpt.redundancy.membership import Lineage
from ckpt.redundancy.memory.comparison import (
    TRIES_MAX,
    VALUE,
    Comparison,
    Record,
    difference,
    parse,
)

ANY = Lineage().decides


def record(*digests: str, opened: tuple[int, ...] = (), form: str = "<f8 (8, 8)") -> Record:
    return Record(form, 128, 64, digests, opened)


def test_the_block_of_the_odd_one_of_three_is_named_with_its_rows() -> None:
    told = {plane: {"u": record("a", "b", "c"), "v": record("x")} for plane in range(3)}
    told[1]["u"] = record("a", "B", "c")
    found = difference(told, 2, ANY)
    assert found is not None
    assert (found.odd, found.variable, found.block) == ((1,), "u", 1)
    assert found.text == "variable u, block 1 (rows 2 to 3)"


def test_of_two_that_differ_nobody_is_called_wrong() -> None:
    told = {0: {"u": record("a")}, 3: {"u": record("b")}}
    found = difference(told, 2, ANY)
    assert found is not None and (found.odd, found.text) == ((), "variable u")


def value(text: str) -> Record:
    return Record(VALUE, 1, 1, (text,), () if text else (0,))


def test_a_value_is_told_with_its_text() -> None:
    told = {plane: {"dt": value("0.5")} for plane in range(3)}
    told[2]["dt"] = value("0.25")
    found = difference(told, 2, ANY)
    assert found is not None and found.odd == (2,)
    assert found.text == "variable dt (0.5 in replica 0 and 1, 0.25 in replica 2)"
    told[2]["dt"] = value("#abc")
    found = difference(told, 2, ANY)
    assert found is not None and found.text == "variable dt"


def test_a_value_that_is_another_one_in_each_of_three_is_no_error_of_one_of_them() -> None:
    told = {plane: {"me": value(str(plane)), "dt": value("0.5")} for plane in range(3)}
    unlike: set[str] = set()
    assert difference(told, 2, ANY, unlike) is None and unlike == {"me"}
    told[1]["dt"] = value("0.25")
    found = difference(told, 2, ANY, unlike)
    assert found is not None and (found.odd, found.variable) == ((1,), "dt")
    del told[2]
    told[1]["dt"] = value("0.5")
    found = difference(told, 2, ANY)
    assert found is not None and (found.odd, found.variable) == ((), "me")
    assert difference(told, 2, ANY, unlike) is None  # it is known from when there were three


def test_values_that_differ_everywhere_are_learnt_also_behind_an_error() -> None:
    """Else the two that are left differ in them, and the program goes back for nothing."""
    told = {plane: {"dt": value("0.5"), "me": value(str(plane))} for plane in range(3)}
    told[2]["dt"] = value("0.25")
    unlike: set[str] = set()
    found = difference(told, 2, ANY, unlike)
    assert found is not None and found.variable == "dt" and unlike == {"me"}


def test_an_address_in_one_replica_is_compared_in_none() -> None:
    assert difference({0: {"id": value("")}, 1: {"id": value("140")}}, 2, ANY) is None


def test_copies_that_agree_do_not_outvote_one_that_is_none() -> None:
    lineage = Lineage()
    lineage.copied(3, 1, epoch=5)
    told = {1: {"u": record("a")}, 2: {"u": record("b")}, 3: {"u": record("a")}}
    found = difference(told, 2, lineage.decides)
    assert found is not None and found.odd == ()


def test_what_may_be_filled_at_any_moment_in_one_replica_is_compared_in_none() -> None:
    told = {0: {"u": record("a", "b", opened=(1,))}, 1: {"u": record("a", "c")}}
    assert difference(told, 2, ANY) is None


def test_what_not_all_have_in_the_same_form_is_not_compared() -> None:
    told = {0: {"u": record("a"), "cache": record("a")}, 1: {"u": record("b", form="<f4 (8, 8)")}}
    assert difference(told, 2, ANY) is None


def test_what_is_not_well_formed_is_left_out() -> None:
    good = ["<f8 (8,)", 4096, 8, ["aa"], [0]]
    assert parse({"u": good, "v": good[:4], "w": [*good[:3], [1], []], "x": 1}) == {
        "u": Record("<f8 (8,)", 4096, 8, ("aa",), (0,))
    }
    assert parse(None) == {}
    assert parse({"dt": "0.5", "id": ""}) == {"dt": value("0.5"), "id": value("")}


class Program:
    """Replicas that answer. `passed`: how many operations each has started."""

    def __init__(self, passed: dict[int, int], wrong: int | None = None) -> None:
        self.passed, self.wrong = passed, wrong
        self.comparison = Comparison(list(passed), 2, ANY)

    def answer(self, plane: int) -> None:
        """The replica gets the question that is open now."""
        self.comparison.is_to_ask = False
        place = self.comparison.place
        if self.passed[plane] >= place:
            self.comparison.was_at(plane, place, self.passed[plane])
            return
        self.passed[plane] = place
        content = "wrong" if plane == self.wrong else "right"
        for part in range(2):
            self.comparison.tells(plane, place, "main:8", 2, {f"u{part}": record(content)})


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_in_every_order_of_answers_the_wrong_one_is_found_and_no_other(
    wrong: int | None, lost: int | None
) -> None:
    for orders in permutations(permutations(range(3)), 2):
        for moment in range(4):
            program = Program({0: 5, 1: 9, 2: 7}, wrong)
            steps = 0
            for order in orders:
                for plane in order:
                    if steps == moment and lost is not None:
                        program.comparison.left({0, 1, 2} - {lost})
                    steps += 1
                    if plane != lost or steps <= moment:
                        program.answer(plane)
            outcome, found = program.comparison.outcome, program.comparison.found
            if wrong is None or wrong == lost:
                assert outcome == "same" and found is None
            else:
                assert outcome == "differs" and found is not None
                assert found.odd == ((wrong,) if lost is None else ())


def test_a_replica_that_has_passed_the_place_is_waited_for_at_one_further_on() -> None:
    program = Program({0: 5, 1: 5})
    for plane in (0, 1):
        program.answer(plane)
    assert program.comparison.place == 6
    program.answer(0)
    program.passed[1] = 50
    program.answer(1)
    assert program.comparison.is_to_ask and program.comparison.place == 52
    program.comparison.tells(0, 6, "main:8", 1, {"u": record("late")})
    for plane in (0, 1):
        program.answer(plane)
    assert program.comparison.outcome == "same"


def test_replicas_that_are_always_too_fast_are_not_asked_for_ever() -> None:
    program = Program({0: 0, 1: 0})
    for _ in range(2 * TRIES_MAX + 2):
        program.passed = dict.fromkeys((0, 1), 10 * program.comparison.place + 1)
        for plane in (0, 1):
            program.answer(plane)
    assert program.comparison.outcome == "none"
    assert program.comparison.summary() == {"reason": "the replicas were always too fast"}


def test_replicas_in_different_functions_are_not_compared() -> None:
    comparison = Comparison([0, 1], 2, ANY)
    for plane in (0, 1):
        comparison.was_at(plane, 0, 3)
    for plane in (0, 1):
        comparison.tells(plane, 4, f"main:{plane}", 1, {"u": record(str(plane))})
    assert comparison.outcome == "none" and "different functions" in comparison.reason


@pytest.mark.parametrize("reason", ["the program has ended", "the program has threads: worker"])
def test_who_cannot_tell_says_why(reason: str) -> None:
    comparison = Comparison([0, 1], 2, ANY)
    comparison.cannot(1, reason)
    assert comparison.outcome == "none" and comparison.summary() == {"reason": reason}
    comparison = Comparison([0, 1], 2, ANY)
    comparison.left({1})
    assert comparison.summary() == {"reason": "one replica is left"}

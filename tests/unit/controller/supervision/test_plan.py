"""Placement, what a rank is told, which lines may be resumed, and what does not fit."""

from __future__ import annotations

import pytest

from ckpt.controller.errors import NoSuchJob, NotCompatible, UsageError
from ckpt.controller.supervision.plan import (
    Node,
    Placement,
    Program,
    check_fit,
    place,
    resumable,
    specs,
    words_of,
)


def test_ranks_are_placed_in_blocks() -> None:
    assert place(3, [Node("a", 2), Node("b", 2)]) == [
        Placement(0, "a", 0, 2),
        Placement(1, "a", 1, 2),
        Placement(2, "b", 0, 1),
    ]


def test_ranks_stay_where_they_were_and_the_others_fill_spares_first() -> None:
    nodes = [Node("b", 3), Node("c", 2), Node("d", 2)]
    before = {0: "a", 1: "a", 2: "b", 3: "b"}
    placed = place(4, nodes, before)
    assert {each.rank: each.node for each in placed} == {0: "c", 1: "c", 2: "b", 3: "b"}
    assert [(each.local_rank, each.local_size) for each in placed] == [(0, 2), (1, 2), (0, 2), (1, 2)]


def test_more_ranks_than_before_share_a_host_when_there_is_no_spare() -> None:
    placed = place(4, [Node("b", 4)], {0: "a", 1: "b", 2: "a", 3: "b"})
    assert [each.local_rank for each in placed] == [0, 1, 2, 3]


def test_a_host_with_fewer_slots_than_before_keeps_the_lowest_ranks() -> None:
    placed = place(3, [Node("a", 1), Node("b", 2)], {0: "a", 1: "a", 2: "b"})
    assert [each.node for each in placed] == ["a", "b", "b"]


def test_too_few_slots() -> None:
    with pytest.raises(UsageError, match="5 ranks do not fit into 4 slots"):
        place(5, [Node("a", 4)])


def test_words_of_a_job_of_the_first_version_have_no_option_for_a_module() -> None:
    assert words_of(["pkg", "x"], {"module": True}) == ["-m", "pkg", "x"]
    assert words_of(["-m", "pkg"], {}) == ["-m", "pkg"]


def test_what_a_rank_is_told() -> None:
    program = Program("0" * 16, "/job", "/run", ("app.py", "x"), {"image_mode": "fork"})
    first, second = specs(program, place(2, [Node("a", 2)]), incarnation=3, epoch=7)
    assert first == {
        "rank": 0,
        "host": "a",
        "size": 2,
        "local_rank": 0,
        "local_size": 2,
        "job_id": "0" * 16,
        "job_dir": "/job",
        "runtime_dir": "/run",
        "argv": ["app.py", "x"],
        "incarnation": 3,
        "restarts": 3,
        "resume": 7,
        "epoch": 7,
        "options": {"image_mode": "fork"},
    }
    assert second["rank"] == 1
    fresh = specs(program, place(1, [Node("a", 1)]), incarnation=0, epoch=None)[0]
    assert (fresh["resume"], fresh["epoch"]) == (None, 0)


def test_lines_to_resume_from() -> None:
    assert resumable([7, 3], None) == (3, 7)
    assert resumable([7, 3], 3) == (3,)
    with pytest.raises(NoSuchJob, match="no committed epoch 5; committed: 3, 7"):
        resumable([7, 3], 5)


def test_what_fits() -> None:
    check_fit(size=2, command=["a"], python="3.11.7", new_size=2, new_command=["a"], new_python="3.11.2")
    check_fit(size=2, command=["a"], python="3.11.7", new_size=None, new_command=[], new_python="3.11.7")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"new_size": 3}, "2 ranks, not 3"),
        ({"new_command": ["a", "b"]}, "runs 'a', not 'a b'"),
        ({"new_python": "3.12.1"}, "Python 3.11.7, this is Python 3.12.1"),
    ],
)
def test_what_does_not_fit_says_why(change: dict[str, object], reason: str) -> None:
    fits: dict[str, object] = {"new_size": 2, "new_command": ["a"], "new_python": "3.11.7"}
    with pytest.raises(NotCompatible, match=reason):
        check_fit(size=2, command=["a"], python="3.11.7", **{**fits, **change})  # type: ignore[arg-type]

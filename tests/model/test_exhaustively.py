"""Every interleaving of the production code of a whole job, within bounds; and the errors that appear without one rule.

`WHOLE` has the bounds that are visited completely, with the number of nodes (see `merged`); `WITHOUT_LIMIT` has larger ones,
in which no round takes longer than it may. Some bounds have far more states for the production code than for a sketch of the
protocol, since every timer, stamp and batch counts: `make test` visits as many of their states as `PARTS` says, `make soak`
a hundred times as many. These are counted separately, and prove less.

Not here: exhausted credit, messages of many fragments, disks: the simulation has those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.model.controller import RuleBroken
from tests.model.explore import Bounds, Explorer
from tests.model.merged import Merged
from tests.model.mutants import (
    ANSWERED,
    BOTH,
    BOUNDS,
    LONG,
    MESSAGE_BEFORE_IMAGE,
    MUTANTS,
    ONE,
    SELF,
    TWO,
    A,
    B,
    X,
)
from tests.model.process import Process, rank_spec
from tests.model.world import Edit, Mutant, World, production, without_stacks

pytestmark = [pytest.mark.timeout(300), pytest.mark.turns(2)]
Count = Callable[[str, int], None]
AT_NIGHT = [pytest.mark.nightly, pytest.mark.timeout(3600)]
LONG_TO_VISIT = ("1+1, 1 round",)
"""Minutes of a processor: at night."""

RING = ((A,), ((2, b"b", (0, 1)),), ((0, b"c", (1, 1)),))

WHOLE = {
    "1+0, 1 round": (Bounds(ONE), 800),
    "2+0, 1 round": (Bounds(TWO), 11_000),
    "1+0, a rank is killed": (Bounds(ONE, kills=1), 3_000),
    "1+0, the controller dies": (Bounds(ONE, controller_deaths=1), 2_400),
    "1+0, the controller dies, the next one goes on with the ranks": (
        Bounds(ONE, controller_deaths=1, adopts=True),
        3_500,
    ),
    "1+0, ranks are asked first, the next controller goes on with them": (
        Bounds(ONE, asks=True, controller_deaths=1, adopts=True),
        3_900,
    ),
    "1+0, the next controller goes on with ranks of which one is killed": (
        Bounds(ONE, kills=1, controller_deaths=1, adopts=True),
        13_000,
    ),
    "1+0, image or control file cannot be written": (
        Bounds(ONE, failing_images=True, failing_commits=1),
        3_500,
    ),
    "1+0, ranks learn late where their peers are": (Bounds(ONE, late_tables=True), 850),
    "a message of two fragments": (Bounds(LONG, large=True), 1_000),
    "a message in its sender's memory": (Bounds(LONG, remote=True), 550),
    "a message in its sender's memory, a rank is killed": (Bounds(LONG, remote=True, kills=1), 2_200),
    "a message to oneself": (Bounds(SELF), 1_300),
    "1+0, 2 rounds": (Bounds(ONE, rounds=2), 18_000),
    "1+1, 1 round": (Bounds(BOTH), 13_000),
    "1+0, ranks are asked first": (Bounds(ONE, asks=True), 950),
    "1+0, ranks are asked first, one is killed": (Bounds(ONE, asks=True, kills=1), 3_700),
    "1+0, ranks are asked first, the controller dies": (
        Bounds(ONE, asks=True, controller_deaths=1),
        2_800,
    ),
    "1+0, a rank is killed, the other one goes on": (
        Bounds(ONE, kills=1, continues=True, could_commit=False),
        13_000,
    ),
    "1+0, processes that should be dead go on": (Bounds(ONE, kills=1, zombies=True), 37_000),
}

WITHOUT_LIMIT = {
    "1+1, 2 rounds": (Bounds(BOTH, rounds=2), 16_000),
    "2+1, 1 round": (Bounds(((A, B), (X,))), 12_000),
    "ring of 3, 2 rounds": (Bounds(RING, rounds=2), 110_000),
}
"""Larger bounds, visited whole by the `generous` search at night, frames that would wait lost; rounds have no time limit."""
LARGEST = {
    "2+1, 1 round, a rank is killed": (Bounds(((A, B), (X,)), kills=1), 45_000),
    "2+2, 2 rounds": (Bounds(((A, B), (X, (0, b"y", None))), rounds=2), 1_800_000),
}
"""The same, in `make soak`: a minute, and half an hour, of one processor; 7 GB."""
SAME = (
    Bounds(ONE),
    Bounds(ONE, failing_images=True, failing_commits=1),
    Bounds(ONE, controller_deaths=1),
    Bounds(SELF),
    Bounds(LONG, large=True, timeouts=False),
    Bounds(ONE, kills=1, timeouts=False),
)
"""Where both searches are compared."""

PARTS = {
    "ring of 3, 2 rounds, ranks are killed, the others go on": Bounds(
        RING, rounds=2, kills=2, continues=True, could_commit=False
    ),
    "ring of 3, 2 rounds, the others go on, everything fails": Bounds(
        RING,
        rounds=2,
        kills=2,
        controller_deaths=1,
        adopts=True,
        failing_images=True,
        failing_commits=1,
        continues=True,
        could_commit=False,
    ),
    "2+2, 2 rounds": Bounds(((A, B), (X, (0, b"y", None))), rounds=2),
    "2+1, 1 round, a rank is killed": Bounds(((A, B), (X,)), kills=1),
    "ring of 3, 2 rounds": Bounds(RING, rounds=2),
    "1+0, frozen ports, aborted while an image is written": Bounds(ONE, frozen=True),
    "1+0, 2 rounds, a rank is killed and the controller dies": Bounds(
        ONE, rounds=2, kills=1, controller_deaths=1
    ),
    "answered, 2 rounds, everything fails": Bounds(
        ANSWERED,
        rounds=2,
        kills=1,
        controller_deaths=1,
        failing_images=True,
        failing_commits=1,
        frozen=True,
    ),
}
PART = 20_000
"""Taken from both ends (see `Explorer`). All counterexamples of `MUTANTS` are found within a third as many."""
SOAK_PART = 3_500_000


def whole(name: str) -> tuple[int, int]:
    """(number of nodes, number of states that they represent)"""
    explorer = Merged(WHOLE[name][0])
    return explorer.explore(), explorer.stands_for()


def without_limit(name: str) -> tuple[int, int]:
    bounds = (WITHOUT_LIMIT | LARGEST)[name][0]
    explorer = Merged(
        replace(bounds, timeouts=False, keeps_late_frames=False), generous=True, most=100_000_000
    )
    return explorer.explore(), explorer.stands_for()


def part(name: str) -> int:
    return Explorer(PARTS[name], both_ends=True, most=PART, partly=True).explore()


def said_by(explorer: Explorer) -> str:
    try:
        explorer.explore()
    except RuleBroken as broken:
        return str(broken)
    return "all is well"


def without(found: Mutant) -> str:
    """The error that exploration finds in the mutant."""
    return said_by(Explorer(BOUNDS[found], World(found.edits), both_ends=True, most=PART))


def merged_without(found: Mutant) -> str:
    return said_by(Merged(BOUNDS[found], World(found.edits), most=2 * PART))


def generously_without(found: Mutant) -> str:
    bounds = replace(BOUNDS[found], keeps_late_frames=False)
    return said_by(Merged(bounds, World(found.edits), generous=True, most=2 * PART))


def nothing_removed(bounds: Bounds) -> int:
    return Explorer(bounds, both_ends=True, most=PART // 2, partly=True).explore()


@pytest.mark.rotate(8)
@pytest.mark.parametrize(
    ("generous", "name"),
    [
        *[pytest.param(False, name, marks=AT_NIGHT if name in LONG_TO_VISIT else []) for name in WHOLE],
        *[pytest.param(True, name, marks=AT_NIGHT) for name in WITHOUT_LIMIT],
    ],
)
def test_every_state_within_bounds(generous: bool, name: str, figures: Count) -> None:
    """Generous: larger bounds, while no round is late."""
    nodes, states = without_limit(name) if generous else whole(name)
    figures(f"states explored, {'larger ' if generous else ''}bounds visited whole", states)
    assert nodes >= (WITHOUT_LIMIT if generous else WHOLE)[name][1]


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", LARGEST)
def test_every_state_within_the_largest_bounds_while_no_round_is_late(
    name: str, figures: Count, soaked: Callable[..., None]
) -> None:
    nodes, states = without_limit(name)
    figures("states explored, larger bounds visited whole", states)
    assert nodes >= LARGEST[name][1]
    soaked("whole", nodes, **{name: states})


@pytest.mark.rotate(6)
@pytest.mark.parametrize("name", PARTS)
def test_states_within_larger_bounds(name: str, figures: Count) -> None:
    states = part(name)
    figures("states explored, larger bounds", states)
    assert states >= PART


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PARTS)
def test_many_states_within_larger_bounds(name: str, figures: Count, soaked: Callable[..., None]) -> None:
    states = Explorer(PARTS[name], both_ends=True, most=SOAK_PART, partly=True).explore()
    figures("states explored, larger bounds", states)
    assert states >= SOAK_PART
    soaked("exploration", states, **{name: states})


def test_leaving_out_states_with_less_on_the_wires_hides_nothing(figures: Count) -> None:
    """The reduction against the plain search: the same states of processes."""
    bounds = Bounds((((1, b"a", None),), ()), timeouts=False)
    plain, reduced = Explorer(bounds, reduced=False, most=60_000, partly=True), Explorer(bounds)
    figures("states explored, not reduced", plain.explore())
    reduced.explore()
    assert plain.pictures() <= reduced.pictures()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", SAME, ids=str)
def test_merging_silent_steps_hides_nothing_and_adds_nothing(bounds: Bounds, figures: Count) -> None:
    """The merged search against the one that takes every step: the very same states of processes and
    controller, images, and lines that could commit."""
    merged, plain = Merged(bounds), Explorer(bounds)
    merged.explore()
    plain.keep_images_of(merged)
    figures("states explored, not merged", plain.explore())
    assert merged.pictures() == plain.pictures()
    assert len(merged.images) == len(plain.images)
    assert merged._good_lines == plain._good_lines


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", SAME, ids=str)
def test_the_generous_search_leaves_nothing_out(bounds: Bounds) -> None:
    """All states of processes and controller, images and lines of the other one are among its own."""
    merged, generous = Merged(bounds), Merged(bounds, generous=True)
    merged.explore()
    generous.keep_images_of(merged)
    generous.explore()
    assert merged.pictures() <= generous.pictures()
    assert merged._good_lines <= generous._good_lines


HELD = 5
"""Where `Endpoint.key` has the frames that wait for an image."""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", SAME, ids=str)
def test_losing_the_frames_that_would_be_kept_hides_nothing_and_adds_nothing(bounds: Bounds) -> None:
    """The same states of processes and controller, but for what they keep; the same images and lines."""

    def without_held(key: Any) -> Any:
        if key == "dead":
            return key
        endpoint, *others = key
        return ((*endpoint[:HELD], frozenset(), *endpoint[HELD + 1 :]), *others)

    kept, lost = Merged(bounds), Merged(replace(bounds, keeps_late_frames=False))
    kept.explore()
    lost.keep_images_of(kept)
    lost.explore()
    pictures = set()
    for ranks, controller in kept.pictures():
        assert isinstance(ranks, tuple)
        pictures.add((tuple(map(without_held, ranks)), controller))
    assert pictures == lost.pictures()
    assert len(kept.images) == len(lost.images)
    assert kept._good_lines == lost._good_lines


def when_found(found: Mutant) -> Any:
    """In the searches that merge, this one takes a quarter of an hour."""
    return pytest.param(found, marks=AT_NIGHT) if found.name.startswith("no probe timer") else found


@pytest.mark.rotate(10)
@pytest.mark.parametrize("found", map(when_found, MUTANTS), ids=str)
def test_without_the_rule_the_merged_search_finds_one_too(found: Mutant) -> None:
    said = merged_without(found)
    assert said != "all is well" and "more than" not in said.splitlines()[0], said


@pytest.mark.rotate(10)
@pytest.mark.parametrize("found", [when_found(each) for each in MUTANTS if not BOUNDS[each].remote], ids=str)
def test_without_the_rule_the_generous_search_finds_one_too(found: Mutant) -> None:
    """But for payloads that may not be readable: a frame with one is no frame that says less than another."""
    said = generously_without(found)
    assert said != "all is well" and "more than" not in said.splitlines()[0], said


@pytest.mark.rotate(3)
@pytest.mark.parametrize("found", MUTANTS, ids=str)
def test_without_the_rule_there_is_a_counterexample(found: Mutant, figures: Count) -> None:
    said = without(found)
    assert said != "all is well" and "more than" not in said.splitlines()[0], said
    figures("mutants caught by exploration", 1)


@pytest.mark.rotate(6)
@pytest.mark.parametrize("bounds", dict.fromkeys(BOUNDS.values()), ids=str)
def test_with_every_rule_the_same_search_finds_nothing(bounds: Bounds, figures: Count) -> None:
    """As far as any of the counterexamples needs, and half as far again; or all states, of bounds that are visited whole."""
    states = nothing_removed(bounds)
    figures("states explored, larger bounds", states)
    assert states >= PART // 2 or bounds in [each for each, _ in WHOLE.values()]


def test_an_image_that_the_model_cannot_take_is_no_image_that_fails() -> None:
    """The program of the model lacked what images had come to need: all failed, and every rule held."""
    from tests.model.explore import Script

    process = Process.start(production(), rank_spec(0, 2, 0, None), None, lambda: Script((), 2), {})
    process.obey({"m": "checkpoint", "epoch": 1, "mode": "sync"})
    process.engine = process.runtime.engine = None
    with without_stacks(), pytest.raises(AssertionError, match="the model lacks"):
        process.capture(blocked=True)


def test_a_port_that_stays_frozen_after_the_image_stays_frozen() -> None:
    """The explorer thawed every frozen port, so that a rank that forgets to was never noticed."""
    found = next(mutant for mutant in MUTANTS if mutant.name.startswith("the port thaws when"))
    explorer = Explorer(BOUNDS[found], World(found.edits), both_ends=True, most=PART)
    with pytest.raises(RuleBroken, match="the end cannot be reached"):
        explorer.explore()


def test_what_the_vectors_show_does_not_commit(figures: Count) -> None:
    """The check before the commit holds when the transport does not: orphans are there, none is committed."""
    world = World((Edit(*MESSAGE_BEFORE_IMAGE),))
    states = Explorer(Bounds(ONE, could_commit=False), world).explore()
    figures("states explored, bounds visited whole", states)
    assert states >= 10_000


def test_a_round_aborted_while_an_image_is_written_synchronously() -> None:
    """Found by exploration: the program got an EpochError, since the abort had taken the label already."""
    from tests.model.explore import Script

    world = production()
    with without_stacks():
        process = Process.start(world, rank_spec(0, 2, 0, None), None, lambda: Script((), 2), {})
        process.obey({"m": "checkpoint", "epoch": 1, "mode": "sync"})
        process.meanwhile = [{"m": "abort", "epoch": 1, "reason": "the other rank's disk is full"}]
        process.capture(blocked=True)
    assert process.endpoint.epoch == process.runtime.imager.epoch == 1
    assert not process.endpoint.frozen and not process.image_is_wanted()

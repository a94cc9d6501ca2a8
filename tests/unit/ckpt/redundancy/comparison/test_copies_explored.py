"""A copy that is announced, made and joins while messages are held, in every order of everything, with the layers
themselves: all get the message once, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ckpt.redundancy import surroundings
from ckpt.redundancy.comparison.digests import Digests
from ckpt.redundancy.files import names
from tests.unit.ckpt.redundancy.comparison.together import Logical, Together

pytestmark = pytest.mark.turns(4)

PROGRAMS = {"sender": (Logical(0, 1),), "receiver": (Logical(0, 0),)}
"""Where messages are held one rank is enough for this: what a program sends to itself is held by receivers only."""

Path = tuple[tuple[str, object], ...]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("install", "begin", "go_on"):
        monkeypatch.setattr(surroundings, name, lambda *arguments: None)
    monkeypatch.setattr(names, "install", lambda *arguments: None)


def moves(job: Together, way: str, script: tuple[str, ...]) -> list[tuple[str, object]]:
    """What may happen next; `script`: what has happened of the copy."""
    found = job.moves()
    for name, where in found:
        process = where[1] if name == "arrive" else where
        if name in ("arrive", "hear") and job.numbers.parts(process)[0] == 1:
            return [(name, where)]  # it has nothing to send: when it hears of something changes nothing
    if "hold" not in script:
        found.append(("hold", None))
    elif "copy" not in script and job.is_held():
        found.append(("copy", way))
    return found


def walked(make: Callable[[], Together], path: Path) -> Together:
    job = make()
    for name, where in path:
        getattr(job, name)(*(() if where is None else (where,)))
    return job


def explore(make: Callable[[], Together], way: str) -> int:
    todo: list[Path] = [()]
    seen = {make().key()}
    while todo:
        path = todo.pop()
        job = walked(make, path)
        script = tuple(name for name, _ in path if name in ("hold", "copy"))
        following = moves(job, way, script)
        if not following:
            assert job.living[-1] == job.replicas, "the copy was not made"
            assert all(map(job.has_all, job.living)) and not job.is_stuck(), path
        for move in following:
            after = (*path, move)
            key = walked(make, after).key()
            if key not in seen:
                seen.add(key)
                todo.append(after)
    return len(seen)


def two_left(way: str, program: tuple[Logical, ...], lost: int) -> Callable[[], Together]:
    """Of two replicas one is lost."""

    def make() -> Together:
        job = Together(0, way, 2, program=program)
        job.is_explored = True
        job.die(lost)
        for process in job.layers:
            job.hear(process)
        return job

    return make


@pytest.mark.parametrize("way", ["sender", "receiver"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_copy_in_every_order(way: str, lost: int) -> None:
    assert explore(two_left(way, PROGRAMS[way], lost), way) > 50


@pytest.mark.parametrize("way", ["sender", "receiver"])
def test_a_copy_that_is_told_nothing_waits_for_ever(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Digests, "since", lambda self, counts: [])
    with pytest.raises(AssertionError):
        explore(two_left(way, PROGRAMS[way], 0), way)

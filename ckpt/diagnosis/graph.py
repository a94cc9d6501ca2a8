"""The candidates of one error on one way between two hosts, with what causes what and what hides what. Pure.

Source: Sakai and Ishikawa, figure 5 and section 3.5.2. A *place* is a piece of the cluster: an interface, a host,
a cable, a port, a switch, the peer process. A *candidate* is a fault (`MODEL.ELEMENT`) at a place; its id is
`MODEL.ELEMENT@PLACE`.

Names in `caused_by` and `hides` of a model become edges between candidates:

    @same      both places belong to the same host or the same switch, or else hang on the same link
    @beyond    the other place is farther along the way from here to there
    @any       any place

Causes of a candidate are candidates too, whatever the error: otherwise a consequence could be taken for a root.

Not here: the way between two hosts (`topology`), what is faulty (`verdict`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ckpt.diagnosis.errors_map import STEPS, Side
from ckpt.diagnosis.models import Element, Model, Reference, reference

__all__ = ["Candidate", "Graph", "Place", "build", "same"]


@dataclass(frozen=True, slots=True)
class Place:
    """`name` is unique, with `kind`. `position`: how far along the way, from 0. `links`: the numbers of the links
    on which it hangs. `host`, `switch`: whose it is, if it is of one. `variables`: what stands for `{…}` in
    arguments and texts."""

    kind: str
    name: str
    side: Side
    position: int
    links: frozenset[int]
    host: str | None = None
    switch: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One fault that may be there."""

    model: Model
    element: Element
    place: Place

    @property
    def fault(self) -> str:
        """The name of the fault, without its place."""
        return f"{self.model.name}.{self.element.name}"

    @property
    def id(self) -> str:
        return f"{self.fault}@{self.place.name}"

    @property
    def component(self) -> str:
        """What a person would exchange or mend: the device of the model, and where it is."""
        return f"{self.model.name}@{self.place.name}"


@dataclass(frozen=True, slots=True)
class Graph:
    """All by id. `order`: of the report, candidates of the error first. `causes[a]`: what may bring a about.
    `hides[a]`: what cannot be asked about while a holds. `proving`: those whose value alone proves that their
    device is not well. `past`: those that tell of something that is over. `symptoms`: those that only show an effect."""

    candidates: Mapping[str, Candidate]
    order: tuple[str, ...]
    causes: Mapping[str, frozenset[str]]
    hides: Mapping[str, frozenset[str]]
    proving: frozenset[str] = frozenset()
    past: frozenset[str] = frozenset()
    symptoms: frozenset[str] = frozenset()


def build(models: Sequence[Model], error: str, places: Iterable[Place]) -> Graph:
    """The graph of an error (`errors_map`) on a way. `places`: all of the way, in any order; `models`: checked."""
    instances = {
        candidate.id: candidate
        for place in sorted(places, key=lambda place: place.position)
        for model in models
        if model.place == place.kind and _applies(model, place)
        for candidate in (Candidate(model, element, place) for element in model.element)
    }
    causes = {
        name: frozenset(
            each
            for text in candidate.element.caused_by
            for each in _meant(candidate, text, instances.values())
            if each != name
        )
        for name, candidate in instances.items()
    }
    steps = STEPS[error]
    chosen = [
        name
        for step in steps
        for name, candidate in instances.items()
        if (candidate.place.kind, candidate.place.side) == step
        and error in candidate.model.errors_of(candidate.element)
    ]
    order = dict.fromkeys(chosen)
    waiting = list(order)
    while waiting:
        for cause in sorted(causes[waiting.pop(0)]):
            if cause not in order:
                order[cause] = None
                waiting.append(cause)
    hides = {
        name: frozenset(
            each
            for text in instances[name].element.hides
            for each in _meant(instances[name], text, instances.values())
            if each in order and each != name
        )
        for name in order
    }
    return Graph(
        candidates={name: instances[name] for name in order},
        order=tuple(order),
        causes={name: causes[name] for name in order},
        hides=hides,
        proving=frozenset(name for name in order if instances[name].element.proves),
        past=frozenset(name for name in order if instances[name].element.past),
        symptoms=frozenset(name for name in order if instances[name].element.symptom),
    )


def _applies(model: Model, place: Place) -> bool:
    return model.side in ("both", place.side) and all(place.variables.get(name) for name in model.needs)


def _meant(start: Candidate, text: str, all_of_them: Iterable[Candidate]) -> Iterable[str]:
    named = reference(text)
    assert named is not None, "models are checked when they are read"
    return (
        each.id
        for each in all_of_them
        if named.covers(each.model.name, each.element.name) and _where(named, start.place, each.place)
    )


def _where(named: Reference, start: Place, other: Place) -> bool:
    if named.where == "any":
        return True
    if named.where == "beyond":
        return other.position > start.position
    return same(start, other)


def same(one: Place, other: Place) -> bool:
    """Do two places belong together: of one host, of one switch, or else on one link?"""
    if one.host is not None and other.host is not None:
        return one.host == other.host
    if one.switch is not None and other.switch is not None:
        if one.switch != other.switch:
            return False
        return "switch" in (one.kind, other.kind) or one.name == other.name
    return not one.links.isdisjoint(other.links)

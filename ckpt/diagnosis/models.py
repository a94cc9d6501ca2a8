"""What a file of a fault model may say, and every error in it with its line and what to do. Pure.

Source: Sakai and Ishikawa, section 3.3: a model has a name, details, a method of detection, the faults it hides
and the faults that cause it. One file describes one device or service; an *element* is one aspect of it, such as
the temperature of a CPU. A *fault* is an element beyond a threshold; its name is `MODEL.ELEMENT`.

    queries      where the value comes from. Several: alternatives, all asked; those that answer have to agree
    high, low    faulty above, below this number; they need a unit
    equal        faulty if the value is this text, or one of these
    proves       a value beyond the threshold proves that this very device is not well (a fan that stands), whatever
                 may have caused it. Without it (a cable without a link): only when every cause is known to be clear
    past         the value tells of something that is over, such as a message in a log: it is noted, and may be the
                 cause of another fault, but is never itself named
    symptom      the value shows an effect only, of whatever it was (a neighbour that does not answer): it is suspected, with
                 what may be the reason, or a consequence, and is never itself named
    ends_agree   faulty unless its sources, at both ends, give the same value; instead of a threshold
    caused_by    faults that bring this one about: it is then a consequence
    hides        faults that cannot be asked about while this one holds
    errors       after which errors the fault is looked for (`errors_map`); of an element: instead of the model's
    needs        names that the topology must have for the host or switch: else the model does not apply there

Names in `caused_by` and `hides` are `MODEL`, `MODEL.ELEMENT` or `*`, and may end in `@same` (of the same device or
the same link, the default), `@beyond` (farther away on the way to the peer) or `@any`.

A query with `grown = true` is one of a counter: its value is by how much that has grown since the start of the job; with
`per`, another counter of the same answer, so many in a million of what that has grown by.

Not here: reading files (`library`), which places a model applies at (`graph`).
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ckpt.diagnosis.errors import BadModel
from ckpt.diagnosis.errors_map import STEPS
from ckpt.diagnosis.handlers.face import HandlerFace

__all__ = ["Element", "Model", "Query", "Reference", "check", "parse", "reference"]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
_REFERENCE: Final = re.compile(r"(\*|[a-z][a-z0-9-]*)(?:\.([a-z][a-z0-9-]*))?(?:@(same|beyond|any))?")


class Query(BaseModel):
    """One way to learn a value: a handler, the name of the value in its answer, where to ask, and its arguments
    (all other keys).

    Arguments are texts, numbers or lists of texts; `{host}`, `{address}`, `{interface}`, … in them stand for what
    the topology says.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    handler: str
    value: str
    on: Literal["host", "switch", "far", "peer"] | None = None
    grown: bool = False
    per: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Element(BaseModel):
    """One aspect of a device: its queries, its thresholds, what causes it and what it hides."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    text: str
    queries: Annotated[tuple[Query, ...], Field(min_length=1)]
    high: float | None = None
    low: float | None = None
    equal: str | tuple[str, ...] | None = None
    ends_agree: bool = False
    unit: str | None = None
    proves: bool = False
    past: bool = False
    symptom: bool = False
    caused_by: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    errors: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _thresholds(self) -> Element:
        numbers = [each for each in (self.high, self.low) if each is not None]
        if not numbers and self.equal is None and not self.ends_agree:
            raise ValueError("no threshold: give high, low or equal")
        if self.ends_agree and (numbers or self.equal is not None):
            raise ValueError("ends_agree is in place of a threshold: take one of them out")
        if self.ends_agree and len({query.on for query in self.queries} - {None}) < 2:
            raise ValueError("ends_agree needs queries of two ends: add on = ... to each")
        if any(query.per is not None and not query.grown for query in self.queries):
            raise ValueError("per is for counters: add grown = true to the query")
        if numbers and not self.unit:
            raise ValueError('a threshold without a unit: add, for example, unit = "RPM"')
        if self.past and self.proves:
            raise ValueError("what is over proves nothing about now: past and proves exclude each other")
        if self.symptom and (self.past or self.proves):
            raise ValueError("a symptom proves nothing, and is not over: symptom excludes past and proves")
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a threshold that is no finite number: give one")
        if self.high is not None and self.low is not None and self.low > self.high:
            raise ValueError("low is above high, so every value would be a fault: exchange them")
        return self


class Model(BaseModel):
    """One device or service."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    text: str
    place: Literal["interface", "host", "cable", "port", "switch", "process"]
    side: Literal["both", "here", "there"] = "both"
    errors: Annotated[tuple[str, ...], Field(min_length=1)]
    needs: tuple[str, ...] = ()
    element: Annotated[tuple[Element, ...], Field(min_length=1)]
    source: str = Field(default="", exclude=True)
    lines: Mapping[str, int] = Field(default_factory=dict, exclude=True)

    def errors_of(self, element: Element) -> tuple[str, ...]:
        return self.errors if element.errors is None else element.errors


class Reference(BaseModel):
    """A name in `caused_by` or `hides`; `element` None: all of the model."""

    model_config = ConfigDict(frozen=True)
    model: str
    element: str | None
    where: Literal["same", "beyond", "any"]

    def covers(self, model: str, element: str) -> bool:
        return self.model in ("*", model) and self.element in (None, element)


def reference(text: str) -> Reference | None:
    """A name taken apart; None: it is none."""
    found = _REFERENCE.fullmatch(text)
    if found is None or (found[1] == "*" and found[2]):
        return None
    return Reference.model_validate({"model": found[1], "element": found[2], "where": found[3] or "same"})


def parse(text: str, source: str, handlers: Mapping[str, HandlerFace]) -> Model:
    """The model in the text of a file. Raises BadModel with line and remedy. `source`: what errors call the file."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else len(text.splitlines())
        what = str(error).partition(" (at ")[0]
        raise BadModel(f"{source}:{line}: this is no TOML: {what}; correct the line") from None
    places = _Lines(text)
    for key in ("source", "lines"):
        if key in raw:
            raise BadModel(f"{source}:{places.of(None, key)}: {key}: unknown key; remove it")
    try:
        model = Model(**raw, source=source, lines={})
    except ValidationError as error:
        raise BadModel(_first_error(error, source, places)) from None
    lines = {"": 1}
    for number, element in enumerate(model.element):
        lines[element.name] = places.of(number, None)
        for key in ("caused_by", "hides", "queries", "errors"):
            lines[f"{element.name}.{key}"] = places.of(number, key)
    lines["errors"] = places.of(None, "errors")
    model = model.model_copy(update={"lines": lines})
    _check_one(model, handlers)
    return model


class _Lines:
    """The line of a key, found in the text: a parser of TOML does not tell it."""

    def __init__(self, text: str) -> None:
        self._found: dict[tuple[int | None, str | None], int] = {}
        number, element, quoted = -1, None, ""
        for at, line in enumerate(text.splitlines(), 1):
            if quoted:
                quoted = "" if quoted in line else quoted
                continue
            if re.match(r"\s*\[\[\s*element\s*\]\]", line):
                number += 1
                element = number
                self._found[element, None] = at
            elif key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=\s*(.*)", line):
                self._found.setdefault((element, key[1]), at)
                opening = key[2][:3]
                if opening in ('"""', "'''") and opening not in key[2][3:]:
                    quoted = opening

    def of(self, element: int | None, key: str | None) -> int:
        """The line of a key of an element, counted from 0 (None: of the model); else that of the element, else 1."""
        return self._found.get((element, key)) or self._found.get((element, None)) or 1


def _first_error(error: ValidationError, source: str, lines: _Lines) -> str:
    first = error.errors()[0]
    path = list(first["loc"])
    element = path[1] if len(path) > 1 and path[0] == "element" and isinstance(path[1], int) else None
    rest = path if element is None else path[2:]
    key = next((part for part in rest if isinstance(part, str)), None)
    where = f"{source}:{lines.of(element, key)}: "
    named = ".".join(str(part) for part in rest)
    if first["type"] == "extra_forbidden":
        fields = Model.model_fields if element is None else Element.model_fields
        near = difflib.get_close_matches(str(key), fields, n=1)
        return f"{where}{named}: unknown key; " + (f"did you mean {near[0]}?" if near else "remove it")
    if first["type"] == "missing":
        return f"{where}{named} is missing; add it"
    what = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}{what}"
    return f"{where}{named}: {what}; it is {first['input']!r} now"


def _check_one(model: Model, handlers: Mapping[str, HandlerFace]) -> None:
    """What can be said of a model without the others."""
    seen: set[str] = set()
    for element in model.element:
        if element.name in seen:
            _refuse(model, element.name, f"two elements are called {element.name}; rename one of them")
        seen.add(element.name)
        for query in element.queries:
            _check_query(model, element, query, handlers)
        for key in ("caused_by", "hides"):
            for text in getattr(element, key):
                if reference(text) is None:
                    _refuse(
                        model,
                        f"{element.name}.{key}",
                        f"{key}: {text!r} is no name of a fault; write MODEL, MODEL.ELEMENT or *, "
                        "with @same, @beyond or @any behind it if wanted",
                    )
    for where, errors in (
        ("errors", model.errors),
        *((f"{e.name}.errors", e.errors or ()) for e in model.element),
    ):
        for error in errors:
            if error not in STEPS:
                _refuse(model, where, f"errors: {error!r} is unknown; known are {', '.join(STEPS)}")


def _check_query(model: Model, element: Element, query: Query, handlers: Mapping[str, HandlerFace]) -> None:
    where = f"{element.name}.queries"
    face = handlers.get(query.handler)
    if face is not None and face.local and model.place == "cable" and query.on is None:
        _refuse(model, where, f'{element.name}: at which end of the cable? Add on = "host" or on = "switch"')
    if face is None:
        known = ", ".join(sorted(handlers))
        _refuse(model, where, f"{element.name}: unknown handler {query.handler!r}; there are {known}")
    given = set(query.arguments)
    if missing := sorted(face.needs - given):
        _refuse(model, where, f"{element.name}: {query.handler} needs {', '.join(missing)}; add it")
    if more := sorted(given - face.needs - face.takes):
        takes = ", ".join(sorted(face.needs | face.takes)) or "no arguments"
        _refuse(
            model, where, f"{element.name}: {query.handler} does not take {', '.join(more)}; it takes {takes}"
        )
    for value in (query.value, *((query.per,) if query.per is not None else ())):
        _check_value(model, element, query.handler, face, value, given)
    for name in sorted(face.lists & given):
        words = query.arguments[name]
        if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
            _refuse(
                model, where, f'{element.name}: {name} is a list of words: write {name} = ["COMMAND", "WORD"]'
            )
    for name in sorted(face.patterns & given):
        try:
            re.compile(query.arguments[name])
        except (re.error, TypeError) as error:
            _refuse(model, where, f"{element.name}: {name} is no regular expression: {error}; correct it")


def _check_value(
    model: Model, element: Element, handler: str, face: HandlerFace, value: str, given: set[str]
) -> None:
    """Can the handler answer this value, with the arguments that are given?"""
    where = f"{element.name}.queries"
    if value not in face.gives:
        near = difflib.get_close_matches(value, face.gives, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(face.gives))}"
        _refuse(model, where, f"{element.name}: {handler} has no value {value!r}; {hint}")
    argument = face.gives[value]
    if argument and argument not in given:
        _refuse(
            model, where, f"{element.name}: {handler} has {value} only with {argument}; add {argument} = …"
        )


def check(models: Sequence[Model]) -> None:
    """What can be said of all models together: names, references, cycles of causes. Raises BadModel."""
    by_name: dict[str, Model] = {}
    for model in models:
        if model.name in by_name:
            other = by_name[model.name]
            _refuse(
                model,
                "",
                f"there is a model {model.name} in {other.source}, too; rename or remove one of them",
            )
        by_name[model.name] = model
    for model in models:
        for element in model.element:
            for key in ("caused_by", "hides"):
                for text in getattr(element, key):
                    _check_reference(model, element, key, text, by_name)
    _check_cycles(models)


def _check_reference(
    model: Model, element: Element, key: str, text: str, by_name: Mapping[str, Model]
) -> None:
    named = reference(text)
    assert named is not None, "checked when the file was read"
    if named.model == "*":
        return
    other = by_name.get(named.model)
    if other is not None and named.element in (None, *(each.name for each in other.element)):
        return
    faults = sorted(
        each for m in by_name.values() for each in (m.name, *(f"{m.name}.{e.name}" for e in m.element))
    )
    near = difflib.get_close_matches(text.partition("@")[0], faults, n=1)
    hint = f"did you mean {near[0]}?" if near else "remove it, or add a model of this name"
    what = "is caused by" if key == "caused_by" else "hides"
    _refuse(model, f"{element.name}.{key}", f"{element.name} {what} {text!r}, which is unknown; {hint}")


def _check_cycles(models: Sequence[Model]) -> None:
    """No fault may cause itself, by whatever way: there would be no root."""
    all_faults = [(model, element) for model in models for element in model.element]
    causes = {
        (model.name, element.name): [
            (m.name, e.name) for m, e in all_faults for ref in _causes(element) if ref.covers(m.name, e.name)
        ]
        for model, element in all_faults
    }
    owner = {(model.name, element.name): model for model, element in all_faults}
    done: set[tuple[str, str]] = set()
    for start in causes:
        way: list[tuple[str, str]] = []
        stack = [(start, iter(causes[start]))] if start not in done else []
        way.extend(at for at, _ in stack)
        while stack:
            after = next(stack[-1][1], None)
            if after is None:
                done.add(way.pop())
                stack.pop()
            elif after in way:
                cycle = [*way[way.index(after) :], after]
                text = " ← ".join(".".join(each) for each in cycle)
                _refuse(
                    owner[after],
                    f"{after[1]}.caused_by",
                    f"causes go round in a circle: {text}; take one of these out of caused_by",
                )
            elif after not in done:
                way.append(after)
                stack.append((after, iter(causes[after])))


def _causes(element: Element) -> Iterator[Reference]:
    for text in element.caused_by:
        named = reference(text)
        assert named is not None, "checked when the file was read"
        yield named


def _refuse(model: Model, where: str, what: str) -> NoReturn:
    raise BadModel(f"{model.source}:{model.lines.get(where, 1)}: {what}")

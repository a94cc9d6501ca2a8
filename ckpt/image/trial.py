"""A trial of an image, for `ckpt doctor`: finds all objects that cannot be saved, not only the first one.

The image is not stored. Where an object cannot be taken apart, the pickler writes a placeholder and goes on; so one pass
finds all such objects. A pickler does not know the path to the object that it is saving, so the path is searched for
afterwards (:func:`ckpt.image.pickling.diagnose.path_to`). If a failure cannot be replaced by a placeholder (an unusual
``__reduce__``), the rest of this variable is not examined, and its first failure is reported as for a failed image.

One finding as a dictionary::

    {"where": "frame 2 (solve) local 'log'", "path": ".stream", "type": "_socket.socket", "bases": […], "reason": …}

A trial also looks for numbers that are addresses of objects (``id(obj)``) and stay what they are: those that are in no table
of :mod:`ckpt.image.pickling.id_tables`. The report names their containers in ``left_out``, with kind ``ids``.

:func:`examine` must run in a forked child, because objects are used up to find their state. Not here: when a trial is made,
and the doctor's other checks (:mod:`ckpt.doctor`).
"""

from __future__ import annotations

import copyreg
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ckpt.image.dumping import run_dump
from ckpt.image.errors import Unpicklable
from ckpt.image.pairs import Dump, ImageReport, Prepared
from ckpt.image.pickling import diagnose
from ckpt.image.pickling.id_tables import numbers_in
from ckpt.image.pickling.pickler import DiscardingSink, ImagePickler
from ckpt.transport.records import asdict, dataclass

__all__ = ["Finding", "SeenFrame", "examine"]

_FINDINGS = 100
_REDUCED_LENGTHS = range(2, 7)
_SINGLETON_TYPES = (type(None), type(NotImplemented), type(...))
_PATH_LIMIT_S = 0.5
_TEXT_CHARS = 300
_CONTAINERS = (dict, list, set, frozenset)  # tuples are looked into where they are held
_LARGEST = 100_000  # larger containers are not searched for addresses
_TABLES = 20  # containers with addresses that are named
_ADDRESSES_REASON = "these numbers are addresses of objects (id()), which will be elsewhere after a restart"


@dataclass(frozen=True, slots=True)
class Finding:
    """An object that cannot be saved. ``where``: the variable where the pickler has met the object first. ``path``: from the
    variable to the object, "" if not found. ``type``, ``bases``: its type and base types. ``reason``: the cause in words.
    """

    where: str
    path: str
    type: str
    bases: list[str]
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """A frame that is examined although the stack cannot be captured: its name and variables."""

    name: str
    variables: Mapping[str, object]


def examine(
    prepared: Prepared, *, live: Mapping[str, object], seen: Iterable[SeenFrame] = ()
) -> tuple[ImageReport, list[Finding]]:
    """Pickle the program without storing it; returns the report and at most ``_FINDINGS`` findings. ``live``: as for
    :func:`ckpt.image.dumping.dump`. ``seen``: the frames, when there is no captured stack.
    """
    findings: list[Finding] = []

    class ThisTrial(_Trial):
        found = findings
        frames = tuple(seen)

    report = run_dump(
        prepared, live=live, sink=DiscardingSink(), pickler_class=TrialPickler, dump_class=ThisTrial
    )
    return report, findings


class TrialPickler(ImagePickler):
    """A pickler that goes on after an object that cannot be saved. ``failed``: these objects, with their exceptions.
    ``numbers``: containers with numbers that may be addresses, by id, with these numbers.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.failed: list[tuple[object, Exception]] = []
        self.numbers: dict[int, tuple[object, set[int]]] = {}
        super().__init__(*args, **options)

    def watched(self, find: Callable[[object], Any]) -> Callable[[object], Any]:
        def find_and_look(obj: Any) -> Any:
            found = find(obj)
            is_saved = found is None or found[0] == "fill"
            if (
                is_saved
                and type(obj) in _CONTAINERS
                and len(obj) <= _LARGEST
                and not self.id_tables.is_known(obj)
            ):
                numbers = set(numbers_in(obj, True))
                if numbers:
                    self.numbers[id(obj)] = obj, numbers
            return found

        return find_and_look

    def reducer_override(self, obj: Any, *_: Any) -> Any:
        try:
            reduced = super().reducer_override(obj)
            if reduced is NotImplemented:
                reduced = self._default(obj)
            self._check(obj, reduced)
        except Exception as failure:  # the doctor reports every failure
            self.failed.append((obj, failure))
            return _placeholder, (type(obj).__name__,)
        return reduced

    def _default(self, obj: Any) -> Any:
        """Do what the C pickler would do, here, where a failure can be caught."""
        cls = type(obj)
        if cls is types.FunctionType or isinstance(obj, type):
            return NotImplemented
        reducer = copyreg.dispatch_table.get(cls)
        return obj.__reduce_ex__(5) if reducer is None else reducer(obj)

    def _check(self, obj: Any, reduced: Any) -> None:
        if reduced is NotImplemented:
            if type(obj) is not types.FunctionType and not any(obj is cls for cls in _SINGLETON_TYPES):
                _check_name(obj, obj.__qualname__)
        elif isinstance(reduced, str):
            _check_name(obj, reduced)
        elif not (
            isinstance(reduced, tuple)
            and len(reduced) in _REDUCED_LENGTHS
            and callable(reduced[0])
            and isinstance(reduced[1], tuple)
        ):
            raise TypeError(f"{type(obj).__qualname__}.__reduce__ returns nothing that pickle can use")


def _check_name(obj: Any, name: str) -> None:
    """Raise TypeError if ``obj`` is not found under its name in its module; pickle would fail too."""
    module = getattr(obj, "__module__", None) or "builtins"
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not obj and getattr(obj, "__module__", None) is not None:
        raise TypeError(f"it is not found as {module}.{name}")


def _placeholder(type_name: str) -> None:
    """Written in a trial instead of an object that cannot be saved; never called."""


class _Trial(Dump):
    """The :class:`Dump` of one trial. :func:`examine` makes a subclass with the class attributes ``found`` (findings) and
    ``frames`` for each run.
    """

    found: list[Finding]
    frames: tuple[SeenFrame, ...]
    pickler: Any

    def run(self, early: dict[str, Any], late: dict[str, Any]) -> ImageReport:
        self.tables: list[tuple[tuple[Any, ...], object, object, set[int]]] = []
        report = super().run(early, late)
        memo = self.pickler.copy_of_memo()
        places = [
            (self.where(label) + self._path(container, label, value))
            for label, value, container, numbers in self.tables
            if any(self.pickler.id_tables.object_at(number, memo) for number in numbers)
        ]
        report.left_out += [
            {"kind": "ids", "package": "", "variables": [where], "reason": _ADDRESSES_REASON}
            for where in places[:_TABLES]
        ]
        return report

    def emit(self, label: tuple[Any, ...], value: object) -> None:
        """Write one pair, and record the objects in it that cannot be saved."""
        failed, containers = self.pickler.failed, self.pickler.numbers
        failed.clear()
        containers.clear()
        try:
            super().emit(label, value)
        except Unpicklable as failure:
            self.note(
                Finding(failure.path, "", describe(value), bases_of(value), failure.reason[:_TEXT_CHARS])
            )
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"
            self.note(Finding(self.where(label), "", describe(value), bases_of(value), reason[:_TEXT_CHARS]))
        if label[0] in ("variable", "local", "seen"):
            self.tables += [(label, value, container, numbers) for container, numbers in containers.values()]
        for obj, reason in list(failed):
            path = self._path(obj, label, value)
            text = str(reason) or type(reason).__name__
            self.note(Finding(self.where(label), path, describe(obj), bases_of(obj), text[:_TEXT_CHARS]))
        failed.clear()

    def note(self, finding: Finding) -> None:
        if len(self.found) < _FINDINGS and finding not in self.found:
            self.found.append(finding)

    def where(self, label: tuple[Any, ...]) -> str:
        if label[0] == "seen":
            return f"frame {label[1]} ({self.frames[label[1]].name}) local {label[2]!r}"
        return super().where(label)

    def save_stack(self) -> list[dict[str, Any]]:
        for index, frame in enumerate(self.frames):
            for name, value in frame.variables.items():
                self.emit(("seen", index, name), value)
        return super().save_stack()

    def _path(self, obj: object, label: tuple[Any, ...], value: object) -> str:
        deadline = time.monotonic() + _PATH_LIMIT_S
        roots = self._roots(label, value)
        return diagnose.path_to(obj, roots, is_boundary=self._is_named, deadline=deadline)

    def _roots(self, label: tuple[Any, ...], value: Any) -> list[tuple[str, object]]:
        if label[0] == "frame":
            return self.frame_parts(label[1])
        return [("", value)]

    def _is_named(self, obj: object) -> bool:
        return self.pickler.persistent_id(obj) is not None


def describe(obj: object) -> str:
    """Module and qualified name of the object's type."""
    cls = type(obj)
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def bases_of(obj: object) -> list[str]:
    """Module and qualified name of the type's base classes, in method resolution order, without ``object``."""
    return [f"{cls.__module__}.{cls.__qualname__}" for cls in type(obj).__mro__[1:-1]]

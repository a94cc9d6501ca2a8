"""Putting an image in force in a fresh process; :mod:`ckpt.image.dumping` has the order of things."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from ckpt.image.errors import ImageError, RestoreError
from ckpt.image.files import numbers, reopen, standard_output
from ckpt.image.files.descriptors import note_baseline
from ckpt.image.frames import stack
from ckpt.image.libraries.settings import quiet
from ckpt.image.modules import package_baseline, package_restore
from ckpt.image.modules.references import import_all
from ckpt.image.modules.versions import compare_versions
from ckpt.image.pickling.pickler import ImageUnpickler, collector_off
from ckpt.image.process import limits, resources, signals
from ckpt.transport.records import dataclass, field

if TYPE_CHECKING:
    from ckpt.image.frames.stack import Stack

__all__ = ["Loaded", "Source", "load", "resume"]

Label = tuple[Any, ...]
Call = tuple[Callable[..., object], tuple[Any, ...]]


class Source(Protocol):
    """Where an image comes from; authenticated before anything here is called."""

    def stream(self) -> BinaryIO: ...

    def buffers(self) -> list[Any]:
        """The out-of-band buffers, writable, in order."""
        ...


@dataclass(slots=True)
class Loaded:
    """``stack``: to be resumed (``None``: the program had ended); ``extras``: as given to :func:`prepare`.

    ``left_out``: changes in installed packages that could not be put back, as in
    :class:`ckpt.image.modules.package_changes.Changed`. ``not_put_back``: limits that may not be set here.
    """

    stack: Stack | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    not_put_back: list[str] = field(default_factory=list)


def load(
    source: Source, *, live: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> Loaded:
    """Put an image in force in this process, all but its stack. Raises :class:`RestoreError`,
    :class:`IncompatibleImage`.

    ``environment``: variables that have other values now, unless the program has deleted them.

    The modules of the program, ``__main__`` included, are made anew. Nothing of the program runs, but
    ``__hash__`` and ``__eq__`` of keys and members. Signals are blocked from here on until the program goes on
    (:mod:`ckpt.image.process.signals`).
    """
    note_baseline()
    limits.note_baseline()
    reopen.begin()
    try:
        return _load(source, live, environment or {})
    except BaseException:
        reopen.abandon()
        raise


def _load(source: Source, live: Mapping[str, object], environment: Mapping[str, str]) -> Loaded:
    package_baseline.watch()
    stream = source.stream()
    unpickler = ImageUnpickler(stream, source.buffers(), live)
    with collector_off(), quiet():
        header = unpickler.load()
        compare_versions(header["versions"])
        resources.apply_early(header["early"], environment)
        spaces = _make_modules(header["modules"])
        import_all(header["imported"])
        loaded = Loaded()
        late: dict[str, Any] = {}
        calls: list[Call] = []
        while True:
            label = unpickler.load()
            value = _load_value(unpickler, label)
            match label:
                case ("variable", module, name):
                    spaces[module][name] = value
                case ("extra", name):
                    loaded.extras[name] = value
                case ("late", name):
                    late[name] = value
                case ("stack",):
                    loaded.stack = value
                case ("call",):
                    calls.append(value)
                case ("end",):
                    break
        del value
        _finish(unpickler)
        packages = _load_packages(unpickler, header["changed"], loaded)
    del unpickler
    stream.close()  # before the program's ways of hearing of open files are in force
    for function, args in calls:
        function(*args)
    reopen.settle()
    numbers.release(header["early"]["lost"])
    compare_versions(header["versions"], is_final=True)  # now that everything is imported
    resources.apply_late(late)
    _put_back(packages, loaded)
    standard_output.put_back_unwritten(header["early"]["unwritten"])
    sys.setrecursionlimit(header["early"]["recursion_limit"])
    limits.put_back_limits(header["early"]["limits"])
    loaded.not_put_back = limits.not_put_back()
    return loaded


@dataclass(slots=True)
class _Packages:
    """Changes by package, and calls to be made first."""

    changes: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


def _load_packages(unpickler: ImageUnpickler, names: list[str], loaded: Loaded) -> _Packages:
    """What has changed in installed packages: all that can be loaded. The rest starts anew; the program goes on."""
    packages = _Packages()
    try:
        while True:
            label, value = unpickler.load(), unpickler.load()
            match label:
                case ("package", name):
                    packages.changes[name] = value
                case ("call",):
                    packages.calls.append(value)
                case ("end",):
                    break
        unpickler.finish()
    except MemoryError:
        raise
    except Exception as failure:  # whatever a class of the package's may raise
        for name in names:
            if name not in packages.changes:
                loaded.left_out.append(
                    {"kind": "unsaved", "package": name, "variables": [], "reason": repr(failure)}
                )
    return packages


def _put_back(packages: _Packages, loaded: Loaded) -> None:
    try:
        for function, args in packages.calls:
            function(*args)
    except Exception as failure:
        loaded.left_out.append({"kind": "unsaved", "package": "*", "variables": [], "reason": repr(failure)})
    for name, changes in packages.changes.items():
        problem = package_restore.put_back(name, changes)
        if problem is not None:
            loaded.left_out.append(problem)


def _load_value(unpickler: ImageUnpickler, label: Label) -> Any:
    try:
        return unpickler.load()
    except ImageError as failure:
        raise RestoreError(f"{_label_text(label)}: {failure}") from failure
    except MemoryError:
        raise
    except Exception as failure:
        raise RestoreError(f"{_label_text(label)}: {type(failure).__name__}: {failure}") from failure


def _finish(unpickler: ImageUnpickler) -> None:
    try:
        unpickler.finish()
    except Exception as failure:
        raise RestoreError(f"a key of a dictionary or set: {type(failure).__name__}: {failure}") from failure


def _label_text(label: Label) -> str:
    match label:
        case ("variable", module, name):
            return f"module {module} variable {name!r}"
        case ("local", index, name):
            return f"frame {index} local {name!r}"
    return " ".join(str(part) for part in label)


def _make_modules(names: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Empty modules in ``sys.modules``, so that everything loaded can refer to them."""
    spaces: dict[str, dict[str, Any]] = {}
    for key, name in names:
        module = types.ModuleType(name)
        module.__dict__.clear()
        sys.modules[key] = module
        spaces[key] = module.__dict__
    return spaces


def resume(program: Stack) -> Any:
    """Run the loaded program to its end; returns (or raises) what its outermost frame does.

    Signals that the image has held back are let through as soon as the innermost frame runs. Must be called in the main
    thread. Empties the stack. Raises RestoreError when it does not fit this process.
    """
    return stack.resume(program, signals.release)

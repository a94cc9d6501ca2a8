"""An image is loaded into a fresh process, and the program resumed.

:mod:`ckpt.image.pairs` describes the pairs of the stream. The order of a load:

1. early state, empty modules, imports of by-reference modules, redirected streams, the pairs;
2. standard input; deferred calls, which may open files; late state;
3. files are cut, written and locked, and unused descriptor numbers freed; standard streams, changes in installed packages,
   unwritten output, recursion limit, limits.

No file of the program is changed before 3: a load that fails earlier leaves the files as they were. Where a restart has
still to put files back, that is waited for as late as possible: before 2, or where the first of the pairs opens a file
(:mod:`ckpt.image.files.reopen`).

Not here: where the image comes from and who may have written it (:mod:`ckpt.store`).
"""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from ckpt.errors import IncompatibleImage
from ckpt.image.errors import ImageError, RestoreError
from ckpt.image.files import cuts, numbers, reopen, standard_input, standard_output
from ckpt.image.files.descriptors import note_baseline
from ckpt.image.frames import running
from ckpt.image.interface.registry import libraries
from ckpt.image.modules import package_baseline, package_restore
from ckpt.image.modules.references import import_all
from ckpt.image.modules.versions import compare_versions, of_another_ckpt
from ckpt.image.pickling.pickler import collector_off
from ckpt.image.process import limits, resources, signals
from ckpt.image.process.settings import warnings_ignored
from ckpt.image.threads import waking
from ckpt.image.threads.restart import Restart, forget_locks
from ckpt.transport.records import dataclass, field

if TYPE_CHECKING:
    from ckpt.image.frames.stack import Stack
    from ckpt.image.pickling.unpickler import ImageUnpickler

__all__ = ["Loaded", "Source", "load", "resume", "resume_others"]

Label = tuple[Any, ...]
Call = tuple[Callable[..., object], tuple[Any, ...]]


class Source(Protocol):
    """Where an image comes from. The caller must have authenticated the image: loading it runs its code."""

    def stream(self) -> BinaryIO: ...

    def buffers(self) -> list[Any]:
        """The out-of-band buffers of the pickle stream, writable, in order."""
        ...


@dataclass(slots=True)
class Loaded:
    """The result of :func:`load`. ``stack``: for :func:`resume` (``None``: the program had ended). ``extras``: the objects
    given to :func:`ckpt.image.dumping.prepare`.

    ``left_out``: changes in installed packages that could not be restored, as in
    :class:`ckpt.image.modules.package_changes.Changed`. ``not_put_back``: texts about limits that may not be set here.
    """

    stack: Stack | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    not_put_back: list[str] = field(default_factory=list)


def load(
    source: Source,
    *,
    live: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    wait_for_files: Callable[[bool], None] | None = None,
) -> Loaded:
    """Restore the whole state of an image in this process, except that the stack does not run yet.

    ``live``: the objects of this process for the names given to ``dump``. ``environment``: environment variables that have
    other values now; a variable that the program has deleted stays deleted. ``wait_for_files``: returns when files are what
    they were at the checkpoint, and is told whether all is loaded, so that nothing of it can fail any more; None: they are.

    The modules of the program, ``__main__`` included, are made anew. No code of the program runs except ``__hash__`` and
    ``__eq__`` of keys and members. When ``load`` returns, signals are blocked until the program goes on
    (:mod:`ckpt.image.process.signals`).

    Raises :class:`RestoreError`: the image does not fit this process or its files;
    :class:`~ckpt.errors.IncompatibleImage`: another version of Python, ckpt or a package, or standard input has changed.
    """
    note_baseline()
    limits.note_baseline()
    reopen.begin(wait_for_files)
    try:
        return _load(source, live, environment or {})
    except BaseException:
        reopen.abandon()
        raise


def _make_channels(channels: tuple[list[Any], ...] | None) -> None:
    """``None``: the program had no pipes and no sockets."""
    if channels is not None:
        from ckpt.image.ipc.remake import make_channels

        make_channels(*channels)


def _load(source: Source, live: Mapping[str, object], environment: Mapping[str, str]) -> Loaded:
    from ckpt.image.pickling.unpickler import ImageUnpickler  # a rank that begins needs none

    package_baseline.watch()
    stream = source.stream()
    buffers = source.buffers()
    unpickler = ImageUnpickler(stream, buffers, live)
    with collector_off(), warnings_ignored():
        header = unpickler.load()
        compare_versions(header["versions"])
        resources.apply_early(header["early"], environment)
        _make_channels(header["early"]["channels"])
        namespaces = _make_modules(header["modules"])
        running.follow_functions()
        import_all(header["imported"], header.get("halted", ()))
        if reopen.waits_for_files() and header.get("has_names"):
            from ckpt.image.modules.names import look_up  # a rank that begins does not import it

            look_up(buffers[-1], unpickler.find_class, _refused)
        resources.open_streams(header["early"])
        loaded = Loaded()
        late: dict[str, Any] = {}
        calls: list[Call] = []
        while True:
            label = unpickler.load()
            value = _load_value(unpickler, label)
            match label:
                case ("variable", module, name):
                    namespaces[module][name] = value
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
    stream.close()  # now: later the program's own hooks would see this file being closed
    # Now that everything is imported, and no file is touched yet
    compare_versions(header["versions"], is_final=True)
    redirected = header["early"]["redirected"]
    reopen.wait_for_files(is_all_loaded=not (calls or packages.calls or redirected))
    is_saved = any(each.fd == 0 for each in redirected)
    standard_input.go_on_reading(header["early"].get("input"), is_saved=is_saved)
    for function, args in calls:
        function(*args)
    cuts.warn_of_shorter_output()
    resources.apply_late(late)
    reopen.change_files()
    numbers.release(header["early"]["lost"])
    resources.put_streams(late)
    _put_back(packages, loaded)
    standard_output.put_back_unwritten(header["early"]["unwritten"])
    sys.setrecursionlimit(header["early"]["recursion_limit"])
    limits.put_back_limits(header["early"]["limits"])
    loaded.not_put_back = limits.not_put_back()
    libraries.after_restart()
    forget_locks()
    return loaded


@dataclass(slots=True)
class _Packages:
    """The last part of an image: what restores the changes in installed packages. ``changes``: package → its changes.
    ``calls``: deferred calls, to be made before the changes are restored."""

    changes: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


def _load_packages(unpickler: ImageUnpickler, names: list[str], loaded: Loaded) -> _Packages:
    """Load the changes in installed packages. The changes that cannot be loaded are listed in ``loaded.left_out``: these
    packages start anew, and the program goes on.
    """
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
    except Exception as failure:  # a class of a package may raise anything
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
    except MemoryError:
        raise
    except Exception as failure:
        raise _refused(label, failure) from failure


def _refused(label: Label, failure: Exception) -> RestoreError | IncompatibleImage:
    if isinstance(failure, IncompatibleImage):
        return failure
    if (found := of_another_ckpt(failure)) is not None:
        return found
    text = str(failure) if isinstance(failure, ImageError) else f"{type(failure).__name__}: {failure}"
    return RestoreError(f"{_label_text(label)}: {text}")


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
    """Put empty modules into ``sys.modules``, so that all loaded objects can refer to them. Returns key → variables."""
    namespaces: dict[str, dict[str, Any]] = {}
    for key, name in names:
        module = types.ModuleType(name)
        module.__dict__.clear()
        sys.modules[key] = module
        namespaces[key] = module.__dict__
    return namespaces


def resume(program: Stack) -> Any:
    """Run the loaded program to its end; returns (or raises) what its outermost frame returns (or raises).

    Signals that were blocked during the load are delivered as soon as the innermost frame runs. Must be called in the main
    thread. Empties ``program``. Raises RestoreError: the stack does not fit into this process.
    """
    others = Restart(program)
    others.start()
    waking.prepare()
    return running.resume(program, signals.start_timers, others.release)


def resume_others(program: Stack) -> None:
    """Have the other threads of the loaded program go on, whose main thread had ended. Empties ``program``. Raises as
    :func:`resume`."""
    others = Restart(program)
    others.start()
    blocked = signals.start_timers()
    others.release()
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    program.frames.clear()

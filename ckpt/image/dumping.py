"""The content of one image, the order of the content, and the function that writes an image.

Stream
    An image is one pickle stream with one memo, so the identity of objects is kept across the whole image. The stream is a
    header and then a sequence of pairs *label, value*. Label and value are each a ``dump`` of their own, so that a failure,
    here and at load, can name the variable::

        header                          plain values: format, versions, names of modules, early state
        ("variable", module, name)      every variable of every by-value module, in order
        ("local", frame, name)          each local of a captured frame, before the record of the frame, which holds it too
        ("frame", index)                the frame record
        ("stack",)                      the stack, which refers to the frame records
        ("extra", name)                 the runtime's own state: engine, port state, registered objects
        ("late", name)                  ambient state (:mod:`ckpt.image.process.resources`)
        ("call",)                       (function, arguments): a call that is made when everything is loaded
        ("end",)                        the part that follows may fail at load; the restart goes on without it
        ("package", name)               changes in an installed package (:mod:`ckpt.image.modules.package_changes`)
        ("call",)                       as above
        ("end",)

Life of an image
    ``prepare`` in the parent (fast: record timers and offsets, look at new modules) → fork → ``dump`` in the child, on a
    large C stack. Without fork, ``dump`` runs in the parent, and the program stands still meanwhile.
    ``load`` (:mod:`ckpt.image.loading`) in a fresh process: early state, empty modules, the pairs, deferred calls, ambient
    state.

Not here: how an object is taken apart (:mod:`ckpt.image.pickling.pickler`).
"""

from __future__ import annotations

import gc
import os
import time
import types
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, NamespaceLoader, SourceFileLoader, SourcelessFileLoader
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Unpicklable
from ckpt.image.files.descriptors import Descriptors, baseline, our_files, restore_descriptors, survey
from ckpt.image.files.descriptors import own_lengths as own_lengths_now
from ckpt.image.files.file_notes import set_apart
from ckpt.image.files.open_files import FileSaver
from ckpt.image.files.saved_files import SavedFiles
from ckpt.image.frames import _frames
from ckpt.image.interface.registry import libraries, look_for_extensions
from ckpt.image.modules import held_locks, lazy, package_baseline, package_changes
from ckpt.image.modules.references import References
from ckpt.image.modules.versions import FORMAT, current_versions
from ckpt.image.pickling import diagnose
from ckpt.image.pickling.pickler import (
    ImagePickler,
    Nowhere,
    Sink,
    Stream,
    collector_off,
    failure_of,
    on_deep_stack,
)
from ckpt.image.pickling.sizes import MOST_FRAMES, SizeTable, local_names
from ckpt.image.process import exits, moment, resources, unsupported
from ckpt.image.process.settings import quiet
from ckpt.image.reducers import rebuild
from ckpt.transport.records import asdict, dataclass, field

if TYPE_CHECKING:
    from ckpt.image.frames.stack import Stack

__all__ = [
    "ImageReport",
    "Prepared",
    "check",
    "dump",
    "fork",
    "look",
    "prepare",
    "warm",
]

_LARGEST = 20
_SIZED_BYTES = 1024
_REHEARSED_BYTES = 4 << 20
_ATOMS = frozenset({int, float, bool, str, type(None), complex})
_LOADERS = (SourceFileLoader, SourcelessFileLoader, NamespaceLoader, type(None))

Label = tuple[Any, ...]


@dataclass(slots=True)
class Prepared:
    """What :func:`prepare` has recorded, with references to the program's live objects.

    Valid only for a fork right after :func:`prepare`. ``extras``: name → object of the runtime. ``noted``: the record of
    :mod:`ckpt.image.process.moment`. ``own_lengths``: see :func:`ckpt.image.files.descriptors.own_lengths`. ``pid``: of the
    process that has prepared. ``prepared_ns``: how long that took.
    """

    stack: Stack | None
    extras: Mapping[str, object]
    noted: bytes
    own_lengths: dict[int, int]
    collector: resources.Collector
    references: References
    pid: int
    prepared_ns: int


@dataclass(slots=True)
class ImageReport:
    """A summary of an image, which can be read without loading the image.

    ``stack``: file, line and function of each frame, outermost first. ``modules``: names of the by-value modules. ``sizes``:
    the 20 largest variables, ``{"where", "bytes"}``; an object counts for the first variable that holds it. ``variables``:
    the largest of each module and frame, see :class:`ckpt.image.pickling.sizes.SizeTable`. ``timings_ns``: of ``prepare``
    and of the parts of ``dump``. ``versions``: see :func:`ckpt.image.modules.versions.current_versions`. ``buffers``: number
    of out-of-band buffers. ``left_out``: see :class:`ckpt.image.modules.package_changes.Changed`.
    """

    stack: list[dict[str, Any]]
    modules: list[str]
    sizes: list[dict[str, Any]]
    timings_ns: dict[str, int]
    versions: dict[str, Any]
    stream_bytes: int = 0
    buffer_bytes: int = 0
    buffers: int = 0
    variables: dict[str, Any] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_references = References()


def warm() -> None:
    """Look at all modules that are imported by now, so that the first image is faster. Must be called before the program
    starts: modules' attributes that appear later count as the program's. May be called before ranks are forked.
    Finds what distributions say of libraries, too (:func:`look_for_extensions`).
    """
    look_for_extensions()
    libraries.loaded()
    _references.settle()


def look() -> None:
    """Look at the modules that the program has imported since :func:`warm`, so that the pause for the first image is
    shorter; 1 ms for 100 modules.
    """
    _references.refresh()


def prepare(stack: Stack | None, extras: Mapping[str, object]) -> Prepared:
    """Record what a forked child cannot read later; called just before the fork, in the process that runs the program.

    ``stack``: None if the program has ended. ``extras``: name → object, saved with the image. Raises OSError: no free
    descriptor.
    """
    started_ns = time.perf_counter_ns()
    noted, own_lengths = moment.note(), own_lengths_now()
    collector = gc.isenabled(), gc.get_threshold()  # recorded here, because dump() turns the collector off
    if _references.are_behind():  # changes of known modules are looked at in the child
        _references.refresh()
    elapsed_ns = time.perf_counter_ns() - started_ns
    return Prepared(stack, extras, noted, own_lengths, collector, _references, os.getpid(), elapsed_ns)


# ---------------------------------------------------------------------- dump


def fork(noted: bytes | None = None) -> int:
    """Fork this process; returns what fork(2) returns. The child has open files of its own in place of the program's.
    ``noted``: the record of :mod:`ckpt.image.process.moment`; None: it is made now. Raises OSError."""
    return _frames.fork(moment.note() if noted is None else noted, our_files())


def check(prepared: Prepared) -> None:
    """Must be the first call in a forked child, before the child opens a file. Raises :class:`Unpicklable`: another thread
    of the program has opened a file just before the fork.
    """
    moment.check(prepared.noted)


def dump(prepared: Prepared, *, live: Mapping[str, object], sink: Sink) -> ImageReport:
    """Write the image. Called in a forked child or, with a longer pause of the program, in the process that has prepared.

    ``live``: name → object; these objects are saved by name only, and ``load`` must get objects of the same names. Raises
    :class:`Unpicklable`, and whatever ``sink`` raises.
    """
    return run_dump(prepared, live=live, sink=sink)


def run_dump(
    prepared: Prepared,
    *,
    live: Mapping[str, object],
    sink: Sink,
    pickler_class: type[ImagePickler] = ImagePickler,
    dump_class: type[Dump] | None = None,
) -> ImageReport:
    """:func:`dump`, where a trial (:mod:`ckpt.image.trial`) can give other classes for the pickler and for the dump."""
    unsupported.check()
    is_disposable = os.getpid() != prepared.pid
    timing, descriptors = moment.read(prepared.noted)
    surveyed, saved_files = survey(descriptors), SavedFiles()
    if is_disposable:
        set_apart(descriptors, baseline())
    prepared.references.refresh()
    early = resources.note_early(
        descriptors, prepared.own_lengths, surveyed, saved_files, is_disposable=is_disposable
    )
    receivers = prepared.stack.receivers() if prepared.stack is not None else []
    late = resources.note_late(prepared.references, timing, prepared.collector)
    changed = prepared.references.changed = package_changes.look(
        package_baseline.watch(), prepared.references
    )

    def work() -> ImageReport:
        files = FileSaver(descriptors, is_disposable=is_disposable, saved_files=saved_files)

        def make_pickler(
            stream: Stream, kind: type[ImagePickler] = pickler_class, is_disposable: bool = is_disposable
        ) -> ImagePickler:
            pickler = kind(
                stream,
                prepared.references,
                live=live,
                is_disposable=is_disposable,
                extra_reducers=files.reducers(),
                rehearsal=lambda: rehearsal(_REHEARSED_BYTES),
            )
            pickler.defer(restore_descriptors, Descriptors(files))
            pickler.running_generators = prepared.stack.generators() if prepared.stack is not None else []
            pickler.running = {id(obj) for obj in receivers}
            pickler.cached_calls = prepared.stack.cached_calls() if prepared.stack else []
            for record in prepared.stack.frames if prepared.stack else ():
                pickler.definitions.note_closure(record.func)
            return pickler

        def rehearsal(most_bytes: int | None = None) -> ImagePickler:
            return make_pickler(Stream(Nowhere(most_bytes)), ImagePickler, False)

        package_changes.settle(
            changed,
            lambda changes: failure_of(rehearsal(), [tuple(each) for each in changes]),
            prepared.stack.frames if prepared.stack else (),
        )
        prepared.references.held = held_locks.note_held(
            prepared.references, package_baseline.watch(), receivers
        )
        late["locks"] = [(held.lock, held.times) for held in prepared.references.held]
        late["exit_functions"] = [
            entry
            for entry in late["exit_functions"]
            if _can_be_saved(
                entry, prepared.references, lambda part: failure_of(rehearsal(_REHEARSED_BYTES), part)
            )
        ]
        return (dump_class or Dump)(prepared, sink, make_pickler).run(early, late)

    try:
        with collector_off(), quiet():
            return on_deep_stack(work)
    finally:
        prepared.references.forget()  # must not keep objects of the program alive


def _can_be_saved(
    entry: exits.Entry, references: References, attempt: Callable[[object], Exception | None]
) -> bool:
    """Can this ``atexit`` entry be saved? Entries of the program are not tried. An entry of an installed package that cannot
    be saved is left out of the image and listed in the report.
    """
    failure = None if entry.caller in references.by_value else attempt(entry)
    if failure is not None:
        name = getattr(entry.func, "__qualname__", type(entry.func).__qualname__)
        package = entry.caller.partition(".")[0]
        references.changed.leave_out("unsaved", package, [f"{entry.caller}: atexit {name}"], str(failure))
    return failure is None


class Dump:
    """Writes one image: the pairs of the module's header, in this order."""

    def __init__(
        self, prepared: Prepared, sink: Sink, make_pickler: Callable[[Stream], ImagePickler]
    ) -> None:
        self.prepared = prepared
        self.make_pickler = make_pickler
        self.stream = Stream(sink)
        self.pickler = make_pickler(self.stream)
        self.sizes: list[tuple[int, str]] = []
        self.table = SizeTable()

    def run(self, early: dict[str, Any], late: dict[str, Any]) -> ImageReport:
        started_ns = time.perf_counter_ns()
        modules = self.prepared.references.by_value
        versions = current_versions(self.prepared.references.versions)
        header = {
            "format": FORMAT,
            "versions": versions,
            "modules": [(name, module.__name__) for name, module in modules.items()],
            "imported": self.prepared.references.imported(),
            "early": early,
            "changed": list(self.prepared.references.changed.changes),
        }
        found = self.prepared.references.lazy
        found.clear()
        self.pickler.dump(header)
        for name, module in modules.items():
            self._module(name, module)
        modules_ns = time.perf_counter_ns()
        description = self.save_stack()
        stack_ns = time.perf_counter_ns()
        for name, value in self.prepared.extras.items():
            self.emit(("extra", name), value)
        for name, value in late.items():
            self.emit(("late", name), value)
        frames = () if self.prepared.stack is None else self.prepared.stack.frames
        lazy.save(found, frames, lambda *variable: self.emit(("call",), (lazy.bind, variable)))
        self._calls()
        self.emit(("end",), None)
        self._packages()
        self.stream.flush()
        ended_ns = time.perf_counter_ns()
        self.sizes.sort(reverse=True)
        return ImageReport(
            stack=description,
            modules=list(modules),
            sizes=[{"where": where, "bytes": nbytes} for nbytes, where in self.sizes[:_LARGEST]],
            timings_ns={
                "prepare_ns": self.prepared.prepared_ns,
                "modules_ns": modules_ns - started_ns,
                "stack_ns": stack_ns - modules_ns,
                "rest_ns": ended_ns - stack_ns,
            },
            versions=versions,
            stream_bytes=self.stream.stream_bytes,
            buffer_bytes=self.stream.buffer_bytes,
            buffers=self.stream.buffers,
            variables=self.table.as_dict(),
            left_out=self.prepared.references.changed.left_out,
        )

    def _calls(self) -> None:
        deferred = self.pickler.deferred
        while deferred:
            self.emit(("call",), deferred.pop(0))

    def _packages(self) -> None:
        changed = self.prepared.references.changed
        for package, changes in changed.changes.items():
            try:
                for change in changes:
                    self.pickler.id_tables.note_change(change.path[0], change.value)
                self.emit(("package", package), [tuple(change) for change in changes])
                self._calls()
            except (
                Unpicklable
            ) as failure:  # although the trial succeeded: the stream ends here, and all else is in it
                changed.leave_out("unsaved", package, [change.where for change in changes], failure.reason)
                return
        self.emit(("end",), None)

    def _module(self, name: str, module: types.ModuleType) -> None:
        if type(module) is not types.ModuleType:
            self.pickler.defer(rebuild.set_module_class, module, type(module))
        for key, value in list(module.__dict__.items()):
            if key in ("__loader__", "__spec__"):
                loader = value.loader if isinstance(value, ModuleSpec) else value
                if type(loader) not in _LOADERS:
                    continue
            self.emit(("variable", name, key), value)

    def save_stack(self) -> list[dict[str, Any]]:
        """Write the frames and the stack; returns ``ImageReport.stack``."""
        stack = self.prepared.stack
        if stack is None:
            self.emit(("stack",), None)
            return []
        description = stack.describe()
        self.pickler.id_tables.note_frames(stack.frames)
        for index, record in enumerate(stack.frames):
            code = record.code
            names = local_names(code)
            if len(stack.frames) <= MOST_FRAMES:  # no sizes for a very deep recursion
                for name, value in zip(names, record.locals, strict=False):
                    if type(value) not in _ATOMS:
                        self.emit(("local", index, name), value)
            self.emit(("frame", index), record)
        self.emit(("stack",), stack)
        return description

    def emit(self, label: Label, value: object) -> None:
        """Write one pair. Raises :class:`Unpicklable` with the path to the object, and whatever the sink raises."""
        before = self.stream.total_bytes
        pickler = self.pickler
        try:
            pickler.dump(label)
            pickler.dump(value)
        except Exception as failure:
            if failure is self.stream.failure or isinstance(failure, Unpicklable):
                raise
            self._explain(label, value, failure)
        if len(label) > 1:
            nbytes = self.stream.total_bytes - before
            self.table.note(label, value, nbytes)
            if nbytes >= _SIZED_BYTES:
                self.sizes.append((nbytes, self.where(label)))

    def where(self, label: Label) -> str:
        """The label as a text for people."""
        match label:
            case ("variable", module, name):
                return f"module {module} variable {name!r}"
            case ("local", index, name):
                return f"{self._frame(index)} local {name!r}"
            case ("frame", index):
                return self._frame(index)
            case ("extra", name):
                return f"extra {name!r}"
            case ("late", name):
                return f"program state {name!r}"
            case ("package", name):
                return f"what has changed in package {name}"
        return str(label[0])

    def _frame(self, index: int) -> str:
        assert self.prepared.stack is not None
        record = self.prepared.stack.frames[index]
        return f"frame {index} ({record.code.co_qualname})"

    def _explain(self, label: Label, value: object, failure: Exception) -> None:
        """Raise :class:`Unpicklable` with the path to the object that cannot be saved."""

        def attempt(part: object) -> Exception | None:
            return failure_of(self.make_pickler(Stream(Nowhere())), part)

        where = self.where(label)
        if label[0] == "frame":
            path, reason = self._in_frame(label[1], attempt, failure)
        else:
            path, reason = diagnose.find(value, attempt, failure)
        raise Unpicklable(where + path, reason) from failure

    def _in_frame(
        self, index: int, attempt: Callable[[object], Exception | None], failure: Exception
    ) -> tuple[str, str]:
        for step, part in self.frame_parts(index):
            found = attempt(part)
            if found is not None:
                path, reason = diagnose.find(part, attempt, found)
                return step + path, reason
        return "", str(failure)

    def frame_parts(self, index: int) -> list[tuple[str, object]]:
        """``(name, object)`` of all objects in the record of a frame."""
        assert self.prepared.stack is not None
        record = self.prepared.stack.frames[index]
        return [
            *((f" local {n!r}", v) for n, v in zip(local_names(record.code), record.locals, strict=False)),
            *((f" operand {i}", v) for i, v in enumerate(record.stack)),
            (" exception being handled", record.exc),
            (" function", record.func),
            (" generator", record.gen),
            (" value", record.value),
        ]

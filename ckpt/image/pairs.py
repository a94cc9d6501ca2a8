"""The content of one image: the pairs that its stream consists of, in their order, and the class that writes them.

Stream
    An image is one pickle stream with one memo, so the identity of objects is kept across the whole image. The stream is a
    header and then a sequence of pairs *label, value*. Label and value are each a ``dump`` of their own, so that a failure,
    here and at load, can name the variable::

        header                          plain values: format, versions, names of modules, early state
        ("variable", module, name)      every variable of every by-value module, in order
        ("local", frame, name)          each local of a captured frame, before the record of the frame, which holds it too
        ("frame", index)                the frame record; those of other threads follow those of the main thread
        ("stack",)                      the stack, which refers to the frame records
        ("extra", name)                 the runtime's own state: engine, port state, registered objects
        ("late", name)                  late state (:mod:`ckpt.image.process.resources`)
        ("call",)                       (function, arguments): a call that is made when everything is loaded
        ("end",)                        the part that follows may fail at load; the restart goes on without it
        ("package", name)               changes in an installed package (:mod:`ckpt.image.modules.package_changes`)
        ("call",)                       as above
        ("end",)

    Behind all buffers of the stream comes one more: the names to which the objects refer (:mod:`ckpt.image.modules.names`).

Not here: what happens before and around that (:mod:`ckpt.image.dumping`); how an object is taken apart
(:mod:`ckpt.image.pickling.pickler`).
"""

from __future__ import annotations

import pickle
import sys
import time
import types
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, NamespaceLoader, SourceFileLoader, SourcelessFileLoader
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Unpicklable
from ckpt.image.modules import lazy
from ckpt.image.modules.references import References
from ckpt.image.modules.versions import FORMAT, current_versions
from ckpt.image.pickling import diagnose
from ckpt.image.pickling.pickler import DiscardingSink, ImagePickler, Sink, Stream, failure_of
from ckpt.image.pickling.sizes import MOST_FRAMES, SizeTable, local_names
from ckpt.image.process import resources
from ckpt.image.reducers import rebuild
from ckpt.transport.records import asdict, dataclass, field

if TYPE_CHECKING:
    from ckpt.image.frames.stack import FrameRecord, Stack
    from ckpt.image.ipc.socket_options import SocketState

__all__ = ["Dump", "ImageReport", "Label", "Prepared"]

_LARGEST = 20
_SIZED_BYTES = 1024
_ATOMS = frozenset({int, float, bool, str, type(None), complex})
_LOADERS = (SourceFileLoader, SourcelessFileLoader, NamespaceLoader, type(None))

Label = tuple[Any, ...]


@dataclass(slots=True)
class Prepared:
    """What :func:`ckpt.image.dumping.prepare` has recorded, with references to the program's live objects.

    Valid only for a fork right after it. ``extras``: name → object of the runtime. ``noted``: the record of
    :mod:`ckpt.image.process.moment`. ``own_lengths``: see :func:`ckpt.image.files.descriptors.own_lengths`. ``pid``: of the
    process that has prepared. ``forked``: the refusal of a child process of the program, if it has such a one.
    ``sockets``: descriptor → state of a socket of the program. ``prepared_ns``: how long that took.
    """

    stack: Stack | None
    extras: Mapping[str, object]
    noted: bytes
    own_lengths: dict[int, int]
    collector: resources.Collector
    references: References
    pid: int
    forked: Unpicklable | None
    sockets: Mapping[int, SocketState]
    prepared_ns: int

    @property
    def frames(self) -> list[FrameRecord]:
        """The frames of all threads, those of the main thread first, outermost first; none if there is no stack."""
        return [] if self.stack is None else self.stack.all_frames()


@dataclass(slots=True)
class ImageReport:
    """A summary of an image, which can be read without loading the image.

    ``stack``: file, line and function of each frame, outermost first. ``modules``: names of the by-value modules. ``sizes``:
    the 20 largest variables, ``{"where", "bytes"}``; an object counts for the first variable that holds it. ``variables``:
    the largest of each module and frame, see :class:`ckpt.image.pickling.sizes.SizeTable`. ``timings_ns``: of ``prepare``
    and of the parts of ``dump``. ``versions``: see :func:`ckpt.image.modules.versions.current_versions`. ``buffers``: number
    of out-of-band buffers. ``left_out``: see :class:`ckpt.image.modules.package_changes.Changed`. ``lengths``: in bytes, of
    the files of standard output and error that are the rank's own, by descriptor (1, 2); not part of :meth:`as_dict`.
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
    lengths: dict[int, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "lengths"}


class Dump:
    """Writes one image: the pairs of the module's header, in this order."""

    def __init__(
        self, prepared: Prepared, sink: Sink, make_pickler: Callable[[Stream], ImagePickler]
    ) -> None:
        self.prepared = prepared
        self.make_pickler = make_pickler
        self._sink = sink
        self.stream = Stream(sink)
        self.pickler = make_pickler(self.stream)
        self.records = prepared.frames
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
            "halted": [name for name, module in sys.modules.items() if module is None],
            "early": early,
            "changed": list(self.prepared.references.changed.changes),
            "has_names": True,
        }
        found = self.prepared.references.lazy
        found.clear()
        references = self.prepared.references
        references.is_header = True
        try:
            self.pickler.dump(header)
        finally:
            references.is_header = False
        for name, module in modules.items():
            self._write_module(name, module)
        modules_ns = time.perf_counter_ns()
        description = self.save_stack()
        stack_ns = time.perf_counter_ns()
        for name, value in self.prepared.extras.items():
            self.emit(("extra", name), value)
        for name, value in late.items():
            self.emit(("late", name), value)
        lazy.save(found, self.records, lambda *call: self.emit(("call",), call))
        self._write_calls()
        self.emit(("end",), None)
        names = self.pickler.names.as_bytes()  # not those of what follows, which may fail
        self._write_packages()
        self.stream.flush()
        self._sink.buffer(pickle.PickleBuffer(names))
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
            lengths=early["lengths"],
        )

    def _write_calls(self) -> None:
        deferred = self.pickler.deferred
        while deferred:
            self.emit(("call",), deferred.pop(0))

    def _write_packages(self) -> None:
        changed = self.prepared.references.changed
        for package, changes in changed.changes.items():
            try:
                for change in changes:
                    self.pickler.id_tables.note_change(package, change.value)
                self.emit(("package", package), [tuple(change) for change in changes])
                self._write_calls()
            except (
                Unpicklable
            ) as failure:  # although the trial succeeded: the stream ends here, and all else is in it
                changed.leave_out("unsaved", package, [change.where for change in changes], failure.reason)
                return
        self.emit(("end",), None)

    def _write_module(self, name: str, module: types.ModuleType) -> None:
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
        self.pickler.id_tables.note_frames(self.records)
        for index, record in enumerate(self.records):
            code = record.code
            names = local_names(code)
            if len(self.records) <= MOST_FRAMES:  # no sizes for a very deep recursion
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
        pickler.names.label = label
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
        name, at = f"({self.records[index].code.co_qualname})", index - len(self.prepared.stack.frames)
        if at < 0:
            return f"frame {index} {name}"
        for other in self.prepared.stack.threads:
            if at < len(other.stack.frames):
                return f"thread {other.thread.name!r} frame {at} {name}"
            at -= len(other.stack.frames)
        raise AssertionError("unreachable")

    def _explain(self, label: Label, value: object, failure: Exception) -> None:
        """Raise :class:`Unpicklable` with the path to the object that cannot be saved."""

        def attempt(part: object) -> Exception | None:
            return failure_of(self.make_pickler(Stream(DiscardingSink())), part)

        step = ""
        if label[0] == "frame":
            step, value, failure = self._in_frame(label[1], attempt, failure)
        path, reason = diagnose.find(value, attempt, failure)
        unpicklable = Unpicklable(self.where(label) + step + path, reason)
        if not path and self._is_of_running_function(label):
            unpicklable.held_type = id(type(value))
        raise unpicklable from failure

    def _in_frame(
        self, index: int, attempt: Callable[[object], Exception | None], failure: Exception
    ) -> tuple[str, object, Exception]:
        """Name and value of the first part of a frame that fails, and its failure."""
        for step, part in self.frame_parts(index):
            found = attempt(part)
            if found is not None:
                return step, part, found
        return "", None, failure

    def _is_of_running_function(self, label: Label) -> bool:
        """Is the pair of this label a variable of a running function, or of module-level code that runs?"""
        if label[0] != "variable":
            return label[0] in ("local", "frame")
        return any(r.func is None and (r.globals_ or {}).get("__name__") == label[1] for r in self.records)

    def frame_parts(self, index: int) -> list[tuple[str, object]]:
        """``(name, object)`` of all objects in the record of a frame."""
        record = self.records[index]
        return [
            *((f" local {n!r}", v) for n, v in zip(local_names(record.code), record.locals, strict=False)),
            *((f" operand {i}", v) for i, v in enumerate(record.stack)),
            (" exception being handled", record.exc),
            (" function", record.func),
            (" generator", record.gen),
            (" value", record.value),
        ]

"""The stream of an explicit image: plain pickles with classes and functions by name, so that any interpreter can read them.

::

    header      plain values: format, versions, clocks, place in the loops, lengths of the standard streams, has the program
                ended
    port        the port's state
                ↑ header and port are loaded when the rank starts
                ↓ the parts are loaded when the new run of the script has come to the saved place: a label, then its value
    ("mail", "")           messages and counters (:mod:`ckpt.replay.mailbox`)
    ("random", "")         state of the libraries' global generators of random numbers
    ("registered", name)   content of one registered object (:mod:`ckpt.replay.state`), for each of them

All parts are written by one pickler, one ``dump`` for each, so they share one memo: identity and sharing of objects hold
across all registered objects, and a failure is reported with the name of its part. A registered object inside a content is
a persistent id (its name). Instances of types given to :func:`ckpt.register_type` are saved by the registered functions.
Large buffers are written out of band (PEP 574).

Load authenticated images only: a pickle can run any code.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from ckpt.errors import StateError
from ckpt.image import ImageReport, Sink, Unpicklable
from ckpt.image.modules.versions import FORMAT, current_versions
from ckpt.image.pickling import diagnose
from ckpt.image.pickling.pickler import DiscardingSink, Stream, collector_off, failure_of, on_deep_stack
from ckpt.image.process import clocks

__all__ = ["Reader", "dump"]

_SIZED_BYTES = 1024
_LARGEST = 20
Label = tuple[str, str]
Reducers = Mapping[type, Callable[[Any], Any]]


class _Pickler(pickle.Pickler):
    def __init__(self, stream: Stream, names: Mapping[int, str], reducers: Reducers) -> None:
        super().__init__(stream, 5, buffer_callback=stream.buffer)
        self._names = names
        self._reducers = reducers

    def persistent_id(self, obj: Any) -> Any:
        return self._names.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        reducer = self._reducers.get(type(obj))
        return NotImplemented if reducer is None else reducer(obj)


class Reader(pickle.Unpickler):
    """Loads header, port and parts one after the other. ``registered``: the registered objects of this run, by name."""

    def __init__(self, stream: BinaryIO, buffers: Iterable[Any]) -> None:
        super().__init__(stream, buffers=buffers)
        self.registered: Mapping[str, object] = {}

    def persistent_load(self, pid: str) -> object:
        return self.registered[pid]

    def rest(self) -> Iterable[tuple[Label, Any]]:
        """Label and value of every part until the end. Raises StateError that names what cannot be loaded."""
        while True:
            label = self.load()
            if label is None:
                return
            try:
                yield label, self.load()
            except Exception as failure:
                raise StateError(
                    f"{_where(label)} cannot be loaded: {type(failure).__name__}: {failure}"
                ) from failure


def dump(
    sink: Sink,
    *,
    header: Mapping[str, Any],
    port: object,
    parts: Iterable[tuple[Label, Callable[[], object]]],
    names: Mapping[int, str],
    reducers: Reducers,
    stack: list[dict[str, Any]],
) -> ImageReport:
    """Write the whole stream to ``sink``. Raises Unpicklable; exceptions of ``sink`` pass through.

    ``parts``: label, and a function that returns the value. ``names``: the name of each registered object, by its ``id()``.
    ``reducers``: by type. ``stack``: a description of the program's frames, for the report only.
    """
    started_ns = time.perf_counter_ns()
    versions = current_versions()
    stream = Stream(sink)
    sizes: list[tuple[int, str]] = []

    def work() -> None:
        pickler = _Pickler(stream, names, reducers)
        pickler.dump({"format": FORMAT, "versions": versions, "clocks": clocks.note(), **header})
        pickler.dump(port)
        for label, value_of in parts:
            before = stream.total_bytes
            value: object = None
            try:
                value = value_of()
                pickler.dump(label)
                pickler.dump(value)
            except Exception as failure:
                if failure is stream.failure:
                    raise
                _explain(label, value, failure, names, reducers)
            sizes.append((stream.total_bytes - before, _where(label)))
        pickler.dump(None)
        stream.flush()

    with collector_off():
        on_deep_stack(work)
    sizes.sort(reverse=True)
    return ImageReport(
        stack=stack,
        modules=[],
        sizes=[{"where": where, "bytes": n} for n, where in sizes[:_LARGEST] if n >= _SIZED_BYTES],
        timings_ns={"registered_ns": time.perf_counter_ns() - started_ns},
        versions=versions,
        stream_bytes=stream.stream_bytes,
        buffer_bytes=stream.buffer_bytes,
        buffers=stream.buffers,
        lengths=header["lengths"],
    )


def _where(label: Label) -> str:
    return f"registered {label[1]!r}" if label[0] == "registered" else f"program state {label[0]!r}"


def _explain(
    label: Label, value: object, failure: Exception, names: Mapping[int, str], reducers: Reducers
) -> None:
    """Raise Unpicklable with the path to the object that cannot be pickled."""

    def attempt(part: object) -> Exception | None:
        return failure_of(_Pickler(Stream(DiscardingSink()), names, reducers), part)

    content = value[1] if label[0] == "registered" and isinstance(value, tuple) else value
    path, reason = diagnose.find(content, attempt, failure)
    raise Unpicklable(_where(label) + path, reason) from failure

"""The pickler of images: C's ``pickle.Pickler`` with three hooks.

``persistent_id``
    a lookup by address: modules, objects of by-reference modules, live objects (:mod:`ckpt.image.modules.references`);
    containers that need care (:mod:`ckpt.image.pickling.containers`); numbers that are addresses
    (:mod:`ckpt.image.lowlevel.addresses`). Called for every object, so it is C.
``reducer_override``
    one dictionary lookup per object of no builtin container type; the reducer for a class is chosen once
    (:func:`ImagePickler.kind_of`). Plain instances go back to C at once.
``buffer_callback``
    large buffers leave out of band, uncopied; small ones stay inside.

Deep structures
    C recurses for every level of nesting, so images are pickled on a large C stack (:func:`on_deep_stack`), in
    the same thread, with the recursion limit raised.

Nothing is mutated, and nothing but C code and this package runs, with these exceptions: ``__reduce_ex__`` of
classes of installed packages, and of C types; in a forked child also objects that can only be understood by
using them up (:attr:`ImagePickler.is_disposable`).

:class:`ImageUnpickler` is the counterpart.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol, TypeVar

from ckpt.image.frames import _frames
from ckpt.image.frames.call_paths import CachedCall
from ckpt.image.libraries import numpy_arrays, registry, torch_tensors
from ckpt.image.lowlevel import _deep
from ckpt.image.modules import held_locks, package_restore
from ckpt.image.modules.definitions import Definitions
from ckpt.image.modules.references import References, resolve
from ckpt.image.pickling.containers import Content, Filler
from ckpt.image.reducers import builtin_types, by_value, iterators, type_parameters
from ckpt.image.reducers.by_value import PLAIN
from ckpt.image.reducers.saver import Reducer
from ckpt.image.stdlib import c_objects
from ckpt.image.stdlib.finalizers import Finalizers, reduce_finalizers, register_finalizers

__all__ = [
    "Enough",
    "ImagePickler",
    "ImageUnpickler",
    "Nowhere",
    "Sink",
    "Stream",
    "failure_of",
    "on_deep_stack",
    "register_reducer",
]

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

_PROTOCOL = 5
_IN_BAND_BYTES = 64 * 1024
_CHUNK_BYTES = 1 << 20
_STACK_BYTES = (1 << 30, 1 << 28, 1 << 26)
_STACK_BYTES_PER_LEVEL = 1024


class Sink(Protocol):
    """Where an image goes."""

    def write(self, data: bytes | memoryview) -> None:
        """The next piece of the pickle stream."""

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        """The next out-of-band buffer; unchanged until the sink is finished."""


class Enough(Exception):  # no error
    """More need not be written."""


class Nowhere:
    """A sink that keeps nothing; raises :class:`Enough` when it has got more than ``most_bytes``."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._left_bytes = most_bytes

    def write(self, data: bytes | memoryview) -> None:
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise Enough

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        pass


def failure_of(pickler: pickle.Pickler, obj: object) -> Exception | None:
    """What saving an object ends in; ``None``: it can be saved. For picklers that write into :class:`Nowhere`."""
    try:
        pickler.dump(obj)
    except Enough:
        return None
    except Exception as failure:  # the very thing that is asked for
        return failure
    return None


class Stream:
    """Collects what the pickler writes into pieces of a megabyte, and counts bytes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pending = bytearray()
        self.stream_bytes = 0
        self.buffer_bytes = 0
        self.buffers = 0
        self.failure: BaseException | None = None  # of the sink itself, not of an object

    @property
    def total_bytes(self) -> int:
        """Bytes so far, in and out of band."""
        return self.stream_bytes + self.buffer_bytes

    def write(self, data: Buffer) -> None:
        self.stream_bytes += len(data)
        if len(data) >= _CHUNK_BYTES:
            self.flush()
            self._hand(data if isinstance(data, bytes) else memoryview(data))
            return
        self._pending += data
        if len(self._pending) >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            self._hand(bytes(pending))

    def _hand(self, data: bytes | memoryview) -> None:
        try:
            self._sink.write(data)
        except BaseException as failure:
            self.failure = failure
            raise

    def buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """``buffer_callback``: true keeps the buffer inside the stream."""
        nbytes = buffer.raw().nbytes
        if nbytes < _IN_BAND_BYTES:
            return True
        self.buffer_bytes += nbytes
        self.buffers += 1
        try:
            self._sink.buffer(buffer)
        except BaseException as failure:
            self.failure = failure
            raise
        return False


_registered: dict[type, Reducer] = {}


def register_reducer(cls: type, reducer: Reducer) -> None:
    """Save instances of exactly ``cls`` by ``reducer``, before any rule of this package."""
    _registered[cls] = reducer


class ImagePickler(pickle.Pickler):
    """Pickles any number of objects into one stream with one memo; see the module's theory of operation.

    ``is_disposable``: this process is a forked child, whose objects may be used up to see what is in them.
    ``roots``: what the program reaches its objects from, for numbers that are addresses.
    ``rehearsal``: another one like this, that writes into nothing.
    ``is_raw``: classes of installed packages with a ``__reduce__`` → are instances, also of their subclasses, saved
    past it?
    ``running``: ids of the objects of which a method is on the captured stack.
    ``cached_calls``: the calls of caches on it that will be made again.
    ``deferred``: ``(callable, arguments)`` to be pickled last, and called when everything has been loaded.
    ``owned``: descriptors of what libraries have opened, and open again: numbers, or device and inode of the file.
    ``shared``: what several reducers of :mod:`ckpt.ready` have in common, by a key of theirs.
    """

    def __init__(
        self,
        stream: Stream,
        references: References,
        *,
        live: Mapping[str, object] | None = None,
        is_disposable: bool = False,
        extra_reducers: Mapping[type, Reducer] | None = None,
        roots: Sequence[object] = (),
        rehearsal: Callable[[], ImagePickler] | None = None,
    ) -> None:
        self.references = references
        self.definitions = Definitions(references)
        self.is_disposable = is_disposable
        self.main_thread_id = threading.main_thread().ident
        self.running_generators: list[Any] | None = None
        self.running: set[int] = set()
        self.cached_calls: list[CachedCall] = []
        self.is_raw: dict[type, bool] = {}
        self._rehearsal = rehearsal
        self.slots: dict[type, list[tuple[type, str, Any]]] = {}
        self.deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.owned: set[object] = set()
        self.shared: dict[object, Any] = {}
        self.memory: dict[int, Any] = {}  # address -> array or storage of a tensor that was met there first
        self._kinds: dict[type, Reducer] = {
            **by_value.REDUCERS,
            **builtin_types.REDUCERS,
            **iterators.REDUCERS,
            **c_objects.REDUCERS,
            **type_parameters.REDUCERS,
            **c_objects.when_imported(),
            Finalizers: reduce_finalizers,
            **numpy_arrays.reducers(),
            **torch_tensors.reducers(),
            **registry.reducers(),
            **(extra_reducers or {}),
            **_registered,
        }
        if Finalizers.are_there():
            self.defer(register_finalizers, Finalizers())
        self.persistent_id = references.finder(live or {}, Content(), roots)  # type: ignore[method-assign]
        super().__init__(stream, _PROTOCOL, buffer_callback=stream.buffer)

    def reducer_override(
        self, obj: Any, _getrefcount: Callable[[Any], int] = sys.getrefcount, _PLAIN: Reducer = PLAIN
    ) -> Any:
        cls = type(obj)
        try:
            kind = self._kinds[cls]
        except KeyError:
            kind = self.kind_of(cls)
        if kind is _PLAIN:
            attributes = obj.__dict__
            # the instance, this variable and the argument are three; more: the dictionary is shared
            return NotImplemented if _getrefcount(attributes) <= 3 else kind(self, obj)
        return kind(self, obj)

    def kind_of(self, cls: type) -> Reducer:
        """The reducer for objects of exactly this type; chosen once per pickler."""
        kind: Reducer | None
        if issubclass(cls, type):
            kind = by_value.reduce_class
        else:
            kind = (
                builtin_types.kind_by_base(cls)
                or self._kind_in_library(cls)
                or by_value.kind_of_instance(self, cls)
            )
        self._kinds[cls] = kind
        return kind

    def settle(self, cls: type, kind: Reducer) -> None:
        """From now on, instances of exactly this type are saved by ``kind``."""
        self._kinds[cls] = kind

    def can_be_raw(self, obj: object, author: type) -> bool:
        """Can it be saved past the ``__reduce__`` of that class, with all that is in it? Tried, for the first megabytes."""
        if self._rehearsal is None:
            return False
        other = self._rehearsal()
        other.is_raw[author] = True
        return failure_of(other, obj) is None

    @staticmethod
    def _kind_in_library(cls: type) -> Reducer | None:
        found: Reducer | None = numpy_arrays.kind_by_base(cls) or torch_tensors.kind_by_base(cls)
        return found or c_objects.kind_by_base(cls)

    def copy_of_memo(self) -> dict[int, tuple[int, Any]]:
        return self.memo.copy()

    def defer(self, function: Callable[..., object], *args: Any) -> None:
        self.deferred.append((function, args))


class ImageUnpickler(pickle.Unpickler):
    """Loads what :class:`ImagePickler` wrote. Only for authenticated images: an image is code."""

    def __init__(self, stream: BinaryIO, buffers: Iterable[Buffer], live: Mapping[str, object]) -> None:
        super().__init__(stream, buffers=buffers)
        self._live = live
        self._filler = Filler()
        self._locks = held_locks.Finder()

    def persistent_load(self, pid: tuple[Any, ...]) -> object:
        if pid[0] == "fill" or pid[0] == "again":
            return self._filler.load(pid)
        if pid[0] == "address":
            return id(pid[1])
        if pid[0] == "lib":
            return package_restore.resolve(pid[1:])
        if pid[0] == "held":
            return self._locks.find(pid)
        return resolve(pid, self._live)

    def finish(self) -> None:
        """Everything has been loaded."""
        iterators.finish(self._filler.finish())


# ---------------------------------------------------------------------- the large stack


def on_deep_stack(work: Callable[[], T]) -> T:
    """``work()`` on a large C stack, with a recursion limit to match.

    Signals stay blocked meanwhile, so that no handler of the program runs in between.
    """
    limit = sys.getrecursionlimit()
    for stack_bytes in _STACK_BYTES:
        try:
            with _signals_blocked():
                sys.setrecursionlimit(max(limit, stack_bytes // _STACK_BYTES_PER_LEVEL))
                started: list[bool] = []

                def run(started: list[bool] = started, stack_bytes: int = stack_bytes) -> T:
                    started.append(True)
                    allowed = _frames.allow_c_depth(stack_bytes // _STACK_BYTES_PER_LEVEL)
                    try:
                        return work()
                    finally:
                        _frames.allow_c_depth(allowed)

                return _deep.call(run, stack_bytes)
        except MemoryError:
            if started or stack_bytes == _STACK_BYTES[-1]:
                raise
        finally:
            sys.setrecursionlimit(limit)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""The pickler of images: C's ``pickle.Pickler`` with three hooks.

``persistent_id``
    A lookup by address: modules, objects of by-reference modules, live objects (:mod:`ckpt.image.modules.references`);
    containers that pickle cannot restore exactly (:mod:`ckpt.image.pickling.containers`). Interned strings are their own
    persistent ids. It also finds tables by ``id()`` (:mod:`ckpt.image.pickling.id_tables`). It is called for every object,
    so it is written in C.
``reducer_override``
    One dictionary lookup per object that is of no builtin container type. The reducer for a class is chosen once
    (:meth:`ImagePickler.reducer_of`). Plain instances go back to the C pickler at once.
``buffer_callback``
    Large buffers are written out of band (PEP 574), without a copy; small ones stay in the stream.

Deep structures
    The C pickler recurses for every level of nesting, so images are pickled on a large C stack (:func:`on_deep_stack`), in
    the same thread, with the recursion limit raised.

Rules
    No object of the program is changed, and only C code and this package run, with two exceptions: ``__reduce_ex__`` of
    classes of installed packages and of C types; and, in a forked child, objects whose state is found only by using them up
    (:attr:`ImagePickler.is_disposable`), such as some iterators.

The counterpart is :mod:`ckpt.image.pickling.unpickler`. Not here: how each type is taken apart (:mod:`ckpt.image.reducers`).
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ckpt.image.errors import without_frames
from ckpt.image.frames import _frames
from ckpt.image.frames._frames import NULL
from ckpt.image.frames.suspended import CachedCall
from ckpt.image.interface.library import Library
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel import _deep
from ckpt.image.modules.definitions import Definitions
from ckpt.image.modules.references import References
from ckpt.image.pickling.containers import Content
from ckpt.image.pickling.id_tables import Batch, IdTables, reduce_batch
from ckpt.image.reducers import builtin_types, by_value, iterators, type_parameters
from ckpt.image.reducers.by_value import reduce_simple_instance
from ckpt.image.reducers.saver import NamesUsed, Reducer
from ckpt.image.stdlib import c_objects
from ckpt.image.stdlib.finalizers import Finalizers, reduce_finalizers, register_finalizers

__all__ = [
    "EnoughWritten",
    "ImagePickler",
    "DiscardingSink",
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
    """The destination of an image. An exception that a sink raises ends the dump and is not changed."""

    def write(self, data: bytes | memoryview) -> None:
        """Take the next piece of the pickle stream."""

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        """Take the next out-of-band buffer. Its memory does not change before the sink has finished."""


class EnoughWritten(Exception):  # no error
    """Raised by :class:`DiscardingSink` to end a trial: the object can be pickled as far as the trial needs to know."""


class DiscardingSink:
    """A sink that keeps nothing. Raises :class:`EnoughWritten` after more than ``most_bytes`` bytes (None: never)."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._left_bytes = most_bytes

    def write(self, data: bytes | memoryview) -> None:
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise EnoughWritten

    def buffer(self, buffer: pickle.PickleBuffer) -> None:
        pass


def failure_of(pickler: pickle.Pickler, obj: object) -> Exception | None:
    """Try to save an object; ``pickler`` must write into :class:`DiscardingSink`. Returns the exception, without a
    traceback, which would keep ``obj`` alive; ``None``: the object can be saved."""
    outer = sys.exception()
    try:
        with contextlib.suppress(EnoughWritten):
            pickler.dump(obj)
    except Exception as failure:  # any failure is the result
        return without_frames(failure, outer)
    return None


class Stream:
    """The file that the pickler writes to: hands the bytes to the sink in pieces of about one MiB, and counts them.

    ``failure``: an exception that the sink has raised, to tell it from a failure to pickle an object.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pending = bytearray()
        self.stream_bytes = 0
        self.buffer_bytes = 0
        self.buffers = 0
        self.failure: BaseException | None = None  # of the sink itself, not of an object

    @property
    def total_bytes(self) -> int:
        """Number of bytes so far, in and out of band."""
        return self.stream_bytes + self.buffer_bytes

    def write(self, data: Buffer) -> None:
        self.stream_bytes += len(data)
        if len(data) >= _CHUNK_BYTES:
            self.flush()
            self._pass_on(data if isinstance(data, bytes) else memoryview(data))
            return
        self._pending += data
        if len(self._pending) >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            self._pass_on(bytes(pending))

    def _pass_on(self, data: bytes | memoryview) -> None:
        try:
            self._sink.write(data)
        except BaseException as failure:
            self.failure = failure
            raise

    def buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """The ``buffer_callback`` of :class:`pickle.Pickler`: True keeps the buffer inside the stream."""
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
    """Save instances of exactly the type ``cls`` with ``reducer``; this has precedence over all rules of this package."""
    _registered[cls] = reducer


class ImagePickler(pickle.Pickler):
    """Pickles any number of objects into one stream with one memo; see the module's header.

    ``is_disposable``: this process is a forked child, whose objects may be used up to find their state.
    ``id_tables``: the tables of which the keys become the new addresses of the objects.
    ``rehearsal``: makes another pickler like this, which writes into :class:`DiscardingSink`, for trials.
    ``is_raw``: class of an installed package with a ``__reduce__`` → are its instances, and those of subclasses, saved raw
    (:mod:`ckpt.image.reducers.raw_instances`), without calling that ``__reduce__``?
    ``has_restart_hooks``: the program has ``ckpt.on_restart`` functions, which may put back what no image has.
    ``running``: ids of the objects of which a method is on the captured stack.
    ``cached_calls``: calls through caches (``functools.lru_cache``) on the captured stack; a restart makes them again.
    ``stepping_tasks``: tasks of asyncio, in C, whose step is on the captured stack; a restart begins the step again.
    ``deferred``: ``(callable, arguments)`` to be pickled last, and called when everything has been loaded.
    ``owned``: files that libraries have opened, and open again at load, each by descriptor or by (device, inode).
    ``shared``: objects that several reducers of one library share (:mod:`ckpt.ready`), by a key that they choose.
    """

    def __init__(
        self,
        stream: Stream,
        references: References,
        *,
        live: Mapping[str, object] | None = None,
        is_disposable: bool = False,
        extra_reducers: Mapping[type, Reducer] | None = None,
        rehearsal: Callable[[], ImagePickler] | None = None,
    ) -> None:
        self.references, self.names = references, NamesUsed()
        self.definitions = Definitions(references)
        self.is_disposable = is_disposable
        self.has_restart_hooks = False
        self.main_thread_id = threading.main_thread().ident
        self.threads: Mapping[int, tuple[threading.Thread, Any]] = {}
        self.running_generators: list[Any] | None = None
        self.running: set[int] = set()
        self.cached_calls: list[CachedCall] = []
        self.stepping_tasks: list[Any] = []
        self.is_raw: dict[type, bool] = {}
        self._rehearsal = rehearsal
        self.slots: dict[type, list[tuple[type, str, Any]]] = {}
        self.deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.owned: set[object] = set()
        self.shared: dict[object, Any] = {}
        self.memory: dict[int, Any] = {}  # address -> the first array, or storage of a tensor, met at it
        self._reducers: dict[type, Reducer] = {
            **by_value.REDUCERS,
            **builtin_types.REDUCERS,
            **iterators.REDUCERS,
            **c_objects.REDUCERS,
            **type_parameters.REDUCERS,
            Finalizers: reduce_finalizers,
            Batch: reduce_batch,
            **libraries.reducers(),
            **(extra_reducers or {}),
            **_registered,
        }
        if Finalizers.are_there():
            self.defer(register_finalizers, Finalizers())
        special = Content()
        self.id_tables = IdTables(self, special)
        find = references.finder(live or {}, special, self.id_tables.note, self.names.note_reference)
        self.persistent_id = self.watched(find)  # type: ignore[method-assign]
        super().__init__(stream, _PROTOCOL, buffer_callback=stream.buffer)

    def reducer_override(
        self,
        obj: Any,
        _getrefcount: Callable[[Any], int] = sys.getrefcount,
        _simple: Reducer = reduce_simple_instance,
    ) -> Any:
        cls = type(obj)
        try:
            reducer = self._reducers[cls]
        except KeyError:
            reducer = self.reducer_of(cls)
        if reducer is _simple:
            attributes = obj.__dict__
            # Three references are the instance, this variable and the argument; with more, the dictionary is shared.
            return NotImplemented if _getrefcount(attributes) <= 3 else reducer(self, obj)
        return reducer(self, obj)

    def watched(self, find: Callable[[object], Any]) -> Callable[[object], Any]:
        """The function to be used as ``persistent_id``: ``find`` itself. A trial returns one that also inspects the
        objects."""
        return find

    def reducer_of(self, cls: type) -> Reducer:
        """Choose the reducer for objects of exactly this type; called once per type and pickler."""
        reducer: Reducer | None
        if issubclass(cls, type):
            reducer = by_value.reduce_class
        else:
            reducer = (
                builtin_types.reducer_by_family(cls)
                or self._library_reducer(cls)
                or by_value.reducer_of_instance(self, cls)
            )
            if self.references.is_user_type(cls) and _frames.lookup(cls, "__del__") is not NULL:
                reducer = by_value.made_once(reducer)
        self._reducers[cls] = reducer = self.id_tables.noting(cls, reducer)
        return reducer

    def use_reducer(self, cls: type, reducer: Reducer) -> None:
        """From now on, save instances of exactly this type with ``reducer``."""
        self._reducers[cls] = self.id_tables.noting(cls, reducer)

    def can_be_raw(self, obj: object, author: type) -> bool:
        """Can the object, with all that it refers to, be saved raw, without the ``__reduce__`` of the class ``author``? A
        trial tells, which ends after the first megabytes.
        """
        if self._rehearsal is None:
            return False
        other = self._rehearsal()
        other.is_raw[author] = True
        return failure_of(other, obj) is None

    @staticmethod
    def _library_reducer(cls: type) -> Reducer | None:
        for reducer_by_base in libraries.implementations(Library.reducer_by_base):
            found: Reducer | None = reducer_by_base(cls)
            if found is not None:
                return found
        return None

    def copy_of_memo(self) -> dict[int, tuple[int, Any]]:
        """Id of each object saved so far → (its number in the memo, the object)."""
        return self.memo.copy()

    def forget(self) -> None:
        """Let go of all objects of the program. The pickler, which refers to itself, would keep them alive until the garbage
        collector runs, and exports of memory with them (``mmap.close`` would fail)."""
        self.clear_memo()
        self.persistent_id = _nothing  # type: ignore[method-assign]
        for kept in (self.shared, self.memory, self.deferred, self.cached_calls, self.stepping_tasks):
            kept.clear()

    def defer(self, function: Callable[..., object], *args: Any) -> None:
        """Pickle the call ``function(*args)`` last; it is made when everything has been loaded."""
        self.deferred.append((function, args))


def _nothing(obj: object) -> None:
    """A ``persistent_id`` that finds nothing."""


# ---------------------------------------------------------------------- the large stack


def on_deep_stack(work: Callable[[], T]) -> T:
    """Call ``work()`` on a large C stack, with a recursion limit that fits it. Tries smaller stacks if there is no memory.

    Signals are blocked meanwhile, so that no handler of the program runs. Raises what ``work`` raises, and MemoryError.
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
    """A context in which the garbage collector does not run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

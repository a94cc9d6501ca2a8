"""The pickler of images: C's ``pickle.Pickler`` with three hooks.

``persistent_id``
    a lookup by address: modules, objects of by-reference modules, live objects (:mod:`ckpt.image.modules`), and
    containers that need care (:mod:`ckpt.image.containers`). Called for every object, so it is C.
``reducer_override``
    one dictionary lookup per object of no builtin container type; the reducer for a class is chosen once
    (:func:`ImagePickler.kind_of`). Plain instances go back to C at once.
``buffer_callback``
    large buffers leave out of band, uncopied; small ones stay inside.

Deep structures
    C recurses for every level of nesting, so images are pickled on a thread with a large stack
    (:func:`on_deep_stack`) while the calling thread waits, answering the few questions that only it can (the
    values of a ``threading.local``). The thread is started below :mod:`threading`: nothing of the program
    sees it. The recursion limit is raised meanwhile.

Nothing is mutated, and nothing but C code and this package runs, with these exceptions: ``__reduce_ex__`` of
classes of installed packages, and of C types; in a forked child also objects that can only be understood by
using them up (:attr:`ImagePickler.is_disposable`).

:class:`ImageUnpickler` is the counterpart.
"""

from __future__ import annotations

import _thread
import contextlib
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol, TypeVar

from ckpt.image import arrays, reducers, reducers_builtin
from ckpt.image.containers import Content, Filler
from ckpt.image.modules import References, resolve
from ckpt.image.reducers import PLAIN, Reducer

__all__ = ["ImagePickler", "ImageUnpickler", "Sink", "Stream", "on_deep_stack", "register_reducer"]

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
    ``deferred``: ``(callable, arguments)`` to be pickled last, and called when everything has been loaded.
    """

    def __init__(
        self,
        stream: Stream,
        references: References,
        *,
        live: Mapping[str, object] | None = None,
        is_disposable: bool = False,
        on_main_thread: Callable[[Callable[[], Any]], Any] | None = None,
        extra_reducers: Mapping[type, Reducer] | None = None,
    ) -> None:
        self.references = references
        self.is_disposable = is_disposable
        self.main_thread_id = threading.main_thread().ident
        self.on_main_thread = on_main_thread or _call
        self.running_generators: list[Any] | None = None
        self.slots: dict[type, list[tuple[type, str, Any]]] = {}
        self.deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._kinds: dict[type, Reducer] = {
            **reducers.REDUCERS,
            **reducers_builtin.REDUCERS,
            **arrays.reducers(),
            **(extra_reducers or {}),
            **_registered,
        }
        self.persistent_id = references.finder(live or {}, Content())  # type: ignore[method-assign]
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
            kind = reducers.reduce_class
        else:
            kind = reducers_builtin.kind_by_base(cls) or reducers.kind_of_instance(self, cls)
        self._kinds[cls] = kind
        return kind

    def defer(self, function: Callable[..., object], *args: Any) -> None:
        self.deferred.append((function, args))


class ImageUnpickler(pickle.Unpickler):
    """Loads what :class:`ImagePickler` wrote. Only for authenticated images: an image is code."""

    def __init__(self, stream: BinaryIO, buffers: Iterable[Buffer], live: Mapping[str, object]) -> None:
        super().__init__(stream, buffers=buffers)
        self._live = live
        self._filler = Filler()

    def persistent_load(self, pid: tuple[Any, ...]) -> object:
        if pid[0] == "fill" or pid[0] == "again":
            return self._filler.load(pid)
        return resolve(pid, self._live)

    def finish(self) -> None:
        """Everything has been loaded."""
        self._filler.finish()


# ---------------------------------------------------------------------- the large stack


def _call(function: Callable[[], T]) -> T:
    return function()


class _Exchange:
    """The result of the deep thread, and the questions it puts to the calling thread."""

    def __init__(self) -> None:
        self.wake = _thread.allocate_lock()
        self.answered = _thread.allocate_lock()
        self.wake.acquire()
        self.answered.acquire()
        self.question: Callable[[], Any] | None = None
        self.answer: Any = None
        self.done = False
        self.result: Any = None
        self.failure: BaseException | None = None

    def ask(self, function: Callable[[], Any]) -> Any:
        """Called by the deep thread."""
        self.question = function
        self.wake.release()
        self.answered.acquire()
        return self.answer

    def serve(self) -> None:
        """Called by the calling thread until the work is done."""
        while True:
            self.wake.acquire()
            if self.done:
                return
            assert self.question is not None
            self.answer = self.question()
            self.answered.release()


def on_deep_stack(work: Callable[[Callable[[Callable[[], Any]], Any]], T]) -> T:
    """``work(on_main_thread)`` on a thread with a large C stack and a recursion limit to match.

    Signals stay blocked meanwhile, so that no handler of the program runs in between.
    """
    exchange = _Exchange()
    limit = sys.getrecursionlimit()

    def run() -> None:
        try:
            exchange.result = work(exchange.ask)
        except BaseException as failure:
            # handed to the calling thread, which raises it
            exchange.failure = failure
        exchange.done = True
        exchange.wake.release()

    with _signals_blocked():
        stack_bytes = _start(run)
        try:
            sys.setrecursionlimit(max(limit, stack_bytes // _STACK_BYTES_PER_LEVEL))
            exchange.serve()
        finally:
            sys.setrecursionlimit(limit)
    if exchange.failure is not None:
        raise exchange.failure
    result: T = exchange.result
    return result


def _start(run: Callable[[], None]) -> int:
    """Start the thread with the largest stack there is memory for; the size in bytes."""
    gate = _thread.allocate_lock()
    gate.acquire()

    def gated() -> None:
        gate.acquire()
        run()

    before = _thread.stack_size()
    try:
        for stack_bytes in _STACK_BYTES:
            try:
                _thread.stack_size(stack_bytes)
                _thread.start_new_thread(gated, ())
            except (RuntimeError, ValueError):
                if stack_bytes == _STACK_BYTES[-1]:
                    raise
                continue
            gate.release()
            return stack_bytes
    finally:
        _thread.stack_size(before)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

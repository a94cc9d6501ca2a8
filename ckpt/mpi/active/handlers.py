"""The handlers of one rank: who calls them, under which lock, and what happens to their exceptions.

    who makes progress            the main thread inside of a library call, or the helper thread while the program computes;
                                  both hold the lock, and hand messages and deaths to `on_message` and `on_failed`
    the lock                      the engine's. A message is taken and its handler called under one hold of it, and the main
                                  thread takes images under it: an image has both or neither
    while a handler runs          `owner` is the thread that runs it. `Engine.lock` and `Engine.guard` are the `Guard`, which
                                  refuses that thread, and lets other threads wait for the lock itself. `send` of a channel
                                  sees that the lock is held already
    while the program holds the   the same: `owner` is the program's thread. What a message to itself brings meanwhile is
    lock (`Section`)              called when it lets go
    a handler raises              the exception is kept in `failures`, part of the image, and the next handler is called. The
                                  guard stays in place until the program's calls have raised them, one each
    a channel is made             it starts with the program's next call, so that what the handlers refer to is there: the
                                  constructor has returned. Until then the guard is in place
    a thread posts                appended without the lock; called by whoever has it, or by the thread itself when it is
                                  free. The thread waits at a lock of its own, so that an image may be taken meanwhile
    after a restart               nothing is called before the hooks of `ckpt.on_restart`: until `resume`, calls are listed

The guard is in place only for so long, so that no message of a program without handlers takes a longer way, and hardly one
of a program with handlers. What the fast paths do without the lock (engine/quick.py) touches nothing that a handler can:
`recv` pops messages of other kinds in the program's thread, `send` tests that the lock is free.

Not here: which handler is next (table.py).
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from ckpt.compat.threads import captured_in_threads
from ckpt.errors import NotInHandler
from ckpt.mpi.active.table import Call, End, Member, Table
from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_COMM, MpiException
from ckpt.mpi.base.handlers import NoHandlers
from ckpt.mpi.base.progress import Buffer, Lock
from ckpt.mpi.engine.engine import Engine

__all__ = ["Guard", "HandlersOfRank", "Section", "handlers_of"]

_POST_S = (
    0.005  # so long until the thread that has posted looks at the lock again: its holder may have let go
)


def handlers_of(engine: Engine) -> HandlersOfRank:
    """The handlers of an engine, made on first use. The lock is held."""
    former = engine.handlers
    if isinstance(former, HandlersOfRank):
        return former
    assert isinstance(former, NoHandlers)
    engine.handlers = made = HandlersOfRank(engine)
    for src, data in former.early:
        made.on_message(src, data)
    return made


class HandlersOfRank:
    """The handlers of one rank. The caller of a method holds the lock, unless it says otherwise."""

    __slots__ = ("_depth", "engine", "failures", "guard", "is_open", "kept_out", "owner", "posted", "table")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.table = Table(engine.failed_ranks.order)
        self.failures: deque[BaseException] = deque()
        """What handlers have raised, and the program's calls have not."""
        self.guard = Guard(self)
        self.posted: deque[tuple[Member, Any, threading.Lock]] = deque()
        """What threads have posted: their channels, the objects, and locks that are released when the handler was called.
        Appended to without the lock."""
        self.kept_out: list[threading.Thread] = []
        """Threads whose calls are refused, as often as they were named. Replaced, never changed: read without the lock."""
        self.owner: int | None = None
        """The thread that runs a handler, or holds the lock as a `Section`."""
        self.is_open = True
        """Whether handlers are called; if not, calls are listed."""
        self._depth = 0
        """How often `owner` has the lock: once for the handler that it runs, once for each `Section`."""

    def __getstate__(self) -> tuple[Any, ...]:
        return self.engine, self.table, self.failures, self.guard, self.posted, self.kept_out

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.engine, self.table, self.failures, self.guard, self.posted, self.kept_out = state
        self.owner = None
        self.is_open = False
        self._depth = 0

    @property
    def lock(self) -> Lock:
        """The engine's lock itself."""
        return self.engine.progress.lock

    def is_mine(self) -> bool:
        """Whether the calling thread runs a handler or holds the lock as a `Section`. Called without the lock, too."""
        return self.owner is not None and self.owner == threading.get_ident()

    @property
    def in_use(self) -> bool:
        """See ckpt.mpi.base.handlers.Handlers."""
        return self.table.in_use

    # -- what arrives ------------------------------------------------------------------------------

    def on_message(self, src: int, data: Buffer) -> None:
        """See ckpt.mpi.base.handlers.Handlers."""
        _, rank, what, base, number = envelope.unpack(data)
        content: Buffer | End | None = data
        if what != envelope.CALL:
            content = pickle.loads(data) if what == envelope.END else None
        if not self.table.arrived((base, number), rank, content) and what == envelope.CALL:
            self._fail(
                MpiException(
                    ERR_COMM, f"rank {rank} has sent to a channel of active messages that is freed here"
                )
            )
        self.run()

    def on_failed(self, ranks: Iterable[int]) -> None:
        """See ckpt.mpi.base.handlers.Handlers."""
        self.table.died(ranks)
        self.run()

    def resume(self) -> None:
        """See ckpt.mpi.base.handlers.Handlers."""
        self.is_open = True
        self.run()

    def stop(self) -> None:
        """See ckpt.mpi.base.handlers.Handlers."""
        self.is_open = False
        self.attend()

    # -- calling -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Make the calls that are listed, unless a handler is running or the program holds the lock: they are made then."""
        if self.owner is not None or not self.is_open or not (self.table.calls or self.posted):
            return
        self._begin()
        try:
            while True:
                if self.posted:
                    member, obj, called = self.posted.popleft()
                    self._make(Call(member, member.group.index(self.engine.progress.rank), None), [obj])
                    called.release()
                elif (call := self.table.next()) is not None:
                    self._make(call)
                else:
                    return
        finally:
            self._end()
            self.engine.tell()

    @captured_in_threads
    def post(self, member: Member, obj: Any) -> None:
        """Have the handler of a channel called with an object, and return when it was. Called without the lock.

        The lock is tried, not waited for: the main thread holds it while it takes an image."""
        called = threading.Lock()
        called.acquire()
        self.posted.append((member, obj, called))
        while True:
            self.engine.progress.wake()
            self._run_if_free()
            if called.acquire(timeout=_POST_S):
                return

    def _run_if_free(self) -> None:
        if self.lock.acquire(blocking=False):
            try:
                self.run()
                self.engine.progress.poll()  # what was sent shall not wait for the helper's next look
            finally:
                self.lock.release()

    def _make(self, call: Call, posted: list[Any] | None = None) -> None:
        """`posted`: an object of this rank itself, in a list."""
        member, rank, data = call
        try:
            if posted is not None:
                member.receive(rank, posted[0])
            elif data is not None:
                member.receive(rank, self.engine.loads(data))
            elif member.failed is not None:
                member.failed(rank)
        except BaseException as failure:  # it is the program's: raised by its next call
            handler = member.failed if data is None and posted is None else member.receive
            failure.add_note(
                f"in {_name_of(handler)}, called by rank {self.engine.progress.rank} for "
                + (
                    f"the death of rank {rank}"
                    if data is None and posted is None
                    else f"a message of rank {rank}"
                )
            )
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failures.append(failure)
        self.place_guard()

    def ask(self, predicate: Callable[[], object]) -> bool:
        """The predicate's truth. It is called like a handler; what it raises passes through."""
        self._begin()
        try:
            return bool(predicate())
        finally:
            self._end()
            self.run()

    def _begin(self) -> None:
        self.owner = threading.get_ident()
        self._depth = 1
        self.place_guard()

    def _end(self) -> None:
        self.owner = None
        self._depth = 0
        self.place_guard()

    def keep_out(self, thread: threading.Thread, is_kept_out: bool) -> None:
        """See ActiveMessages.keep_out. The caller is the owner of the lock, so the guard is in place."""
        rest = list(self.kept_out)
        (rest.append if is_kept_out else rest.remove)(thread)
        self.kept_out = rest

    def place_guard(self) -> None:
        """Put the guard in place of the lock where it is needed, and the lock itself elsewhere."""
        engine = self.engine
        if self.owner is not None or self.failures or self.table.waiting or self.kept_out:
            engine.lock = engine.guard = self.guard
        else:
            engine.guard = None
            engine.lock = self.lock

    def attend(self) -> None:
        """Start new channels, make the calls that are listed, and raise the oldest exception of a handler."""
        if self.table.waiting:
            self.table.start()
            self.run()
        failure = self.failures.popleft() if self.failures else None
        self.place_guard()
        if failure is not None:
            raise failure

    # -- the program holds the lock ----------------------------------------------------------------

    def hold(self) -> None:
        """Take the lock for the program. Called without the lock, or by a thread that is the owner already."""
        if self.is_mine():
            self._depth += 1
        else:
            self.engine.lock.acquire()
            self._begin()

    def let_go(self) -> None:
        """The reverse of `hold`."""
        self._depth -= 1
        if self._depth == 0:
            self._end()
            self.run()
            self.lock.release()

    def refuse(self) -> NoReturn:
        """Raise NotInHandler, with the name of the function that was called."""
        if not self.is_mine():
            raise NotInHandler(
                f"{_called()} is not possible in the thread {threading.current_thread().name!r} now: it may wait for a "
                "program that waits for this thread"
            )
        raise NotInHandler(
            f"{_called()} is not possible in a handler of active messages, nor while their lock is held: it may wait, or "
            "begin an operation. A handler takes its message, changes the program's state, and may call send of a channel; "
            "the rest is the program's, which waits for it with wait of the channel"
        )


class Guard:
    """In place of the engine's lock: see the header, and ckpt.mpi.base.handlers.Guard."""

    __slots__ = ("_handlers",)

    def __init__(self, handlers: HandlersOfRank) -> None:
        self._handlers = handlers

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Raises NotInHandler, and what a handler has raised; then the lock is not taken."""
        handlers = self._handlers
        if handlers.is_mine() or (handlers.kept_out and threading.current_thread() in handlers.kept_out):
            handlers.refuse()
        taken = handlers.lock.acquire(blocking, timeout)
        if taken:
            try:
                handlers.attend()
            except BaseException:
                handlers.lock.release()
                raise
        return taken

    def release(self) -> None:
        self._handlers.lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handlers.lock.release()

    def check(self) -> None:
        """See ckpt.mpi.base.handlers.Guard."""
        self.acquire()
        self._handlers.lock.release()

    def attend(self) -> None:
        """See ckpt.mpi.base.handlers.Guard."""
        self._handlers.attend()


class Section:
    """The lock of the handlers, for the program: `with channel.lock:`. A handler, and a thread that has it, may take it
    again.

    While it is held no handler runs, no image is taken, and calls that may wait are refused (NotInHandler)."""

    __slots__ = ("_handlers",)

    def __init__(self, handlers: HandlersOfRank) -> None:
        self._handlers = handlers

    def __enter__(self) -> None:
        self._handlers.hold()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handlers.let_go()


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _called() -> str:
    """The name of the library's function that the program has called, for an error message."""
    frame: FrameType | None = sys._getframe(1)
    name = "the call"
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith("ckpt."):
        if "<" not in frame.f_code.co_qualname:
            name = f"{frame.f_code.co_qualname.removesuffix('.__init__').rpartition('.')[2]}()"
        frame = frame.f_back
    return name

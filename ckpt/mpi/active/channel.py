"""Active messages: the channel that programs make. A message calls a function of the program where it arrives, at once.

The idea is von Eicken's (Active Messages, ISCA 1992): a message names the handler that integrates it into the computation of
its receiver; the handler is short and never waits. Here a channel has one handler for its messages, and one for deaths. Who
calls them, and when: handlers.py.

Freeing is collective, as MPI_Win_free is (MPI 4.1, 12.2.5), and waits until no message of the channel is under way.

Not here: the list of calls and the rounds of freeing (table.py), threads and lock (handlers.py), what is on the wire
(base/envelope.py: ACTIVE).
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex

from ckpt.compat.threads import captured_in_threads
from ckpt.errors import CkptError, Deadlock, NotReplicable
from ckpt.mpi.active.handlers import Section, handlers_of
from ckpt.mpi.active.table import Member
from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_COMM, ERR_RANK, ERR_REVOKED, MpiException
from ckpt.mpi.base.integers import argument
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.communicator import Intracomm
from ckpt.mpi.engine.engine import REFERENCE_BYTES

__all__ = ["ActiveMessages"]

_NUMBERS = "active messages"  # in CommShared.extras: how many channels of the communicator this rank has made
_STEP_LONGEST_S = 1.0  # of one wait, as far as a timeout counts it: the time during which a job is down is not its program's


class ActiveMessages:
    """A channel of active messages between the ranks of an intracommunicator.

    ``receive(source, obj)`` is called for each message, ``failed(rank)`` once for each member that dies (under ``ckpt run
    --on-failure continue``), also for one that was dead before; ranks are those of ``comm``. They are called by whoever
    makes progress: the program's thread inside of the library, or the rank's helper thread while the program computes. The
    engine's lock is held: no two handlers of a rank run at the same time, and an image has a message in the sender's or the
    receiver's part, or what its handler has made of it, never both or neither. Messages of one source are handled in their
    order, a death after all messages of the dead.

    A handler may call :meth:`send` of any channel, and nothing else that may wait or begins an operation: that raises
    :class:`ckpt.errors.NotInHandler`. It should be short: the program waits for it when it enters the library. What it
    raises is raised by the program's next call that communicates or uses a channel (one exception by each), or when the
    program ends; its message counts as taken.

    The constructor is collective over ``comm``, but does not wait. Messages that come before it are kept. Handlers are
    called from the program's next call on that communicates, or uses a channel: so they find what the constructor's result
    is assigned to.

    Raises MpiException (ERR_COMM: the communicator is null, freed, or an intercommunicator; ERR_REVOKED), TypeError for
    what is no function. Error handlers of ``comm`` are not called.
    """

    def __init__(
        self,
        comm: Intracomm,
        receive: Callable[[int, Any], object],
        failed: Callable[[int], object] | None = None,
    ) -> None:
        if not isinstance(comm, CommBase):
            raise TypeError(f"a communicator is needed, not {type(comm).__name__}")
        if not callable(receive) or not (failed is None or callable(failed)):
            raise TypeError("receive and failed have to be functions; failed may be None")
        self._engine = engine = comm._engine
        self._shared = shared = comm._alive()
        self._rank = comm._rank
        if shared.peers != shared.group or "side" in shared.extras:
            raise MpiException(ERR_COMM, "active messages need an intracommunicator: merge the two groups")
        if shared.revoked:
            raise MpiException(ERR_REVOKED, "the communicator is revoked")
        if engine.choices is not None:
            raise NotReplicable(
                "active messages under --redundancy: when a handler is called depends on time"
            )
        if engine.imports.provisional:
            raise CkptError(
                "a library makes a channel of active messages while it is imported. A restart imports it anew, and cannot "
                "tell which channel of the image is meant; let the library make its channel when it is first used"
            )
        with engine.lock:
            number = shared.extras.get(_NUMBERS, 0)
            shared.extras[_NUMBERS] = number + 1
            self._handlers = handlers = handlers_of(engine)
            self._member = Member((shared.base, number), shared.group, receive, failed)
            self._is_open = True
            handlers.table.add(self._member)
            handlers.place_guard()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a channel of active messages cannot be sent or copied: each rank makes its own")

    def __image_reduce__(self) -> Any:
        return object.__reduce_ex__(self, 4)

    def __repr__(self) -> str:
        base, number = self._member.key
        state = "" if self._is_open else ", freed"
        return f"<ActiveMessages {number} of {self._shared.name or f'communicator {base}'}{state}>"

    @property
    def key(self) -> tuple[int, int]:
        """Two numbers, the same at all ranks of this channel. No other channel of this rank has them at the same time."""
        return self._member.key

    @property
    def lock(self) -> Section:
        """The lock under which all handlers of this rank are called, as a context manager: ``with channel.lock:``.

        For changes of what handlers share with the program. While it is held no handler runs, no image is taken, and calls
        that may wait are refused (:class:`ckpt.errors.NotInHandler`); :meth:`send` is not. It may be taken again by its
        holder."""
        return Section(self._handlers)

    def send(self, dest: int, obj: Any) -> None:
        """Send an object, pickled, to the handler of rank ``dest``. Never waits, however much is queued.

        To a rank that is dead: nothing is sent if the channel has a ``failed`` handler, which is the one to tell of it; else
        raises PeerFailed. MpiException: ERR_RANK; ERR_COMM when the channel is freed; ERR_REVOKED."""
        dest = argument(dest)
        group = self._member.group
        if not 0 <= dest < len(group):
            raise MpiException(ERR_RANK, f"rank {dest} in a communicator of {len(group)} ranks")
        is_mine = self._handlers.is_mine()
        self._check(by_handler=is_mine)
        data = self._engine.dumps(obj)
        if is_mine:
            self._put(group[dest], data)
        else:
            with self._engine.lock:
                self._put(group[dest], data)

    @captured_in_threads
    def post(self, obj: Any) -> None:
        """Have this rank's own handler called with an object, which is not copied; return when it was.

        For another thread than the program's main one, which may be inside of the library all the while, waiting: the
        lock is not needed. MpiException: ERR_COMM when the channel is freed; NotInHandler in a handler or under the lock."""
        self._check()
        if self._handlers.is_mine():
            self._handlers.refuse()
        self._handlers.post(self._member, obj)

    def keep_out(self, thread: threading.Thread, is_kept_out: bool = True) -> None:
        """Refuse calls of a thread that need the lock (NotInHandler), but `post`: such a call would wait for a program that
        waits, in the library, for this thread. Called in a handler, or under the lock; as often with False as with True."""
        if not self._handlers.is_mine():
            raise CkptError("keep_out() is called in a handler, or under the lock of the channel")
        self._handlers.keep_out(thread, is_kept_out)

    def _put(self, dst: int, data: bytes) -> None:
        engine = self._engine
        if dst in engine.failed_ranks.known:
            if self._member.failed is None:
                raise engine.failed_ranks.failure(dst)
            return
        self._member.sent = True
        head = self._head(envelope.CALL)
        if len(data) < REFERENCE_BYTES:
            engine.progress.send(dst, head + data)
        else:
            engine.progress.send(dst, head, data)

    def _head(self, what: int) -> bytes:
        base, number = self._member.key
        return envelope.pack(envelope.ACTIVE, self._rank, what, base, number)

    def _check(self, *, by_handler: bool = False) -> None:
        if not (self._is_open or (by_handler and not self._member.done)):
            raise MpiException(ERR_COMM, "the channel of active messages is freed")
        if self._shared.revoked:
            raise MpiException(ERR_REVOKED, "the communicator is revoked")

    def wait(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
        """Wait until ``predicate()`` is true; ``False``: it was not within ``timeout`` seconds (looked at every 50 ms).

        The predicate is evaluated under the lock, at the begin and after every message; as a handler, it may not wait. What
        it raises passes through. Images are taken during the wait; the time during which the job is down does not count.
        MpiException: ERR_COMM when the channel is freed; ERR_REVOKED. The death of a rank ends no wait."""
        self._check()
        engine, handlers = self._engine, self._handlers
        left = timeout
        with engine.lock:
            handlers.resume()  # where a function of on_restart waits, its messages have to be handled
            has_waited = False
            while True:
                engine.advance_collectives()
                if handlers.ask(predicate):
                    # What handlers have sent meanwhile shall not wait for the helper's next look
                    if has_waited:
                        engine.progress.poll()
                    return True
                if left is not None and left <= 0:
                    return False
                if self._shared.revoked:
                    raise MpiException(ERR_REVOKED, "the communicator is revoked")
                began = time.monotonic()
                has_waited = True
                try:
                    engine.block(hungry=True)
                except Deadlock:
                    if left is None:
                        raise
                    return False  # one rank without a job: nothing can come
                if left is not None:
                    left -= min(max(time.monotonic() - began, 0.0), _STEP_LONGEST_S)

    def free(self) -> None:
        """Free the channel. Collective: waits until all living members have called it, and all that they and their handlers
        have sent is handled.

        No effect on a freed channel. Until it returns, handlers may send; the program may not (ERR_COMM). If a handler
        raises meanwhile, so does this call; called again, it goes on."""
        engine, member, handlers = self._engine, self._member, self._handlers
        with engine.lock:
            handlers.resume()  # as in wait
            if handlers.table.members.get(member.key) is not member:
                return
            if self._is_open:
                self._is_open = False
                self._tell(envelope.END, pickle.dumps(member.end_round(), 5))
            while not member.done:
                if not member.is_round_over():
                    engine.advance_collectives()
                    engine.block(hungry=True)
                elif member.is_quiet():
                    member.done = True
                else:
                    self._tell(envelope.END, pickle.dumps(member.end_round(), 5))
            self._tell(envelope.DONE)
            handlers.table.remove(member)

    def _tell(self, what: int, data: bytes = b"") -> None:
        """Send a step of the freeing to all living members. The lock is held."""
        engine = self._engine
        for world in self._member.group:
            if world not in engine.failed_ranks.known:
                engine.progress.send(world, self._head(what) + data)

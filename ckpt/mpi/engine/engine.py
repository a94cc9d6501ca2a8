"""The engine: one rank's message passing, bound to a `Progress`.

The engine matches arriving messages, keeps unexpected messages (the mailbox), answers synchronous sends, advances
collectives, and waits. Its whole state is pickled by value into the process image; `progress` and `lock` are
references to live objects, which the restored process replaces by its own.

Threads: a thread of the program inside the library, or the helper thread while the program computes, calls
`on_messages` with the lock held; it matches messages and copies them into posted buffers. `block` lets go of the lock
while it waits, so other threads may call the library meanwhile (THREAD_MULTIPLE): every wait is a loop that looks at
its condition again. Who has made progress, or has changed by a call of its own what another thread may wait for, wakes
it (`tell`). Collectives are advanced (`advance_collectives`) only by a thread that is inside the library, because they
may call the user's reduction function. Messages for handlers of the program go to `handlers` (ckpt/mpi/active/), which
calls them at once, in whichever thread. `guard` is not None while such a handler runs, or the program's next call has
to do something first; `lock` is then the same object. All fast paths look at it.

Flow control: the engine reports the messages that the program has taken to `Progress.consumed`, in batches, at the latest
before it waits. A blocking send waits while the backlog to its destination is above SEND_HIGH_BYTES; a nonblocking send
never waits.

This module is long because all waiting and matching of a rank shares one state.

Not here: the transport (base/progress.py), the rules of matching (matching.py), communicator handles (comm/).
"""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.base.errors import (
    ERR_INTERN,
    ERR_REVOKED,
    MpiException,
)
from ckpt.mpi.base.handlers import NoHandlers
from ckpt.mpi.base.process import process_state
from ckpt.mpi.base.progress import Buffer, Placed, Progress
from ckpt.mpi.engine.failures import FailedRanks, raise_if_pending
from ckpt.mpi.engine.imports import Imports, take_over
from ckpt.mpi.engine.matching import Channel, Context, Matcher
from ckpt.mpi.engine.operations import SOON, Operation, Receive, Spot, SyncSend
from ckpt.mpi.engine.quick import glance, sort_in
from ckpt.mpi.engine.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from ckpt.mpi.base.handlers import Guard, Handlers
    from ckpt.mpi.base.layer import Choices
    from ckpt.mpi.base.progress import Lock
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.operations import BufferSend
    from ckpt.mpi.engine.schedule import Schedule
    from ckpt.mpi.engine.spawning import Spawns

SEND_HIGH_BYTES = 16 << 20
"""A blocking send waits while more bytes than this are queued or unacknowledged to its destination."""

SEND_POLL_BYTES = 1 << 20
"""A blocking send makes progress when the backlog is above this. Below, messages are gathered into full wire frames."""

SEND_CHECK_MASK = 63
"""Every (mask + 1)-th small send tests the backlog."""

REFERENCE_BYTES = 64 << 10
"""Immutable payloads of this size or more are passed to the transport by reference, not joined to their envelope."""

DEBT_UNIT = 1 << 48
DEBT_LIMIT = 64 * DEBT_UNIT
"""The consumption of one source's messages is counted in one number, messages * DEBT_UNIT + bytes. Up to DEBT_LIMIT it is
reported only before waiting. A message of REFERENCE_BYTES or more is reported at once."""

COPY_BYTES = 2 << 20
"""The program's memory is copied when less than this is sent, because the copy takes less time than the acknowledgement."""

JOINED_BYTES = 128 << 10
"""Less than this (`Engine.joined_bytes`) is copied behind its envelope, and shares frames. A longer copy stays apart, so
that it can be read into the place of its receive."""

LONGEST_ENVELOPE_BYTES = 1 << 10
"""Room for an envelope beside a payload that is joined to it: together they are no long message of the transport."""

DIRECT_COPY_BYTES = 512 << 10
"""The same for a rank that reads long messages from this process's memory, while it is busy: a blocking send would wait for
it. One that is not reads a message, and acknowledges it, in less time than a copy takes."""

BUSY_NS = 500_000
"""A rank is busy when it takes longer than this to read a message: it computes, or waits for a core."""

BUSY_SENDS = 32
"""After so many messages a busy rank may be so no more: the next one shows it."""

_NOT_SAVED = frozenset(
    (
        *("ahead", "boards", "busy", "choices", "codec", "direct"),
        *("joined_bytes", "lane", "look", "offers", "tell"),
    )
)

WORLD_COUNT = 0
SELF_COUNT = 1
FIRST_COUNT = 2
"""Counts in context numbers: COMM_WORLD (creator 0), COMM_SELF of each rank, communicators that programs create."""


def _nobody() -> None:
    """Default of `Engine.tell`: no other thread waits."""


class Engine:
    """One rank's mailbox, pending operations and communicator numbering."""

    __slots__ = (
        "_self",
        "_world",
        "ahead",
        "boards",
        "busy",
        "choices",
        "codec",
        "count",
        "debts",
        "direct",
        "failed_ranks",
        "guard",
        "handlers",
        "imports",
        "joined_bytes",
        "lane",
        "lock",
        "look",
        "matcher",
        "offers",
        "one_host",
        "progress",
        "runnable",
        "sends",
        "shared",
        "spawns",
        "syncs",
        "taken",
        "tell",
        "token",
        "windows",
    )

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.lock: Lock = progress.lock
        self.guard: Guard | None = None
        self.handlers: Handlers = NoHandlers()
        self.matcher = Matcher()
        self.debts = [0] * progress.size
        self.taken = [0] * progress.size
        """Like `debts`: consumption that the program's threads have counted without the lock. A change is one step for the
        interpreter (GIL): nothing is called between reading and writing a number."""
        self.runnable: list[Schedule] = []
        self.sends = 0
        self.shared: dict[int, CommShared] = {}
        """The communicators of this rank by first context number: revocations and failures are applied to these."""
        self.failed_ranks = FailedRanks(self)
        self.syncs: dict[int, SyncSend] = {}
        self.token = 0
        self.count = FIRST_COUNT
        self.imports = Imports()
        self.windows = Windows()
        self.spawns: Spawns | None = None
        """Processes that this rank starts, or that have started it; None: there were none."""
        self.one_host = False
        """All ranks were on one host when the job began: collectives choose by it. It is the same at every rank, and stays
        as it is over restarts, since ranks may go on in the middle of a collective."""
        self.boards: Any = None
        """The `Boards` of this process, by which members see each other's contributions; None: messages carry them. Not in
        images."""
        self.offers: Any = None
        """The `Offers` of this process, by which members read each other's buffers; None: there are none. Not in images."""
        self.codec: Any = None
        self.choices: Choices | None = None
        """Who answers questions that look at timing, where processes must answer alike (base/layer.py)."""
        self.lane: Any = None
        self.look: Any = None
        """Fast paths of small messages (quick.py), or None: the `Lane` to the transport, a look for some. Not in images."""
        self.ahead: Channel | None = None
        """A call looks for a message of this channel before it posts its receive. None: no call does, or a long message has
        come, and waits for the receive. Not in images."""
        self.direct: Container[int] = ()
        """World ranks that read long messages from this process's memory. Not in images."""
        self.busy: dict[int, int] = {}
        """Of these, those that are busy: how many more messages of moderate length are copied. Not in images."""
        self.joined_bytes = JOINED_BYTES
        """By the longest message that shares frames. Not in images."""
        self.tell: Callable[[], None] = _nobody
        """Called under the lock by a thread that has changed what others may wait for: wakes these. Not in images."""
        self._world: CommHandle | None = None
        self._self: CommHandle | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_SAVED}
        state["process"] = process_state().content()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        process_state().adopt(state.pop("process"))
        self.windows = Windows()  # for an image that has none
        self.one_host = False  # the same
        self.spawns = None  # the same
        for name, value in state.items():
            setattr(self, name, value)
        self.codec = self.lane = self.look = self.choices = self.boards = self.offers = self.ahead = None
        self.direct, self.joined_bytes, self.busy = (), JOINED_BYTES, {}
        self.tell = _nobody
        if process_state().codec is not None:
            from ckpt.mpi.engine.pickling import restored

            self.codec = restored()

    # -- communicators -----------------------------------------------------------------------------

    @property
    def predefined(self) -> dict[str, CommHandle]:
        """COMM_WORLD and COMM_SELF, as far as they have been made, by the name of their slot in the engine."""
        both = {"_world": self._world, "_self": self._self}
        return {name: comm for name, comm in both.items() if comm is not None}

    def take_over(self, provisional: Engine, states: dict[str, Any]) -> None:
        """Bind the predefined communicators of `provisional`, and their duplicates made by libraries, to this engine.

        states: the states of this engine's predefined communicators. See imports.py.
        """
        take_over(self, provisional, states)

    def next_context(self) -> int:
        """The context number for a communicator that this rank may create. It is unique in the job, and never reused."""
        if self.guard is not None:
            self.guard.check()
        self.count = count = self.count + 1  # in one step: of two threads each gets another number
        return envelope.context_base(self.progress.rank, count)

    def register(self, shared: CommShared) -> None:
        """Register a communicator that is new at this rank."""
        if self.shared.setdefault(shared.base, shared) is shared:
            self.failed_ranks.register(shared)
            if not envelope.is_predefined(shared.base):
                self.imports.note(shared)

    # -- objects -----------------------------------------------------------------------------------

    def dumps(self, obj: Any) -> bytes:
        """An object as bytes, pickled by the program's codec (`MPI.pickle`) if the program has set one."""
        return pickle.dumps(obj, 5) if self.codec is None else bytes(self.codec.dumps(obj))

    def loads(self, data: Buffer) -> Any:
        """The object of a message. `data` includes the envelope."""
        if self.codec is None:
            return pickle.loads(data)
        return self.codec.loads(memoryview(data)[envelope.SIZE :])

    def loads_value(self, data: Buffer) -> Any:
        """The object of a message. `data` does not include the envelope."""
        return pickle.loads(data) if self.codec is None else self.codec.loads(data)

    # -- arrival -----------------------------------------------------------------------------------

    def on_messages(self, src: int, batch: list[Buffer]) -> None:
        """Match or keep the messages of world rank `src`, which come in order. Called with the lock held."""
        matcher = self.matcher
        at = 0
        while True:
            if not matcher.posted:
                at = sort_in(matcher, batch, at)
            if at == len(batch):
                return
            data = batch[at]
            at += 1
            head = data[:32]
            channel = matcher.by_envelope.get(head if type(head) is bytes else bytes(head))
            if channel is None:
                self._arrive(src, data)
            elif (receive := matcher.offer(channel, data)) is not None:
                # The message is EAGER, since its bytes are a key of by_envelope
                self.settle_account(channel, data)
                receive.fill(channel.source, channel.tag, data)

    def place(self, head: bytes, nbytes: int) -> Spot | None:
        """Where a message of `nbytes` bytes behind this envelope, which is in its sender's memory, is wanted. None: in no
        place of the program. Nothing changes here."""
        channel = self.matcher.by_envelope.get(head)
        receive = None if channel is None else self.matcher.awaiting(channel)
        if receive is None:
            if channel is None or channel is not self.ahead:
                return None
            self.ahead = None  # the call knows by that
            return SOON
        return receive.spot(nbytes)

    def on_placed(self, src: int, message: Placed) -> None:
        """A message of world rank `src` was read into the memory that `place` has named. Called with the lock held."""
        channel, receive = self.matcher.by_envelope[message.head], message.spot.receive
        # it is the first that waits, as it was when `place` was asked
        self.matcher.take_off(receive, channel)
        nbytes = len(message)
        self.debts[src] += nbytes + DEBT_UNIT
        self.pay(src)
        receive.placed(channel.source, channel.tag, nbytes - envelope.SIZE)

    def _arrive(self, src: int, data: Buffer) -> None:
        kind, source, tag, number, token = envelope.unpack(data)
        if kind > envelope.SYNC:
            self._control(src, kind, token, data)
            return
        channel, receive = self.matcher.arrive(src, source, tag, number, data)
        if receive is not None:
            self.settle_account(channel, data)
            receive.fill(source, tag, data)

    def _control(self, src: int, kind: int, token: int, data: Buffer) -> None:
        debt = self.debts[src] = self.debts[src] + len(data) + DEBT_UNIT
        if debt > DEBT_LIMIT or debt % DEBT_UNIT >= REFERENCE_BYTES:
            self.pay(src)  # by the helper, too: the program may compute for long
        if kind == envelope.WINDOW:
            self.windows.on_message(src, data)
        elif kind == envelope.ACTIVE:
            self.handlers.on_message(src, data)
        elif kind == envelope.REVOKE:
            self.failed_ranks.on_revoke(data)
        elif kind == envelope.AGREE:
            self.failed_ranks.on_agree(src, data)
        elif kind != envelope.MATCHED:
            raise MpiException(ERR_INTERN, f"message of unknown kind {kind} from rank {src}")
        elif (operation := self.syncs.pop(token, None)) is not None:
            operation.done = True

    def settle_account(self, channel: Channel, data: Buffer) -> None:
        """A message leaves the mailbox: count it for flow control, and answer if it is of a synchronous send."""
        src = channel.src
        debt = self.debts[src] = self.debts[src] + len(data) + DEBT_UNIT
        if debt > DEBT_LIMIT or len(data) >= REFERENCE_BYTES:
            self.pay(src)
        if data[2] == envelope.SYNC and src not in self.failed_ranks.known:
            _, source, tag, number, token = envelope.unpack(data)
            self.progress.send(src, envelope.pack(envelope.MATCHED, source, tag, number, token))

    def note_taken(self, channel: Channel, data: Buffer) -> bool:
        """A receive has taken a message from the mailbox, with or without the lock: count it for flow control. False: then
        :meth:`settle_taken` has to follow, with the lock."""
        size, src, taken = len(data), channel.src, self.taken
        if data[2] or size >= REFERENCE_BYTES:
            return False
        taken[src] = debt = taken[src] + size + DEBT_UNIT  # no call in between: others have no lock
        return debt <= DEBT_LIMIT

    def settle_taken(self, channel: Channel, data: Buffer) -> None:
        """What :meth:`note_taken` has left to be done. The lock is held."""
        if data[2] or len(data) >= REFERENCE_BYTES:
            self.settle_account(channel, data)
        else:
            self.pay_all()

    def pay(self, src: int) -> None:
        """Report the consumption of one source's messages to the transport."""
        messages, nbytes = divmod(self.debts[src], DEBT_UNIT)
        self.debts[src] = 0
        self.progress.consumed(src, nbytes, messages)

    def pay_all(self) -> None:
        """Report the consumption of all sources' messages. Called with the lock held."""
        debts, taken = self.debts, self.taken
        for src in range(len(debts)):
            if taken[src]:
                debts[src] += taken[src]
                taken[src] = 0
            if debts[src]:
                self.pay(src)

    # -- sending -----------------------------------------------------------------------------------

    def after_send(self, dst: int, nbytes: int, shared: CommShared) -> None:
        """Called after a blocking send: tests the backlog, for small messages only at every 64th send."""
        self.sends += 1
        if nbytes >= REFERENCE_BYTES or not self.sends & SEND_CHECK_MASK:
            self.throttle(dst, shared)

    def after_collective(self, schedule: Schedule) -> None:
        """Called after a blocking collective: waits while the backlog to a peer is high."""
        self.sends += 1
        if self.sends & SEND_CHECK_MASK and schedule.nbytes < REFERENCE_BYTES:
            return
        for dst in schedule.peers:
            self.throttle(dst)

    def throttle(self, dst: int, shared: CommShared | None = None) -> None:
        """Make progress when the backlog to `dst` is above SEND_POLL_BYTES; wait while it is above SEND_HIGH_BYTES.

        shared: the communicator of a send. Raises MpiException when it is revoked or `dst` has failed. None: a collective.
        """
        backlog = self.progress.backlog_bytes(dst)
        if backlog <= SEND_POLL_BYTES:
            return
        self.progress.poll()
        while self.progress.backlog_bytes(dst) > SEND_HIGH_BYTES:
            if shared is not None and shared.revoked:
                raise MpiException(ERR_REVOKED, "the communicator is revoked")
            self.block()
        if shared is not None and dst in self.failed_ranks.known:
            raise self.failed_ranks.failure(dst)

    def send_memory(self, dst: int, head: bytes, spec: BufferSpec) -> int | None:
        """Send the program's memory behind an envelope. None: it was copied. Else it was passed by reference, as the message
        with this sequence number: the send is done when that is acknowledged."""
        data, send = spec.read(), self.progress.send
        nbytes = len(data)
        if nbytes < self.joined_bytes:
            send(dst, head + data)
        elif not spec.dense:
            send(dst, head, data)  # a packed copy, which nothing else writes to
        elif self._is_copied(dst, nbytes):
            send(dst, head, bytes(data))
        else:
            return send(dst, head, data)
        return None

    def _is_copied(self, dst: int, nbytes: int) -> bool:
        if dst not in self.direct:
            return nbytes < COPY_BYTES
        if dst not in self.busy or nbytes >= DIRECT_COPY_BYTES:
            return False
        self.busy[dst] = left = self.busy[dst] - 1
        if not left:
            del self.busy[dst]
        return True

    def wait_sent(self, sent: BufferSend) -> None:
        """Wait until a blocking send of the program's memory is done, and see whether its receiver is busy."""
        is_alone = self.progress.acked(sent.dst) == sent.sequence  # else it waits for earlier messages, too
        began_ns = time.monotonic_ns()
        self.wait(sent)
        if is_alone and time.monotonic_ns() - began_ns > BUSY_NS:
            self.busy[sent.dst] = BUSY_SENDS

    def start_sync(self, dst: int, context: Context) -> SyncSend:
        """A new synchronous send with a new token. It is done when the MATCHED message with this token arrives."""
        self.token += 1
        operation = self.syncs[self.token] = SyncSend(dst, self.token, context.number)
        return operation

    # -- receiving ---------------------------------------------------------------------------------

    def start_receive(self, context: Context, receive: Receive, src: int) -> None:
        """Match a receive now, or post it. `src`: world rank of the receive's source, ignored for ANY_SOURCE."""
        if self.choices is not None and receive.want_source == ANY_SOURCE:
            self.choices.start(context, receive)
            return
        channel = self.matcher.find(context, receive.want_source, receive.want_tag)
        if channel is None:
            if src in self.failed_ranks.known and receive.want_source != ANY_SOURCE:
                receive.error = self.failed_ranks.failure(src)
                receive.done = True
            else:
                self.matcher.post(context, receive, src)
            return
        data = self.matcher.pop(channel)
        self.settle_account(channel, data)
        receive.fill(channel.source, channel.tag, data)

    def find(self, context: Context, source: int, tag: int) -> Channel | None:
        """The channel of the message that (source, tag) matches, or None. Makes progress once if there is no message."""
        if self.choices is None:
            return self.look_for(context, source, tag)
        matcher, box = self.matcher, [source, tag]

        def look() -> tuple[int, int] | None:
            found = self.look_for(context, source, tag)
            return None if found is None else (found.source, found.tag)

        def holds(place: tuple[int, int] | None) -> bool:
            box[:] = place or box
            return place is None or matcher.find(context, *place) is not None

        found = self.choices.answer(look, holds)
        return None if found is None else matcher.find(context, *box)

    def look_for(self, context: Context, source: int, tag: int) -> Channel | None:
        """Like `find`, by what this process sees alone."""
        channel = self.matcher.find(context, source, tag)
        if channel is None:
            self.make_progress()
            channel = self.matcher.find(context, source, tag)
        return channel

    def find_wait(self, context: Context, source: int, tag: int) -> Channel:
        """The channel of the message that (source, tag) matches. Waits until there is a message."""
        while True:
            # Looked at again: who waits here may be in an image
            if self.choices is not None and source == ANY_SOURCE:
                found: Channel = self.choices.probe(context, source, tag)
                return found
            channel = self.look_for(context, source, tag)
            if channel is not None:
                return channel
            shared = self.shared.get(context.number - context.number % envelope.PLANES)
            if shared is not None and shared.revoked:
                raise MpiException(ERR_REVOKED, "the communicator is revoked")
            if self.failed_ranks.known:
                self.failed_ranks.check_probe(context, source, blocking=True)
            self.block(hungry=True)

    # -- waiting -----------------------------------------------------------------------------------

    def attend(self) -> None:
        """Begin the work of new channels of active messages, and raise what a handler has raised. The lock is held."""
        if self.guard is not None:
            self.guard.attend()

    def advance_collectives(self) -> None:
        """Advance the collectives whose awaited messages have arrived."""
        if self.runnable:
            while self.runnable:
                self.runnable.pop(0).advance()
            self.tell()

    def is_due(self, awaited: Operation) -> bool:
        """After progress: may a thread go on that waits for this operation? True in doubt."""
        return (
            awaited.done or not awaited.is_told or self.failed_ranks.any_failure or bool(self.handlers.posted)
        )

    def block(self, hungry: bool = False, awaited: Operation | None = None) -> None:
        """Wait for any progress. A process image may be taken here. `hungry`: no message in the mailbox is what is waited
        for. `awaited`: the caller waits for this operation alone.

        Raises what a handler of active messages has raised, before it waits."""
        if self.look is not None and glance(self):
            return
        self.pay_all()
        self.attend()
        self.progress.block(hungry or self.matcher.posted > 0 or self.windows.awaited > 0, awaited)

    def make_progress(self) -> None:
        """Make progress without waiting. Raises what a handler of active messages has raised."""
        self.pay_all()
        self.attend()
        self.progress.poll()
        self.advance_collectives()

    def wait(self, operation: Operation) -> None:
        """Return when the operation is done."""
        while True:
            self.advance_collectives()
            if operation.poll():
                return
            if self.failed_ranks.known:
                self.failed_ranks.check(operation)
            self.block(awaited=operation)

    def test(self, operation: Operation) -> bool:
        """Whether the operation is done, after making progress at most once."""
        if self.choices is not None:
            return self.choices.answer(
                lambda: self._test(operation), lambda done: not done or self._is_done(operation)
            )
        return self._test(operation)

    def _is_done(self, operation: Operation) -> bool:
        self.advance_collectives()
        return operation.poll()

    def _test(self, operation: Operation) -> bool:
        if operation.poll():
            return True
        self.make_progress()
        if operation.poll():
            return True
        if self.failed_ranks.known:
            self.failed_ranks.check(operation)
        return False

    def wait_receive(self, receive: Receive) -> None:
        """Wait for a receive that has no request. If an exception interrupts the wait, withdraw the receive."""
        try:
            self.wait(receive)
        except BaseException as error:
            self.matcher.withdraw(receive)
            raise_if_pending(error)
            raise

    def withdraw(self, receive: Receive) -> None:
        """Withdraw a receive that has no request. Called without the lock."""
        with self.lock:
            self.matcher.withdraw(receive)

"""The engine: one rank's message passing, bound to a `Progress`.

It matches arriving messages, keeps what nobody asked for yet, answers synchronous sends, advances
collectives and waits. Everything but `progress` and `lock` (live references) is pickled by value: the
engine is the mailbox of the process image.

Who runs what: `on_messages` is called under the lock, by the main thread inside the library or by the
helper thread while the program computes; it matches and copies into posted buffers. Collectives are
advanced (`settle`) only by a thread inside the library, because they may call the user's reduction.

Flow control: messages taken by the program are reported to `Progress.consumed` in batches, at latest before
waiting. Blocking sends wait while the backlog to their destination is above SEND_HIGH_BYTES; nonblocking
ones never do.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.constants import ANY_SOURCE
from ckpt.mpi.base.errors import (
    ERR_INTERN,
    ERR_PROC_FAILED,
    ERR_PROC_FAILED_PENDING,
    ERR_REVOKED,
    MpiException,
)
from ckpt.mpi.base.process import process_state
from ckpt.mpi.base.progress import Buffer, Progress
from ckpt.mpi.engine.failures import Losses
from ckpt.mpi.engine.imports import Imports, take_over
from ckpt.mpi.engine.matching import Channel, Context, Matcher
from ckpt.mpi.engine.operations import Operation, Receive, SyncSend
from ckpt.mpi.engine.quick import sort_in

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.schedule import Schedule

SEND_HIGH_BYTES = 16 << 20
"""A blocking send waits while more than this is queued or unacknowledged to its destination."""

SEND_POLL_BYTES = 1 << 20
"""A blocking send makes progress when the backlog is above this; below, messages gather into full frames."""

SEND_CHECK_MASK = 63
"""Small sends look at the backlog every (mask + 1)-th time."""

REFERENCE_BYTES = 64 << 10
"""Immutable payloads from this size on are handed down by reference, not joined to their envelope."""

DEBT_UNIT = 1 << 48
DEBT_LIMIT = 64 * DEBT_UNIT
"""Consumption of one source is summed up as messages * DEBT_UNIT + bytes; up to the limit it is reported only
before waiting. Messages of REFERENCE_BYTES and more are reported at once."""

_NOT_SAVED = frozenset({"codec", "lane"})

WORLD_COUNT = 0
SELF_COUNT = 1
FIRST_COUNT = 2
"""Counts in context numbers: the world (creator 0), each rank alone, then what programs create."""


class Engine:
    """One rank's mailbox, pending operations and communicator numbering."""

    __slots__ = (
        "_self",
        "_world",
        "codec",
        "count",
        "debts",
        "imports",
        "lane",
        "lock",
        "losses",
        "matcher",
        "progress",
        "ready",
        "sends",
        "shared",
        "syncs",
        "taken",
        "token",
    )

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.lock = progress.lock
        self.matcher = Matcher()
        self.debts = [0] * progress.size
        self.taken = [0] * progress.size
        """Like `debts`, what the program's thread took without the lock: nobody else writes to it."""
        self.ready: list[Schedule] = []
        self.sends = 0
        self.shared: dict[int, CommShared] = {}
        """Communicators that may be revoked or lose members, by context number."""
        self.losses = Losses(self)
        self.syncs: dict[int, SyncSend] = {}
        self.token = 0
        self.count = FIRST_COUNT
        self.imports = Imports()
        self.codec: Any = None
        self.lane: Any = None
        """The short way down for small messages (quick.py), if there is one; not part of an image."""
        self._world: CommHandle | None = None
        self._self: CommHandle | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_SAVED}
        state["process"] = process_state().content()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        process_state().adopt(state.pop("process"))
        for name, value in state.items():
            setattr(self, name, value)
        self.codec = self.lane = None
        if process_state().codec is not None:
            from ckpt.mpi.engine.pickling import restored

            self.codec = restored()

    # -- communicators -----------------------------------------------------------------------------

    @property
    def predefined(self) -> dict[str, CommHandle]:
        """The communicators that nobody creates, as far as they have been asked for, by the name of their slot."""
        both = {"_world": self._world, "_self": self._self}
        return {name: comm for name, comm in both.items() if comm is not None}

    def take_over(self, provisional: Engine, states: dict[str, Any]) -> None:
        """Make the predefined communicators of `provisional`, and what libraries made of them, this engine's.

        `states`: those that the predefined ones had here. See imports.py.
        """
        take_over(self, provisional, states)

    def next_context(self) -> int:
        """Number for a communicator that this rank may create; unique in the job, never used twice."""
        self.count += 1
        return envelope.context_base(self.progress.rank, self.count)

    def register(self, shared: CommShared) -> None:
        """A new communicator exists here."""
        if self.shared.setdefault(shared.base, shared) is shared:
            self.losses.register(shared)
            if not envelope.is_predefined(shared.base):
                self.imports.note(shared)

    # -- objects -----------------------------------------------------------------------------------

    def dumps(self, obj: Any) -> bytes:
        """An object as bytes, by the program's own codec if it set one."""
        return pickle.dumps(obj, 5) if self.codec is None else bytes(self.codec.dumps(obj))

    def loads(self, data: Buffer) -> Any:
        """The object of a message, envelope included."""
        if self.codec is None:
            return pickle.loads(data)
        return self.codec.loads(memoryview(data)[envelope.SIZE :])

    def loads_value(self, data: Buffer) -> Any:
        """The object of a message without envelope."""
        return pickle.loads(data) if self.codec is None else self.codec.loads(data)

    # -- arrival -----------------------------------------------------------------------------------

    def on_messages(self, src: int, batch: list[Buffer]) -> None:
        """Messages of world rank `src`, in order. Called with the lock held."""
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
            found = matcher.by_envelope.get(head if type(head) is bytes else bytes(head))
            if found is None or (matcher.posted and found.context.wild):
                self._arrive(src, data)
            elif found.posted:
                # an eager message, being found by these bytes, for the first that waits for it
                matcher.posted -= 1
                receive = found.posted.popleft()
                self.settle_account(found, data)
                receive.fill(found.source, found.tag, data)
            else:
                matcher.keep(found, data)

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
        self.debts[src] += len(data) + DEBT_UNIT
        if kind == envelope.REVOKE:
            self.losses.on_revoke(data)
            return
        if kind == envelope.AGREE:
            self.losses.on_agree(src, data)
            return
        if kind != envelope.MATCHED:
            raise MpiException(ERR_INTERN, f"message of unknown kind {kind} from rank {src}")
        operation = self.syncs.pop(token, None)
        if operation is not None:
            operation.done = True

    def settle_account(self, channel: Channel, data: Buffer) -> None:
        """A message leaves the mailbox: note it for flow control and answer a synchronous sender."""
        src = channel.src
        debt = self.debts[src] = self.debts[src] + len(data) + DEBT_UNIT
        if debt > DEBT_LIMIT or len(data) >= REFERENCE_BYTES:
            self.pay(src)
        if data[2] == envelope.SYNC and src not in self.losses.known:
            _, source, tag, number, token = envelope.unpack(data)
            self.progress.send(src, envelope.pack(envelope.MATCHED, source, tag, number, token))

    def pay(self, src: int) -> None:
        """Report what was consumed from one source."""
        messages, nbytes = divmod(self.debts[src], DEBT_UNIT)
        self.debts[src] = 0
        self.progress.consumed(src, nbytes, messages)

    def pay_all(self) -> None:
        """Report everything consumed so far. From the program's thread only."""
        debts, taken = self.debts, self.taken
        for src in range(len(debts)):
            if taken[src]:
                debts[src] += taken[src]
                taken[src] = 0
            if debts[src]:
                self.pay(src)

    # -- sending -----------------------------------------------------------------------------------

    def after_send(self, dst: int, nbytes: int, shared: CommShared) -> None:
        """Called after a blocking send: looks at the backlog, now and then for small messages."""
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
        """Take acknowledgements in when the backlog to `dst` has grown; wait while it is high.

        `shared`: of a send, which ends with an error when its communicator is revoked or its peer fails.
        """
        backlog = self.progress.backlog_bytes(dst)
        if backlog <= SEND_POLL_BYTES:
            return
        self.progress.poll()
        while self.progress.backlog_bytes(dst) > SEND_HIGH_BYTES:
            if shared is not None and shared.revoked:
                raise MpiException(ERR_REVOKED, "the communicator is revoked")
            self.block()
        if shared is not None and dst in self.losses.known:
            raise self.losses.failure(dst)

    def start_sync(self, dst: int, context: Context) -> SyncSend:
        """A synchronous send that waits for the answer to its token."""
        self.token += 1
        operation = self.syncs[self.token] = SyncSend(dst, self.token, context.number)
        return operation

    # -- receiving ---------------------------------------------------------------------------------

    def start_receive(self, context: Context, receive: Receive, src: int) -> None:
        """Match a receive now or post it. `src`: world rank of its source, ignored for ANY_SOURCE."""
        channel = self.matcher.find(context, receive.want_source, receive.want_tag)
        if channel is None:
            if src in self.losses.known and receive.want_source != ANY_SOURCE:
                receive.error = self.losses.failure(src)
                receive.done = True
            else:
                self.matcher.post(context, receive, src)
            return
        data = self.matcher.pop(channel)
        self.settle_account(channel, data)
        receive.fill(channel.source, channel.tag, data)

    def find(self, context: Context, source: int, tag: int) -> Channel | None:
        """Channel with a message that (source, tag) matches; makes progress once if there is none."""
        channel = self.matcher.find(context, source, tag)
        if channel is None:
            self.make_progress()
            channel = self.matcher.find(context, source, tag)
        return channel

    def find_wait(self, context: Context, source: int, tag: int) -> Channel:
        """The same, waiting for it."""
        while True:
            channel = self.find(context, source, tag)
            if channel is not None:
                return channel
            shared = self.shared.get(context.number - context.number % envelope.PLANES)
            if shared is not None and shared.revoked:
                raise MpiException(ERR_REVOKED, "the communicator is revoked")
            if self.losses.known:
                self.losses.check_probe(context, source, blocking=True)
            self.progress.block(True)

    # -- waiting -----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Advance collectives whose awaited messages are here."""
        while self.ready:
            self.ready.pop(0).advance()

    def block(self) -> None:
        """Wait for any progress. A process image may be taken here."""
        self.pay_all()
        self.progress.block(self.matcher.posted > 0)

    def make_progress(self) -> None:
        """Make progress without waiting."""
        self.pay_all()
        self.progress.poll()
        self.settle()

    def wait(self, operation: Operation) -> None:
        """Return when the operation is done."""
        while True:
            self.settle()
            if operation.poll():
                return
            if self.losses.known:
                self.losses.check(operation)
            self.block()

    def test(self, operation: Operation) -> bool:
        """Whether the operation is done, after making progress at most once."""
        if operation.poll():
            return True
        self.make_progress()
        if operation.poll():
            return True
        if self.losses.known:
            self.losses.check(operation)
        return False

    def wait_receive(self, receive: Receive) -> None:
        """Wait for a receive nobody else knows of; take it back when interrupted."""
        try:
            self.wait(receive)
        except BaseException as error:
            self.matcher.withdraw(receive)
            if isinstance(error, MpiException) and error.error_code == ERR_PROC_FAILED_PENDING:
                raise MpiException(ERR_PROC_FAILED, error.detail) from None  # nothing is pending any more
            raise

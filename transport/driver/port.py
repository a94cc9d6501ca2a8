"""A port: one Endpoint, one Wire, a clock and a lock. The thread that is in the library makes progress. (driver)

Which thread makes progress. The application's thread holds `lock` for a whole library call, and runs the endpoint itself:
no other thread stands in the path of a message. Only while it sleeps in `wait` it lets go of the lock: other threads of the
application may enter the library then. A helper thread (`start_helper`) makes progress while the application computes. The
helper only tries the lock, so the application never waits for a hand-off. Threads that wait beside: waiters.py.

    progress()   drain the wire, run the timers that passed, deliver, flush. Never blocks.
    wait()       the same. If nothing came, spin for a bounded time, which adapts to the length of earlier waits, and
                 yield the core in between (`Wire.spin`); then sleep on the wire's descriptor, the control descriptor and
                 `wake`. Returns when something happened, and at least every 50 ms, so the caller re-checks
                 its condition in a loop.

Flushing. On an idle link a message leaves inside `send`: that is `Endpoint.send` itself, which calls `on_flush_due` when
frames should leave. On a busy link messages gather until a frame is full, an acknowledgement comes, a thread calls
progress or wait, or the helper ticks (every 5 ms). A congested wire refuses frames: the port keeps these in order and asks
the endpoint for none to that peer until the wire has taken them; the endpoint keeps the other messages.

Callbacks run under the lock, in the thread that makes progress. They may call `send` and `endpoint.consumed`,
but neither progress nor wait. An exception of a callback in the helper thread is raised again by the application's next
progress or wait.

This module is long because one call of the application passes through all of it, and a call into another object on that path
would cost each message time. Its parts with a life of their own are helper.py, interrupts.py and refused.py.

What does not belong here: what messages mean, when to take images, anything about sockets. A port must not be used in a
forked child.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ckpt.compat.threads import running_count
from ckpt.transport.boards import board
from ckpt.transport.boards.keeper import Boards
from ckpt.transport.driver.helper import ProgressHelper
from ckpt.transport.driver.interrupts import InterruptGate
from ckpt.transport.driver.refused import FIRST_WAIT_OF_RINGS_NS, NEVER_NS, RefusedFrames
from ckpt.transport.driver.waiters import Wait, Waiters
from ckpt.transport.errors import TransportError
from ckpt.transport.protocol.endpoint import Endpoint, EndpointConfig
from ckpt.transport.protocol.events import Event, LinkLate, LinkStalled
from ckpt.transport.protocol.frames import Remote
from ckpt.transport.protocol.ledger import Place, Placed
from ckpt.transport.protocol.state import Buffer, PortState
from ckpt.transport.rings.ringwire import RingWire
from ckpt.transport.wires import owned
from ckpt.transport.wires.bufferpool import BufferPool
from ckpt.transport.wires.crossmemory import Published
from ckpt.transport.wires.directwire import DIRECT_FROM_BYTES, DIRECT_PIECE_BYTES, DirectWire
from ckpt.transport.wires.wire import ProcessGuard, Wire

if TYPE_CHECKING:
    from ckpt.transport.driver._express import Express
    from ckpt.transport.rings._ring import Inbox

try:
    from ckpt.transport.driver._express import Express as make_express
except ImportError:
    make_express = None  # type: ignore[assignment, misc]

SPIN_LONGEST_NS = 150_000
"""Spinning longer than waking an idle core takes (60 to 100 µs) never pays."""
FAR_LOOK_NS = 10_000_000
"""A look that sleeps until a frame comes from another host lasts so long at most: it holds the lock."""
BULK_BYTES = 16 << 10
"""A frame above this size shows that bandwidth counts, not latency: the core is better left to ZeroMQ's threads."""
BULK_BYTES_OF_RINGS = 512 << 10
"""The same where rings carry the frames: there is no other thread, and only the copies take long."""
SLEEP_LONGEST_NS = 50_000_000
"""wait() returns at least this often, so that calls queued for the main thread are noticed."""
CLOSE_S = 1.0
"""`Port.close` waits at most so long for a thread that is in the library."""
CONTROL_EVERY_NS = 2_000_000
"""A wait that never sleeps looks at the control descriptor this often."""
POOL_BYTES = 256 << 20
"""At most so much memory is kept for long messages that come (`BufferPool`)."""
COUNTERS = ("waits_spun", "waits_slept", "helper_ticks", "window_reads", "messages_placed")
DRAIN_FRAMES = 64
"""At most so many frames are taken from the wire before their messages are delivered and acknowledgements can leave."""


def _no_messages(source: int, messages: list[Buffer]) -> None:
    raise TransportError(f"{len(messages)} messages from rank {source}, but nobody set Port.on_messages")


def _ignore_event(event: Event) -> None:
    """Default of `Port.on_event`."""


def _ignore_control() -> None:
    """Default of `Port.on_control`."""


class FarWire(Wire, Protocol):
    """A wire to other hosts. `threads`: how many it has that Python knows. `take`: as `receive`, where the descriptor is
    known to be readable."""

    threads: int

    def take(self) -> Sequence[Buffer] | None: ...


class _Sleep:
    """The bell of the thread that sleeps on the port's descriptors."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.eventfd_write(self._fd, 1)


class Port:
    """One rank's port. The caller of any method but `wake`, `start_helper`, `stop_helper` and `close` must hold `lock`."""

    # What `_express.c` reads and writes; all else is in the dict
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_glanced",
        "_has_pending",
        "_pause_ns",
        "_spin_longest_ns",
        "_spin_ns",
        "control_checked_ns",
        "entries",
        "helper_watching",
    )

    on_late: Callable[[int, int], None] | None = None
    """Called with rank and nanoseconds of a link that is late (LinkLate), instead of `on_event`."""
    far_counts: Callable[[], dict[int, tuple[int, int, int]]] | None = None
    """What the kernel has counted of connections to other hosts, by rank; None: there are no other hosts."""

    on_place: Place | None = None
    """Called with the head and the length of the payload of a long message that is to be read from its sender's memory:
    where does the program want it?"""
    on_placed: Callable[[int, Placed], None] | None = None
    """Called in the same step, with its source, if the message was read into that place."""
    boards: Boards | None = None
    """Where the members of a group on this host show each other what they contribute to collectives; None: nowhere."""
    _accept: Callable[[bytes, int], tuple[int, list[bytes]] | None] | None = None
    _others: tuple[set[int], Inbox] | None = None
    _far_ranks: set[int]
    _far: FarWire
    on_publish: Callable[[], None] | None = None
    """Called before memory of this process may belong to another epoch: what is on boards becomes messages."""

    def __init__(
        self,
        config: EndpointConfig,
        wire: Wire,
        *,
        state: PortState | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        spin_longest_ns: int = SPIN_LONGEST_NS,
        lock: threading.Lock | None = None,
    ) -> None:
        """Make a port that owns `wire` from now on.

        `state`: the port state of an image to go on from; incarnation and epoch come from `config`. `clock`: monotonic
        nanoseconds. `spin_longest_ns`: longest time that a wait spins before it sleeps. `lock`: use this lock instead of a
        new one. Raises StateMismatch if `state` does not fit `config`.
        """
        self.lock = threading.Lock() if lock is None else lock
        self.attentive_ns = 0
        """The helper calls `on_idle_tick` at least this often, also while all is quiet; 0: it need not."""
        self.wire = wire
        self.on_messages: Callable[[int, list[Buffer]], None] = _no_messages
        self.on_event: Callable[[Event], None] = _ignore_event
        self.on_control: Callable[[], None] = _ignore_control
        self.on_idle_tick: Callable[[], None] | None = None
        self.endpoint = Endpoint(config, state, allocate=BufferPool(POOL_BYTES, DIRECT_FROM_BYTES).allocate)
        self._marks, self.direct = self.endpoint.marks, set[int]()
        self.endpoint.on_flush_due = self._on_flush_due
        self.send: Callable[..., int] = self.endpoint.send
        """`send(dst, data, payload=None)` is `Endpoint.send` itself: a method in between would add a third to its time."""
        self.interrupts = InterruptGate(self.lock, self._on_deferred_signal, self._on_interrupted)
        self.waiters = Waiters()
        self.on_helped: Callable[[], None] | None = None
        """Called under the lock when the helper thread has made progress: wakes those of `waiters` that may go on."""
        self.express: Express | None = None  # the hot way in C, where there are rings
        self._pause_ns = 0
        self._glanced = False
        """The last thing the application did was to look in vain (`glance`): a wait need not spin again."""
        self.published_epoch = Published(config.epoch)
        """For ranks that read this process's memory: at least the epoch of every change that they may see there."""
        self.entries = 0
        """Number of calls of the application: the helper sees by it whether the application was in the library lately."""
        self.helper_watching = False
        """The helper sleeps on the wire's descriptor: the application has to wake it when it enters the library."""
        self.helper_parked = False
        """The helper leaves all progress to the application's wait, which has to wake it when the wait ends."""
        self._failure: BaseException | None = None
        self._bulk_bytes = BULK_BYTES
        self._bulk = False
        """A frame above `_bulk_bytes` was sent or received in the present wait."""
        self._has_sent = self._has_pending = False
        """A frame was sent since the last wait. A failure of the helper or a deferred signal is to be raised in the
        application's thread."""
        self.clock = clock
        self._guard = ProcessGuard("this port")
        self._refused = RefusedFrames(wire.send)
        self._spin_longest_ns = self._spin_ns = spin_longest_ns
        self._control_fd: int | None = None
        self.control_checked_ns = 0  # by progress: each 2 ms while the application makes progress
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sleep_bell, self._sleep_wait = _Sleep(self._wake_fd), Wait()
        self._poller = select.epoll()
        self._poller.register(wire.fileno(), select.EPOLLIN)
        self._poller.register(self._wake_fd, select.EPOLLIN)
        self._control_poller = select.epoll()
        self._control_poller.register(self._wake_fd, select.EPOLLIN)
        self._event_fds = (self._wake_fd, self._poller.fileno(), self._control_poller.fileno())
        owned.note(*self._event_fds)
        self._helper: ProgressHelper | None = None
        self._closed = False
        self.counts = dict.fromkeys(COUNTERS, 0)

    def use_rings(
        self,
        wire: RingWire,
        far: tuple[set[int], FarWire] | None = None,
        direct: DirectWire | None = None,
    ) -> None:
        """Send and receive ordinary messages through the rings of `wire`, and to and from other hosts, by the hot way in C
        (`_express.c`).

        `wire` is `self.wire`, or below it; nothing between the two may change frames of one part. `far`: the ranks on other
        hosts, and the wire below `wire` that reaches them. `direct`: the wire next above `wire`. `send` is another one
        afterwards. Without the C module or without rings nothing changes.
        """
        if make_express is None or wire.inbox is None:
            return
        self._ring_wire = wire
        others = None
        if far is not None:
            fds = far[1].fileno(), self._control_poller.fileno()
            others = (*far, *fds, self.endpoint.config.size - 1, running_count)
        readers = None if direct is None else direct.readers
        self.express = make_express(self, wire.inbox, wire.writers, wire.unread, others, readers)
        self._accept = self.express.accept
        if far is not None:
            self._others = far[0], wire.inbox
            self._far_ranks, self._far = far
        self._pause_ns = wire.pause_ns
        self._bulk_bytes = BULK_BYTES_OF_RINGS
        self._refused.first_wait_ns = FIRST_WAIT_OF_RINGS_NS
        self.send, self.glance = self.express.send, self.express.glance  # type: ignore[method-assign]
        if board.available():
            self.boards = Boards(
                wire,
                self.endpoint.config.rank,
                self._marks,
                self.endpoint.epoch,
                self._spin_longest_ns,
                clock=self.clock,
            )

    def set_peer(self, rank: int, address: str, incarnation: int) -> None:
        """Tell the port that `rank` runs as `incarnation` and is reached at `address`.

        Frames queued for its former address are dropped. Raises AddressError, UnknownRank.
        """
        self._refused.forget(rank)
        self.wire.connect(rank, address)
        self.endpoint.set_peer(rank, incarnation, self.clock())
        self._flush(self.clock())

    def set_direct(self, rank: int, yes: bool) -> None:
        """Tell the port whether `rank` reads large payloads from this process's memory: then one frame carries them, and
        `rank` is in `direct`."""
        if rank != self.endpoint.config.rank:
            (self.direct.add if yes else self.direct.discard)(rank)
            self.endpoint.set_fragment(rank, DIRECT_PIECE_BYTES if yes else None)

    def drop_peer(self, rank: int) -> None:
        """Tell the port that `rank` is dead and will not be restarted: see `Endpoint.drop_peer`.

        Frames in the wire's queue are read first (at most DRAIN_FRAMES): `rank` may have sent some before it died.
        """
        now_ns = self.clock()
        for _ in range(DRAIN_FRAMES):
            frame = self.wire.receive()
            if frame is None:
                break
            self._take(frame, now_ns)
        self._deliver()
        self._refused.forget(rank)
        self.endpoint.drop_peer(rank)

    @property
    def control_fd(self) -> int | None:
        """The control descriptor: when it is readable, wait() and the helper call `on_control` (under the lock)."""
        return self._control_fd

    @control_fd.setter
    def control_fd(self, fd: int | None) -> None:
        former, self._control_fd = self._control_fd, fd
        for poller in (self._poller, self._control_poller):
            if former is not None:
                poller.unregister(former)
            if fd is not None:
                poller.register(fd, select.EPOLLIN)
        if self._helper is not None:
            self._helper.watch(former, fd)

    def start_helper(self) -> None:
        """Start the thread that makes progress while the application computes. Idempotent."""
        self._guard.check()
        if self._helper is None:
            self._helper = ProgressHelper(self, self.wire.fileno(), self._control_fd)
            self._helper.start()

    def stop_helper(self) -> None:
        """End the helper thread and wait for its end. The caller must not hold the lock. Idempotent."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.stop()

    def wake(self) -> None:
        """Make wait() return soon and the helper tick soon. From any thread, with or without the lock."""
        if not self._closed:
            os.eventfd_write(self._wake_fd, 1)
            self._wake_helper()

    def progress(self) -> bool:
        """Drain, run timers, deliver, flush.

        Never blocks. True when a frame, a timer or control traffic was handled.
        """
        self.entries += 1
        if self.helper_watching:
            self._wake_helper()
        if self._has_pending:
            self._raise_pending()
        return self.pump()

    def glance(self) -> bool:
        """Look for a frame for as long as a wait would spin. True: one has come, and what it brings is handed over.

        False: there is none, or something else is to be done: the caller waits (`wait`).
        """
        express, marks = self.express, self._marks
        if express is None or self._has_pending or self._refused.by_rank:
            return False
        self.entries += 1
        if self.helper_watching:
            self._wake_helper()
        now_ns = self.clock()
        if marks.dirty or marks.flush_due:
            self._flush(now_ns)
        sleeps = self._sleeps_in_look()
        spin_ns = FAR_LOOK_NS if sleeps else self._spin_ns
        if marks.deadline_ns <= now_ns:
            self.endpoint.tick(now_ns)
            if self._deliver():  # messages to oneself, too
                return True
            if marks.dirty or marks.flush_due:
                self._flush(now_ns)
            if self.next_deadline_ns() <= now_ns:
                return False
        if express.may_be_asked and not sleeps:
            spin_ns = self._spin_longest_ns
        if not spin_ns:
            return False
        if now_ns - self.control_checked_ns >= CONTROL_EVERY_NS:
            if self._control_poller.poll(0):
                return False
            self.control_checked_ns = now_ns
        end_ns = min(now_ns + spin_ns, marks.deadline_ns) if sleeps else now_ns + spin_ns
        if express.look(end_ns, self._pause_ns):
            self._spin_ns = self._spin_longest_ns
            self.counts["waits_spun"] += 1
            if marks.flush_due:
                self._flush_seen()
            return True
        if self._ring_wire.unread:
            return self._take_seen()
        self._glanced = True
        return False

    def _take_seen(self) -> bool:
        """A glance has found a frame that is not ordinary. Is it taken?"""
        frame = self.wire.receive()
        if frame is not None:
            self._take_awaited(frame, self.clock())
        return frame is not None

    def _flush_seen(self) -> None:
        """A message that a glance has found makes frames due."""
        self._flush(self.clock())

    def _waits_for_others(self) -> bool:
        """Can what is awaited come from other hosts only?"""
        return self._others is not None and bool(self._others[0]) and not self._others[1].count

    def _sleeps_in_look(self) -> bool:
        """Does a look sleep for long, until a frame comes from another host? That costs nothing, and a wait that begins anew
        costs more than an answer takes on its way. Not if there are other ranks on this host, or other threads of the
        program, which would wait for the lock meanwhile."""
        return (
            self._waits_for_others()
            and len(self._far_ranks) == self.endpoint.config.size - 1
            and running_count() <= 1 + self._far.threads  # the helper, and those of the wire
        )

    def wait(self, timeout_ns: int | None = None) -> None:
        """Return when something happened, after `timeout_ns`, after `wake` or after 50 ms."""
        self.entries += 1
        if self.helper_watching:
            self._wake_helper()
        if self._has_pending:
            self._raise_pending()  # first of all: a message taken before an exception would be lost
        began_ns = self.clock()
        limit_ns = SLEEP_LONGEST_NS if timeout_ns is None else min(timeout_ns, SLEEP_LONGEST_NS)
        spin_ns, self._glanced = 0 if self._glanced else self._spin_ns, False
        if self.express is not None and self._refused.by_rank:
            # A sleep lasts a millisecond at least, in which a ring is read many times.
            spin_ns = self._spin_longest_ns
        if self.waiters.entries and self.waiters.are_coming:
            spin_ns = 0
        if self._waits_for_others():
            spin_ns = 0  # what is awaited comes by a descriptor: a look in between would take the core from ZeroMQ's threads
        if not self._run_timers(began_ns) and not self._spin(began_ns, min(spin_ns, limit_ns)):
            self._sleep(began_ns, began_ns + limit_ns)

    @property
    def is_closed(self) -> bool:
        """Has `close` been called?"""
        return self._closed

    def enter_beside(self) -> bool:
        """A thread is about to wait beside the one that leads: a round of progress, so that what it has sent leaves.

        True when a frame, a timer or control traffic was handled. The helper leads at once unless another thread does."""
        if self._closed:
            return False
        changed = self.progress()
        if not changed and not self.interrupts.sleeping:
            self._wake_helper()
        return changed

    def lead_beside(self) -> None:
        """The thread that has led may leave the library now, while others wait: the helper is to lead then."""
        if not self.helper_watching:
            self._wake_helper()

    def freeze(self) -> None:
        """Stop the port: a frame that comes is answered by a negative acknowledgement (NACK), and nothing else leaves."""
        self.endpoint.freeze()

    def snapshot(self) -> PortState:
        """Return the state that an image keeps; messages are in it by reference."""
        return self.endpoint.snapshot()

    def publish(self, epoch: int) -> None:
        """Memory of this process may belong to `epoch` from now on: its image is about to be captured, or never will be."""
        if self.on_publish is not None:
            self.on_publish()  # also for an epoch that is published already: an image of it may have failed
        self.published_epoch.value = max(epoch, self.published_epoch.value)
        if self.boards is not None:
            self.boards.host.publish(epoch)

    def advance(self, epoch: int) -> None:
        """The image of `epoch` is captured: stamp frames with `epoch` from now on, and process the frames held for it."""
        self.publish(epoch)
        self.endpoint.advance(epoch, self.clock())
        if self.boards is not None:
            self.boards.host.advance(self.endpoint.epoch)
        self._deliver()

    def thaw(self, epoch: int | None = None) -> None:
        """Go on after a freeze. `epoch`: advance to it first. It need not be published again, if the lock has been held
        since."""
        now_ns = self.clock()
        if epoch is not None:
            if epoch > self.published_epoch.value:
                self.publish(epoch)
            self.endpoint.advance(epoch, now_ns)
            if self.boards is not None:
                self.boards.host.advance(self.endpoint.epoch)
        self.endpoint.thaw(now_ns)
        marks = self._marks
        if marks.dirty or marks.flush_due or self._refused.by_rank:
            self._flush(now_ns)

    def counters(self) -> dict[str, int]:
        """Counters of the endpoint, the wire and the port, by name. It is called under the lock: the wire looks after its
        connections first."""
        all_counts = self.endpoint.counters() | self.wire.counters()
        all_counts |= self.counts | {"frames_refused": self._refused.refused}
        express = self.express
        if express is not None:
            all_counts |= {"express_sent": express.sent, "express_received": express.taken}
            all_counts["waits_spun"] += express.seen
            all_counts["messages_placed"] += express.placed
            if express.pointed or express.read:
                all_counts["direct_sent"] += express.pointed
                all_counts["direct_read"] += express.read
        if self.boards is not None:
            all_counts |= self.boards.counts
        return all_counts

    def close(self) -> None:
        """Stop the helper and close the wire.

        Nothing is flushed. In a forked child this does nothing. Idempotent. Another thread that is in the library now is
        waited for, but not for ever: what it uses is not to be closed in the middle.
        """
        if self._closed or not self._guard.mine():
            return
        self.stop_helper()
        has_lock = self.lock.acquire(timeout=CLOSE_S)
        try:
            self._close()
        finally:
            if has_lock:
                self.lock.release()

    def _close(self) -> None:
        self.interrupts.uninstall()
        self._closed = True
        owned.forget(*self._event_fds)
        self._poller.close()
        self._control_poller.close()
        os.close(self._wake_fd)
        self.wire.close()

    def pump(self) -> bool:
        """One round of progress. True when a frame, a timer or control traffic was handled."""
        now_ns = self.clock()
        receive, take = self.wire.receive, self._take
        changed = False
        for _ in range(DRAIN_FRAMES):
            frame = receive()
            if frame is None:
                break
            take(frame, now_ns)
            changed = True
            if self._is_bulk(frame):
                self._bulk = True
        if changed:
            self._deliver()
        changed = self._run_timers(now_ns) or changed
        if self.interrupts.sleeping:
            self._arm_for_sleeper()
        return changed

    def _take(self, frame: Sequence[Buffer], now_ns: int) -> None:
        """Process a frame from the wire. A payload that is still in its sender's memory may be read into the program's: no
        other message may come between, so what came before is delivered first, and this one at once."""
        endpoint = self.endpoint
        if len(frame) == 1 or self.on_place is None or not isinstance(frame[1], Remote):
            if self._accept is not None and len(frame) == 1:
                ordinary = self._accept(frame[0], now_ns)  # type: ignore[arg-type]
                if ordinary is not None:
                    if ordinary[1]:
                        self.on_messages(*ordinary)  # type: ignore[arg-type]
                    return
            endpoint.receive(frame, now_ns)
            return
        self._deliver()
        endpoint.place = self.on_place
        try:
            endpoint.receive(frame, now_ns)
        finally:
            endpoint.place = None
        for source, messages in endpoint.delivered():
            if isinstance(messages[0], Placed):
                assert self.on_placed is not None
                self.counts["messages_placed"] += 1
                self.on_placed(source, messages.pop(0))
            if messages:
                self.on_messages(source, messages)
        self._deliver()

    def _arm_for_sleeper(self) -> None:
        """Another thread has looked at the wire, so its descriptor may not become readable for the thread that sleeps on it:
        have it do so again, or end the sleep, if a frame has come meanwhile."""
        if self.wire.deadline_ns() == 0:
            self._sleep_bell.release()

    def _run_timers(self, now_ns: int) -> bool:
        """A round of progress without receiving: timers, control traffic, flush. True when something was handled."""
        marks = self._marks
        changed = False
        if marks.deadline_ns <= now_ns:
            self.endpoint.tick(now_ns)
            changed = self._deliver()
        if marks.dirty or marks.flush_due or self._refused.by_rank:
            self._flush(now_ns)
        if now_ns - self.control_checked_ns >= CONTROL_EVERY_NS and self._check_control(now_ns):
            changed = True
        return changed

    def fail(self, failure: BaseException) -> None:
        """Keep `failure`: the application's next progress or wait raises it."""
        self._failure = failure
        self._has_pending = True

    def next_deadline_ns(self) -> int:
        """Time of the clock at which progress is next needed even if nothing arrives; NEVER_NS: no timer runs."""
        deadline_ns = self.endpoint.deadline_ns()
        wire_ns = self.wire.deadline_ns()
        if self.endpoint.flush_due:
            return 0
        return min(
            NEVER_NS if deadline_ns is None else deadline_ns,
            NEVER_NS if wire_ns is None else wire_ns,
            self._refused.retry_at_ns,
        )

    def _deliver(self) -> bool:
        endpoint = self.endpoint
        delivered, events = endpoint.delivered(), endpoint.events()
        for source, messages in delivered:
            self.on_messages(source, messages)
        for event in events:
            if isinstance(event, LinkLate):
                if self.on_late is not None:
                    self.on_late(event.rank, event.silent_ns)
                continue
            if isinstance(event, LinkStalled):
                self.wire.renew(event.rank)
            self.on_event(event)
        return bool(delivered or events)

    def _is_bulk(self, parts: Sequence[Buffer]) -> bool:
        """Is this frame long enough that no wait spins for what comes after it? One whose payload is read is not: no thread
        of ZeroMQ has work with it."""
        return max(map(len, parts)) > self._bulk_bytes and not isinstance(parts[-1], Remote)

    def _on_flush_due(self) -> None:
        if self.helper_watching:
            self._wake_helper()
        self._flush(self.clock())

    def _flush(self, now_ns: int) -> None:
        refused = self._refused
        waiting = refused.by_rank
        if waiting:
            refused.retry(now_ns)
        elif self.express is not None and self.express.flush():
            return
        send = self.wire.send
        for rank, parts in self.endpoint.transmit(now_ns, waiting):
            if self._is_bulk(parts) and rank not in self.direct:
                self._spin_ns = 0
                self._bulk = True
            if rank not in waiting and send(rank, parts):
                self._has_sent = True
            else:
                refused.add(rank, parts, now_ns)

    def _wake_peer(self, rank: int) -> None:
        """The peer sleeps, and a frame is in its ring."""
        self._ring_wire.wake(rank)

    def _send_again(self, rank: int, parts: tuple[Buffer, ...]) -> None:
        """A frame that counts as sent was written into a ring that is broken."""
        if not self.wire.send(rank, parts):
            self._refused.add(rank, parts, self.clock())

    def _spin(self, began_ns: int, spin_ns: int) -> bool:
        """Look at the wire for at most `spin_ns`; the wire yields the core. True: a frame was handled, or refused ones were
        taken."""
        receive, clock, spin = self.wire.receive, self.clock, self.wire.spin
        marks, refused = self._marks, self._refused
        end_ns = began_ns + spin_ns
        if self._has_sent:
            # The answer to a frame that was just sent cannot be here yet: let the peers run before the first look.
            self._has_sent = False
            if spin_ns:
                spin(end_ns)
        while True:
            frame = receive()
            now_ns = clock()
            if frame is not None:
                self._take_awaited(frame, now_ns)
                return True
            if refused.retry_at_ns <= now_ns:
                self._flush(now_ns)
                if not refused.by_rank:
                    return True
                if refused.taken_ns == now_ns:
                    end_ns = now_ns + spin_ns
            if now_ns >= end_ns or marks.flush_due:
                return False
            spin(min(end_ns, refused.retry_at_ns))

    def _take_awaited(self, frame: Sequence[Buffer], now_ns: int) -> None:
        """Process a frame that has come while this thread looked for one."""
        marks = self._marks
        self._take(frame, now_ns)
        for source, messages in self.endpoint.delivered():
            self.on_messages(source, messages)
        if marks.events:
            self._deliver()
        if marks.flush_due:
            self._flush(now_ns)
        self._spin_ns = 0 if self._is_bulk(frame) else self._spin_longest_ns
        self.counts["waits_spun"] += 1

    def _sleep(self, began_ns: int, until_ns: int) -> None:
        """Sleep until something happened, running timers on the way."""
        self.counts["waits_slept"] += 1
        gate, lock, waiters = self.interrupts, self.lock, self.waiters
        bell, wait = self._sleep_bell, self._sleep_wait
        clock = self.clock
        now_ns = clock()
        changed = self._bulk = False
        while now_ns < until_ns and not changed:
            sleep_ns = min(until_ns, self.next_deadline_ns()) - now_ns
            waiters.enter_again(bell, wait)
            try:
                gate.sleeping = True
                lock.release()
                gate.fire()
                readable = self._poller.poll(max(sleep_ns, 0) / 1e9) if sleep_ns > 0 else []
            except BaseException:
                if self.helper_parked:
                    self._wake_helper()  # the application leaves the library
                raise
            finally:
                # In one step for signals: none may come between the two, nor raise while the lock is taken.
                gate.sleeping, gate.returning = False, True
                lock.acquire()
                gate.returning = False
                waiters.leave(bell)
            changed = any(fd != self.wire.fileno() for fd, _ in readable) and self._check_control(clock())
            changed = self.pump() or changed
            now_ns = clock()
        # If the wait was about as short as a spin, spinning pays next time; if it was longer, it does not.
        if self._bulk:
            self._spin_ns = 0
        elif now_ns - began_ns <= 2 * self._spin_longest_ns:
            self._spin_ns = self._spin_longest_ns
        else:
            self._spin_ns //= 2
        if changed and self.helper_parked:
            self._wake_helper()

    def _check_control(self, now_ns: int) -> bool:
        """Look at the control and wake descriptors; True when one of them was readable."""
        self.control_checked_ns = now_ns
        readable = self._control_poller.poll(0)
        for fd, _ in readable:
            if fd == self._wake_fd:
                try:
                    os.eventfd_read(fd)
                except BlockingIOError:
                    pass  # the other thread has read it since the poll
            else:
                self.on_control()
        return bool(readable)

    def _wake_helper(self) -> None:
        self.helper_watching = self.helper_parked = False
        if self._helper is not None:
            self._helper.wake()

    def _on_deferred_signal(self) -> None:
        self._has_pending = True
        self._wake_helper()

    def _on_interrupted(self) -> None:
        self._wake_helper()
        os.eventfd_write(self._wake_fd, 1)

    def _raise_pending(self) -> None:
        """Raise the helper's failure, or run deferred signal handlers: no operation is half done at this place."""
        self._has_pending = (
            False  # before anything is looked at: who wants attention meanwhile gets the next one
        )
        failure, self._failure = self._failure, None
        if failure is not None:
            self._has_pending = True  # deferred signals are for the next call
            raise failure
        self.interrupts.fire()
        if self.interrupts.pending:
            self._has_pending = True  # they are for the main thread

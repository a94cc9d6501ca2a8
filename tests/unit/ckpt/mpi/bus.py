"""An in-memory stand-in for the transport: N ranks as threads, exchanging messages through queues.

Delivery is in order per pair and otherwise as a seeded generator decides: messages of different sources
interleave, acknowledgements come late. When a rank waits while nothing is on its way to anybody, and all
others wait as well, that is a deadlock and raises `Stuck` everywhere, so that no test hangs.

A rank with `die_in` dies after so many calls down here, wherever its program is: part of what it had sent is
lost, and the others hear of its death at some later call of theirs.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from ckpt.mpi.base import envelope
from ckpt.mpi.comm.communicator import world_of
from ckpt.mpi.engine.engine import Engine
from ckpt.transport.protocol.ledger import Placed


class Stuck(AssertionError):
    """All ranks wait and nothing is under way."""


class Killed(BaseException):
    """This rank is dead."""


class Bus:
    """Queues between `size` ranks. One lock for all: correctness is tested here, not speed."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.random = random.Random(seed)
        self.changed = threading.Condition()
        self.queues: dict[tuple[int, int], deque[bytes]] = {
            (src, dst): deque() for src in range(size) for dst in range(size)
        }
        self.sent = [[0] * size for _ in range(size)]
        self.acked = [[0] * size for _ in range(size)]
        self.waiting: dict[int, list[int]] = {}
        """Per waiting rank the acknowledgements it had seen when it began to wait."""
        self.running = size
        self.failed: BaseException | None = None
        self.notices: dict[int, list[int]] = {rank: [] for rank in range(size)}
        """Per rank the deaths it has yet to hear of."""
        self.consumed = [[0, 0] for _ in range(size)]

    def bury(self, rank: int) -> None:
        """A rank has died: a part of what it had sent is still on its way, nothing can reach it."""
        with self.changed:
            for (src, dst), queue in self.queues.items():
                keep = self.random.randint(0, len(queue)) if src == rank else len(queue)
                while len(queue) > keep:
                    queue.pop()
                if dst == rank:
                    queue.clear()
            for other, notices in self.notices.items():
                if other != rank:
                    notices.append(rank)
            self.changed.notify_all()

    def stuck(self) -> bool:
        """Whether every rank waits and has nothing to wake up for."""
        if len(self.waiting) < self.running or any(self.notices[rank] for rank in self.waiting):
            return False
        if any(queue for (_, dst), queue in self.queues.items() if dst in self.waiting):
            return False
        return all(self.acked[rank] == acks for rank, acks in self.waiting.items())


class BusProgress:
    """One rank's end of the bus."""

    def __init__(self, bus: Bus, rank: int) -> None:
        self.bus = bus
        self.rank = rank
        self.size = bus.size
        self.lock = threading.Lock()
        self.engine: Engine | None = None
        self.seen = [0] * bus.size
        self.blocks = 0
        self.hungry: list[bool] = []
        self.die_in: int | None = None
        self.lost: set[int] = set()
        self.before_block: Callable[[], object] | None = None
        """Called where a process image may be taken. True: what it has done is to be looked at."""

    def send(self, dst: int, data: Any, payload: Any = None) -> int:
        assert self.lock.locked()
        self._live()
        bus = self.bus
        if dst in self.lost:
            return 0
        with bus.changed:
            message = bytes(data) + (bytes(payload) if payload is not None else b"")
            bus.queues[self.rank, dst].append(message)
            sequence = bus.sent[self.rank][dst]
            bus.sent[self.rank][dst] += 1
            bus.changed.notify_all()
        return sequence

    def _live(self) -> None:
        if self.die_in is not None:
            self.die_in -= 1
            if self.die_in < 0:
                raise Killed

    def _hear(self, *, all_of_it: bool) -> bool:
        """Hear of deaths, perhaps."""
        bus = self.bus
        with bus.changed:
            news = bus.notices[self.rank]
            if not news or not (all_of_it or bus.random.random() < 0.3):
                return False
            rank = news.pop(0)
            bus.queues[rank, self.rank].clear()
        self.lost.add(rank)
        assert self.engine is not None
        self.engine.failed_ranks.add([rank])
        return True

    def acked(self, dst: int) -> int:
        return 1 << 60 if dst in self.lost else self.seen[dst]

    def release(self, dst: int, sequence: int) -> bool:
        return True  # messages are copied here

    def backlog_bytes(self, dst: int) -> int:
        with self.bus.changed:
            return sum(map(len, self.bus.queues[self.rank, dst]))

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        self.bus.consumed[self.rank][0] += nbytes
        self.bus.consumed[self.rank][1] += nmessages

    def _deliver(self) -> bool:
        """Hand over a random share of what is on its way here."""
        bus = self.bus
        with bus.changed:
            sources = [src for src in range(self.size) if bus.queues[src, self.rank]]
            if not sources:
                return False
            src = bus.random.choice(sources)
            queue = bus.queues[src, self.rank]
            batch = [queue.popleft() for _ in range(bus.random.randint(1, len(queue)))]
            bus.acked[src][self.rank] += len(batch)
            bus.changed.notify_all()
        assert self.engine is not None
        kind = bus.random.choice((bytes, bytes, memoryview, bytearray))
        for data in self._placed(src, batch):
            self.engine.on_messages(src, [kind(each) for each in data])
        return True

    def _placed(self, src: int, batch: list[bytes]) -> Iterator[list[bytes]]:
        """Put some messages where the program wants them, as a port does with those that it reads from their sender's
        memory; the others, in order, between them."""
        assert self.engine is not None
        while batch:
            count = self.bus.random.randint(0, len(batch))
            if count:
                yield batch[:count]
            batch = batch[count:]
            head = batch[0][: envelope.SIZE] if batch else b""
            spot = self.engine.place(head, len(batch[0]) - envelope.SIZE) if batch else None
            if spot is not None:
                spot.memory[:] = batch[0][envelope.SIZE :]
                self.engine.on_placed(src, Placed(head, spot, len(batch[0])))
                batch = batch[1:]

    def _news(self) -> bool:
        """See new acknowledgements; whether there were any."""
        current = list(self.bus.acked[self.rank])
        changed = current != self.seen
        self.seen = current
        return changed

    def poll(self) -> None:
        assert self.lock.locked()
        self._live()
        self._hear(all_of_it=False)
        self._news()
        self._deliver()

    def block(self, hungry: bool, awaited: object = None) -> None:
        assert self.lock.locked()
        self.blocks += 1
        self.hungry.append(hungry)
        self._live()
        if self.before_block is not None and self.before_block():
            return
        if self._hear(all_of_it=False) or self._news() or self._deliver():
            return
        bus = self.bus
        mine = [(src, self.rank) for src in range(self.size)]
        with bus.changed:
            bus.waiting[self.rank] = self.seen
            try:
                while True:
                    if bus.failed is not None:
                        raise Stuck("another rank failed") from bus.failed
                    if any(bus.queues[link] for link in mine) or self._news():
                        return
                    if bus.notices[self.rank]:
                        break
                    if bus.stuck():
                        bus.failed = Stuck(f"rank {self.rank} and all others wait for nothing")
                        bus.changed.notify_all()
                        raise bus.failed
                    if not bus.changed.wait(20):
                        raise Stuck("timeout")
            finally:
                del bus.waiting[self.rank]
        self._hear(all_of_it=True)


def found(module: str, qualname: str) -> Any:
    """What has this name."""
    here: Any = sys.modules[module]
    for name in qualname.split("."):
        here = getattr(here, name, None)
    return getattr(here, "__func__", here)


def wrapped(module: str, qualname: str) -> Any:
    """The method inside a guard (ckpt/mpi/comm/guard.py): a process image has it by value."""
    return found(module, qualname).__wrapped__


class ImagePickler(pickle.Pickler):
    """Stands for the process image: the progress and its lock are live references."""

    def __init__(self, file: Any, live: dict[int, str]) -> None:
        super().__init__(file, 5)
        self.live = live

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType) and obj.__module__.startswith("ckpt."):
            public = found(obj.__module__, obj.__qualname__)
            if getattr(public, "__wrapped__", None) is obj:
                return wrapped, (obj.__module__, obj.__qualname__)
        rule = None if isinstance(obj, type) else getattr(obj, "__image_reduce__", None)
        return NotImplemented if rule is None else rule()

    def persistent_id(self, obj: Any) -> str | None:
        return self.live.get(id(obj))


class ImageUnpickler(pickle.Unpickler):
    def __init__(self, file: Any, live: dict[str, Any]) -> None:
        super().__init__(file)
        self.live = live

    def persistent_load(self, name: str) -> Any:
        return self.live[name]


def image_of(progress: BusProgress, *objects: Any) -> bytes:
    """The objects as an image would hold them."""
    import io

    file = io.BytesIO()
    ImagePickler(file, {id(progress): "progress", id(progress.lock): "lock"}).dump(objects)
    return file.getvalue()


def revive(image: bytes, progress: BusProgress) -> Any:
    """The objects of an image, on another progress."""
    import io

    return ImageUnpickler(io.BytesIO(image), {"progress": progress, "lock": progress.lock}).load()


def run_ranks(
    size: int,
    program: Callable[[Any], Any],
    *,
    seed: int = 0,
    hook: Callable[[BusProgress], None] | None = None,
) -> list[Any]:
    """Run `program(comm)` on every rank and return their results by rank. The first failure is raised."""
    bus = Bus(size, seed)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        progress = BusProgress(bus, rank)
        progress.engine = Engine(progress)
        if hook is not None:
            hook(progress)
        try:
            results[rank] = program(world_of(progress.engine))
        except Killed:
            results[rank] = Killed
            bus.bury(rank)
        except BaseException as error:
            if not isinstance(error, Stuck) or error.__cause__ is None:
                errors.append(error)
            with bus.changed:
                bus.failed = bus.failed or error
                bus.changed.notify_all()
        finally:
            with bus.changed:
                bus.running -= 1
                if bus.waiting and bus.stuck():
                    bus.failed = bus.failed or Stuck("the others are gone")
                bus.changed.notify_all()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    if bus.failed is not None:
        raise bus.failed
    return results

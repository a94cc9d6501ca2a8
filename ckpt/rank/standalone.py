"""A world of one rank without a job: ``ckpt.enable()`` makes it under plain ``python``.

The communicator and its engine are the same as in a job; only the ``Progress`` below them differs: it hands each sent
message to the same engine. There are no checkpoints here. Waiting for a message that this rank has not sent itself can
never end, so :meth:`Standalone.block` raises Deadlock where the program has one thread only.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt.capture.hooks import Hooks
from ckpt.capture.threads import HarmlessThreads
from ckpt.errors import Deadlock
from ckpt.rank.commits import CommitsAtOnce
from ckpt.rank.files import NoFiles

if TYPE_CHECKING:
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.mpi.engine.engine import Engine
    from ckpt.replay.program import Replay

__all__ = ["Standalone"]

Buffer = bytes | bytearray | memoryview


_BESIDE_S = 0.0005  # so long until a thread that waits looks again for a message of another thread


class Standalone:
    """The ``Progress`` of a world of one rank: each message arrives at once, and counts as acknowledged."""

    rank = 0
    size = 1
    is_thread_multiple = True
    epoch = 0
    restarts = 0
    explicit: Replay | None = None

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.registered: dict[str, object] = {}
        self.hooks = Hooks()
        self.files = NoFiles()
        self.commits = CommitsAtOnce()
        self.threads = HarmlessThreads()
        self._sent = 0
        self.engine: Engine
        self.world: Communicator

    @classmethod
    def start(cls) -> Standalone:
        from ckpt.mpi import make_world

        standalone = cls()
        standalone.engine, standalone.world = make_world(standalone)
        atexit.register(standalone.end)
        return standalone

    def end(self) -> None:
        """The program has ended: raises what a handler of active messages has raised, and no call since."""
        with self.lock:
            self.engine.attend()

    # ------------------------------------------------------------------ what a program can ask

    def enter(self, explicit: bool) -> None:
        """Nothing is checked, since there are no images."""

    def checkpoint(self, wait: bool = True) -> int | None:
        return None

    def register(self, name: str, obj: object) -> object:
        from ckpt.rank.asking import check_name, note_registered

        check_name(name)  # what a job refuses is an error here, too
        note_registered(self.registered, name, obj)
        return obj

    def log(self, packet: dict[str, Any]) -> None:
        return None

    def spawn(self, packet: dict[str, Any] | None) -> str | None:
        return "this is no job"

    def abort(self, exit_code: int) -> NoReturn:
        os._exit(exit_code & 0xFF or 1)

    # ------------------------------------------------------------------ progress

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        message = bytes(data) if payload is None else bytearray(data) + payload
        self.engine.on_messages(0, [message])
        self._sent += 1
        return self._sent - 1

    def acked(self, dst: int) -> int:
        return self._sent

    def release(self, dst: int, sequence: int) -> bool:
        return True

    def backlog_bytes(self, dst: int) -> int:
        return 0

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        return None

    def poll(self) -> None:
        return None

    def wake(self) -> None:
        return None

    def block(self, hungry: bool, awaited: object = None) -> None:
        if threading.active_count() > 1:  # another thread may send
            self.lock.release()
            try:
                time.sleep(_BESIDE_S)
            finally:
                self.lock.acquire()
            return
        raise Deadlock(
            "waiting for a message that no rank can send: the program runs as one rank; "
            "start it with `ckpt run -n N` for more"
        )

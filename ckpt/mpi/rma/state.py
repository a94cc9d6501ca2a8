"""The state of one window at one rank, which all its handles share: both sides of it, and the messages between members.

The engine knows it as a `Window` (ckpt/mpi/engine/windows.py). It is part of the image: messages that were handled are
in the memory and the state, all others are in the port. Messages of this rank to itself are handled at once, if
nobody orders requests.

Not here: the program's calls (window.py and the modules it is composed of).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base import envelope
from ckpt.mpi.base.errors import ERR_REVOKED, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.rma import direct, wire
from ckpt.mpi.rma.epochs import Epochs
from ckpt.mpi.rma.exposed import Dynamic, Exposed, Fixed
from ckpt.mpi.rma.origin import Origin
from ckpt.mpi.rma.target import Target

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.engine.engine import Engine


class WindowState:
    """One window at one rank.

    `group`: world ranks of the members. `sizes`, `units`: size in bytes and displacement unit of each member's memory;
    `sizes` is None for a dynamic window. `private`: a communicator of the members for the window's own collectives."""

    __slots__ = (
        "attributes",
        "engine",
        "epochs",
        "errhandler",
        "exposed",
        "flavor",
        "freed",
        "group",
        "handle",
        "info",
        "name",
        "number",
        "origin",
        "private",
        "rank",
        "revoked",
        "sizes",
        "target",
        "unit",
        "units",
    )

    def __init__(
        self,
        engine: Engine,
        private: Any,
        flavor: int,
        exposed: Exposed,
        unit: int,
        handle: Callable[[Engine, WindowState], object],
    ) -> None:
        self.engine = engine
        self.private = private
        self.number: int = private._shared.base
        self.group: tuple[int, ...] = private._shared.group
        self.rank: int = private.rank
        self.flavor = flavor
        self.exposed = exposed
        self.unit = unit
        self.handle = handle
        self.sizes: tuple[int, ...] | None = None
        self.units: tuple[int, ...] = ()
        self.name = ""
        self.info: dict[str, str] = {}
        self.errhandler: Any = None
        self.attributes: dict[int, Any] = {}
        self.freed = False
        self.revoked = False
        """The communicator that the window was made of is revoked: nothing may begin, and what was begun has ended."""
        self.epochs = Epochs()
        self.target = Target(self, exposed)
        self.origin = Origin(self)

    @property
    def base(self) -> int:
        """WIN_BASE: the address of the memory; 0 for a dynamic window. It changes at a restart."""
        return self.exposed.address if isinstance(self.exposed, Fixed) else 0

    @property
    def size(self) -> int:
        """WIN_SIZE in bytes; 0 for a dynamic window."""
        return self.exposed.nbytes if isinstance(self.exposed, Fixed) else 0

    @property
    def pieces(self) -> Dynamic | None:
        """The attached memory of a dynamic window; None for another one."""
        return self.exposed if isinstance(self.exposed, Dynamic) else None

    def failure(self, rank: int) -> MpiException | None:
        """The error of operations with a member (rank in the window) that has failed, or of a revoked window; else None."""
        if self.revoked:
            return MpiException(ERR_REVOKED, "the communicator of the window is revoked")
        world = self.group[rank]
        failed_ranks = self.engine.failed_ranks
        return failed_ranks.failure(world) if world in failed_ranks.known else None

    def free(self) -> None:
        """All members have called Free, or one has failed: then some may still send, and are told that this rank has left.

        The engine's lock is held."""
        self.freed = True
        reads = direct.reads_of(self.engine)
        if reads is not None:
            reads.forget(self.number)
        self.target.exposed = self.exposed = Fixed(None, 0)
        if not self.engine.failed_ranks.known:
            self.engine.windows.remove(self)

    # -- messages; the engine's lock is held --------------------------------------------------------

    def post(
        self, rank: int, action: int, token: int = 0, body: bytes = b"", payload: Buffer | None = None
    ) -> int:
        """Send a message to a member; one to this rank is handled before this returns, or in its turn.

        Returns the transport's sequence number, by which a large payload that is sent by reference is acknowledged."""
        world = self.group[rank]
        head = envelope.pack(envelope.WINDOW, self.rank, action, self.number, token) + body
        if rank == self.rank:
            self.engine.windows.on_message(world, head if payload is None else b"".join((head, payload)))
            return 0
        if payload is None or len(payload) < wire.COPY_BYTES:
            return self.engine.progress.send(world, head if payload is None else b"".join((head, payload)))
        return self.engine.progress.send(world, head, payload)

    def on_message(self, src: int, data: Buffer) -> None:
        """Handle a message of the world rank `src`. Messages of ranks that have failed are dropped."""
        if src in self.engine.failed_ranks.known:
            return
        _, member, action, _, token = envelope.unpack(data)
        if action >= wire.POST:
            self.origin.on_message(member, action, token, data)
        else:
            self.target.on_message(member, action, token, data)

    def open_memory(self) -> list[BufferSpec]:
        """What the window exposes, and where answers under way will be stored."""
        results = [each.result_spec for each in self.origin.pending.values()]
        return [*self.exposed.whole(), *(spec for spec in results if spec is not None)]

    def lost(self, ranks: Sequence[int]) -> None:
        """World ranks have failed: end the operations on them, release their locks."""
        for world in ranks:
            if world in self.group:
                rank = self.group.index(world)
                self.origin.lost(rank, self.engine.failed_ranks.failure(world))
                self.target.lost(rank)

    def revoke(self) -> None:
        """The communicator of the window is revoked: end all operations."""
        self.revoked = True
        for rank in range(len(self.group)):
            error = self.failure(rank)
            assert error is not None
            self.origin.lost(rank, error)

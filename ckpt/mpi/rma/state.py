"""The state of one window at one rank, which all its handles share: both sides of it, and the messages between members.

Messages that were handled are in the memory and the state, so in the image; all others are in the port. Messages of this
rank to itself are handled at once, if nobody orders requests.

Not here: the program's calls (window.py and the modules it is composed of).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.members.state import MemberState
from ckpt.mpi.rma import direct, wire
from ckpt.mpi.rma.epochs import Epochs
from ckpt.mpi.rma.exposed import Dynamic, Exposed, Fixed
from ckpt.mpi.rma.origin import Origin
from ckpt.mpi.rma.shared import SharedPart, unshare
from ckpt.mpi.rma.target import Target

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.buffers import BufferSpec
    from ckpt.mpi.engine.engine import Engine


class WindowState(MemberState):
    """One window at one rank.

    `sizes`, `units`: size in bytes and displacement unit of each member's memory; `sizes` is None for a dynamic window."""

    __slots__ = (
        "attributes",
        "epochs",
        "exposed",
        "flavor",
        "name",
        "origin",
        "sizes",
        "target",
        "unit",
        "units",
    )
    _kind = "window"

    def __init__(
        self,
        engine: Engine,
        private: Any,
        flavor: int,
        exposed: Exposed,
        unit: int,
        handle: Callable[[Engine, WindowState], object],
    ) -> None:
        super().__init__(engine, private, handle)
        self.flavor = flavor
        self.exposed = exposed
        self.unit = unit
        self.sizes: tuple[int, ...] | None = None
        self.units: tuple[int, ...] = ()
        self.name = ""
        self.attributes: dict[int, Any] = {}
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
    def is_dynamic(self) -> bool:
        return self.pieces is not None

    @property
    def pieces(self) -> Dynamic | None:
        """The attached memory of a dynamic window; None for another one."""
        return self.exposed if isinstance(self.exposed, Dynamic) else None

    # -- the engine's lock is held -----------------------------------------------------------------

    def _leave(self) -> None:
        if self.engine.failed_ranks.known and not self.freed:
            self.engine.windows.add(self)  # members that got further than this rank are told
        self.freed = True
        reads = direct.reads_of(self.engine)
        if reads is not None:
            reads.forget(self.number)
        former, self.target.exposed = self.exposed, Fixed(None, 0)
        self.exposed = self.target.exposed
        if isinstance(former, SharedPart):
            unshare(self, former)
        if not self.engine.failed_ranks.known:
            self.engine.windows.remove(self)

    def _handle(self, member: int, action: int, token: int, data: Buffer) -> None:
        if action >= wire.POST:
            self.origin.on_message(member, action, token, data)
        else:
            self.target.on_message(member, action, token, data)

    def open_memory(self) -> list[BufferSpec]:
        """What the window exposes, and where answers under way will be stored."""
        results = [each.result_spec for each in self.pending.values()]
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

"""What the engine knows of a communicator: its state, which all handles share, and what it asks of a handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine


class CommShared:
    """State common to all handles of one communicator."""

    __slots__ = (
        "acknowledged",
        "agreements",
        "attributes",
        "base",
        "broken",
        "buffer",
        "closed",
        "collectives",
        "errhandler",
        "extras",
        "forgotten",
        "freed",
        "group",
        "handle",
        "info",
        "kin",
        "name",
        "parts",
        "peers",
        "pending",
        "persistent",
        "revoked",
        "routes",
        "topology",
        "undecided",
    )

    def __init__(
        self,
        base: int,
        group: tuple[int, ...],
        peers: tuple[int, ...],
        name: str,
        handle: Callable[[Engine, CommShared], object],
    ) -> None:
        self.base = base
        self.group = group
        self.peers = peers
        self.name = name
        self.handle = handle
        """Makes a handle of it, for an error handler of the program's own, which is called with one."""
        self.freed = False
        self.revoked = False
        self.closed = False
        """Freed or revoked: no operation may begin."""
        self.broken = False
        """A member has failed, as far as is known here: collectives cannot work any more."""
        self.kin: tuple[int, ...] = ()
        """World ranks that are no members, but whose failure ends collectives here too."""
        self.parts: tuple[int, ...] = ()
        """Contexts of private communicators that are revoked with this one."""
        self.acknowledged: set[int] = set()
        """Failed members (world ranks) that the program has acknowledged."""
        self.agreements = 0
        """Agreements begun so far: every rank counts the same."""
        self.undecided: set[int] = set()
        self.forgotten = 0
        """Agreements below this number are decided at all members."""
        self.routes: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.collectives = 0
        """Collective operations started so far: every rank counts the same."""
        self.persistent = 0
        """Persistent collectives made so far."""
        self.pending: dict[int, Any] = {}
        """Collectives under way, by tag."""
        self.attributes: dict[int, Any] = {}
        self.info: dict[str, str] = {}
        self.errhandler: Any = None
        self.buffer: Any = None
        self.topology: Any = None
        """What a topology is made of (comm_topology.py); None without."""
        self.extras: dict[Any, Any] = {}
        """Things that libraries above keep with a communicator (locks, private duplicates)."""


class CommHandle(Protocol):
    """A communicator as the program holds it: what an engine that takes over from another does with it."""

    _shared: CommShared

    def __bool__(self) -> bool: ...
    def __getstate__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...
    def _bind(self, engine: Engine, shared: CommShared) -> None: ...
    def _unbind(self) -> None: ...

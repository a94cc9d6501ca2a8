"""The state of a communicator, which all its handles share, and the methods of a handle that the engine calls.

The class of the handles is Comm (comm/). Each handle refers to one CommShared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ckpt.mpi.engine.engine import Engine


class CommShared:
    """The state of one communicator. `base` is its first context number (envelope.py), `group` and `peers` are the world
    ranks of the local and of the remote group, in order; an intracommunicator has the same tuple in both."""

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
        "exchange",
        "extras",
        "forgotten",
        "freed",
        "group",
        "handle",
        "info",
        "name",
        "parts",
        "peers",
        "pending",
        "persistent",
        "related_ranks",
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
        """Makes a handle of the communicator: the program's error handler is called with a handle as its argument."""
        self.freed = False
        self.revoked = False
        self.closed = False
        """The communicator is freed or revoked: no operation may begin."""
        self.broken = False
        """This rank knows that a member has failed: collectives end with an error."""
        self.related_ranks: tuple[int, ...] = ()
        """World ranks that are not members, but whose failure also ends the communicator's collectives."""
        self.parts: tuple[int, ...] = ()
        """Contexts of private communicators that are revoked with this one."""
        self.acknowledged: set[int] = set()
        """Failed members (world ranks) that the program has acknowledged."""
        self.agreements = 0
        """Number of agreements begun so far; it is the same at every rank."""
        self.undecided: set[int] = set()
        """Numbers of the agreements that this rank has begun and not decided."""
        self.forgotten = 0
        """All members have decided the agreements below this number; this rank has forgotten them."""
        self.routes: dict[tuple[int, int], tuple[int, bytes]] = {}
        """(destination, tag) -> (world rank, packed envelope), prepared by the first send."""
        self.collectives = 0
        """Number of collective operations started so far; it is the same at every rank."""
        self.persistent = 0
        """Number of persistent collectives made so far."""
        self.pending: dict[int, Any] = {}
        """Collectives under way: tag -> the schedules with this tag, in the order of their start."""
        self.attributes: dict[int, Any] = {}
        self.info: dict[str, str] = {}
        self.errhandler: Any = None
        self.buffer: Any = None
        self.topology: Any = None
        """Content of the communicator's topology (comm_topology.py); None for a communicator without topology."""
        self.exchange: Any = None
        """The `Exchange` of the communicator (ckpt/mpi/slots) of small collectives; None: not yet, or never."""
        self.extras: dict[Any, Any] = {}
        """Objects that other modules keep with the communicator (locks, private duplicates, counts), by key."""

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        self.exchange = None  # for an image that has none
        for name, value in state[1].items():
            setattr(self, name, value)


class CommHandle(Protocol):
    """A handle of a communicator, as the program holds it, with what imports.py needs of it."""

    _engine: Engine
    _shared: CommShared

    def __bool__(self) -> bool: ...
    def __getstate__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Any, ...]) -> None: ...
    def _bind(self, engine: Engine, shared: CommShared) -> None: ...
    def _unbind(self) -> None: ...

"""A layer under the engine: what implements `Progress` for fewer ranks over the `Progress` of more processes.

    program ── communicators ── engine ── Progress of the ranks  = the layer
                                              Progress of the processes  = what is below it

The engine, and so every communicator, collective and request, knows the ranks of the layer only. The layer decides which
process gets a message for a rank, and which message of a process the engine gets. Processes have numbers from 0; the port,
the control channel and the controller know these. What a program sees of itself (`RANK`, `WORLD_SIZE`, its streams) is the
`identity` in the description of its process, and does not follow from the number.

States: made (`attach`; nothing has been sent) ── `bind` ──▶ bound: messages come ── `ending` ──▶ the program has ended.

Rules
- `on_messages`, `on_lost`, `tick` and the methods of `Progress` are called with the lock held. None of them waits but
  `block`.
- What the layer sends for itself it has to tell from what the engine sends, by source or content, and to report as
  `consumed` to what is below.
- An image is that of a rank: what is below the layer is saved as of a job whose processes are the ranks (`saved`), and made
  to fit the processes that are there (`restored`). So it does not matter for an image whether there is a layer. Of several
  processes of a rank one takes images (`takes_images`), the others take the number of the epoch only.

A layer is named in the description of its process: ``spec["layer"] = {"attach": "module:function", …}``. The function gets
`Below` and that mapping.

`Choices` is the one hook for answers that look at timing: an engine without one (`Engine.choices` is None) answers by what
it sees.

Not here: layers (`ckpt.redundancy`), the process's side (`ckpt/rank/runtime.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from ckpt.mpi.base.progress import Buffer, Progress

__all__ = ["Below", "Choices", "Disk", "Layer", "LayerContent", "OfLayer"]

T = TypeVar("T")


class Below(Progress, Protocol):
    """What a layer stands on: the `Progress` of the processes (`rank`: number of this process; `size`: their count)."""

    @property
    def secret(self) -> bytes:
        """32 bytes that all processes of this job share, also after a restart, and nobody else knows."""

    def block(self, hungry: bool, awaited: Any = None, longest_ns: int | None = None) -> None:
        """As that of `Progress`; returns after `longest_ns` in any case, if that is given."""

    def notes(self, rank: int) -> str:
        """Path of a file of the job for what a layer of this rank has to know after a restart."""

    def report(self, fields: dict[str, Any]) -> None:
        """Send `fields` (JSON) to the controller, as a packet of the kind `layer`. Never waits for an answer."""

    def log(self, name: str, **fields: object) -> None:
        """Have an entry in the job's event log."""

    def fork(self) -> int:
        """Fork this process, as for an image; returns what fork(2) returns. The child may look at memory and call `report`;
        it ends with `os._exit`. Called by the program's main thread, with the lock held. Raises OSError."""


class Choices(Protocol):
    """Answers that depend on when messages arrive, for an engine whose answers must equal those of other processes.

    Called with the engine's lock held, by the program's thread. All may wait, and so call `Engine.block`."""

    def answer(self, look: Callable[[], T], holds: Callable[[T], bool]) -> T:
        """The answer to one question: that of `look`, or that of another process, as soon as it `holds` here."""

    def wait(self, look: Callable[[], T | None], holds: Callable[[T], bool]) -> T:
        """The same for a question that waits for its answer: `look` does not wait, and returns None until there is one."""

    def start(self, context: Any, receive: Any) -> None:
        """Match or post a receive (`Receive`) from ANY_SOURCE in a `Context`."""

    def started(self) -> None:
        """The program starts a collective."""

    def probe(self, context: Any, source: int, tag: int) -> Any:
        """The `Channel` of the message that a blocking probe from ANY_SOURCE finds. Waits for it."""

    def still(self) -> None:
        """The program looks at the memory of its windows now: no request of other ranks changes it until the next call."""

    def cancel(self, receive: Any) -> bool:
        """Withdraw a `Receive`, unless it has got a message, here or in another process. Was it withdrawn?"""


class Disk(Protocol):
    """Changes of parallel files where several processes are one rank: each is made once (`Windows.disk` of the engine).

    All but `write` and `check` are called by the program's thread, without the lock, in all these processes alike, and wait
    for them. All raise OSError, alike in all of them; and NotReplicable. Paths are absolute."""

    def create(self, path: str, flags: int, mode: int) -> None:
        """Open the file for writing, as `os.open` does, and close it."""

    def resize(self, path: str, nbytes: int) -> None:
        """Cut or extend the file."""

    def allocate(self, path: str, nbytes: int) -> None:
        """Have the file system set space apart."""

    def sync(self, path: str) -> None:
        """The file is on the disk."""

    def remove(self, path: str) -> None:
        """The name is bound to nothing."""

    def write(self, path: str, ranges: Any, data: Buffer) -> None:
        """Write to these pieces of the file. Called with the lock held, in one of the processes, when all of them have come
        to this request with the same data (`Windows.change`)."""

    def check(self, path: str, fd: int) -> None:
        """Raises OSError if the descriptor is of another file than that which was opened by this path."""


class LayerContent(Protocol):
    """What an image has of a layer."""

    def deliver(self, log: Callable[..., None]) -> None:
        """Called where the image is loaded without a layer, as soon as the engine can send: what the layer had of messages
        for it, it gets now. ``log(name, **fields)``: as :meth:`Below.log`; also later."""


OfLayer: TypeAlias = LayerContent | None
"""What an image has of a layer, if anything."""


class Layer(Progress, Protocol):
    """The `Progress` of the ranks that programs see (`rank`, `size`)."""

    def bind(self, engine: Any, content: Any = None) -> None:
        """The `Engine` over this layer has been made, or loaded from an image; no message has come yet. `content`: what an
        image has of a layer; None: it has none, or there is no image. Raises NotReplicable."""

    def saved(self, state: Any) -> Any:
        """The `PortState` of this process as of a job whose processes are the ranks."""

    def restored(self, state: Any) -> Any:
        """The inverse of `saved`, for this process."""

    def content(self, epoch: int) -> Any:
        """What the image of `epoch` has of the layer (`LayerContent`, or None); it can be loaded where there is none. Called
        while the program stands still."""

    @property
    def takes_images(self) -> bool:
        """Is it this process that takes the images of its rank?"""

    def obstacle(self) -> str:
        """Why no image can be taken just now; empty: one can be."""

    def captured(self, epoch: int, written: int) -> None:
        """Called in the process that writes an image, where the program stands still: before the vote. `written`: length of
        the program's standard output there, in bytes."""

    def on_messages(self, process: int, batch: list[Buffer]) -> None:
        """Messages of a process have arrived, in order: for the engine, or for the layer itself."""

    def on_lost(self, processes: Sequence[int], cause: str) -> None:
        """These processes have ended, and are not started again; all of them are named every time."""

    def on_packet(self, packet: Mapping[str, Any]) -> None:
        """The controller has sent a packet of the kind `layer`."""

    def tick(self) -> None:
        """Housekeeping: called when the program waits, and every few milliseconds while it computes."""

    def ending(self, exit_code: int) -> None:
        """The program has ended; its last packet, which says how, comes after this call."""

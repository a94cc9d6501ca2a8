"""The layer of a process, and what it stands on (:mod:`ckpt.mpi.base.layer`). (driver)

Not here: what a layer does, when it is called (:mod:`ckpt.rank.runtime`).
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ckpt.errors import IncompatibleImage
from ckpt.image import note_standard_again

if TYPE_CHECKING:
    from ckpt.mpi.base.layer import Layer
    from ckpt.mpi.base.progress import Buffer, Lock, Progress
    from ckpt.rank.runtime import Runtime
    from ckpt.transport.protocol.state import PortState

__all__ = ["attach", "port_state", "progress_of"]


def attach(runtime: Runtime) -> Layer:
    """The layer that the description of this process names (``spec["layer"]["attach"]``), over ``runtime``."""
    chosen = runtime.spec["layer"]
    module, _, function = chosen["attach"].partition(":")
    layer: Layer = getattr(importlib.import_module(module), function)(ProcessBelow(runtime), chosen)
    note_standard_again()  # what the layer has put into the standard library is no change by the program
    return layer


def progress_of(runtime: Runtime) -> Progress:
    """What the engine stands on: the layer, or the process itself."""
    return runtime if runtime.layer is None else runtime.layer


def port_state(runtime: Runtime, state: PortState) -> PortState:
    """The state of an image's port, for this process. Raises IncompatibleImage for one of a job of another size."""
    size = progress_of(runtime).size
    if state.size != size:
        raise IncompatibleImage(f"the image is of a job of {state.size} ranks, not {size}")
    found: PortState = state if runtime.layer is None else runtime.layer.restored(state)
    return found


def check_copy(runtime: Runtime) -> None:
    """Raise IncompatibleImage if this process is started as one more replica, among others that go on, and its program has
    functions for a restart: these would be called in one replica only."""
    if (
        runtime.layer is not None
        and runtime.spec["layer"].get("living") is not None
        and runtime.hooks.are_due
    ):
        raise IncompatibleImage(
            "the program has on_restart hooks, or children that a restart starts again: a copy of a replica would call them "
            "alone"
        )


class ProcessBelow:
    """:class:`ckpt.mpi.base.layer.Below` of one process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.rank = runtime.rank
        self.size = runtime.size
        self.lock: Lock = runtime.lock

    @property
    def secret(self) -> bytes:
        import hashlib  # loads OpenSSL, and only layers need it

        spec = self._runtime.spec
        if "key" in spec:
            key = spec["key"].encode()
        else:
            with open(os.path.join(spec["job_dir"], "key"), "rb") as file:
                key = file.read()
        return hashlib.blake2b(b"layer", key=key[:64], digest_size=32).digest()

    def notes(self, rank: int) -> str:
        return os.path.join(self._runtime.spec["job_dir"], "output", f"rank-{rank}.files")

    def report(self, fields: dict[str, Any]) -> None:
        self._runtime.control.send({"m": "layer", **fields})

    def log(self, name: str, **fields: object) -> None:
        self._runtime.report(name, **fields)

    def fork(self) -> int:
        return self._runtime.imager.taker.fork_to_look()

    def send(self, dst: int, data: Buffer, payload: Buffer | None = None) -> int:
        return self._runtime.send(dst, data, payload)

    def acked(self, dst: int) -> int:
        return self._runtime.acked(dst)

    def release(self, dst: int, sequence: int) -> bool:
        return self._runtime.release(dst, sequence)

    def backlog_bytes(self, dst: int) -> int:
        return self._runtime.backlog_bytes(dst)

    def consumed(self, src: int, nbytes: int, nmessages: int) -> None:
        self._runtime.consumed(src, nbytes, nmessages)

    def poll(self) -> None:
        self._runtime.poll()

    def block(self, hungry: bool, awaited: Any = None, longest_ns: int | None = None) -> None:
        self._runtime.block(hungry, awaited, longest_ns)

    def wake(self) -> None:
        self._runtime.wake()

"""A window at the rank whose memory is changed: what the messages of the origins do there.

Every message is handled completely when it arrives, under the engine's lock (ckpt/mpi/engine/windows.py). So each
operation is atomic with respect to all others, accumulates and atomic ones included, and the memory in an image agrees
with the messages that the image says have been received.

What a message gets wrong (a range, a type) is reported to its origin: at once if the message is answered, else with the
answer to its next FLUSH or UNLOCK.

State of one origin here, beside the lock: `failures` (what to report), `completed` (access epochs it has ended, not yet
consumed by Wait or Test).

Not here: the origin's side (origin.py), the order of messages (wire.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt.mpi.base.errors import ERR_INTERN, ERR_PROC_FAILED, ERR_TYPE, MpiException
from ckpt.mpi.base.progress import Buffer
from ckpt.mpi.datatypes.addresses import addresses_of
from ckpt.mpi.datatypes.buffers import BufferSpec
from ckpt.mpi.datatypes.memory import TOLD_NUMBERS
from ckpt.mpi.datatypes.op import combine_predefined
from ckpt.mpi.members.state import pack_error
from ckpt.mpi.rma import direct, wire
from ckpt.mpi.rma.exposed import Exposed, Fixed
from ckpt.mpi.rma.locks import Grant, LockQueue

if TYPE_CHECKING:
    from ckpt.mpi.rma.state import WindowState


class Target:
    """The target's side of one window at one rank."""

    __slots__ = ("completed", "exposed", "failures", "lock", "window")

    def __init__(self, window: WindowState, exposed: Exposed) -> None:
        self.window = window
        self.exposed = exposed
        self.lock = LockQueue()
        self.failures: dict[int, bytes] = {}
        """The first error since the last report, packed, by origin."""
        self.completed: dict[int, int] = {}

    def on_message(self, origin: int, action: int, token: int, data: Buffer) -> None:
        """Handle a message of an origin (rank in the window). Never raises: the origin gets the error."""
        try:
            self._handle(origin, action, token, data)
        except Exception as error:
            failure = pack_error(error, self.window.rank)
            if action in (wire.PUT, wire.ACCUMULATE):
                self.failures.setdefault(origin, failure)
            else:
                self.window.post(origin, wire.FAILED, token, failure)

    def _handle(self, origin: int, action: int, token: int, data: Buffer) -> None:
        if self.window.freed:
            raise MpiException(ERR_PROC_FAILED, "the window was left, because a member has failed")
        if action <= wire.COMPARE_AND_SWAP:
            self._access(origin, action, token, data)
        elif action == wire.FLUSH:
            self._report(origin, token)
        elif action in (wire.LOCK_SHARED, wire.LOCK_EXCLUSIVE):
            self._tell(self.lock.ask(origin, token, exclusive=action == wire.LOCK_EXCLUSIVE))
        elif action == wire.UNLOCK:
            if token:
                self._report(origin, token)
            self._tell(self.lock.release(origin))
        elif action == wire.COMPLETE:
            self.completed[origin] = self.completed.get(origin, 0) + 1
        else:
            raise MpiException(ERR_INTERN, f"window message of unknown kind {action}")

    def _access(self, origin: int, action: int, token: int, data: Buffer) -> None:
        what, at = wire.described(data)
        spec = self._place(what)
        if action == wire.PUT:
            _fits(spec, len(data) - at)
            spec.write(data, at)
            return
        if action == wire.ACCUMULATE:
            _combine(spec, what, data, at)
            return
        if action == wire.GET_AND_TELL:
            self._tell_place(origin)
        before = bytes(spec.read())
        if action == wire.GET_ACCUMULATE:
            if what.operation != "MPI_NO_OP":
                _combine(spec, what, data, at)
        elif action == wire.COMPARE_AND_SWAP:
            if len(data) - at != 2 * spec.nbytes:
                raise MpiException(
                    ERR_TYPE, f"{len(data) - at} bytes for two elements of {spec.nbytes} bytes"
                )
            if before == bytes(data[at : at + spec.nbytes]):
                spec.write(data, at + spec.nbytes)
        self.window.post(origin, wire.DATA, token, b"", before)

    def _place(self, what: wire.Description) -> BufferSpec:
        """The elements that an operation works on. MpiException (ERR_RMA_RANGE)."""
        exposed = self.exposed
        if isinstance(exposed, Fixed):
            return exposed.spec(what.layout, what.elements, what.offset)
        return exposed.spec(what.layout, what.elements, what.offset, self._present)

    def _present(self, address: int, nbytes: int) -> set[int]:
        """The present addresses that an address may mean: those of what was told to be there, and itself, if this process
        alone is the rank."""
        windows = self.window.engine.windows
        is_shared = windows.ordered is not None
        found = addresses_of(windows).present(address, nbytes, is_shared=is_shared)
        return found if is_shared or address in TOLD_NUMBERS else found | {address}

    def _tell_place(self, origin: int) -> None:
        """Tell an origin where the memory is, if it may read it itself."""
        reads, exposed = direct.reads_of(self.window.engine), self.exposed
        if reads is not None and isinstance(exposed, Fixed):
            place = reads.place_of(self.window.number, exposed.address, exposed.nbytes)
            self.window.post(origin, wire.TOLD, 0, place)

    def _report(self, origin: int, token: int) -> None:
        failure = self.failures.pop(origin, None)
        if failure is None:
            self.window.post(origin, wire.DONE, token)
        else:
            self.window.post(origin, wire.FAILED, token, failure)

    def _tell(self, grants: list[Grant]) -> None:
        for origin, token in grants:
            self.window.post(origin, wire.DONE, token)

    def lost(self, origin: int) -> None:
        """An origin has died: its lock is released."""
        self.failures.pop(origin, None)
        self._tell(self.lock.lost(origin))


def _fits(spec: BufferSpec, nbytes: int) -> None:
    if nbytes > spec.nbytes:
        raise MpiException(ERR_TYPE, f"{nbytes} bytes for {spec.nbytes} bytes of the target")


def _combine(spec: BufferSpec, what: wire.Description, data: Buffer, at: int) -> None:
    _fits(spec, len(data) - at)
    view = memoryview(data)[at:]
    if len(view):
        before = bytes(memoryview(spec.read())[: len(view)])
        spec.write(combine_predefined(what.operation, before, view, what.code))

"""Objects of :mod:`socket`: an object refers to its socket by the number of the descriptor, which stays the same.

A connection to another process is refused by name, unless the user wants it to be reset: then the program finds, after a
restart, that the peer has reset the connection.
"""

from __future__ import annotations

import socket
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image.files import numbers
from ckpt.image.ipc import remake, socket_options
from ckpt.image.ipc.library import CONNECTED, are_reset
from ckpt.image.ipc.survey import channels_of
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import attributes_of, slots_of

if TYPE_CHECKING:
    from ckpt.image.ipc.socket_options import SavedSocket
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "make_closed_socket",
    "make_remade_socket",
    "make_socket",
    "reduce_socket",
]


def reduce_socket(saver: Saver, obj: Any) -> Any:
    cls, fd = type(obj), obj.fileno()
    state = attributes_of(obj), slots_of(saver, obj)
    kind = (int(obj.family), int(obj.type), obj.proto)
    if fd < 0:
        return make_closed_socket, (cls, kind), state, None, None, rebuild.fill_slots
    channels = channels_of(saver)
    timeout = obj.gettimeout()
    if fd in channels.remade():
        return make_remade_socket, (cls, kind, fd, timeout), state, None, None, rebuild.fill_slots
    saved = channels.sockets.get(fd)
    if saved is None:
        raise PicklingError(
            channels.reasons.get(fd, f"the socket with descriptor {fd} was made after the image was prepared")
        )
    if saved.is_connection and not are_reset():
        raise PicklingError(CONNECTED.format("another process"))
    return make_socket, (cls, kind, fd, timeout, saved), state, None, None, rebuild.fill_slots


# ---------------------------------------------------------------------- called while loading


def make_closed_socket(cls: Any, kind: tuple[int, int, int]) -> Any:
    made = _over(cls, kind, socket.socket(socket.AF_UNIX).detach(), None)
    socket.socket.__base__.close(made)  # type: ignore[union-attr]
    return made


def make_remade_socket(cls: Any, kind: tuple[int, int, int], number: int, timeout: float | None) -> Any:
    return _over(cls, kind, number, timeout)


def make_socket(
    cls: Any, kind: tuple[int, int, int], number: int, timeout: float | None, saved: SavedSocket
) -> Any:
    """Raises RestoreError: the address cannot be had again."""
    fd = remake.sockets.get(saved.inode)
    new = socket_options.make(saved) if fd is None else numbers.duplicate(fd)
    placed = remake.place(new, number, is_inheritable=saved.is_inheritable)
    remake.sockets.setdefault(saved.inode, placed)
    return _over(cls, kind, placed, timeout)


def _over(cls: Any, kind: tuple[int, int, int], fd: int, timeout: float | None) -> Any:
    made = cls.__new__(cls)
    base: Any = socket.socket.__base__
    base.__init__(made, *kind, fileno=fd)
    base.settimeout(made, timeout)
    return made

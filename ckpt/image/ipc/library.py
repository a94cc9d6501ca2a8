"""The class that serves the modules of sockets: :mod:`socket`, :mod:`ssl`, :mod:`select`, :mod:`selectors`.

Imported early, so it is small: :mod:`ckpt.image.ipc.sockets` and :mod:`ckpt.image.ipc.polls` have the reducers.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.compat import accelerators
from ckpt.image.frames import c_waits
from ckpt.image.interface.library import Library, Reducer, by_name, later

__all__ = [
    "CONNECTED",
    "KEYS",
    "Selectors",
    "Sockets",
    "Tls",
    "TlsOfAsyncio",
    "are_reset",
    "declare_connections",
]

_HERE = "ckpt.image.ipc"
CONNECTED = (
    "a socket that is connected to {} cannot be part of an image of one process; with --connections reset the program finds "
    "it reset by the peer after a restart"
)

KEYS = (
    "the keys of a connection of TLS are in the memory of OpenSSL; close it before a checkpoint; with --connections reset "
    "the program finds it reset by the peer after a restart"
)

_resets: list[bool] = []
_reduce_socket = later(f"{_HERE}.sockets", "reduce_socket")
_reduce_tls = later(f"{_HERE}.tls", "reduce_tls")


def declare_connections(policy: str) -> None:
    """What is done about connections to other processes: ``"refuse"`` an image, or ``"reset"`` them at the restart."""
    _resets[:] = [True] if policy == "reset" else []


_RECEIVES = accelerators.SOCKET_WAITS[1:3]
_INTERNET = (accelerators.socket.AF_INET, accelerators.socket.AF_INET6)


def are_reset() -> bool:
    """Does the user want connections to come back as reset?"""
    return bool(_resets)


def _has_peer(obj: Any) -> bool:
    """Is the socket open and connected? One that listens is not."""
    try:
        accelerators.socket.socket.getpeername(obj)
    except OSError:
        return False
    return True


class Sockets(Library):
    transient_types = accelerators.PLAIN_SOCKETS

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if _is_wait not in c_waits.further:
            c_waits.further.append(_is_wait)
            c_waits.reading.append(_reads_from)

    def reducer_by_base(self, cls: type) -> Reducer | None:
        return _reduce_socket if issubclass(cls, accelerators.socket.socket) and not _is_tls(cls) else None

    def reason_against(self, obj: Any) -> str | None:
        # A number with a name, or a socket of C by itself
        if not isinstance(obj, accelerators.socket.socket):
            is_bare = any(base.__module__ == accelerators.PLAIN_SOCKETS[0] for base in type(obj).__mro__)
            return super().reason_against(obj) if is_bare else None
        if obj.fileno() < 0 or obj.family not in (accelerators.socket.AF_INET, accelerators.socket.AF_INET6):
            return None
        if obj.type != accelerators.socket.SOCK_STREAM or are_reset() or not _has_peer(obj):
            return None
        from ckpt.image.ipc.tcp_ends import reason_against

        return reason_against(obj)


class Tls(Library):
    """Contexts are made again; connections are refused by name, or reset: their keys are in the memory of OpenSSL."""

    transient_types = accelerators.TLS

    def when_imported(self) -> None:
        tls = sys.modules.get(accelerators.TLS[0])
        if hasattr(tls, "SSLContext"):
            from ckpt.image.ipc.tls import record_calls

            record_calls(tls)

    def reducers(self) -> dict[type, Reducer]:
        state, buffer = (later(f"{_HERE}.tls_resets", name) for name in ("reduce_state", "reduce_buffer"))
        return by_name(accelerators.TLS[1], {accelerators.TLS_STATE: state, "MemoryBIO": buffer})

    def reducer_by_base(self, cls: type) -> Reducer | None:
        is_closable = issubclass(cls, accelerators.socket.socket) and _is_tls(cls)
        return _reduce_tls if is_closable or _is_context(cls) else None

    def reason_against(self, obj: Any) -> str | None:
        if _is_context(type(obj)) or isinstance(
            obj, (int, tuple)
        ):  # one of the names of ssl, or of its numbers
            return None
        is_of_c = type(obj).__module__ == accelerators.TLS[1]
        if not is_of_c and (
            are_reset() or (isinstance(obj, accelerators.socket.socket) and not _has_peer(obj))
        ):
            return None
        return KEYS if isinstance(obj, accelerators.socket.socket) else super().reason_against(obj)


class TlsOfAsyncio(Library):
    """asyncio.sslproto: what lies between a transport of asyncio and its socket."""

    def reducers(self) -> dict[type, Reducer]:
        transport, protocol = (
            later(f"{_HERE}.tls_resets", f"reduce_{name}") for name in ("transport", "protocol")
        )
        return by_name(self.name, {accelerators.TLS_TRANSPORT: transport, "SSLProtocol": protocol})


def _is_wait(obj: Any, method: str) -> bool:
    """A call that has taken a connection or data, and then is part of an image as a wait, loses it. So it is one only while
    it waits in the kernel, where it has taken nothing (:func:`_reads_from`); or where that is lost anyhow, as datagrams may
    be, and what comes over a connection that the restart resets."""
    if method not in accelerators.SOCKET_WAITS or not isinstance(obj, accelerators.socket.socket):
        return False
    if _is_tls(type(obj)):
        return method == accelerators.SOCKET_WAITS[0]
    if _reads_from(obj, method) >= 0:
        return True
    is_internet = obj.family in _INTERNET
    return method == accelerators.SOCKET_WAITS[0] or (
        is_internet and (are_reset() or obj.type == accelerators.socket.SOCK_DGRAM)
    )


def _reads_from(obj: Any, method: str) -> int:
    """The descriptor of a socket from which this method takes a connection, or data of a stream that may come back whole;
    -1: it is something else. With a time limit, too: the call waits in ``poll`` before it takes anything."""
    if not isinstance(obj, accelerators.socket.socket):
        return -1
    if method != accelerators.SOCKET_WAITS[0]:
        is_stream = obj.type == accelerators.socket.SOCK_STREAM and not _is_tls(type(obj))
        is_known = method in _RECEIVES and obj.family in (accelerators.socket.AF_UNIX, *_INTERNET)
        if not is_stream or not is_known:
            return -1
    return accelerators.socket.socket.fileno(obj)


def _is_tls(cls: type) -> bool:
    return any(base.__module__ in accelerators.TLS for base in cls.__mro__)


def _is_context(cls: type) -> bool:
    """Is it ``ssl.SSLContext``, or derived from it?"""
    tls = sys.modules.get(accelerators.TLS[0])
    return issubclass(cls, getattr(tls, "SSLContext", ()))


class Selectors(Library):
    """The class that serves the module ``select``: ``select.epoll``, ``select.poll``."""

    def reducers(self) -> dict[type, Reducer]:
        select = sys.modules["select"]
        found = {type(select.poll()): later(f"{_HERE}.polls", "reduce_poll")}
        if hasattr(select, "epoll"):
            found[select.epoll] = later(f"{_HERE}.polls", "reduce_epoll")
        return found

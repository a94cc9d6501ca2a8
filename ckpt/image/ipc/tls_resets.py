"""Connections of TLS to other processes, where the user wants them to be reset (``--connections reset``).

OpenSSL keeps their keys in its own memory, and nobody could go on with them. So in place of the object in C that serves a
connection (``_ssl._SSLSocket``), a program has a :class:`Reset` after a restart: the first use of the connection raises
ConnectionResetError, reading finds the end of the data from then on, writing raises BrokenPipeError. The same holds for
sockets without TLS (:func:`ckpt.image.ipc.socket_options.reset_connection`). OpenSSL itself would give an end of the data
at once where ``suppress_ragged_eofs`` is set, and a program might take what it has read for the whole of an answer.

A connection whose other end is in the program, too, is refused: its socket comes back whole, so neither end would hear of
a reset. Where the user has not said that connections are to be reset, every connection of TLS is refused.

The names of this module are part of the image format.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from ckpt.compat.asyncio_names import carrier_of
from ckpt.image.errors import ObjectRefused
from ckpt.image.ipc.library import KEYS, are_reset
from ckpt.image.ipc.survey import channels_of
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.raw_instances import reduce_raw
from ckpt.image.reducers.saver import Saver

__all__ = [
    "Reset",
    "make_buffer",
    "reduce_buffer",
    "reduce_protocol",
    "reduce_state",
    "reduce_transport",
    "refuse_within",
]

_KNOWN = ("cipher", "compression", "selected_alpn_protocol", "shared_ciphers", "version")
_ATTRIBUTES = ("context", "owner", "server_hostname", "server_side", "session_reused")
_BINDING = "tls-unique"


class Reset:
    """In place of ``_ssl._SSLSocket``, with all of its methods that :mod:`ssl` calls: the peer has reset the connection.
    What was known of it (its certificate, its cipher) is still known.

    ``known``: the results of methods without arguments. ``certificates``: those of ``getpeercert``, decoded and as bytes;
    None: there had been no handshake. ``binding``: of ``get_channel_binding("tls-unique")``.
    """

    context: Any
    owner: Any
    server_hostname: str | None
    server_side: bool
    session_reused: bool | None
    known: dict[str, Any]
    certificates: tuple[Any, Any] | None
    binding: bytes | None
    session = None
    is_told = False

    def _tell(self) -> None:
        """Raises ConnectionResetError, once."""
        if not self.is_told:
            self.is_told = True
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def read(self, length: int = 0, buffer: Any = None, /) -> Any:
        self._tell()
        return b"" if buffer is None else 0

    def write(self, data: Any, /) -> int:
        self._tell()
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def do_handshake(self) -> None:
        if self.certificates is None:
            self.write(b"")

    def shutdown(self) -> Any:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    verify_client_post_handshake = shutdown

    def pending(self) -> int:
        return 0

    def getpeercert(self, binary_form: bool = False, /) -> Any:
        if self.certificates is None:
            raise ValueError("handshake not done yet")
        return self.certificates[bool(binary_form)]

    def get_channel_binding(self, cb_type: str = _BINDING) -> bytes | None:
        return self.binding

    def get_verified_chain(self) -> None:
        return None

    get_unverified_chain = get_verified_chain

    def cipher(self) -> Any:
        return self.known["cipher"]

    def compression(self) -> Any:
        return self.known["compression"]

    def selected_alpn_protocol(self) -> Any:
        return self.known["selected_alpn_protocol"]

    def shared_ciphers(self) -> Any:
        return self.known["shared_ciphers"]

    def version(self) -> Any:
        return self.known["version"]


def reduce_state(saver: Saver, state: Any) -> Any:
    """The reducer for ``_ssl._SSLSocket``. Raises ObjectRefused."""
    if not are_reset():
        raise ObjectRefused(state, KEYS)
    attributes = {name: getattr(state, name, None) for name in _ATTRIBUTES}
    attributes["known"] = {name: getattr(state, name)() for name in _KNOWN}
    attributes["certificates"] = _asked(lambda: (state.getpeercert(False), state.getpeercert(True)))
    attributes["binding"] = _asked(lambda: state.get_channel_binding(_BINDING))
    return rebuild.make_instance, (Reset,), attributes, None, None, rebuild.fill_instance


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except ValueError:  # there has been no handshake, or no such binding
        return None


def reduce_buffer(saver: Saver, buffer: Any) -> Any:
    """The reducer for ``ssl.MemoryBIO``, between a connection and its socket. Raises ObjectRefused."""
    if not are_reset():
        raise ObjectRefused(buffer, KEYS)
    return make_buffer, (type(buffer),)


def make_buffer(cls: Any) -> Any:
    """What is encrypted with keys that are lost is of no use."""
    return cls()


def reduce_protocol(saver: Saver, protocol: Any) -> Any:
    """The reducer for ``asyncio.sslproto.SSLProtocol``. Raises ObjectRefused."""
    carrier = carrier_of(protocol)
    if carrier is not None:
        refuse_within(saver, protocol, carrier.fileno())
    return reduce_raw(saver, protocol)


def reduce_transport(saver: Saver, transport: Any) -> Any:
    """The reducer for ``asyncio.sslproto._SSLProtocolTransport``. Raises ObjectRefused."""
    if not are_reset():
        raise ObjectRefused(transport, KEYS)
    return reduce_raw(saver, transport)


def refuse_within(saver: Saver, connection: Any, fd: int) -> None:
    """Raise ObjectRefused for a connection over this descriptor, if the program has both of its ends."""
    if fd in channels_of(saver).within():
        raise ObjectRefused(
            connection,
            "a connection of TLS has both of its ends in the program, and its keys are in the memory of OpenSSL; close it "
            "before a checkpoint",
        )

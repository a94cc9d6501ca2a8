"""The rank's end of the control channel: one JSON object per packet to and from the agent that started it. (driver)

The channel is one end of a ``SOCK_SEQPACKET`` pair that the agent makes before it forks the rank. So the channel is private
to agent and rank, keeps packet boundaries, needs no address and ends when either process ends. The image child of a
checkpoint inherits the descriptor and reports its own vote: packets are atomic, so the packets of rank and child never mix.

Rules: reading never blocks; writing waits at most until the agent reads. A packet that is no JSON is an error of this
package, not of the application: ``json`` raises ValueError.

Not here: the meaning of packets (:mod:`ckpt.rank.runtime`).
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from ckpt.errors import ControlLost

__all__ = ["ControlChannel", "Packet"]

Packet = dict[str, Any]

_PACKET_BYTES_MAX = 160 * 1024  # below the default SO_SNDBUF of Linux (212 992 bytes)


class ControlChannel:
    """Packets to and from the agent.

    ``fd`` is the file descriptor that the rank has inherited. ``alive`` turns false when the agent has closed its end;
    :meth:`send` then does nothing and returns ``False``.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        self.alive = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, packet: Packet) -> bool:
        """Send one packet to the agent; ``False``: the agent has closed its end.

        A packet of more than `_PACKET_BYTES_MAX` bytes is shortened.
        """
        if not self.alive:
            return False
        data = json.dumps(packet, separators=(",", ":"), default=str).encode()
        if len(data) > _PACKET_BYTES_MAX:
            data = json.dumps(_shortened(packet), separators=(",", ":"), default=str).encode()
        try:
            self._socket.send(data)
        except (BrokenPipeError, ConnectionResetError):
            self.alive = False
            return False
        return True

    def receive(self) -> list[Packet]:
        """All packets that have arrived, without waiting.

        Raises :class:`ckpt.errors.ControlLost` once, when the agent has closed its end.
        """
        packets: list[Packet] = []
        while self.alive:
            try:
                data = self._socket.recv(1 << 20, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                break
            except (BrokenPipeError, ConnectionResetError):
                data = b""
            if not data:
                self.alive = False
                if not packets:
                    raise ControlLost("the agent of this rank has closed the control channel")
                break
            packets.append(json.loads(data))
        return packets

    def close(self) -> None:
        self.alive = False
        self._socket.close()


def _shortened(packet: Packet) -> Packet:
    """The same packet with long texts and lists cut, so that its encoding is smaller."""
    short: Packet = {}
    for name, value in packet.items():
        if isinstance(value, str) and len(value) > 4096:
            short[name] = value[:2048] + " … " + value[-2048:]
        elif isinstance(value, list) and len(value) > 64 and name != "vectors":
            short[name] = value[-64:]
        else:
            short[name] = value
    return short

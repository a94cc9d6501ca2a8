"""pyzmq: its collector of sent memory is a thread that keeps nothing, and that every process needs anew (ours too)."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Zmq"]


class Zmq(Library):
    harmless_threads = ("zmq.utils", "zmq.auth")  # not zmq.devices: they carry messages

"""pyzmq: its garbage collector for sent messages is a thread without state, which each process starts anew (ckpt uses
it)."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Zmq"]


class Zmq(Library):
    harmless_threads = ("zmq.utils", "zmq.auth")  # not zmq.devices: they carry messages

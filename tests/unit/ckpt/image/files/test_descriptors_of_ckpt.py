"""Which sockets are ckpt's: by the addresses at which it listens, and which it dials."""

from __future__ import annotations

import socket

import pytest

from ckpt.image.files import descriptors
from ckpt.transport.wires import owned


def test_tcp_sockets_of_the_port_are_known_by_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "_ports", set())
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert owned.note_address(address) == address
        with socket.create_connection(listening.getsockname()) as dialled, listening.accept()[0] as accepted:
            for each in (listening, dialled, accepted):
                assert descriptors.ours(each.fileno(), each.fileno() + 1) == [each.fileno()]
                assert each.getsockname(), "it is still open"
            assert descriptors.ours(other.fileno(), other.fileno() + 1) == []
            assert other.fileno() in descriptors.others(0, 1 << 20)
            assert not {listening.fileno(), dialled.fileno(), accepted.fileno()} & {
                *descriptors.others(0, 1 << 20)
            }

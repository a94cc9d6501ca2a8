"""Memory that a process offers others: what is read while the offer stands is what was offered, and nothing else counts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ckpt.transport.boards import offers as module
from ckpt.transport.boards.offers import Offers
from ckpt.transport.wires import crossmemory

pytestmark = pytest.mark.skipif(not crossmemory.available(), reason="another kernel: no process_vm_readv")


def view(data: bytearray) -> memoryview:
    return memoryview(data)


def test_parts_are_read_by_another_process_while_the_offer_stands() -> None:
    offers, parts = Offers(), [view(bytearray(b"one")), view(bytearray()), view(bytearray(b"three" * 9999))]
    _, offer = offers.make(parts)
    reader = "\n".join(
        [
            "import sys",
            "from ckpt.transport.boards.offers import Offers",
            "for part, length in enumerate((3, 0, 49995)):",
            "    into = bytearray(length)",
            "    assert Offers().read(bytes.fromhex(sys.argv[1]), part, memoryview(into))",
            "    assert into == (b'one', b'', b'three' * 9999)[part]",
        ]
    )
    subprocess.run([sys.executable, "-c", reader, offer.hex()], check=True, timeout=60)


def test_what_is_read_after_the_offer_was_taken_back_does_not_count() -> None:
    offers, into, one, two = Offers(), view(bytearray(3)), bytearray(b"one"), bytearray(b"two")
    first, offer = offers.make([view(one)])
    _, later = offers.make([view(two)])
    assert offers.read(offer, 0, into) and into == b"one"
    offers.end(first)
    offers.end(first)  # no effect
    assert not offers.read(offer, 0, into)
    assert offers.read(later, 0, into) and into == b"two"


def test_an_offer_of_a_process_that_is_gone_or_another_one_does_not_count() -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ckpt.transport.boards.offers import Offers\n"
            "print(Offers().make([memoryview(bytearray(3))])[1].hex())",
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    gone = bytes.fromhex(made.stdout.decode())
    offers, into, one = Offers(), view(bytearray(3)), bytearray(b"one")
    assert not offers.read(gone, 0, into)
    _, mine = offers.make([view(one)])
    another = mine[:16] + os.urandom(16) + mine[32:]  # the same id and address, another process's token
    assert not offers.read(another, 0, into)
    assert not offers.is_refused


def test_a_part_of_another_length_is_not_read() -> None:
    offers, into, one = Offers(), view(bytearray(4)), bytearray(b"one")
    _, offer = offers.make([view(one)])
    assert not offers.read(offer, 0, into) and into == bytes(4)
    assert not offers.read(offer, 1, into) and not offers.read(b"damaged", 0, into)


def test_long_parts_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 1000)
    data = bytearray(os.urandom(2500))
    offers, into = Offers(), view(bytearray(2500))
    _, offer = offers.make([view(data)])
    assert offers.read(offer, 0, into) and into == data


def test_who_may_not_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> int:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(crossmemory, "read_pairs", forbidden)
    offers = Offers()
    _, offer = offers.make([view(bytearray(b"one"))])
    assert not offers.read(offer, 0, view(bytearray(3))) and offers.is_refused

"""Objects that no image can hold, held for a moment: the capture is refused and names them."""

from __future__ import annotations

import hashlib
import socket
import zlib
from collections.abc import Callable

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.passing import refuse_passing
from ckpt.image.stack import capture


def look(*_: object) -> str:
    try:
        refuse_passing(capture(at="call", skip=(look.__code__,)))
    except Refused as refused:
        return f"{refused.reason} at {refused.where}"
    return ""


def nothing() -> str:
    x, y = [1], "text"
    return look(x, y)


def hash_object() -> str:
    digest = hashlib.sha256(b"x")
    said = look()
    digest.update(b"y")
    return said


def on_the_evaluation_stack() -> str:
    said = []
    assert hashlib.blake2b(b"x").hexdigest()[: len(said.append(look()) or "")] == ""
    return said[0]


def operand() -> str:
    def both(digest: object, said: str) -> str:
        return said

    return both(hashlib.md5(b"x"), look())


def compressor() -> str:
    squeeze = zlib.compressobj()
    said = look()
    squeeze.flush()
    return said


def open_socket() -> str:
    with socket.socket() as peer:
        peer.setblocking(False)
        return look()


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (nothing, ""),
        (hash_object, "_hashlib.HASH"),
        (on_the_evaluation_stack, ""),
        (operand, "HASH"),
        (compressor, "zlib.Compress"),
        (open_socket, "socket.socket"),
    ],
)
def test_named_where_it_is_held(program: Callable[[], str], named: str) -> None:
    said = run_base(program)
    assert named in said and bool(said) == bool(named)
    if named:
        assert "test_passing.py" in said

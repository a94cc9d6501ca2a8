"""Objects that no image can hold, held for a moment: the capture is refused and names them."""

from __future__ import annotations

import functools
import hashlib
import hmac
import io
import os
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.image import Refused, run_base
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.transient import forget, learn, refuse_transient


def look(*_: object) -> str:
    try:
        refuse_transient(capture(at="call", skip=(look.__code__,)))
    except Refused as refused:
        return f"{refused.reason} at {refused.where}"
    return ""


def nothing() -> str:
    x, y = [1], "text"
    return look(x, y)


def decompressor() -> str:
    unpacker = zlib.decompressobj()
    said = look()
    unpacker.flush()
    return said


kept: object = None


def variable_of_the_module() -> str:
    global kept
    kept = zlib.decompressobj()
    said = look()
    kept = None
    return said


def on_the_evaluation_stack() -> str:
    said = []
    assert zlib.decompressobj().flush()[: len(said.append(look()) or "")] == b""
    return said[0]


def operand() -> str:
    def both(digest: object, said: str) -> str:
        return said

    return both(zlib.decompressobj(), look())


def compressor() -> str:
    squeeze = zlib.compressobj()
    said = look()
    squeeze.flush()
    return said


def frame_object() -> str:
    frame = sys._getframe()
    said = look()
    assert frame is not None
    return said


def open_socket() -> str:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as peer,
    ):
        peer.setblocking(False)
        return look()


def named_number() -> str:
    family, kind = socket.AF_INET, socket.SOCK_STREAM
    return look() or f"{family and kind and ''}"


def running_child() -> str:
    with subprocess.Popen(["sleep", "60"]) as child:
        said = look()
        child.kill()
    assert look() == ""
    return said


def threads_being_listed() -> str:
    """The list held a thread of ckpt, so 25 images in a row failed of a program that often asks for its threads."""

    said: list[str] = []

    class Table(dict[int, threading.Thread]):
        def values(self) -> Any:
            said.append(look())
            return super().values()

    space = threading.enumerate.__globals__
    genuine = space["_active"]
    space["_active"] = Table(genuine)
    try:
        threading.enumerate()
    finally:
        space["_active"] = genuine
    return said[0]


def child_being_started() -> str:
    class Output:
        def fileno(self) -> int:
            said.append(look())
            return 1

    said: list[str] = []
    subprocess.run(["true"], stdout=Output(), check=True)
    return said[0]


def array_being_saved_into_memory() -> str:
    """numpy holds an iterator in C meanwhile, at which an image failed."""
    numpy = pytest.importorskip("numpy")
    said: list[str] = []

    class Memory(io.BytesIO):
        def write(self, data: Any, /) -> int:
            said.append(look())
            return super().write(data)

    numpy.save(Memory(), numpy.zeros(10))
    return said[-1]


def cache_being_made() -> str:
    """What functools.lru_cache has between two instructions: how large it may get cannot be asked yet."""
    made = functools._lru_cache_wrapper(nothing, 3, False, functools._CacheInfo)  # type: ignore[attr-defined]
    said = look()
    made.cache_parameters = lambda: {"maxsize": 3, "typed": False}
    assert look() == ""
    return said


def digests_that_can_be_saved() -> str:
    digests = hashlib.sha256(b"x"), hashlib.blake2b(b"x"), hmac.new(b"key", b"x", "sha256")
    first, second, third = digests
    hidden = third._hmac
    said = look()
    for each in (first, second, third, hidden):
        each.update(b"y")
    return said


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (nothing, ""),
        (digests_that_can_be_saved, ""),
        (decompressor, "zlib.Decompress"),
        (variable_of_the_module, "zlib.Decompress"),
        (on_the_evaluation_stack, ""),
        (operand, "zlib.Decompress"),
        (compressor, "zlib.Compress"),
        (frame_object, "a frame object"),
        (open_socket, "a socket that is connected to"),
        (named_number, ""),
        (running_child, "the child process"),
        (cache_being_made, "functools.lru_cache is wrapping a function"),
        (child_being_started, "a child process is being started"),
        (array_being_saved_into_memory, "a numpy.nditer is in use"),
        (threads_being_listed, "a table of threads is being used"),
    ],
)
def test_named_where_it_is_held(program: Callable[[], str], named: str) -> None:
    said = run_base(program)
    assert named in said and bool(said) == bool(named)
    if named:
        assert any(
            place in said for place in ("test_transient.py", "subprocess.py", "_enumerate", "write_array")
        )


def test_only_unusual_objects_are_looked_at_in_python() -> None:
    frame, instance = sys._getframe(), zlib.decompressobj()
    usual = [
        1,
        -0,
        1 << 20,
        1.5,
        "text",
        b"",
        (),
        [instance],
        {},
        None,
        look,
        len,
        sys,
        int,
        test_named_where_it_is_held,
    ]
    unusual = [(1 << 20) + 1, 1 << 62, frame, instance, Hashed(False)]
    assert _frames.unusual([*usual, *unusual, _frames.NULL], {}, ()) == unusual
    space = {"a": 1, "b": instance, "c": frame}
    assert _frames.unusual([], space, ("c", "missing", "a")) == [frame]


def address_in_a_variable() -> str:
    x = [1]
    key = id(x)
    said = look()
    return said if key else ""


def large_number() -> str:
    x = [1]
    key = id(x) + 8
    return look() if key and x else ""


@pytest.mark.parametrize(("program", "named"), [(address_in_a_variable, "address"), (large_number, "")])
def test_the_address_of_an_object_is_in_use(program: Callable[[], str], named: str) -> None:
    said = run_base(program)
    assert named in said and bool(said) == bool(named)


def between_two_calls(number: int) -> str:
    """As in the middle of ``f(g())``, where ``g`` has returned this number."""
    stack = capture(at="call", skip=())
    record = stack.frames[-1]
    record.stack, record.mode, record.value = [number], "L", _frames.NULL
    try:
        refuse_transient(stack)
    except Refused as refused:
        return refused.reason
    return ""


@pytest.mark.parametrize(
    ("ask", "named"), [(os.getpid, True), (threading.get_ident, True), (os.getppid, False)]
)
def test_a_signal_to_itself_went_to_the_process_that_is_dead(ask: Callable[[], int], named: bool) -> None:
    """``os.kill(os.getpid(), SIGUSR1)``: an image was taken between the two calls."""
    assert ("number of the process or thread" in run_base(between_two_calls, ask())) is named


def asked_while_a_number_waits() -> int:
    """As ``f`` in ``get_ident() == f()``: in the place of these functions there is a capture."""
    stack = capture(at="call", skip=())
    frame = stack.frames[-1]
    for function in (asked_while_a_number_waits, threading.current_thread, threading.main_thread):
        frame.code = function.__code__
        try:
            refuse_transient(stack)
            found.append("")
        except Refused as refused:
            found.append(refused.reason)
    return threading.get_ident()


found: list[str] = []


def test_the_number_of_a_thread_was_compared_with_that_of_the_old_process() -> None:
    """``get_ident() == current_thread().ident``: an image was taken within ``current_thread``, so the thread died after a
    restart, and its result was missing."""
    found.clear()
    run_base(lambda: str(threading.get_ident() == asked_while_a_number_waits()))
    reason = "the number of the process or thread is about to be used, which will be another after a restart"
    assert found == ["", reason, reason]


class Hashed:
    """Hashes by address, as objects do that stand for themselves; `said` when some of the hash is known, or nothing."""

    def __init__(self, has_begun: bool) -> None:
        self.has_begun = has_begun
        self.said = ""

    def __hash__(self) -> int:
        found = hash((id(self), 1)) if self.has_begun else 0
        self.said = look()
        return found


@pytest.mark.parametrize(("has_begun", "named"), [(True, "a hash is being computed"), (False, "")])
def test_a_hash_of_which_some_is_known(has_begun: bool, named: str) -> None:
    """Its rest would be added to what came of an address in the old process (xdsl)."""
    found = Hashed(has_begun)
    run_base(lambda: hash(found))
    assert named in found.said and bool(found.said) == bool(named)


def test_what_an_image_has_failed_at_in_a_running_function_is_waited_for_from_then_on() -> None:
    """A program that held an object of a C library for most of its time, of a type that nobody had named, got no checkpoint:
    each image failed at it."""
    said: list[str] = []

    class Encoder:
        """Stands for any type."""

    def program() -> None:
        encoder = Encoder()
        said.append(look())
        learn(id(Encoder))
        said.append(look())
        del encoder
        said.append(look())
        encoder = Encoder()
        forget()
        said.append(look())
        del encoder

    run_base(program)
    assert said[0] == said[2] == said[3] == ""
    assert said[1].startswith("an object of type ") and "Encoder is in use" in said[1]

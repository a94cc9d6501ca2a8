"""What standard output and error hold that has not been written yet, and file objects of the program over them.

The length of what has been printed is part of an image; what is still in a buffer then goes into the buffer of the new
process. It is not flushed for an image: other descriptors of the same file (``os.write(1, …)``, a child process, a file
object of the program over descriptor 1) may write before it does, and the order would change.

Flushing is the only way to see what a buffer holds, so a memory file is put under the descriptor meanwhile. Where the
program itself stands still for its image (no fork) the bytes are written after all: there they are no longer buffered.

Not here: lengths (:mod:`ckpt.image.process.resources`, :mod:`ckpt.image.files.reopen`), other files
(:mod:`ckpt.image.files.open_files`).
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from ckpt.image.files.output import Output
from ckpt.image.modules.standard_streams import all_layers, state

__all__ = ["catching", "note_unwritten", "outputs", "put_back_unwritten"]

_NAMES = ("stdout", "stderr")


@contextlib.contextmanager
def catching(raw: Any, *, is_disposable: bool) -> Iterator[bytearray]:
    """What is written to the descriptor of ``raw`` within is put into the bytes given; nothing if it is no FileIO."""
    caught = bytearray()
    if not isinstance(raw, io.FileIO) or not raw.writable():
        yield caught
        return
    fd = raw.fileno()
    inheritable = os.get_inheritable(fd)
    keep, memory = os.dup(fd), os.memfd_create("image")
    try:
        os.dup2(memory, fd, inheritable=inheritable)
        try:
            yield caught
        finally:
            os.dup2(keep, fd, inheritable=inheritable)
        caught += os.pread(memory, os.fstat(memory).st_size, 0)
        if not is_disposable:
            raw.write(caught)
    finally:
        os.close(memory)
        os.close(keep)


def _streams() -> Iterator[tuple[str, io.TextIOWrapper]]:
    """Those that this process was started with; what the program has put in their place are objects like any others."""
    for name in _NAMES:
        stream = getattr(sys, f"__{name}__")
        if state(stream) == "open":
            yield name, stream


def note_unwritten(*, is_disposable: bool) -> dict[str, tuple[bytes, str]]:
    """Name of the stream → what its buffer holds, and what the text layer above that does.

    ``is_disposable``: this process is a forked child.
    """
    found: dict[str, tuple[bytes, str]] = {}
    for name, stream in _streams():
        raw: Any = getattr(stream.buffer, "raw", stream.buffer)
        with catching(raw, is_disposable=is_disposable) as buffered:
            if isinstance(raw, Output):
                os.write(raw.fileno(), raw.take())
            stream.buffer.flush()
        again = len(raw.held) if isinstance(raw, Output) else 0  # no fork: it was given back, and comes first
        with catching(raw, is_disposable=is_disposable) as written:
            stream.flush()
        del written[:again]
        if buffered or written:
            text = written.decode(stream.encoding, stream.errors or "strict")
            found[name] = (bytes(buffered), text)
    return found


def put_back_unwritten(saved: dict[str, tuple[bytes, str]]) -> None:
    """Last of all: setting a stream up flushes it."""
    for name, stream in _streams():
        buffered, text = saved.get(name, (b"", ""))
        stream.buffer.write(buffered)
        stream.write(text)


def outputs() -> list[Output]:
    """Where standard output and error of a rank go, whatever the program has done with the streams above."""
    return [layer for layer in all_layers() if isinstance(layer, Output)]

"""Output in the buffers of standard output and error, and of the program's file objects over them, that is not written yet.

An image holds the length of the output file, and the buffered bytes apart: after a restart they are in the buffer of the new
process. They are not flushed into the file for an image, because other descriptors of the same file (``os.write(1, …)``, a
child process, a file object of the program over descriptor 1) may write first, and the order would change.

Python shows the content of a buffer only by flushing it, so a memory file is put under the descriptor for a moment. Without
fork (the program itself takes its image) the bytes are then written to the real file, since they are no longer buffered.

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
    """While the context is active, bytes written to the descriptor of ``raw`` go to a memory file; at the end they are in
    the bytearray that the context gives. Nothing is caught if ``raw`` is no FileIO. Without fork (``is_disposable`` False)
    the bytes are then written to ``raw``.
    """
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
    """Names and objects of the streams that this process was started with, if open. Objects that the program has assigned
    to ``sys.stdout`` or ``sys.stderr`` are saved like other variables.
    """
    for name in _NAMES:
        stream = getattr(sys, f"__{name}__")
        if state(stream) == "open" and _has_descriptor(stream):
            yield name, stream


def _has_descriptor(stream: io.TextIOWrapper) -> bool:
    """False: the program has closed it (``os.close``), and what it writes to the stream fails."""
    try:
        os.fstat(stream.fileno())
    except OSError:
        return False
    return True


def note_unwritten(*, is_disposable: bool) -> dict[str, tuple[bytes, str]]:
    """Name of the stream → (bytes in its binary buffer, text in the text layer above); only streams that hold some.

    ``is_disposable``: this process is a forked child.
    """
    found: dict[str, tuple[bytes, str]] = {}
    for name, stream in _streams():
        raw: Any = getattr(stream.buffer, "raw", stream.buffer)
        with catching(raw, is_disposable=is_disposable) as buffered:
            if isinstance(raw, Output):
                os.write(raw.fileno(), raw.take())
            stream.buffer.flush()
        # No fork: `catching` has put these bytes back, and flush() writes them first.
        kept_bytes = len(raw.held_back) if isinstance(raw, Output) else 0
        with catching(raw, is_disposable=is_disposable) as written:
            stream.flush()
        del written[:kept_bytes]
        if buffered or written:
            text = written.decode(stream.encoding, stream.errors or "strict")
            found[name] = (bytes(buffered), text)
    return found


def put_back_unwritten(saved: dict[str, tuple[bytes, str]]) -> None:
    """Fill the buffers again. Called after all settings of the streams have been restored: that flushes a stream."""
    for name, stream in _streams():
        buffered, text = saved.get(name, (b"", ""))
        stream.buffer.write(buffered)
        stream.write(text)


def outputs() -> list[Output]:
    """The raw layers of a rank's standard output and error, also if the program has replaced ``sys.stdout``."""
    return [layer for layer in all_layers() if isinstance(layer, Output)]

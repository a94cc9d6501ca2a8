"""What a buffer, or a text layer, holds that it has not written yet, where no file of the kernel is below.

Flushing is the only way to see it, and whoever is below (the gzip file under ``gzip.open(..., "wt")``, a raw file written in
Python) must not notice: it may be in the image already, and its methods are the program's. So for a moment its methods
``write``, ``flush`` and ``tell`` are ours: attributes of the instance, which hide those of its class.

Where the program itself stands still for its image (no fork) what was caught is put back where it came from.

Not here: files (:mod:`ckpt.image.files.file_positions`), standard streams (:mod:`ckpt.image.files.standard_output`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from ckpt.image.reducers.raw_instances import attributes_of

__all__ = ["can_be_caught", "caught_from", "make_text_writer", "unwritten_bytes"]


def can_be_caught(below: Any) -> bool:
    """Has it attributes of its own?"""
    return attributes_of(below) is not None


@contextlib.contextmanager
def caught_from(below: Any) -> Iterator[bytearray]:
    """What is written to the object within is put into the bytes given, and it does not hear of it."""
    caught = bytearray()

    def write(data: Any) -> int:
        nbytes = memoryview(data).nbytes
        caught.extend(data)
        return nbytes

    attributes = attributes_of(below)
    assert attributes is not None, "asked before"
    ours = {"write": write, "flush": lambda: None, "tell": lambda: 0}
    theirs = {name: attributes[name] for name in ours if name in attributes}
    attributes.update(ours)
    try:
        yield caught
    finally:
        for name in ours:
            del attributes[name]
        attributes.update(theirs)


def unwritten_bytes(buffer: io.BufferedWriter, *, is_disposable: bool) -> bytes:
    """What the buffer holds; ``is_disposable``: this process is a forked child, and it need not hold it any longer."""
    with caught_from(buffer.raw) as caught:
        buffer.flush()
        if not is_disposable:
            pending = bytes(caught)
            buffer.write(pending)  # less than it has room for
            return pending
    return bytes(caught)


# ---------------------------------------------------------------------- called while loading


def make_text_writer(
    buffer: Any, settings: tuple[Any, ...], has_begun: bool, text: str, attributes: dict[str, Any]
) -> io.TextIOWrapper:
    """A text layer that holds ``text``; ``has_begun``: no mark of the byte order is due any more."""
    with caught_from(buffer):
        made = io.TextIOWrapper(buffer, *settings)
        if has_begun:
            made.write("\n")
            made.flush()
    made.write(text)  # less than it has room for
    made.__dict__.update(attributes)
    return made

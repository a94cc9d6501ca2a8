"""Unwritten data of a buffer or text layer over an object that is no file of the kernel.

Such an object is, for example, the gzip file under ``gzip.open(..., "wt")``, or a raw file written in Python. Python shows
the data only by flushing it, but the object below must not get the data: the image may hold the object already, and its
methods may be the program's code. So for a moment its methods ``write``, ``flush`` and ``tell`` are replaced: attributes of
the instance hide those of its class.

Without fork (the program itself takes its image) the caught data is put back into the buffer or layer.

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
    """Does the object have a ``__dict__``, so that its methods can be replaced for a moment?"""
    return attributes_of(below) is not None


@contextlib.contextmanager
def caught_from(below: Any) -> Iterator[bytearray]:
    """While the context is active, bytes written to the object go into the bytearray that the context gives, and none of
    the object's own methods is called.
    """
    caught = bytearray()

    def write(data: Any) -> int:
        nbytes = memoryview(data).nbytes
        caught.extend(data)
        return nbytes

    attributes = attributes_of(below)
    assert attributes is not None, "asked before"
    replacements = {"write": write, "flush": lambda: None, "tell": lambda: 0}
    originals = {name: attributes[name] for name in replacements if name in attributes}
    attributes.update(replacements)
    try:
        yield caught
    finally:
        for name in replacements:
            del attributes[name]
        attributes.update(originals)


def unwritten_bytes(buffer: io.BufferedWriter, *, is_disposable: bool) -> bytes:
    """The bytes that the buffer holds. ``is_disposable``: this process is a forked child, and the buffer stays empty; else
    the bytes are put back into the buffer.
    """
    with caught_from(buffer.raw) as caught:
        buffer.flush()
        if not is_disposable:
            pending = bytes(caught)
            buffer.write(pending)  # fits: the buffer held these bytes before
            return pending
    return bytes(caught)


# ---------------------------------------------------------------------- called while loading


def make_text_writer(
    buffer: Any, settings: tuple[Any, ...], has_begun: bool, text: str, attributes: dict[str, Any]
) -> io.TextIOWrapper:
    """A text layer that holds the unwritten ``text``. ``has_begun``: the encoder has written its byte order mark already."""
    with caught_from(buffer):
        made = io.TextIOWrapper(buffer, *settings)
        if has_begun:
            made.write("\n")
            made.flush()
    made.write(text)  # fits: a text layer held this text before
    made.__dict__.update(attributes)
    return made

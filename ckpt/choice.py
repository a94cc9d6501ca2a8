"""How an image is written: by a forked copy while the program computes on, or by the rank itself. Pure.

=========  ==========================================================================================================
asked for  done
=========  ==========================================================================================================
fork       fork; where the kernel refuses that, this one image is written synchronously
sync       synchronously: the program waits until the image is durable
auto       fork, unless memory is too tight for it
=========  ==========================================================================================================

A file that is mapped for shared writing is one memory in program and copy: with one, images are written synchronously,
whatever was asked for.

*Too tight*: every page the program writes to while its copy lives is doubled. At least a quarter of its memory must be
available, or a program that writes to all of it between two steps could be killed for a checkpoint. A small image is no
reason to do without fork: the fork of a small process takes less than the sync to disk that the program would wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from transport.lean import dataclass

__all__ = ["MODES", "Choice", "choose"]

MODES = ("auto", "fork", "sync")
_SHARE_THAT_MAY_BE_COPIED = 4
_WRITER_NEEDS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """``mode``: "fork" or "sync"; ``reason``: why, in words."""

    mode: str
    reason: str


def choose(
    asked: str, *, resident_bytes: int, available_bytes: int | None, shared_files: Sequence[str] = ()
) -> Choice:
    """The mode for the next image.

    ``available_bytes``: of memory, within this process's limits; ``None``: not known. ``shared_files``: mapped by this
    process for shared writing.
    """
    if shared_files:
        return Choice("sync", f"mapped for shared writing: {', '.join(shared_files[:3])}")
    if asked != "auto":
        return Choice(asked, "asked for")
    if available_bytes is None:
        return Choice("fork", "how much memory is left is not known")
    needed = resident_bytes // _SHARE_THAT_MAY_BE_COPIED + _WRITER_NEEDS_BYTES
    if available_bytes < needed:
        return Choice(
            "sync",
            f"memory is tight: {available_bytes >> 20} MiB available, fork may need {needed >> 20} MiB",
        )
    return Choice("fork", "there is memory for it")

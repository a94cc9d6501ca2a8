"""How an image is written: by a forked copy while the program computes on, or by the rank itself. Pure.

=========  ==========================================================================================================
asked for  done
=========  ==========================================================================================================
fork       fork; where the kernel refuses that, this one image is written synchronously; where it has killed the copy, the
           next ones
sync       synchronously: the program waits until the image is durable
auto       fork, unless memory is too tight for it
=========  ==========================================================================================================

A file that is mapped for shared writing is one memory in program and copy: with one, images are written synchronously,
whatever was asked for.

*Too tight*: every page the program writes to while its copy lives is doubled. At least a quarter of its memory must be
available, for each of the ranks that share the limit: they fork at the same time. Where more is written to, and memory does
run out, the kernel kills the copy (:func:`ckpt.capture.memory.die_first`), the round is burnt, and the next images are
written synchronously (:mod:`ckpt.capture.taker`). Where it kills all processes of the group at once, there must be enough
for all of it. A small image is no reason to do without fork: the fork of a small process takes less than the sync to disk
that the program would wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.transport.records import dataclass

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
    asked: str,
    *,
    resident_bytes: int,
    available_bytes: int | None,
    sharers: int = 1,
    one_fate: bool = False,
    shared_files: Sequence[str] = (),
) -> Choice:
    """The mode for the next image.

    ``available_bytes``: of memory, within this process's limits; ``None``: not known. ``sharers``: ranks under the same
    limits, this one included. ``one_fate``: at a limit all are killed. ``shared_files``: mapped by this process for shared
    writing.
    """
    if shared_files:
        return Choice("sync", f"mapped for shared writing: {', '.join(shared_files[:3])}")
    if asked != "auto":
        return Choice(asked, "asked for")
    if available_bytes is None:
        return Choice("fork", "how much memory is left is not known")
    copied = resident_bytes if one_fate else resident_bytes // _SHARE_THAT_MAY_BE_COPIED
    needed = copied + _WRITER_NEEDS_BYTES
    if available_bytes // sharers < needed:
        each = f" for each of {sharers} ranks" if sharers > 1 else ""
        return Choice(
            "sync",
            f"memory is tight: {available_bytes >> 20} MiB available, fork may need {needed >> 20} MiB{each}",
        )
    return Choice("fork", "there is memory for it")

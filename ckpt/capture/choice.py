"""Decides how an image is written: by a forked copy while the program computes on, or by the rank itself. Pure.

=========  ==========================================================================================================
asked for  done
=========  ==========================================================================================================
fork       the rank forks; where the kernel refuses the fork, this one image is written synchronously; where the kernel has
           killed the forked copy, the next images are written synchronously
sync       the image is written synchronously: the program waits until the image is durable
auto       as fork, unless there is too little memory for a forked copy
=========  ==========================================================================================================

A file that is mapped for shared writing is the same memory in the program and in its copy. A process with such a file
writes its images synchronously, whatever was asked for, unless this memory is copied before the fork
(:mod:`ckpt.image.handles.file_maps`).

*Too little memory*: every page that the program writes to while its copy lives is doubled. A quarter of the process's
resident memory must be available, for each of the ranks that share the limit, since these ranks fork at the same time.
Where the program writes to more pages and memory does run out, the kernel kills the copy
(:func:`ckpt.capture.memory.prefer_for_oom_kill`), the round fails, and the next images are written synchronously
(:mod:`ckpt.capture.taker`). Where the kernel would kill all processes of the control group at once, all of the resident
memory must be available. A small image is no reason to write synchronously: the fork of a small process takes less time
than the sync to disk for which the program would wait.
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
    """How one image is written. ``mode``: "fork" or "sync"; ``reason``: why this mode was chosen, in words for the user."""

    mode: str
    reason: str


def choose(
    requested: str,
    *,
    resident_bytes: int,
    available_bytes: int | None,
    sharers: int = 1,
    kills_group: bool = False,
    shared_files: Sequence[str] = (),
) -> Choice:
    """The mode for the next image. ``requested``: one of `MODES`.

    ``resident_bytes``: the memory that this process uses now. ``available_bytes``: the memory that the processes under the
    same limit can still get; ``None``: not known. ``sharers``: the number of ranks under that limit, this one included.
    ``kills_group``: when the limit is reached, the kernel kills all processes of the control group. ``shared_files``: the
    files that this process has mapped for shared writing, and that are not copied.
    """
    if shared_files:
        return Choice("sync", f"mapped for shared writing: {', '.join(shared_files[:3])}")
    if requested != "auto":
        return Choice(requested, "asked for")
    if available_bytes is None:
        return Choice("fork", "how much memory is left is not known")
    copied = resident_bytes if kills_group else resident_bytes // _SHARE_THAT_MAY_BE_COPIED
    needed = copied + _WRITER_NEEDS_BYTES
    if available_bytes // sharers < needed:
        per_rank = f" for each of {sharers} ranks" if sharers > 1 else ""
        return Choice(
            "sync",
            f"memory is tight: {available_bytes >> 20} MiB available, fork may need {needed >> 20} MiB{per_rank}",
        )
    return Choice("fork", "there is memory for it")

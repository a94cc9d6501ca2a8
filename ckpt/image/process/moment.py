"""What a forked child would not find as it was: timers, the mask of signals, where open files stand.

::

    note()          in the parent, right before the fork: bytes; the child of ``_frames.fork(noted)`` has open files of its
                    own where the program has regular ones, before its parent goes on
    check(noted)    first of all in the child: has another thread opened a file meanwhile?
    read(noted)     in the child (or in the same process, where nothing is forked): a Moment

Noted by C, in one piece (``frames_moment.c`` has the layout): the program stands still meanwhile, and each Python object
that is looked at after a fork costs it a page fault.

Not here: what a child has its own copy of (:mod:`ckpt.image.process.resources`), and what is made of all this
(:mod:`ckpt.image.process.signals`, :mod:`ckpt.image.files.file_notes`).
"""

from __future__ import annotations

import os
import stat
import struct
from typing import NamedTuple

from ckpt.image.errors import Unpicklable
from ckpt.image.files.file_notes import FileNote, kind_of
from ckpt.image.frames import _frames
from ckpt.image.process.signals import Timing

__all__ = ["Moment", "check", "note", "read"]

_HEAD = struct.Struct("=12qQ")
_DESCRIPTOR = struct.Struct("=qqQQQiiiIIIII")
_SIGNALS = 64


class Moment(NamedTuple):
    """``files``: by descriptor, all that are open."""

    timing: Timing
    files: dict[int, FileNote]


def note() -> bytes:
    """Some 30 µs for 30 descriptors. Raises OSError, where no descriptor is left to list them with."""
    return _frames.note_moment()


def check(noted: bytes) -> None:
    """The descriptors of a forked child are those of that very moment. Raises :class:`Unpicklable` for a file among them
    that was not noted, as nobody knows where it stood."""
    known = read(noted).files
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd not in known and stat.S_ISREG(os.fstat(fd).st_mode):
                path = os.readlink(f"/proc/self/fd/{fd}")
                raise Unpicklable(f"descriptor {fd} ({path})", "opened while the image was being taken")
        except OSError:
            continue  # the descriptor of the listing itself


def read(noted: bytes) -> Moment:
    """What :func:`note` has noted."""
    *timers, mask = _HEAD.unpack_from(noted)
    seconds = [whole + micro / 1e6 for whole, micro in zip(timers[::2], timers[1::2], strict=True)]
    blocked = tuple(number for number in range(1, _SIGNALS + 1) if mask >> (number - 1) & 1)
    timing = Timing(tuple(zip(seconds[::2], seconds[1::2], strict=True)), blocked)
    files: dict[int, FileNote] = {}
    at = _HEAD.size
    while at < len(noted):
        offset, size, device, inode, born_ns, fd, flags, first, mode, links, length, lock_length, _ = (
            _DESCRIPTOR.unpack_from(noted, at)
        )
        at += _DESCRIPTOR.size
        path = os.fsdecode(noted[at : at + length])
        at += length
        locks = noted[at : at + lock_length].decode()
        at += lock_length
        identity = device, inode, born_ns
        files[fd] = FileNote(
            path, kind_of(path, mode, links), flags, offset, size, first, identity, stat.S_IMODE(mode), locks
        )
    return Moment(timing, files)

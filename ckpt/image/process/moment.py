"""The state that a forked child cannot read later: interval timers, signals, offsets of open files.

A child of ``fork(2)`` has no timers and no pending signals of its parent, and shares file offsets with it. So this state is
recorded before the
fork. One record is a ``bytes`` object, called ``noted`` here and elsewhere::

    note()          in the parent, right before the fork: the record. ``_frames.fork(noted)`` then gives the child open
                    files of its own in place of the program's regular files and directories, before the parent
                    goes on
    check(noted)    the child's first action: has another thread opened a file meanwhile?
    read(noted)     in the child (or in the same process, if there is no fork): the record as a Moment
    written_files(noted)  in the parent: the regular files that are open for writing, for an undo log

C code writes the record as one block (``frames_moment.c`` has the layout), for two reasons: the program stands still
meanwhile; and if this process has forked lately, each Python object that is used costs a page fault.

Not here: state of which a child has its own copy (:mod:`ckpt.image.process.resources`), and how the record is used
(:mod:`ckpt.image.process.signals`, :mod:`ckpt.image.files.file_notes`).
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

from ckpt.image.errors import Unpicklable
from ckpt.image.files.descriptors import baseline, is_in_our_directories, known
from ckpt.image.files.file_notes import FileNote, kind_of, present_name
from ckpt.image.frames import _frames
from ckpt.image.process import signals
from ckpt.image.process.signals import Timing
from ckpt.transport.records import NamedTuple
from ckpt.transport.wires import owned

__all__ = ["Moment", "check", "note", "has_written_files", "read", "written_files"]

_HEAD = struct.Struct("=12q3Q")
_TRIES = 8
_DESCRIPTOR = struct.Struct("=qqQQQiiiIIIII")
_SIGNALS = 64
_LOST_ITS_NAME = b" (deleted)"


class Moment(NamedTuple):
    """The record, decoded. ``files``: descriptor -> its note, for all open descriptors."""

    timing: Timing
    files: dict[int, FileNote]


def note() -> bytes:
    """Make the record; takes about 30 µs for 30 descriptors. Raises OSError: the process has no free descriptor, and
    listing ``/proc/self/fd`` needs one.

    The signals that have arrived and whose handlers have not been called yet belong to it. Where the interpreter is about to
    call a handler, it does so before another try.
    """
    for _ in range(_TRIES):
        deferred = signals.deferred_signals()
        noted = _frames.note_moment(owned.numbers(), known())
        is_tripped = _HEAD.unpack_from(noted)[-1]
        if not is_tripped and deferred == signals.deferred_signals():
            break
    noted = _with_present_names(noted)
    if not deferred:
        return noted
    head = [*_HEAD.unpack_from(noted)]
    head[-2] |= sum(1 << (number - 1) for number in set(deferred))
    return _HEAD.pack(*head) + noted[_HEAD.size :]


def _with_present_names(noted: bytes) -> bytes:
    """Of files that have lost the name with which they were opened, but have another one: that. It is looked for now, while
    the program stands still: later, it may have given the file one more name, or have taken this one away."""
    if _LOST_ITS_NAME not in noted:
        return noted
    parts, at = [noted[: _HEAD.size]], _HEAD.size
    while at < len(noted):
        offset, size, *identity, fd, flags, first, mode, links, length, locks, content = (
            _DESCRIPTOR.unpack_from(noted, at)
        )
        at += _DESCRIPTOR.size
        path = os.fsdecode(noted[at : at + length])
        name = os.fsencode(present_name(path, (identity[0], identity[1], identity[2]), mode, links))
        fields = (offset, size, *identity, fd, flags, first, mode, links, len(name), locks, content)
        end = at + length + locks + content
        parts += [_DESCRIPTOR.pack(*fields), name, noted[at + length : end]]
        at = end
    return b"".join(parts)


def check(noted: bytes) -> None:
    """Compare the descriptors of the forked child with the record. Raises :class:`Unpicklable` for a regular file or a
    directory that is open but not in the record, perhaps under a number that was another file's: another thread has opened
    it before the fork, and its offset is unknown. Not for what ckpt itself has opened: the undo log, when such a thread has
    changed a file."""
    files = read(noted).files
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            status = os.fstat(fd)
            note, is_file = files.get(fd), stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
            is_noted = note is not None and (note.path or note.identity[:2] == (status.st_dev, status.st_ino))
            if is_file and not is_noted and fd not in baseline():
                path = os.readlink(f"/proc/self/fd/{fd}")
                if is_in_our_directories(path):  # such a thread was just opening it
                    continue
                raise Unpicklable(f"descriptor {fd} ({path})", "opened while the image was being taken")
        except OSError:
            continue  # the descriptor of os.listdir itself, closed by now


def read(noted: bytes) -> Moment:
    """Decode the record of :func:`note`."""
    *timers, mask, pending, _ = _HEAD.unpack_from(noted)
    seconds = [whole + micro / 1e6 for whole, micro in zip(timers[::2], timers[1::2], strict=True)]
    timing = Timing(tuple(zip(seconds[::2], seconds[1::2], strict=True)), _numbers(mask), _numbers(pending))
    return Moment(timing, dict(_files(noted)))


def _numbers(bits: int) -> tuple[int, ...]:
    return tuple(number for number in range(1, _SIGNALS + 1) if bits >> (number - 1) & 1)


def written_files(noted: bytes, left_out: tuple[bytes, ...] = ()) -> Iterator[tuple[int, FileNote]]:
    """Descriptor and note of each regular file in the record that is open for writing, without those in the directories
    ``left_out``."""
    return _files(_frames.written(noted, left_out), 0)


def has_written_files(noted: bytes, left_out: tuple[bytes, ...]) -> bool:
    """Are there any?"""
    return bool(_frames.written(noted, left_out))


def _files(noted: bytes, at: int = _HEAD.size) -> Iterator[tuple[int, FileNote]]:
    while at < len(noted):
        (
            offset,
            size,
            device,
            inode,
            born_ns,
            fd,
            flags,
            first,
            mode,
            links,
            length,
            lock_length,
            content_length,
        ) = _DESCRIPTOR.unpack_from(noted, at)
        at += _DESCRIPTOR.size
        locks_end = at + length + lock_length
        after = locks_end + content_length
        path = os.fsdecode(noted[at : at + length])
        locks = noted[at + length : locks_end].decode()
        identity = (device, inode, born_ns)
        kind = kind_of(path, mode, links)
        content = noted[locks_end:after]
        permissions = stat.S_IMODE(mode)
        yield fd, FileNote(path, kind, flags, offset, size, first, identity, permissions, locks, content)
        at = after

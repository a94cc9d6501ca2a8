"""The pipes and sockets of the program, looked at in the child before it gives them up
(:func:`ckpt.image.files.file_notes.give_up_descriptors`).

============================================  =========================================================================
a pipe, or a pair of Unix sockets without     comes back with what waits in it, under its numbers. If this process has
names, with both ends in this process         only one end: if the other has been closed by everybody
a pipe or pair with an end elsewhere          not saved: ``reasons``
another socket                                ``sockets``: comes back if an object of the program holds it
                                              (:mod:`ckpt.image.ipc.sockets`)
============================================  =========================================================================

The contents were noted in the parent (:mod:`ckpt.image.process.moment`): the program takes them as it goes on.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.ipc import socket_options
from ckpt.image.ipc.remake import End, Pair, Pipe
from ckpt.image.ipc.socket_options import SavedSocket
from ckpt.transport.records import dataclass, field, replace

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["Channels", "channels_of", "survey"]

_STREAMS = (0, 1, 2)
_ELSEWHERE = (
    "a {} to another process cannot be part of an image of this one: checkpoints wait until it is closed"
)
_UNREADABLE = (
    "what waits in a {} cannot be read without taking it out: checkpoints wait until the program has taken it"
)
_KEY = "channels"


@dataclass(slots=True)
class Channels:
    """What the survey has found. ``reasons``: descriptor → why it cannot be saved. ``sockets``: descriptor → its record.
    ``registered``: descriptor of an epoll instance → the lines of ``/proc/self/fdinfo``, or None: they could not be read."""

    pipes: list[Pipe] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    sockets: dict[int, SavedSocket] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    registered: dict[int, bytes | None] = field(default_factory=dict)

    def give_to(self, saver: Saver) -> None:
        """Let the reducers of that image use this."""
        saver.shared[_KEY] = self

    def remade(self) -> set[int]:
        """The descriptors of the pipes and pairs, which come back under their numbers, whoever holds them."""
        ends = [end for pipe in self.pipes for end in (*pipe.readers, *pipe.writers)]
        return {
            end.number
            for end in (*ends, *(end for pair in self.pairs for side in pair.sides for end in side))
        }


def channels_of(saver: Saver) -> Channels:
    """Those of the image that ``saver`` writes."""
    found: Channels = saver.shared.setdefault(_KEY, Channels())
    return found


def survey(notes: Mapping[int, FileNote], candidates: Collection[int], own: Collection[int]) -> Channels:
    """``candidates``: descriptors of the program that are no files. ``own``: those that do not belong to the program."""
    channels = Channels()
    pipes: dict[int, list[int]] = {}
    sockets: dict[int, list[int]] = {}
    for fd in candidates:
        note = notes[fd]
        table = {"pipe": pipes, "socket": sockets}.get(note.kind)
        if table is not None:
            table.setdefault(note.identity[1], []).append(fd)
        elif note.content or (note.kind == "special file" and note.offset < 0):
            channels.registered[fd] = note.content if note.offset >= 0 else None
    others = {notes[fd].identity[1] for fd in (*own, *_STREAMS) if fd in notes}
    for inode, fds in pipes.items():
        if inode not in others:
            _add_pipe(channels, notes, fds)
    for inode, fds in sockets.items():
        if inode not in others:
            _add_socket(channels, notes, sockets, inode, fds)
    return channels


def _end(fd: int) -> End:
    return End(fd, fcntl.fcntl(fd, fcntl.F_GETFL), os.get_inheritable(fd))


def _add_pipe(channels: Channels, notes: Mapping[int, FileNote], fds: list[int]) -> None:
    try:
        ends = [_end(fd) for fd in fds]
        is_named = not completed(fds[0], notes[fds[0]]).path.startswith("pipe:[")
    except OSError:
        return  # closed
    readers = tuple(end for end in ends if end.flags & os.O_ACCMODE == os.O_RDONLY)
    writers = tuple(end for end in ends if end.flags & os.O_ACCMODE == os.O_WRONLY)
    is_whole = bool(readers and writers) or (not is_named and _is_left_alone(fds[0], bool(readers)))
    if is_named or len(readers) + len(writers) < len(ends) or not is_whole:
        reason = _ELSEWHERE.format("named pipe (FIFO)" if is_named else "pipe")
    elif any(notes[fd].offset < 0 for fd in fds):
        reason = _UNREADABLE.format("pipe")
    else:
        content = next((notes[end.number].content for end in readers), b"")
        size = fcntl.fcntl(fds[0], fcntl.F_GETPIPE_SZ)
        channels.pipes.append(Pipe(readers, writers, content, size))
        return
    channels.reasons.update(dict.fromkeys(fds, reason))


def _is_left_alone(fd: int, is_reader: bool) -> bool:
    """Has everybody closed the other end of the pipe?"""
    poll = select.poll()
    poll.register(fd, select.POLLIN if is_reader else 0)
    return any(events & (select.POLLHUP if is_reader else select.POLLERR) for _, events in poll.poll(0))


def _add_socket(
    channels: Channels,
    notes: Mapping[int, FileNote],
    sockets: Mapping[int, list[int]],
    inode: int,
    fds: list[int],
) -> None:
    try:
        saved, end = socket_options.read(fds[0])
    except OSError as failure:
        channels.reasons.update(dict.fromkeys(fds, f"a socket that cannot be looked at: {failure.strerror}"))
        return
    if end is None:
        for fd in fds:
            channels.sockets[fd] = replace(saved, is_inheritable=os.get_inheritable(fd))
    elif end.peer and end.peer not in sockets:
        channels.reasons.update(dict.fromkeys(fds, _ELSEWHERE.format("socket connected")))
    elif not end.peer or inode < end.peer:  # each pair once
        _add_pair(channels, notes, saved, fds, sockets[end.peer] if end.peer else [], end.shut)


def _add_pair(
    channels: Channels,
    notes: Mapping[int, FileNote],
    saved: SavedSocket,
    fds: list[int],
    others: list[int],
    shut: int,
) -> None:
    if any(notes[fd].offset < 0 for fd in (*fds, *others)):
        channels.reasons.update(dict.fromkeys((*fds, *others), _UNREADABLE.format("pair of sockets")))
        return
    ends: Any = tuple(tuple(map(_end, numbers)) for numbers in (fds, others))
    waiting = notes[fds[0]].content, notes[others[0]].content if others else b""
    channels.pairs.append(Pair(saved.kind, ends, waiting, shut, saved.options))

"""The pipes and sockets of the program, looked at in the child before it gives them up
(:func:`ckpt.image.files.file_notes.give_up_descriptors`).

============================================  =========================================================================
a connection over TCP or Unix sockets with    comes back (:mod:`ckpt.image.ipc.connections`)
both ends in this process
a pipe, or a pair of Unix sockets without     comes back with what waits in it, under its numbers. If this process has
names, with both ends in this process         only one end: if the other has been closed by everybody
a pipe or pair with an end elsewhere          not saved: ``reasons``
another socket                                ``sockets``: comes back if an object of the program holds it
                                              (:mod:`ckpt.image.ipc.sockets`)
============================================  =========================================================================

The contents were noted in the parent (:mod:`ckpt.image.process.moment`), and so were addresses and options of sockets: the
program takes and changes them as it goes on.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image.files.file_notes import FileNote, completed
from ckpt.image.ipc import socket_options, tcp_ends
from ckpt.image.ipc.connections import Connection, Side
from ckpt.image.ipc.library import are_reset
from ckpt.image.ipc.remake import End, Pair, Pipe
from ckpt.image.ipc.socket_options import SavedSocket, SocketState
from ckpt.image.ipc.unix_peers import UnixSocket
from ckpt.transport.records import NamedTuple, dataclass, field, replace

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
_SHUT = 3  # of a Unix socket whose peer has been closed: both directions


@dataclass(slots=True)
class Channels:
    """What the survey has found. ``reasons``: descriptor → why it cannot be saved. ``sockets``: descriptor → its record.
    ``registered``: descriptor of an epoll instance → the lines of ``/proc/self/fdinfo``, or None: they could not be read."""

    pipes: list[Pipe] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    sockets: dict[int, SavedSocket] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    registered: dict[int, bytes | None] = field(default_factory=dict)

    def give_to(self, saver: Saver) -> None:
        """Let the reducers of that image use this."""
        saver.shared[_KEY] = self

    def made_first(self) -> tuple[list[Pipe], list[Pair], list[Connection]]:
        """The arguments of :func:`ckpt.image.ipc.remake.make_channels`."""
        return self.pipes, self.pairs, self.connections

    def remade(self) -> set[int]:
        """The descriptors of the pipes, pairs and connections, which come back under their numbers, whoever holds them."""
        ends = [end for pipe in self.pipes for end in (*pipe.readers, *pipe.writers)]
        ends += [end for pair in self.pairs for side in pair.sides for end in side]
        sides = (side for each in self.connections for side in (each.server, each.client) if side is not None)
        return {end.number for end in (*ends, *(end for side in sides for end in side.ends))}

    def within(self) -> set[int]:
        """The descriptors of the pairs and connections of which the program has both ends."""
        sides = (
            side
            for each in self.connections
            for side in (each.server, each.client)
            if side is not None and each.client is not None
        )
        pairs = (side for pair in self.pairs if all(pair.sides) for side in pair.sides)
        return {end.number for ends in (*pairs, *(side.ends for side in sides)) for end in ends}


def channels_of(saver: Saver) -> Channels:
    """Those of the image that ``saver`` writes."""
    found: Channels = saver.shared.setdefault(_KEY, Channels())
    return found


def survey(
    notes: Mapping[int, FileNote],
    candidates: Collection[int],
    own: Collection[int],
    states: Mapping[int, SocketState],
) -> Channels:
    """``candidates``: descriptors of the program that are no files. ``own``: those that do not belong to the program.
    ``states``: of its sockets, when it stood still."""
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
    sockets = {inode: fds for inode, fds in sockets.items() if inode not in others}
    read = _read(channels, sockets, states)
    for each in read.values():
        if each.unix is not None:
            _add_unix(channels, notes, read, each)
    _add_internet(channels, notes, [each for each in read.values() if each.unix is None])
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


class _Read(NamedTuple):
    """A socket, under its descriptors. ``unix``: of a Unix socket, what the kernel tells of it."""

    fds: list[int]
    saved: SavedSocket
    unix: UnixSocket | None


def _read(
    channels: Channels, sockets: Mapping[int, list[int]], states: Mapping[int, SocketState]
) -> dict[int, _Read]:
    found = {}
    for inode, fds in sockets.items():
        try:
            found[inode] = _Read(fds, *(states.get(fds[0]) or socket_options.read(fds[0])))
        except OSError as failure:
            channels.reasons.update(
                dict.fromkeys(fds, f"a socket that cannot be looked at: {failure.strerror}")
            )
    return found


def _add_single(channels: Channels, fds: list[int], saved: SavedSocket) -> None:
    for fd in fds:
        channels.sockets[fd] = replace(saved, is_inheritable=os.get_inheritable(fd))


def _add_internet(channels: Channels, notes: Mapping[int, FileNote], read: list[_Read]) -> None:
    ends = []
    for each in read:
        end = tcp_ends.end_of(notes[each.fds[0]], each.fds, each.saved)
        if end is None:
            _add_single(channels, each.fds, each.saved)
        else:
            ends.append(end)
    if not ends:
        return
    listening = {each.saved.name[1] for each in read if each.saved.backlog >= 0 and each.saved.name}
    placed = {fd: _end(fd) for end in ends for fd in end.fds}
    found = tcp_ends.connections_of(ends, listening, placed)
    channels.connections.extend(found.connections)
    if not are_reset():
        channels.reasons.update(found.reasons)
    for end in ends:
        if end in found.elsewhere or (are_reset() and end.fds[0] in found.reasons):
            _add_single(channels, end.fds, end.saved)


def _add_unix(
    channels: Channels, notes: Mapping[int, FileNote], read: Mapping[int, _Read], each: _Read
) -> None:
    fds, saved, unix = each
    assert unix is not None
    other = read.get(unix.peer or 0)
    is_pair = unix.peer is not None and saved.name is None and saved.peer is None
    is_pair = is_pair and (other is None or other.saved.name is None)
    is_whole = other is not None or (unix.peer == 0 and unix.shut == _SHUT)
    has_names = not is_pair and saved.is_connection
    if not is_pair and not has_names:
        _add_single(channels, fds, saved)
    elif has_names and not is_whole:
        if unix.peer or are_reset():
            _add_single(channels, fds, saved)
        else:
            channels.reasons.update(dict.fromkeys(fds, tcp_ends.NOT_ACCEPTED.format(saved.peer)))
    elif unix.peer and other is None:
        channels.reasons.update(dict.fromkeys(fds, _ELSEWHERE.format("socket connected")))
    elif not unix.peer or saved.inode < unix.peer:  # each pair once
        others = other.fds if other is not None else []
        if any(notes[fd].offset < 0 for fd in (*fds, *others)):
            channels.reasons.update(dict.fromkeys((*fds, *others), _UNREADABLE.format("pair of sockets")))
        elif has_names:
            channels.connections.append(_named(notes, each, other))
        else:
            ends: Any = tuple(tuple(map(_end, numbers)) for numbers in (fds, others))
            waiting = notes[fds[0]].content, notes[others[0]].content if others else b""
            channels.pairs.append(Pair(saved.kind, ends, waiting, unix.shut, saved.options))


def _named(notes: Mapping[int, FileNote], one: _Read, other: _Read | None) -> Connection:
    def side(each: _Read) -> Side:
        shut = each.unix.shut if each.unix is not None and other is not None else 0
        return Side(tuple(map(_end, each.fds)), each.saved, notes[each.fds[0]].content, shut)

    return Connection(side(one), None if other is None else side(other), is_reset=False)

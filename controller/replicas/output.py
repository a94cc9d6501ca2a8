"""The output of a job with replicas: read from the files of all, printed once, as far as enough of them agree.

Replica k of rank h writes to ``rank-h.replica-k.out`` and ``.err`` in the job's ``output``. What is agreed (`text`) is
printed and appended to ``rank-h.out`` and ``rank-h.err``. Standard error is printed alike while the replicas agree; where
they do not (an address in a message), that of the replica with the lowest number is printed from there, and nobody is
called wrong for it. A copy of a replica, replica k, begins with what its donor had written when it was copied.

After the program has been started again, text that was printed is not printed a second time if it is the same.

The interface is that of `ckpt.controller.service.passthrough.Passthrough`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ckpt.controller.replicas.text import Conflict, TextVote, common
from ckpt.redundancy.membership import Lineage
from ckpt.store.disk.privacy import open_regular

POLL_BUSY_NS: Final = 10_000_000
POLL_IDLE_NS: Final = 100_000_000
_READ_BYTES: Final = 1 << 16

Emit = Callable[[int, str, bytes], None]


class _Stream:
    """One stream of one rank."""

    def __init__(self, directory: str, rank: int, stream: str, replicas: int, lineage: Lineage) -> None:
        self.rank, self.stream, self.replicas, self.lineage = rank, stream, replicas, lineage
        self.directory = directory
        self.paths = {k: self.path(k) for k in range(replicas)}
        self.fds = {k: open_regular(path, os.O_RDONLY | os.O_CREAT) for k, path in self.paths.items()}
        self.printed = open_regular(os.path.join(directory, f"rank-{rank}.{stream}"), os.O_RDWR | os.O_CREAT)
        self.line = b""
        self.begin()

    def path(self, replica: int) -> str:
        return os.path.join(self.directory, f"rank-{self.rank}.replica-{replica}.{self.stream}")

    def begin(self) -> None:
        for copy in [k for k in self.paths if k >= self.replicas]:
            os.close(self.fds.pop(copy))
            os.unlink(self.paths.pop(copy))
        self.vote = TextVote(self.replicas, self.lineage)
        self.read_bytes = dict.fromkeys(self.paths, 0)
        self.again_bytes = 0

    def prepare(self, copy: int, donor: int, length: int) -> None:
        """A copy is to begin where `donor` had written so many bytes. Raises OSError."""
        at = 0
        with open(open_regular(self.path(copy), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            while at < length and (text := os.pread(self.fds[donor], min(_READ_BYTES, length - at), at)):
                at += file.write(text)
        if at < length:
            raise OSError(f"{self.paths[donor]} has only {at} of {length} bytes")

    def join(self, copy: int) -> None:
        """This copy has a voice from now on."""
        path = self.paths[copy] = self.path(copy)
        fd = self.fds[copy] = open_regular(path, os.O_RDONLY)
        text = os.pread(fd, os.fstat(fd).st_size, 0)
        self.read_bytes[copy] = len(text)
        self.vote.join(copy, text, os.pread(self.printed, self.again_bytes, 0))

    def read(self) -> None:
        """Feed what the replicas have written since."""
        for replica in list(self.vote.ahead):
            data = os.pread(self.fds[replica], _READ_BYTES, self.read_bytes[replica])
            if data:
                self.read_bytes[replica] += len(data)
                self.vote.write(replica, data)

    def before(self, length: int) -> bytes:
        """The first `length` bytes, as printed; what was not printed (standard error is not waited for), as a replica has
        written it."""
        text = os.pread(self.printed, length, 0)
        for fd in self.fds.values():
            if len(text) < length:
                text += os.pread(fd, length - len(text), len(text))
        return text

    def close(self) -> None:
        for fd in [*self.fds.values(), self.printed]:
            os.close(fd)


class ReplicaOutput:
    """`on_conflict(rank, conflict)`: replicas of a rank have written different text to standard output."""

    def __init__(
        self,
        directory: str,
        ranks: int,
        replicas: int,
        emit: Emit,
        say: Callable[[str], None],
        on_conflict: Callable[[int, Conflict], None],
        lineage: Lineage | None = None,
    ) -> None:
        lineage = Lineage() if lineage is None else lineage
        self._emit, self._say, self._on_conflict = emit, say, on_conflict
        self._streams = [
            _Stream(directory, rank, stream, replicas, lineage)
            for rank in range(ranks)
            for stream in ("out", "err")
        ]
        self._idle_polls = 0
        self._awaited: tuple[Sequence[int], Callable[[], None]] | None = None

    def poll(self) -> bool:
        """Print what has become agreed; returns whether there was any."""
        has_text = False
        conflicts: list[tuple[int, Conflict]] = []
        for each in self._streams:
            each.read()
            text, conflict = each.vote.take()
            if conflict is not None and each.stream == "err":
                text += each.vote.rest(min(each.vote.ahead))
            elif conflict is not None:
                conflicts.append((each.rank, conflict))
            if text:
                has_text = True
                self._print(each, text)
        self._idle_polls = 0 if has_text else self._idle_polls + 1
        for rank, conflict in conflicts:
            self._on_conflict(rank, conflict)
        self._look_at_awaited()
        return has_text

    def _look_at_awaited(self) -> None:
        if self._awaited is None:
            return
        lengths, then = self._awaited
        if all(each.again_bytes >= lengths[each.rank] for each in self._streams if each.stream == "out"):
            self._awaited = None
            then()

    def interval_ns(self) -> int:
        """The time until the next `poll` is due, in ns."""
        return min(POLL_IDLE_NS, POLL_BUSY_NS * (1 + self._idle_polls // 4))

    def drop(self, replicas: Iterable[int]) -> None:
        """These replicas have no voice any more."""
        for each in self._streams:
            each.vote.drop(replicas)

    def prepare(self, copy: int, donor: int, lengths: Mapping[tuple[int, str], int]) -> None:
        """The files of a copy, which begins where `donor` had written so much. Raises OSError."""
        for each in self._streams:
            each.prepare(copy, donor, lengths.get((each.rank, each.stream), 0))

    def join(self, copy: int) -> None:
        """The text of this copy counts from now on."""
        for each in self._streams:
            each.join(copy)

    def await_printed(self, lengths: Sequence[int], then: Callable[[], None]) -> None:
        """Call `then` once so many bytes of each rank's standard output are agreed on. A later call replaces this one."""
        self._awaited = (lengths, then)

    def begin_again(self, lengths: Mapping[tuple[int, str], int] = MappingProxyType({})) -> None:
        """The program is started again, and no process of it lives: all replicas have a voice. `lengths`: how much of each
        rank's stream comes before the line that it goes on from; the rest is written again."""
        self._awaited = None
        for each in self._streams:
            text = each.before(lengths.get((each.rank, each.stream), 0))
            each.begin()
            for path in each.paths.values():
                with open(path, "wb") as file:
                    file.write(text)

    def finish(self) -> None:
        """Print the rest. Call it when no process lives."""
        while self.poll():
            pass
        for each in self._streams:
            if each.stream == "err" and each.vote.ahead:
                self._print(each, each.vote.rest(min(each.vote.ahead)))
            size = os.fstat(each.printed).st_size
            if each.line and each.again_bytes == size and not any(each.vote.ahead.values()):
                self._emit(each.rank, each.stream, each.line)
            elif each.line:  # the replicas differ in the rest of it, or it is of a former run of the program
                os.ftruncate(each.printed, size - len(each.line))
            each.close()
        self._streams = []

    def _print(self, each: _Stream, text: bytes) -> None:
        """Print agreed text, but for what has been printed before the program was started again."""
        old = os.pread(each.printed, len(text), each.again_bytes)
        same = common(old, text)
        if same < len(old):
            at = each.again_bytes + same
            self._say(
                f"rank {each.rank} std{each.stream}: the output produced again differs from byte {at} on; "
                "printing it again from there"
            )
            begun = os.fstat(each.printed).st_size - len(each.line)  # of the line that is not printed yet
            os.ftruncate(each.printed, at)
            each.line = each.line[: max(0, at - begun)]
        each.again_bytes += len(text)
        fresh = text[same:]
        if not fresh:
            return
        os.pwrite(each.printed, fresh, each.again_bytes - len(fresh))
        lines, newline, each.line = (each.line + fresh).rpartition(b"\n")
        if newline:
            self._emit(each.rank, each.stream, lines + newline)

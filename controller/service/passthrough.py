"""The controller follows the ranks' output files and prints them. It prints text once, although ranks may write it twice.

Ranks write to files of the job directory, so that a dead controller never harms a rank. The controller follows the files
and prints whole lines, with the rank as prefix when asked. After a rollback a rank cuts its files back to their length at
the image, and writes the rest again. The controller compares the new text with the printed text (`Printed`, block by block):

    equal      nothing is printed until the file is longer than the printed text
    different  the controller says so, and prints from the first block that differs

Files are read every few milliseconds while output comes (`POLL_BUSY_NS`), and more rarely otherwise (up to `POLL_IDLE_NS`).
On several hosts the agents follow them, and send what is new (`came`): the controller reads none (`sources.py`).
Writing never blocks the controller: text that the reader of standard output does not take is kept in memory, and above
`_BACKLOG_BYTES_MAX` the files are not read on.
"""

from __future__ import annotations

import os
import select
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence

from ckpt.controller.service.sources import FarFile, LocalFile, Source

BLOCK_BYTES = 1024
_READ_BYTES = 1 << 16
_BACKLOG_BYTES_MAX = 1 << 20
_PARTIAL_LINE_PATIENCE = 8  # polls without new text after which an unfinished line is printed
POLL_BUSY_NS = 10_000_000
POLL_IDLE_NS = 100_000_000


class Printed:
    """The text of one stream that has been printed: a CRC-32 per block, and the bytes of the last, unfinished block. Pure.

    `start`: offset in the file of the first byte that this controller prints; earlier bytes are not compared.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._sums = array("L")
        self._tail = b""

    @property
    def end(self) -> int:
        return self.start + len(self._sums) * BLOCK_BYTES + len(self._tail)

    def append(self, data: bytes) -> None:
        data = self._tail + data
        whole = len(data) // BLOCK_BYTES * BLOCK_BYTES
        for at in range(0, whole, BLOCK_BYTES):
            self._sums.append(zlib.crc32(data[at : at + BLOCK_BYTES]))
        self._tail = data[whole:]

    def floor(self, offset: int) -> int:
        """The last block boundary at or before `offset`: from there a comparison can begin."""
        return self.start + max(0, offset - self.start) // BLOCK_BYTES * BLOCK_BYTES

    def compare(self, offset: int, data: bytes) -> tuple[int, bool]:
        """Compare `data`, read at the block boundary `offset`, with the text printed there.

        Returns (number of bytes known to be equal, whether the next block differs). Equal bytes are counted in whole blocks,
        or up to `end`.
        """
        equal = 0
        while True:
            number = (offset + equal - self.start) // BLOCK_BYTES
            if number < len(self._sums):
                block = data[equal : equal + BLOCK_BYTES]
                if len(block) < BLOCK_BYTES:
                    return equal, False
                if zlib.crc32(block) != self._sums[number]:
                    return equal, True
                equal += BLOCK_BYTES
                continue
            block = data[equal : equal + len(self._tail)]
            if not self._tail.startswith(block):
                return equal, True
            return (equal + len(block), False) if len(block) == len(self._tail) else (equal, False)

    def cut(self, offset: int) -> None:
        """Forget everything from the block boundary `offset` on."""
        blocks = (offset - self.start) // BLOCK_BYTES
        if blocks <= len(self._sums):
            del self._sums[blocks:]
            self._tail = b""


class Tail:
    """One file that is followed. `say` is called with a message when text written again differs from printed text."""

    def __init__(
        self,
        path: str,
        name: str,
        say: Callable[[str], None],
        *,
        from_end: bool = False,
        is_far: bool = False,
    ) -> None:
        """`is_far`: agents send what is in it."""
        self.path, self.name = path, name
        self.say = say
        self.is_lost = False
        start = os.path.getsize(path) if from_end and os.path.exists(path) else 0
        self.source: Source = FarFile(path, start) if is_far else LocalFile(path)
        self.printed = Printed(start)
        self.position = start

    def read(self) -> bytes:
        """New bytes to print; empty when there are none (yet), or while text is written a second time."""
        if self.is_lost:
            return b""
        try:
            data = self._read()
        except OSError as failure:
            self.is_lost = True
            self.say(
                f"{self.name}: what is printed cannot be shown, it cannot be read: {failure.strerror}: {self.path}"
            )
            return b""
        self.source.forget(self.position)
        return data

    def _read(self) -> bytes:
        size = self.source.size()
        if size is None:
            return b""
        cut = self.source.cut()
        shortest = size if cut is None else min(size, cut)
        if shortest < self.position:
            self._rewound(shortest)
        if self.position < self.printed.end:
            self._compare()
            if self.position < self.printed.end:
                return b""
        data = self.source.read(self.position, _READ_BYTES) if size > self.position else b""
        self.position += len(data)
        self.printed.append(data)
        return data

    def _rewound(self, size: int) -> None:
        if size < self.printed.start:
            self.printed = Printed(size)  # a new controller of an old job prints text from this offset on
        self.position = self.printed.floor(size)

    def _compare(self) -> None:
        while self.position < self.printed.end:
            data = self.source.read(self.position, _READ_BYTES)
            equal, differs = self.printed.compare(self.position, data)
            self.position += equal
            if differs:
                self.say(
                    f"{self.name}: the output produced again after the restart differs "
                    f"from byte {self.position} on; printing it again from there"
                )
                self.printed.cut(self.position)
                return
            if equal == 0:
                return

    def finish(self) -> None:
        """The ranks have ended: say if less text was written the second time; close the file."""
        missing = self.printed.end - self.position
        if missing >= BLOCK_BYTES:
            self.say(f"{self.name}: about {missing} bytes printed before the restart were not produced again")
        self.source.close()


class Outlet:
    """A descriptor of the controller, written without blocking. Only `finish` may block: nothing else is left to do then.

    `broken`: the reader has closed its end; text is dropped from then on. Text that cannot be written for another reason (a
    full disk) is kept and tried again; `failure` is the reason as long as it lasts.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.broken = False
        self.failure: OSError | None = None
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def put(self, data: bytes) -> None:
        if self.broken:
            return
        self.waiting += data
        self.flush()

    @property
    def is_full(self) -> bool:
        return len(self.waiting) > _BACKLOG_BYTES_MAX

    def flush(self) -> None:
        """Write as much as the reader takes now. A write of PIPE_BUF bytes does not block when poll reports POLLOUT."""
        while self.waiting and not self.broken and self._poll.poll(0) and self._write(select.PIPE_BUF):
            pass

    def finish(self) -> None:
        """Write the rest. Text that cannot be written is dropped here; the ranks' own files have it."""
        while self.waiting and not self.broken and self._write(1 << 16):
            pass

    def _write(self, limit: int) -> bool:
        """Write at most `limit` bytes. False: the descriptor cannot be written now; see `failure`."""
        try:
            del self.waiting[: os.write(self.fd, self.waiting[:limit])]
            self.failure = None
        except BlockingIOError:
            self._poll.poll(100)
        except (BrokenPipeError, ConnectionResetError):
            self.broken = True
            self.waiting.clear()
        except OSError as failure:
            self.failure = failure
            return False
        return True


Emit = Callable[[int, str, bytes], None]


class Passthrough:
    """Follows the output of all ranks; `emit(rank, "out" | "err", whole lines)` prints.

    `from_end`: the job is resumed; an earlier controller has printed the present text of the files. `is_far`: agents follow
    the files.
    """

    def __init__(
        self,
        paths: Iterable[tuple[int, str, str]],
        emit: Emit,
        say: Callable[[str], None],
        *,
        from_end: bool = False,
        is_far: bool = False,
    ) -> None:
        self._emit = emit
        self._say = say
        self._tails = [
            (
                rank,
                stream,
                Tail(path, f"rank {rank} std{stream}", say, from_end=from_end, is_far=is_far),
            )
            for rank, stream, path in paths
        ]
        self._partial: dict[tuple[int, str], bytes] = {}
        self._polls_without_text: dict[tuple[int, str], int] = {}
        self._idle_polls = 0

    def follow(self, rank: int, stream: str, path: str) -> None:
        """Follow one more file from now on. What is in it was printed before, and goes when the process begins."""
        if not any((each, its) == (rank, stream) for each, its, _ in self._tails):
            tail = Tail(path, f"rank {rank} std{stream}", self._say, from_end=True)
            self._tails.append((rank, stream, tail))

    def came(self, rank: int, stream: str, at: int, text: bytes, cut: int | None) -> None:
        """The agent of its host has sent this part of the output of a rank, which was `cut` to a length before; the next
        `poll` prints it."""
        for each, its, tail in self._tails:
            if (each, its) == (rank, stream) and isinstance(tail.source, FarFile):
                tail.source.came(at, text, cut)
        self._idle_polls = 0

    def known(self, rank: int) -> list[int]:
        """How far the output of a rank has been sent by an agent: of "out" and of "err"."""
        return [tail.source.size() or 0 for each, _, tail in self._tails if each == rank]

    def taken(self) -> dict[int, int]:
        """By rank, how many bytes of what agents have sent are printed, or were printed before, since the last call."""
        found: dict[int, int] = {}
        for rank, _, tail in self._tails:
            if isinstance(tail.source, FarFile) and (count := tail.source.settle()):
                found[rank] = found.get(rank, 0) + count
        return found

    def poll(self) -> bool:
        """Print new text; returns whether there was any."""
        has_text = False
        for rank, stream, tail in self._tails:
            data = tail.read()
            if data:
                has_text = True
                self._take(rank, stream, data)
            else:
                self._print_unfinished_line(rank, stream)
        self._idle_polls = 0 if has_text else self._idle_polls + 1
        return has_text

    def interval_ns(self) -> int:
        """The time until the next `poll` is due, in ns: short while output comes, longer otherwise."""
        return min(POLL_IDLE_NS, POLL_BUSY_NS * (1 + self._idle_polls // 4))

    def finish(self) -> None:
        """Print the rest. Call it when no rank lives."""
        for _, _, tail in self._tails:
            tail.source.all_ended()
        while self.poll():
            pass
        for rank, stream, tail in self._tails:
            rest = self._partial.pop((rank, stream), b"")
            if rest:
                self._emit(rank, stream, rest)
            tail.finish()

    def _take(self, rank: int, stream: str, data: bytes) -> None:
        self._polls_without_text[rank, stream] = 0
        data = self._partial.pop((rank, stream), b"") + data
        lines, newline, rest = data.rpartition(b"\n")
        if rest:
            self._partial[rank, stream] = rest
        if newline:
            self._emit(rank, stream, lines + newline)

    def _print_unfinished_line(self, rank: int, stream: str) -> None:
        if (rank, stream) not in self._partial:
            return
        self._polls_without_text[rank, stream] = self._polls_without_text.get((rank, stream), 0) + 1
        if self._polls_without_text[rank, stream] > _PARTIAL_LINE_PATIENCE:
            self._emit(rank, stream, self._partial.pop((rank, stream)))


def with_prefix(rank: int, data: bytes, *, width: int) -> bytes:
    """`data` with ``[rank] `` in front of each line; the rank is right-aligned to `width` digits."""
    prefix = f"[{rank:>{width}}] ".encode()
    lines: Sequence[bytes] = data.removesuffix(b"\n").split(b"\n")
    return b"".join(prefix + line + b"\n" for line in lines)

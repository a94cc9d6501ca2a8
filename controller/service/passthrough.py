"""★ The ranks' output on the controller's own: followed in the files, printed once although it may be
produced twice.

Ranks write to files of the job directory (so that a dead controller never harms a rank). The controller
follows them and prints whole lines, prefixed with the rank when asked. After a rollback a rank cuts its
files back to where they were at the image and produces the rest again. What comes again is compared with
what was printed (`Printed`, block by block):

    equal      nothing is printed until the file is longer than what was printed
    different  said so, and printed from the first block that differs

Files are looked at every few milliseconds while something happens and rarely when not. Writing never blocks
the controller: what the reader of our output does not take waits, and when much waits, the files are not
read on.
"""

from __future__ import annotations

import os
import select
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence

from ckpt.store.disk.privacy import open_regular

BLOCK_BYTES = 1024
_READ_BYTES = 1 << 16
_BACKLOG_BYTES_MAX = 1 << 20
_PARTIAL_LINE_PATIENCE = 8  # polls without news after which an unfinished line is printed
POLL_BUSY_NS = 10_000_000
POLL_IDLE_NS = 100_000_000


class Printed:
    """What has been printed of one stream: a checksum per block and the bytes of the last, unfinished one.
    Pure.

    `start`: offset of the first byte that was ours to print; what lies before is nobody's business.
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
        """Compare `data`, found at the block boundary `offset`, with what was printed there.

        Returns (bytes known to be equal, whether the next ones differ). Equal bytes come in whole blocks,
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
    """One file, followed. `say` gets a message when produced output differs from what was printed."""

    def __init__(self, path: str, name: str, say: Callable[[str], None], *, from_end: bool = False) -> None:
        self.path = path
        self.name = name
        self.say = say
        self._fd = -1
        start = os.path.getsize(path) if from_end and os.path.exists(path) else 0
        self.printed = Printed(start)
        self.position = start

    def read(self) -> bytes:
        """New bytes to print; empty when there is nothing (yet)."""
        if self._fd < 0:
            try:
                self._fd = open_regular(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return b""
        size = os.fstat(self._fd).st_size
        if size < self.position:
            self._rewound(size)
        if self.position < self.printed.end:
            self._compare()
            if self.position < self.printed.end:
                return b""
        data = os.pread(self._fd, _READ_BYTES, self.position) if size > self.position else b""
        self.position += len(data)
        self.printed.append(data)
        return data

    def _rewound(self, size: int) -> None:
        if size < self.printed.start:
            self.printed = Printed(
                size
            )  # a new controller of an old job prints what is produced from here on
        self.position = self.printed.floor(size)

    def _compare(self) -> None:
        while self.position < self.printed.end:
            data = os.pread(self._fd, _READ_BYTES, self.position)
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
        """No more is coming: say so when less was produced the second time."""
        missing = self.printed.end - self.position
        if missing >= BLOCK_BYTES:
            self.say(f"{self.name}: about {missing} bytes printed before the restart were not produced again")
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Outlet:
    """A descriptor of ours that never blocks us. `finish` may: then nothing else is left to do.

    Who does not read us any more (`broken`) wants no more. What cannot be written for another reason (a full disk) waits
    and is tried again; `failure` says why as long as it lasts.
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
        """Write what the other side takes now. PIPE_BUF bytes never block once poll says writable."""
        while self.waiting and not self.broken and self._poll.poll(0) and self._write(select.PIPE_BUF):
            pass

    def finish(self) -> None:
        """What cannot be written now is given up: the ranks' own files have it."""
        while self.waiting and not self.broken and self._write(1 << 16):
            pass

    def _write(self, limit: int) -> bool:
        """False: not now."""
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

    `from_end`: a job that is being resumed; what is in the files already was printed by an earlier
    controller.
    """

    def __init__(
        self,
        paths: Iterable[tuple[int, str, str]],
        emit: Emit,
        say: Callable[[str], None],
        *,
        from_end: bool = False,
    ) -> None:
        self._emit = emit
        self._tails = [
            (rank, stream, Tail(path, f"rank {rank} std{stream}", say, from_end=from_end))
            for rank, stream, path in paths
        ]
        self._partial: dict[tuple[int, str], bytes] = {}
        self._quiet: dict[tuple[int, str], int] = {}
        self._idle_polls = 0

    def poll(self) -> bool:
        """Print what is new; returns whether anything was."""
        news = False
        for rank, stream, tail in self._tails:
            data = tail.read()
            if data:
                news = True
                self._take(rank, stream, data)
            else:
                self._print_unfinished_line(rank, stream)
        self._idle_polls = 0 if news else self._idle_polls + 1
        return news

    def interval_ns(self) -> int:
        """How long to wait before the next `poll`: short while output comes, longer when not."""
        return min(POLL_IDLE_NS, POLL_BUSY_NS * (1 + self._idle_polls // 4))

    def finish(self) -> None:
        """Print the rest. No rank is left to write."""
        while self.poll():
            pass
        for rank, stream, tail in self._tails:
            rest = self._partial.pop((rank, stream), b"")
            if rest:
                self._emit(rank, stream, rest)
            tail.finish()

    def _take(self, rank: int, stream: str, data: bytes) -> None:
        self._quiet[rank, stream] = 0
        data = self._partial.pop((rank, stream), b"") + data
        lines, newline, rest = data.rpartition(b"\n")
        if rest:
            self._partial[rank, stream] = rest
        if newline:
            self._emit(rank, stream, lines + newline)

    def _print_unfinished_line(self, rank: int, stream: str) -> None:
        if (rank, stream) not in self._partial:
            return
        self._quiet[rank, stream] = self._quiet.get((rank, stream), 0) + 1
        if self._quiet[rank, stream] > _PARTIAL_LINE_PATIENCE:
            self._emit(rank, stream, self._partial.pop((rank, stream)))


def with_prefix(rank: int, data: bytes, *, width: int) -> bytes:
    """Every line of `data` behind ``[rank] ``, ranks right-aligned to `width` digits."""
    prefix = f"[{rank:>{width}}] ".encode()
    lines: Sequence[bytes] = data.removesuffix(b"\n").split(b"\n")
    return b"".join(prefix + line + b"\n" for line in lines)

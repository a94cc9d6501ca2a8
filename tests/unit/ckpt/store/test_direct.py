"""O_DIRECT that is refused, at the start or half-way, by one thread or several: through the cache then, same bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from store_helpers import commit, read_image, write_image

from ckpt.store import BlockDamaged, FileSystem, ImageReader, JobDirectory, StorageFailed

MIB = 1 << 20


def data() -> list[Any]:
    random = np.random.default_rng(1)
    return [random.random(MIB), np.sin(np.arange(MIB) * 1e-4), random.bytes(9 * MIB + 17), "text " * MIB]


def equal(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Picky(FileSystem):
    """Refuses what it is told to refuse; remembers which descriptors are in which mode."""

    def __init__(self, refuse: Callable[[str, bool], bool], error: int = errno.EINVAL) -> None:
        self.refuse = refuse
        self.error = error
        self.direct: dict[int, bool] = {}
        self.refused = 0

    def check(self, call: str, direct: bool) -> None:
        if self.refuse(call, direct):
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error))

    def set_direct(self, fd: int, direct: bool) -> None:
        self.check("on" if direct else "off", direct)
        super().set_direct(fd, direct)
        self.direct[fd] = direct

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        self.check("pwrite", self.direct.get(fd, False))
        return super().pwrite(fd, data, offset)

    def preadv(self, fd: int, buffers: Any, offset: int) -> int:
        self.check("preadv", self.direct.get(fd, False))
        return super().preadv(fd, buffers, offset)

    def close(self, fd: int) -> None:
        self.direct.pop(fd, None)
        super().close(fd)


every_count = pytest.mark.parametrize("threads", [0, 4])


@every_count
@pytest.mark.parametrize("call", ["on", "pwrite", "preadv"])
def test_a_system_that_refuses(job: JobDirectory, call: str, threads: int) -> None:
    picky = Picky(lambda name, direct: name == call and direct)
    job.fs = picky
    commit(job, 1, data(), threads=threads)
    assert equal(read_image(job, 0, threads=threads)[1], data())
    assert picky.refused, "it was never asked"


@every_count
@pytest.mark.parametrize("call", ["pwrite", "preadv"])
def test_a_system_that_refuses_and_cannot_go_back(job: JobDirectory, call: str, threads: int) -> None:
    commit(job, 1, data())
    job.fs = Picky(lambda name, direct: (name == call and direct) or name == "off")
    with pytest.raises(StorageFailed, match="Invalid argument"):
        if call == "preadv":
            ImageReader(job, epoch=1, rank=0, threads=threads).stream()
        else:
            write_image(job, 0, 2, data(), threads=threads, incremental=False)


@every_count
@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL])
@pytest.mark.parametrize("call", ["pwrite", "preadv"])
def test_an_error_that_is_none_of_o_direct_s(job: JobDirectory, call: str, error: int, threads: int) -> None:
    commit(job, 1, data())
    job.fs = Picky(lambda name, direct: name == call, error)
    with pytest.raises(StorageFailed, match="failed"):
        if call == "preadv":
            ImageReader(job, epoch=1, rank=0, threads=threads).buffers()
        else:
            write_image(job, 0, 2, data(), threads=threads, incremental=False)


@every_count
def test_short_reads_are_completed(job: JobDirectory, threads: int) -> None:
    """A third at a time: the rest does not begin where O_DIRECT wants it, and is read through the cache."""

    class Short(FileSystem):
        def preadv(self, fd: int, buffers: Any, offset: int) -> int:
            (view,) = buffers
            return super().preadv(fd, [view[: len(view) // 3 + 1]], offset)

    commit(job, 1, data())
    job.fs = Short()
    assert equal(read_image(job, 0, threads=threads)[1], data())


@every_count
def test_a_pack_that_is_cut_while_it_is_read(job: JobDirectory, threads: int) -> None:
    """It had its length when it was opened."""

    class Cut(FileSystem):
        def preadv(self, fd: int, buffers: Any, offset: int) -> int:
            return 0

    commit(job, 1, data())
    job.fs = Cut()
    with pytest.raises(BlockDamaged, match="ends inside the block"):
        read_image(job, 0, threads=threads)


def test_blocks_of_the_base_stay_where_they_are_when_a_pack_begins_to_be_streamed(job: JobDirectory) -> None:
    """Some of the blocks so far are the base's, some are new: only the new ones move apart."""
    small = [np.random.default_rng(n).random(10_000) for n in range(4)]
    commit(job, 1, small)
    grown = [small[0], np.ones(10_000), small[1], np.random.default_rng(9).random(9_000), *data()]
    commit(job, 2, grown)
    back = read_image(job, 0, 2)[1]
    assert equal(back, grown)

"""Reads and writes of pieces of a file, compared with those of single bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ckpt.mpi.base.constants import NUMBERS
from ckpt.mpi.base.errors import ERROR_CLASSES, MpiException
from ckpt.mpi.io import disk, modes, wire
from ckpt.mpi.io.view import Ranges


def pieces(random_: random.Random, end: int, largest: int) -> Ranges:
    out, at = [], 0
    while True:
        at += random_.choice((0, 1, 5, 100, largest * 20))
        nbytes = random_.randint(1, largest)
        if at + nbytes > end:
            return out
        out.append((at, nbytes))
        at += nbytes


@pytest.mark.parametrize("largest", [3, 300, 100_000])
def test_pieces_are_read_as_single_bytes_are(tmp_path: Path, largest: int) -> None:
    random_ = random.Random(largest)
    content = random_.randbytes(500_000)
    (tmp_path / "file").write_bytes(content)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    for end in (500_000, 500_090, 700_000):  # the last ones are behind the end of the file
        ranges = pieces(random_, end, largest)
        expected = b"".join(content[offset : offset + nbytes] for offset, nbytes in ranges)
        into = bytearray(sum(nbytes for _, nbytes in ranges))
        done = disk.read(fd, ranges, into)
        assert done == len(expected)
        assert into[:done] == expected
    os.close(fd)


def test_writes_touch_no_byte_but_their_own(tmp_path: Path) -> None:
    random_ = random.Random(1)
    content = bytearray(random_.randbytes(50_000))
    (tmp_path / "file").write_bytes(content)
    ranges = pieces(random_, 60_000, 70)
    data = random_.randbytes(sum(nbytes for _, nbytes in ranges))
    fd = os.open(tmp_path / "file", os.O_WRONLY)
    disk.write(fd, ranges, data)
    os.close(fd)
    at = 0
    for offset, nbytes in ranges:
        content[len(content) :] = bytes(max(0, offset + nbytes - len(content)))
        content[offset : offset + nbytes] = data[at : at + nbytes]
        at += nbytes
    assert (tmp_path / "file").read_bytes() == content


def test_portions_of_an_access_are_its_pieces() -> None:
    limit = wire.CHUNK_BYTES
    ranges = [(5, 10), (100, limit), (limit * 3, limit * 2 - 10), (limit * 9, 1)]
    assert wire.chunks(ranges, is_atomic=True) == [(ranges, 3 * limit + 1)]
    portions = wire.chunks(ranges, is_atomic=False)
    assert [size for _, size in portions] == [limit, limit, limit, 1]
    assert all(size == sum(nbytes for _, nbytes in portion) for portion, size in portions)
    joined: Ranges = []
    for portion, _ in portions:
        for offset, nbytes in portion:
            if joined and sum(joined[-1]) == offset:
                joined[-1] = joined[-1][0], joined[-1][1] + nbytes
            else:
                joined.append((offset, nbytes))
    assert joined == ranges


@pytest.mark.parametrize(
    "words",
    [
        *("", "RDONLY WRONLY", "RDONLY RDWR", "CREATE", "RDONLY CREATE", "RDONLY EXCL"),
        *("RDWR SEQUENTIAL", "RDWR NOCHECK"),
    ],
)
def test_access_modes_that_the_standard_does_not_allow(words: str) -> None:
    with pytest.raises(MpiException) as refused:
        modes.check(sum(NUMBERS[f"MODE_{word}"] for word in words.split()))
    assert refused.value.error_class == ERROR_CLASSES["ERR_AMODE"]

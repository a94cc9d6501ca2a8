"""Blocks of shared memory: a restart makes a block again that the death of its processes has removed."""

from __future__ import annotations

import io
import os
from multiprocessing import shared_memory

import pytest

from ckpt.image.pickling.unpickler import ImageUnpickler
from tests.unit.ckpt.image.support import pickled

NBYTES = 3 << 20  # more than files are saved of


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_block_comes_back_under_its_name_with_the_content_of_then(is_gone: bool) -> None:
    block = shared_memory.SharedMemory(create=True, size=NBYTES)
    block.buf[:3], block.buf[-1] = b"abc", 7
    part = block.buf[1:3]
    sink, pickler = pickled([block, part, block.buf])
    pickler.forget()
    if is_gone:
        os.unlink(f"/dev/shm/{block.name}")
    else:
        block.buf[:3] = b"xyz"  # written after the checkpoint
    unpickler = ImageUnpickler(io.BytesIO(bytes(sink.data)), [memoryview(each) for each in sink.raw], {})
    made, made_part, buf = unpickler.load()
    deferred = unpickler.load()
    unpickler.finish()
    for function, arguments in deferred:
        function(*arguments)
    assert (made.name, made.size, bytes(made.buf[:3]), made.buf[-1]) == (block.name, NBYTES, b"abc", 7)
    made_part[0] = 66
    other = shared_memory.SharedMemory(made.name)
    assert bytes(other.buf[:3]) == b"aBc" and buf is made.buf
    other.close()
    del unpickler, deferred, function, arguments, made_part, buf, part
    made._fd = -1  # of this very process: that of `block`
    made.close()
    made.unlink()
    block.close()

"""Blocks of shared memory: a restart makes a block again that the death of its processes has removed."""

from __future__ import annotations

import io
import os
from multiprocessing import shared_memory

import pytest

from ckpt.image.handles import shared_memory as handles
from ckpt.image.handles.shared_copies import address_of
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


class _Own(shared_memory.SharedMemory):
    pass


def test_a_list_over_a_block_and_a_class_of_the_program_come_back_with_their_blocks() -> None:
    items = shared_memory.ShareableList([1, 2.5, "abc", None])
    own = _Own(create=True, size=100)
    own.buf[:3] = b"abc"
    sink, pickler = pickled([items, items.shm, own])
    pickler.forget()
    for block in (items.shm, own):
        os.unlink(f"/dev/shm/{block.name}")  # as the death of the program does
    unpickler = ImageUnpickler(io.BytesIO(bytes(sink.data)), [memoryview(each) for each in sink.raw], {})
    made, shm, made_own = unpickler.load()
    deferred = unpickler.load()
    unpickler.finish()
    for function, arguments in deferred:
        function(*arguments)
    assert (list(made), made.format, made.shm) == ([1, 2.5, "abc", None], items.format, shm)
    made[0] = 7
    other = shared_memory.ShareableList(name=shm.name)
    assert (list(other), bytes(made_own.buf[:3])) == ([7, 2.5, "abc", None], b"abc")
    assert {address_of(block._mmap) for block in (shm, made_own)} <= set(handles._blocks.addresses())
    other.shm.close()
    del unpickler, deferred, function, arguments
    for block in (shm, made_own):
        block._fd = -1  # of this very process
        block.close()
        block.unlink()
    for block in (items.shm, own):
        block.close()

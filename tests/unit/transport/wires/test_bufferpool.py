"""Buffers are used again exactly when nobody else holds them."""

from __future__ import annotations

from ckpt.transport.wires.bufferpool import BufferPool

MIB = 1 << 20


def test_a_free_buffer_of_the_size_is_used_again() -> None:
    pool = BufferPool()
    first = pool.allocate(MIB)
    first[0] = 7
    identity = id(first)
    del first
    again = pool.allocate(MIB)
    assert id(again) == identity


def test_a_buffer_somebody_holds_is_not() -> None:
    pool = BufferPool()
    first = pool.allocate(MIB)
    assert pool.allocate(MIB) is not first


def test_a_view_holds_a_buffer_too() -> None:
    pool = BufferPool()
    view = memoryview(pool.allocate(MIB))[10:20]
    second = pool.allocate(MIB)
    assert view.obj is not second
    view.release()
    del view
    assert pool.allocate(MIB) is not second


def test_another_size_is_another_buffer() -> None:
    pool = BufferPool()
    pool.allocate(MIB)
    assert len(pool.allocate(MIB + 1)) == MIB + 1


def test_a_buffer_its_holder_resized_is_not_used_again() -> None:
    pool = BufferPool()
    buffer = pool.allocate(MIB)
    del buffer[10:]
    del buffer
    assert len(pool.allocate(MIB)) == MIB


def test_no_more_than_the_limit_is_kept() -> None:
    pool = BufferPool(limit_bytes=4 * MIB)
    identities = [id(pool.allocate(size)) for size in (MIB, 2 * MIB, 3 * MIB)]
    assert len(set(identities)) == 3
    assert pool.kept_bytes <= 4 * MIB
    assert pool.kept_bytes >= 3 * MIB


def test_small_and_enormous_buffers_are_not_kept() -> None:
    pool = BufferPool(limit_bytes=4 * MIB)
    pool.allocate(1000)
    pool.allocate(5 * MIB)
    assert pool.kept_bytes == 0

"""The 32 bytes in front of every message."""

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.mpi.base import envelope

i32 = st.integers(-(2**31), 2**31 - 1)
u64 = st.integers(0, 2**64 - 1)


@given(st.sampled_from([envelope.EAGER, envelope.SYNC, envelope.MATCHED]), i32, i32, u64, u64)
def test_what_is_packed_comes_back(kind: int, source: int, tag: int, context: int, token: int) -> None:
    head = envelope.pack(kind, source, tag, context, token)
    assert len(head) == envelope.SIZE
    assert envelope.unpack(head + b"anything") == (kind, source, tag, context, token)


@given(i32, i32, u64, st.binary())
def test_an_envelope_is_a_pickle_that_does_nothing(source: int, tag: int, context: int, obj: bytes) -> None:
    message = envelope.pack(envelope.EAGER, source, tag, context) + pickle.dumps(obj, 5)
    assert pickle.loads(message) == obj


def test_the_exact_bytes() -> None:
    head = envelope.pack(envelope.SYNC, 3, 7, 0x1122334455667788, 9)
    assert head.hex() == "431d010003000000070000008877665544332211090000000000000000000030"


def test_too_short_a_message_is_refused() -> None:
    with pytest.raises(struct.error):
        envelope.unpack(b"short")


def test_contexts_of_different_creators_counts_and_planes_differ() -> None:
    numbers = {
        envelope.context_base(creator, count) + plane
        for creator in range(20)
        for count in (0, 1, 2, 1000, 2**32 - 1)
        for plane in range(envelope.PLANES)
    }
    assert len(numbers) == 20 * 5 * envelope.PLANES

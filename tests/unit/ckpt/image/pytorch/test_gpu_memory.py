"""Copies of the memory of GPUs: which ranges are copied, where a storage finds its own, what is said without a GPU."""

from __future__ import annotations

import pytest

from ckpt.image.errors import RestoreError, Unpicklable
from ckpt.image.libraries.tensors import Copied, copied_at, gpu_of, put_copies
from ckpt.image.pytorch.cuda import _used_ranges
from ckpt.image.pytorch.host_memory import HostMemory

torch = pytest.importorskip("torch", reason="torch is not installed")


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, object]:
    return {"address": address, "size": size, "state": state}


def test_blocks_that_adjoin_are_one_range_and_free_ones_are_left_out() -> None:
    blocks = [block(0, 5, "inactive"), block(5, 5), block(10, 5), block(15, 5, "inactive"), block(20, 5)]
    segments = [
        {"device": 0, "address": 0, "blocks": blocks},
        {"device": 1, "address": 100, "blocks": [block(100, 8, "active_pending_free"), block(108, 8)]},
        {"device": 1, "address": 200, "blocks": [block(200, 8, "inactive")]},
    ]
    assert list(_used_ranges(segments)) == [(0, 5, 10), (0, 20, 5), (1, 108, 8)]


def test_a_storage_finds_its_copy_and_no_other_memory() -> None:
    put_copies(memoryview(bytes(range(20))), [Copied(1000, 8, 12), Copied(500, 12, 0)])
    try:
        assert bytes(copied_at(1002, 3)) == bytes([14, 15, 16])
        assert bytes(copied_at(500, 12)) == bytes(range(12))
        assert copied_at(1006, 3) is None and copied_at(499, 1) is None and copied_at(2000, 1) is None
    finally:
        put_copies(None, ())
    assert copied_at(500, 1) is None


def test_too_little_memory_of_the_host_is_named_with_both_numbers() -> None:
    with pytest.raises(Unpicklable, match=r"needs 3\.00 GB of the host's memory .* 2\.00 GB are left"):
        HostMemory().reserve(3_000_000_000, is_in_use=False, available=lambda: 2_000_000_000)


@pytest.mark.skipif(torch.cuda.is_available(), reason="another machine: it has a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(RestoreError, match=r"the image has memory of the GPU cuda:1; .*CUDA_VISIBLE_DEVICES"):
        gpu_of(1)

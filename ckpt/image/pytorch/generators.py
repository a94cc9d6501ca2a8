"""Generators of random numbers on GPUs: seed and offset, read out of the memory of the object.

torch asks CUDA before it tells the offset of a generator, which a forked child must not. Nobody knows all generators before
the fork, so the child reads the two numbers where they are: in a structure of C++ that the object points to. Where exactly
is found out before the fork, with two generators whose numbers are known (:func:`find_layout`); if they are not found,
or not both at the same place, generators are refused by name.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.libraries.tensors import gpu_of
from ckpt.transport.records import NamedTuple

__all__ = ["Layout", "find_layout", "reduce_generator"]

_OBJECT_BYTES, _STATE_BYTES = 256, 96
_PROBES = ((0x5EED_1234_5678_9ABC, 0x0123_4567_89A0), (0x1357_9BDF_0246_8ACE, 0x0076_5432_1000))
_SEED_AND_OFFSET = struct.Struct("<Qq")


class Layout(NamedTuple):
    """At ``pointer`` of the object is the address of its state, at ``numbers`` of the state are seed and offset."""

    pointer: int
    numbers: int


def find_layout() -> Layout | None:
    """Must be called where CUDA can be used. ``None``: it is not known where this version of torch keeps the numbers."""
    found = [_places(_generator(0, seed, offset), seed, offset) for seed, offset in _PROBES]
    common = [layout for layout in found[0] if layout in found[1]]
    return common[0] if len(common) == 1 else None


def _places(generator: Any, seed: int, offset: int) -> list[Layout]:
    wanted, found = _SEED_AND_OFFSET.pack(seed, offset), []
    # An address that is none is an error, not the end
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        whole = os.pread(memory, _OBJECT_BYTES, generator._cdata)
        for pointer in range(0, len(whole) - 7, 8):
            (address,) = struct.unpack_from("<Q", whole, pointer)
            try:
                state = os.pread(memory, _STATE_BYTES, address) if 4096 <= address < 1 << 47 else b""
            except OSError:
                continue
            numbers = state.find(wanted)
            if numbers >= 0:
                found.append(Layout(pointer, numbers))
    finally:
        os.close(memory)
    return found


def reduce_generator(generator: Any, layout: Layout | None) -> Any:
    """Of a generator on a GPU; in a forked child, too."""
    index = generator.device.index or 0
    if any(generator is each for each in sys.modules["torch"].cuda.default_generators):
        return default_generator, (index,)
    if layout is None:
        raise ObjectRefused(
            generator,
            "a generator of random numbers on a GPU, whose state this version of torch does not tell",
        )
    (state,) = struct.unpack("<Q", ctypes.string_at(generator._cdata + layout.pointer, 8))
    numbers = ctypes.string_at(state + layout.numbers, _SEED_AND_OFFSET.size)
    seed, offset = _SEED_AND_OFFSET.unpack(numbers)
    if seed != generator.initial_seed():
        raise ObjectRefused(
            generator, "a generator of random numbers on a GPU, whose state could not be read"
        )
    return make_generator, (index, seed, offset)


# ---------------------------------------------------------------------- called while loading


def default_generator(index: int) -> Any:
    return sys.modules["torch"].cuda.default_generators[gpu_of(index).index]


def make_generator(index: int, seed: int, offset: int) -> Any:
    gpu_of(index)
    return _generator(index, seed, offset)


def _generator(index: int, seed: int, offset: int) -> Any:
    torch: Any = sys.modules["torch"]
    generator = torch.Generator(device=f"cuda:{index}")
    state = bytearray(_SEED_AND_OFFSET.pack(seed, offset))
    generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    return generator

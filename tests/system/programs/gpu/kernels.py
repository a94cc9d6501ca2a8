"""A function of triton in the program, and a kernel that the program holds: launched before and after restarts."""

import sys

import torch
import triton
import triton.language as tl

SCALE = int(sys.argv[1])


@triton.jit
def step(x, add, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(x + at, value * 0.5 + add, mask=at < n)


x = torch.arange(10000, dtype=torch.float32, device="cuda")
for turn in range(1500 * SCALE):
    held = step[(triton.cdiv(10000, 256),)](x, float(turn), 10000, BLOCK=256)
    print(turn, x.double().sum().item().hex(), held.name, flush=True)

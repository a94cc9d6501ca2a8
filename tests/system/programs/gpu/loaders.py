"""Batches from a loader that pins them, without workers; a default device; the new names of precisions."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

SCALE = int(sys.argv[1])
torch.manual_seed(4)
torch.backends.cuda.matmul.fp32_precision = "tf32"
data = TensorDataset(torch.randn(256, 6), torch.randn(256, 1))
torch.set_default_device("cuda")
weights = torch.zeros(6, 1)
for epoch in range(40 * SCALE):
    shuffle = torch.Generator(device="cuda").manual_seed(epoch)
    for x, y in DataLoader(data, batch_size=16, shuffle=True, pin_memory=True, generator=shuffle):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        weights -= 0.01 * x.t() @ (x @ weights - y)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32" and torch.empty(1).is_cuda
    print(epoch, weights.flatten().double().sum().item().hex(), flush=True)

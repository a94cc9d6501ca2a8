"""A DataLoader over an iterable data set: each of its workers has a part of the stream; the parts differ in length."""

import random
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SCALE = int(sys.argv[1])


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, self.length - 9 * first, step):
            work = sum(i * i for i in range(1_500)) % 5
            yield number * 10 + work + random.random() / 4 + float(torch.rand(1)) / 4


torch.set_num_threads(1)
torch.manual_seed(29)
for epoch in range(2 * SCALE):
    for workers in (0, 2):
        random.seed(epoch)
        found = [batch.sum().item() for batch in DataLoader(Stream(60), batch_size=4, num_workers=workers)]
        print(epoch, workers, [f"{value:.4f}" for value in found], flush=True)
    if epoch == 0:
        loader = DataLoader(Stream(50), batch_size=None, num_workers=2, persistent_workers=True)
    print(epoch, f"{sum(float(value) for value in loader):.4f}", flush=True)

"""A DataLoader with two workers: random changes in the workers, an own order of batches, workers that live on and such that
do not."""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler, get_worker_info

SCALE = int(sys.argv[1])


class Points(Dataset):
    def __init__(self, count):
        self.values = torch.arange(count * 3, dtype=torch.float32).reshape(count, 3) / count
        self.own = random.Random(5)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        work = sum(i * i for i in range(2_000)) % 7
        noise = torch.rand(3) * 0.1 + random.random() * 0.01 + self.own.random() * 0.01
        return self.values[index] + noise + work, index, get_worker_info().id


def begin(worker):
    random.seed(get_worker_info().seed % 1000 + worker)


torch.set_num_threads(1)
torch.manual_seed(23)
points = Points(96)
model, seen = nn.Linear(3, 1), []
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
staying = DataLoader(
    points, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True, worker_init_fn=begin
)
sampler = WeightedRandomSampler(torch.ones(96), 40)
leaving = DataLoader(points, batch_size=5, sampler=sampler, num_workers=2, prefetch_factor=3)
for epoch in range(2 * SCALE):
    for name, loader in (("staying", staying), ("leaving", leaving)):
        total = 0.0
        for data, index, worker in loader:
            optimizer.zero_grad()
            loss = model(data).pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
            seen.append((index.tolist(), worker.tolist()))
        print(f"{epoch} {name} {total:.6f} {len(seen)} {seen[-1]}", flush=True)
print(
    hash(str(seen)) == hash(str(list(seen))),
    f"{sum(index[0] for index, _ in seen)} {torch.rand(1).item():.6f}",
)

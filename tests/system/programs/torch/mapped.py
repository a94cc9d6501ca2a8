"""A DataLoader whose workers count in a file that is mapped for writing (the default mode of numpy.memmap), and read it: images
are taken between two batches, when all that was ordered has come, so nothing is counted twice."""

import sys
import tempfile
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

SCALE = int(sys.argv[1])


class Points(Dataset):
    def __init__(self, folder, count):
        numpy.arange(count * 3, dtype="f4").tofile(folder / "values")
        numpy.zeros(count, "i4").tofile(folder / "counts")
        self.values = numpy.memmap(folder / "values", "f4", shape=(count, 3))
        self.counts = numpy.memmap(folder / "counts", "i4")

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        self.counts[index] += 1
        work = sum(i * i for i in range(20_000)) % 7
        return torch.from_numpy(numpy.array(self.values[index])) + torch.rand(3) + work, index


torch.set_num_threads(1)
torch.manual_seed(23)
with tempfile.TemporaryDirectory() as folder:
    points = Points(Path(folder), 120)
    staying = DataLoader(points, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    leaving = DataLoader(points, batch_size=5, shuffle=True, num_workers=2, prefetch_factor=4)
    for epoch in range(2 * SCALE):
        for name, loader in (("staying", staying), ("leaving", leaving)):
            total, order = 0.0, []
            for data, index in loader:
                total += data.sum().item() + torch.rand(1).item()
                order += index.tolist()
            print(f"{epoch} {name} {total:.6f} {order[:5]} {set(points.counts.tolist())}", flush=True)

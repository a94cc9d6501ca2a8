"""A transformer encoder with dropout: a schedule made of a function, gradients accumulated over several batches."""

import math
import sys

import torch
from torch import nn

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(5)
WARM_UP = 5


class Positions(nn.Module):
    def __init__(self, width, length=32):
        super().__init__()
        angles = torch.arange(length)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-math.log(100.0) / width)
        )
        table = torch.zeros(length, width)
        table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
model = nn.Sequential(
    nn.Embedding(20, 16),
    Positions(16),
    nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
    nn.Linear(16, 20),
)
optimizer = torch.optim.RAdam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min((step + 1) / WARM_UP, (WARM_UP / (step + 1)) ** 0.5)
)
seen = []
for step in range(18 * SCALE):
    optimizer.zero_grad()
    for _ in range(3):
        x = torch.randint(20, (4, 10))
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flip(1).flatten()) / 3
        loss.backward()
        seen.append(loss.item())
    optimizer.step()
    schedule.step()
    print(f"{step} {sum(seen[-3:]):.6f} {schedule.get_last_lr()[0]:.6f}", flush=True)
print(len(seen), f"{sum(seen):.5f}")

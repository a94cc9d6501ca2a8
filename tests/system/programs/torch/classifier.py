"""A classifier: batches in random order (no workers), Adam, a schedule, evaluation after each epoch, the best model kept."""

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(7)
x = torch.randn(240, 12)
y = (x[:, 0] * x[:, 1] + 0.3 * x[:, 2] > 0).long()
train, test = random_split(TensorDataset(x, y), [200, 40])
loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6 * SCALE)
best, best_score = None, -1.0

for epoch in range(6 * SCALE):
    model.train()
    total = 0.0
    for data, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(data).argmax(1) == target).sum()) for data, target in DataLoader(test, batch_size=8)
        )
    if right > best_score:
        best, best_score = copy.deepcopy(model.state_dict()), right
    print(f"{epoch} {total:.6f} {right} {schedule.get_last_lr()[0]:.8f}", flush=True)
model.load_state_dict(best)
print(f"{best_score} {sum(float(p.sum()) for p in model.parameters()):.6f} {torch.rand(1).item():.6f}")

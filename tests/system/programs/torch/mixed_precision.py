"""Mixed precision on the CPU: autocast to bfloat16, a gradient scaler, an average of the weights (SWA)."""

import sys

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(2)
data = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(6)]
model = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.GELU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=5)
average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=0.01)
for epoch in range(9 * SCALE):
    total = 0.0
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += float(loss)
    if epoch > 3:
        average.update_parameters(model)
        schedule.step()
    print(f"{epoch} {total:.6f} {scaler.get_scale()}", flush=True)
update_bn((x for x, _ in data), average)
print(f"{int(average.n_averaged)} {sum(float(p.sum()) for p in average.parameters()):.6f}")

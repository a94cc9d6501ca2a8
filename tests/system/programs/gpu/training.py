"""Training on a GPU, the same bits each time: mixed precision with a scaler, dropout, a shared weight, a schedule, a second
stream that copies batches out of pinned memory."""

import os
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

SCALE = int(sys.argv[1])
torch.use_deterministic_algorithms(True)
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 128)
        self.second = nn.Linear(128, 128)
        self.third = nn.Linear(128, 128)
        self.third.weight = self.second.weight
        self.last = nn.Linear(128, 1)

    def forward(self, x):
        x = nn.functional.dropout(torch.relu(self.first(x)), 0.1, self.training)
        return self.last(torch.relu(self.third(torch.relu(self.second(x)))))


model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=20)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
draws = torch.Generator(device="cuda")
draws.manual_seed(8)
copies = torch.cuda.Stream()
pinned = torch.empty(64, 32, pin_memory=True)
for step in range(300 * SCALE):
    pinned.copy_(torch.randn(64, 32))
    with torch.cuda.stream(copies):
        x = pinned.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    y = x.sin().sum(1, keepdim=True) + 0.1 * torch.randn(64, 1, device="cuda", generator=draws)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16 if step % 2 else torch.bfloat16, cache_enabled=False):
        loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    copies.synchronize()
    print(step, loss.item().hex(), scaler.get_scale(), model.third.weight is model.second.weight, flush=True)
print(
    float(sum(p.double().sum() for p in model.parameters())).hex(), torch.rand(1, device="cuda").item().hex()
)

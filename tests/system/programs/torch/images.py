"""A convolutional network: SGD with momentum, weight decay and Nesterov, random changes of the pictures, gradients clipped."""

import random
import sys

import torch
from torch import nn

SCALE = int(sys.argv[1])
random.seed(3)
torch.set_num_threads(1)
torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8 * 4 * 4, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.adaptive_avg_pool2d(torch.relu(self.norm(self.conv2(x))), 4)
        return self.head(x.flatten(1))


def changed(batch):
    if random.random() < 0.5:
        batch = batch.flip(-1)
    return batch + 0.05 * torch.randn_like(batch)


pictures, labels = torch.randn(48, 1, 12, 12), torch.randint(3, (48,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
schedule = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
        torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.8),
    ],
    milestones=[3],
)
for epoch in range(10 * SCALE):
    order = torch.randperm(48)
    losses = []
    for start in range(0, 48, 12):
        chosen = order[start : start + 12]
        loss = nn.functional.cross_entropy(model(changed(pictures[chosen])), labels[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append((loss.detach(), norm))
    schedule.step()
    print(epoch, *(f"{float(loss):.6f}/{float(norm):.6f}" for loss, norm in losses), flush=True)
print(f"{sum(float(state['momentum_buffer'].sum()) for state in optimizer.state.values()):.6f}")

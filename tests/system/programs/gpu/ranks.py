"""Two ranks or more on one GPU: gradients are summed over the ranks, and the loss is the same bits each time."""

import os
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

from ckpt import MPI

SCALE = int(sys.argv[1])
comm = MPI.COMM_WORLD
torch.use_deterministic_algorithms(True)
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
draws = torch.Generator(device="cuda").manual_seed(100 + comm.rank)
for step in range(400 * SCALE):
    x = torch.randn(64, 32, device="cuda", generator=draws)
    loss = nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        total = comm.allreduce(parameter.grad.cpu().numpy())
        parameter.grad.copy_(torch.from_numpy(total / comm.size))
    optimizer.step()
    losses = comm.allgather(loss.item())
    print(step, [each.hex() for each in losses], flush=True)

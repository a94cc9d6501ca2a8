"""LBFGS, which calls a function of the program; an operation with a gradient of its own; parameters shared by two layers."""

import sys

import torch
from torch import nn

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(17)
torch.set_default_dtype(torch.float64)


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (1 + 0.1 * x.sign())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.forth = nn.Linear(6, 6)
        self.back = nn.Linear(6, 6)
        self.back.weight = self.forth.weight
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.back(Clamp.apply(torch.sin(self.forth(x))))


x = torch.randn(20, 6)
model = Tied()
optimizer = torch.optim.LBFGS(
    model.parameters(), lr=0.3, max_iter=6, history_size=5, line_search_fn="strong_wolfe"
)
for step in range(12 * SCALE):

    def closure():
        optimizer.zero_grad()
        loss = ((model(x) - x.cos()) ** 2).sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"{step} {loss.item():.8f} {model.calls} {model.back.weight is model.forth.weight}", flush=True)

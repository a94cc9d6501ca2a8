"""Two networks against each other: two optimizers, gradients of gradients, hooks, spectral normalisation."""

import sys

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

SCALE = int(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(13)
make = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
judge = nn.Sequential(spectral_norm(nn.Linear(2, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_make = torch.optim.Adam(make.parameters(), lr=2e-3, betas=(0.5, 0.9))
of_judge = torch.optim.RMSprop(judge.parameters(), lr=2e-3, centered=True)
norms = []
judge[2].weight.register_hook(lambda gradient: norms.append(float(gradient.norm())))


def penalty(real, fake):
    at = (real + torch.rand(len(real), 1) * (fake - real)).requires_grad_()
    gradient = torch.autograd.grad(judge(at).sum(), at, create_graph=True)[0]
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


for step in range(20 * SCALE):
    for _ in range(2):
        real = torch.randn(12, 2) * 0.1 + torch.tensor([1.0, -1.0])
        fake = make(torch.randn(12, 4)).detach()
        cost = judge(fake).mean() - judge(real).mean() + 10 * penalty(real, fake)
        of_judge.zero_grad()
        cost.backward()
        of_judge.step()
    of_make.zero_grad()
    loss = -judge(make(torch.randn(12, 4))).mean()
    loss.backward()
    of_make.step()
    print(f"{step} {cost.item():.6f} {loss.item():.6f} {sum(norms[-3:]):.6f}", flush=True)
print(len(norms))

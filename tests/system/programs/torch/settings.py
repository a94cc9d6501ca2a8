"""What torch keeps of a program in C++ and in its modules: modes, mixed precision over the whole program, hooks of modules and of
an optimizer, numbers of hooks, switches."""

import sys
import warnings

import torch
from torch import nn

SCALE = int(sys.argv[1])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(31)
torch.set_default_device("cpu")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision("medium")
torch.set_printoptions(precision=3, sci_mode=False)
torch.backends.mkldnn.enabled = False
calls = []
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.register_step_post_hook(lambda *_: calls.append("stepped"))
first = model[0].register_forward_hook(lambda module, args, out: calls.append("first"))
every = nn.modules.module.register_module_forward_hook(
    lambda module, args, out: calls.append(str(out.dtype)) if isinstance(module, nn.Linear) else None
)
seen = []
with (
    torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    torch.autograd.set_multithreading_enabled(False),
):
    for step in range(25 * SCALE):
        if step % 5 == 4:
            second = model[0].register_forward_hook(lambda module, args, out: calls.append("second"))
            seen.append(second.id > first.id)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 5 == 0 and step:
            second.remove()
        state = (
            torch.is_autocast_enabled("cpu"),
            torch.get_default_device(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.backends.mkldnn.enabled,
            torch._C._is_multithreading_enabled(),
        )
        print(
            step,
            f"{loss.item():.6f}",
            calls,
            state,
            model[2].bias.detach(),
            len(model[0]._forward_hooks),
            flush=True,
        )
        calls.clear()
print(all(seen), torch.is_autocast_enabled("cpu"), torch.autocast_increment_nesting())

"""torch on the CPU: tensors that share storage, modules, optimizers, generators."""

import numpy as np
import torch

from cases import case, main

torch.set_num_threads(1)


@case
def storage_stays_shared():
    base = torch.arange(12.0).reshape(3, 4)
    views = [
        base[1],
        base[:, 2],
        base.t(),
        base[::2],
        base.view(12),
        base.as_strided((2, 2), (1, 3)),
        base.expand(2, 3, 4),
    ]
    half, flags, whole = torch.ones(3, dtype=torch.bfloat16), torch.tensor([True, False]), torch.tensor(5)
    large = torch.arange(40_000.0)
    part = large[100:200]
    while True:
        base[1, 2] += 1
        large[150] += 1
        yield (
            [float(v.sum()) for v in views],
            all(v.untyped_storage().data_ptr() == base.untyped_storage().data_ptr() for v in views),
            half.tolist(),
            flags.tolist(),
            whole.item(),
            float(part.sum()),
            part.untyped_storage().data_ptr() == large.untyped_storage().data_ptr(),
            views[2].stride(),
        )


@case
def shared_with_numpy():
    array = np.arange(4.0)
    tensor = torch.from_numpy(array)
    own = torch.zeros(3)
    seen = own.numpy()
    while True:
        array[0] += 1
        own[1] += 1
        yield tensor.tolist(), seen.tolist()


@case
def training_goes_on():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5),
        torch.nn.BatchNorm1d(5),
        torch.nn.Dropout(0.2),
        torch.nn.ReLU(),
        torch.nn.Linear(5, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = torch.randn(8, 3)
    tied = model[4].weight
    while True:
        torch.set_grad_enabled(True)
        optimizer.zero_grad()
        loss = (model(data) ** 2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        value = loss.item()
        del loss
        yield (
            f"{value:.6f}",
            optimizer.param_groups[0]["params"][0] is model[0].weight,
            schedule.get_last_lr(),
            tied is model[4].weight,
            model.training,
            f"{tied.grad.sum():.6f}",
            torch.rand(1).item(),
        )


@case
def own_module_with_hooks():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("seen", torch.zeros(1))
            self.calls = []

        def forward(self, x):
            self.seen += 1
            return (self.w * x).sum()

    net = Net()
    net.register_forward_hook(lambda module, args, out: module.calls.append(float(out)))
    net.w.register_hook(lambda g: g * 2)
    while True:
        torch.set_grad_enabled(True)
        net(torch.ones(2)).backward()
        yield (
            net.calls,
            net.seen.item(),
            net.w.grad.tolist(),
            [n for n, _ in net.named_parameters()],
            net.w.is_leaf,
            net.w.requires_grad,
        )


@case
def generators_and_types():
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(5)
    sparse = torch.eye(3).to_sparse()
    kept = [torch.float16, torch.device("cpu"), torch.Size([1, 2]), torch.contiguous_format]
    with torch.no_grad():
        while True:
            yield (
                torch.rand(2, generator=generator).tolist(),
                sparse.to_dense().sum().item(),
                kept,
                torch.is_grad_enabled(),
                torch.Size([1]) + (2,),
                torch.randint(100, (2,)).tolist(),
            )


if __name__ == "__main__":
    main()

"""Tensors on a GPU of every kind: what shares memory shares it on, the numbers are the same, and so are generators, streams,
events and settings. All is looked at in each turn; what is printed does not depend on the turn's moment."""

import hashlib
import sys

import torch

SCALE = int(sys.argv[1])
gpu = torch.device("cuda", 0)
torch.manual_seed(1)
torch.cuda.manual_seed_all(2)
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cudnn.deterministic = True

base = torch.arange(4096, dtype=torch.float32, device=gpu)
views = {
    "turned": base.view(64, 64).t(),
    "steps": base[5::7],
    "part": base[100:200],
    "bits": base.view(torch.int32)[7:9],
    "shown": base[:3].expand(5, 3),
}
KINDS = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int64,
)
kinds = [(torch.rand(33, device=gpu) * 9).to(kind) for kind in KINDS]
if hasattr(torch, "float8_e4m3fn"):
    kinds += [
        torch.rand(64, device=gpu).to(torch.float8_e4m3fn),
        torch.rand(64, device=gpu).to(torch.float8_e5m2),
    ]
empty = [torch.empty(0, device=gpu), torch.empty(0, 5, dtype=torch.int16, device=gpu), base[:0]]
tiny = [torch.full((), float(i), device=gpu) for i in range(300)]
big = torch.arange(1 << 20, dtype=torch.int64, device=gpu)
conjugate, negative = kinds[3].conj(), kinds[3].conj().imag
sparse = torch.eye(6, device=gpu).to_sparse()
rows = torch.eye(6, device=gpu).to_sparse_csr()
weight = torch.nn.Parameter(torch.ones(8, 8, device=gpu))
weight.grad = torch.full((8, 8), 0.5, device=gpu)
frozen = torch.nn.Parameter(torch.ones(3, device=gpu), requires_grad=False)
called = []
weight.register_hook(lambda grad: called.append(1))
pinned = torch.zeros(70000, dtype=torch.int64).pin_memory()
seen = pinned.numpy()
storage = base.untyped_storage()
own = torch.Generator(device=gpu)
own.manual_seed(77)
given = torch.cuda.default_generators[0]
side, urgent, usual = torch.cuda.Stream(), torch.cuda.Stream(priority=-1), torch.cuda.default_stream()
also = torch.cuda.Stream(
    stream_id=side.stream_id, device_index=side.device_index, device_type=side.device_type
)
begin, end, never = torch.cuda.Event(enable_timing=True), torch.cuda.Event(), torch.cuda.Event()
begin.record(side)
end.record(side)


def digest(*tensors):
    found = hashlib.sha256()
    for each in tensors:
        each = each.detach().resolve_conj().resolve_neg().cpu().contiguous()
        found.update(repr(tuple(each.shape)).encode())
        if each.numel():
            found.update((each if each.dim() else each[None]).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


for turn in range(200 * SCALE):
    base.add_(1)  # seen through all views
    big.mul_(3).add_(turn)
    pinned += turn
    with torch.cuda.stream(side if turn % 2 else urgent):
        number = torch.rand(2, device=gpu, generator=own).sum() + torch.rand(1, device=gpu)
        end.record()
    torch.cuda.current_stream().wait_event(end)
    begin.synchronize()
    end.synchronize()
    weight.grad = None
    (weight.sum() * 2).backward()
    assert all(view.untyped_storage().data_ptr() == base.data_ptr() for view in views.values())
    assert storage.data_ptr() == base.data_ptr() and seen.ctypes.data == pinned.data_ptr()
    assert [view.stride() for view in views.values()] == [(1, 64), (7,), (1,), (1,), (0, 1)]
    assert (
        side == also and side.stream_id == also.stream_id and urgent.priority == -1 and usual.stream_id == 0
    )
    assert (
        given is torch.cuda.default_generators[0]
        and never.query()
        and end.query()
        and pinned.is_pinned() in (True, False)
    )
    assert weight.requires_grad and not frozen.requires_grad and weight.is_leaf and len(called) == turn + 1
    assert conjugate.is_conj() and negative.is_neg() and conjugate.data_ptr() == kinds[3].data_ptr()
    assert empty[1].shape == (0, 5) and empty[1].device == gpu and torch.cuda.current_device() == 0
    assert (
        not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        and torch.backends.cudnn.deterministic
    )
    print(
        turn,
        digest(
            *views.values(), *kinds, torch.stack(tiny), big, conjugate, negative, weight, weight.grad, pinned
        ),
        digest(sparse.to_dense(), rows.to_dense()),
        number.item().hex(),
        int(seen[-1]),
        flush=True,
    )

"""One thing on a GPU that no image can hold, by name, while the program works on. Prints "fine" at its end."""

import os
import sys
import time

import torch

WHAT, PATH = sys.argv[1], sys.argv[2]
kept = None
if WHAT == "graph":
    x = torch.ones(8, device="cuda")
    kept = torch.cuda.CUDAGraph()
    with torch.cuda.graph(kept):
        y = x * 2
elif WHAT == "pool":
    torch.ones(1, device="cuda")
    kept = torch.cuda.MemPool()
elif WHAT == "foreign":
    import cupy

    array = cupy.arange(10)
    kept = torch.from_dlpack(array)
    del array
elif WHAT == "cupy":
    import cupy

    kept = cupy.arange(10)
elif WHAT == "numba":
    from numba import cuda

    kept = cuda.to_device([1, 2, 3])
elif WHAT == "jax":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax.numpy

    kept = jax.numpy.arange(10)
elif WHAT == "group":
    import torch.distributed

    torch.ones(1, device="cuda")
    torch.distributed.init_process_group("nccl", init_method=f"file://{PATH}.group", rank=0, world_size=1)
elif WHAT == "external":
    import cupy

    made = cupy.cuda.Stream()
    kept = torch.cuda.ExternalStream(made.ptr)
elif WHAT == "workers":
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    kept = iter(torch.utils.data.DataLoader(data, num_workers=1, pin_memory=True))
    next(kept)
print("begun", flush=True)
ends = time.monotonic() + 40
while not os.path.exists(PATH) and time.monotonic() < ends:
    time.sleep(0.01)
print("fine", flush=True)

"""Tensors of torch are pickled alike in all replicas, and loaded by anybody."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import hashlib
import pickle
import sys
from ckpt.redundancy.memory import pickles
pickles.adjust()  # torch is not loaded
import torch
pickles.adjust()
kept = [torch.ones(50 + each) for each in range(int(sys.argv[1]))]  # so that storages lie elsewhere
torch.manual_seed(1)
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(net.parameters())
net(torch.ones(2, 3)).sum().backward()
optimizer.step()
tensor = torch.arange(12.0)[3:9].reshape(2, 3).T
for each in (net.state_dict(), optimizer.state_dict(), tensor, tensor.bfloat16(), torch.zeros(0), tensor.to_sparse()):
    data = pickle.dumps(each)
    print(hashlib.sha1(data).hexdigest())
    if each is tensor:
        found = pickle.loads(data)
        assert torch.equal(found, tensor) and found.stride() == tensor.stride()
        open(sys.argv[2], "wb").write(data)
"""

LOADS = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).tolist(), 'ckpt.redundancy' in sys.modules)"


def test_tensors_have_the_same_pickle_in_every_process(tmp_path: object) -> None:
    pytest.importorskip("torch")
    file = f"{tmp_path}/pickle"

    def printed(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", *arguments], check=True, capture_output=True, text=True
        ).stdout

    outputs = {printed(PROGRAM, count, file) for count in ("1", "70")}
    assert len(outputs) == 1 and len(next(iter(outputs)).split()) == 6
    assert printed(LOADS, file).strip() == "[[3.0, 6.0], [4.0, 7.0], [5.0, 8.0]] False"

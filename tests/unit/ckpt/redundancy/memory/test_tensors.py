"""Tensors, modules and optimizers of torch in the memory of replicas: by name, each storage once; new ones are zero."""

from __future__ import annotations

import sys
from random import Random
from types import ModuleType
from typing import Any

import pytest

from ckpt.redundancy.memory import arrays, flips
from ckpt.redundancy.memory.search import Found, _Search, find

torch: Any = pytest.importorskip("torch")

PROGRAM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(3, 1))
        self.register_buffer("mean", torch.ones(5))
        self.steps = 7

    def forward(self, inputs):
        return self.rest(self.layer(inputs))

torch.manual_seed(1)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
net(torch.ones(2, 4)).sum().backward()
optimizer.step()
whole = torch.zeros(6, 100)
part = whole[2]
single = torch.tensor(2.5)
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("a_program")
    monkeypatch.setitem(sys.modules, "a_program", module)
    monkeypatch.setattr(_Search, "is_of_program", lambda self, name: name == "a_program")
    exec(PROGRAM, vars(module))
    return module


def told() -> dict[str, tuple[str, ...]]:
    found: Found = find(None)
    return {
        name.replace("a_program.", ""): record.digests
        for name, record in arrays.digests(found, [])
        if not record.opened
    }


def test_tensors_are_found_in_modules_and_optimizers_each_storage_once(program: Any) -> None:
    forms = {each.name.replace("a_program.", ""): each.form for each in find(None).arrays}
    assert forms["net._modules['layer']._parameters['weight']"] == "torch.float32 (3, 4)"
    assert forms["net._buffers['mean']"] == "torch.float32 (5,)"
    assert forms["net._modules['layer']._parameters['weight'].grad"] == "torch.float32 (3, 4)"
    assert any(name.startswith("optimizer.state[") and "exp_avg" in name for name in forms)
    assert {name for name in forms if name in ("whole", "part", "single")} == {"whole", "single"}
    values = told()
    assert values["net.steps"] == ("7",) and values["optimizer.param_groups[0]['lr']"] == ("0.01",)


def test_what_changes_in_a_tensor_is_told(program: Any) -> None:
    before = told()
    with torch.no_grad():
        program.part[3] = 1
    assert {name for name, texts in told().items() if texts != before[name]} == {"whole"}
    before = told()
    name = flips.flip(None, Random(3), "array").replace("a_program.", "")
    assert {each for each, texts in told().items() if texts != before[each]} == {name}


def test_new_tensors_are_zero_where_replicas_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, getattr(torch, name))
    arrays.zero_new_arrays()
    for count in (1, 50, 100_000):
        filled = torch.full((count,), 7.0)
        del filled
        assert not torch.empty(count).any() and not torch.empty_like(torch.ones(count)).any()
    assert torch.empty(2, requires_grad=True).requires_grad
    assert torch.empty(2, device="meta").shape == (2,)
    out = torch.ones(3)
    assert torch.empty(3, out=out) is out and not out.any()

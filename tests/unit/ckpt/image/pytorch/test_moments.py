"""The moments at which no image of a program with torch is taken, and those at which one is."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from ckpt.image import Refused, run_base  # noqa: E402
from ckpt.image.errors import Unpicklable  # noqa: E402
from ckpt.image.frames import _frames  # noqa: E402
from ckpt.image.frames.stack import capture  # noqa: E402
from ckpt.image.interface.transient import refuse_transient  # noqa: E402
from ckpt.image.libraries import autograd  # noqa: E402
from ckpt.image.pytorch import settings  # noqa: E402
from ckpt.image.pytorch.library import Torch  # noqa: E402


class Clamp(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0]


def loss_of(weight: Any) -> Any:
    return (Clamp.apply(torch.nn.functional.linear(weight, torch.ones(2, 3)).sin()) - 1).pow(2).sum()


def test_a_graph_is_in_use_until_its_gradients_are_calculated() -> None:
    library, weight = Torch("torch"), torch.ones(3, requires_grad=True)
    loss = loss_of(weight)
    for values in ([loss], [{"loss": (loss,)}], [[1, [loss]]]):
        assert str(library.reason_now(values)).startswith(
            "a graph of gradients is in use (grad_fn SumBackward0)"
        )
    assert autograd.seems_alive(loss.grad_fn) and not autograd.is_used_up(loss.grad_fn)
    loss.backward()
    assert autograd.is_used_up(loss.grad_fn) and not autograd.seems_alive(loss.grad_fn)
    assert library.reason_now([loss, weight, weight.grad, loss.item()]) is None


def test_what_an_operation_keeps_that_is_never_freed_does_not_count() -> None:
    """The lengths of packed sequences were readable after backward(), so no image of a recurrent network was taken."""
    x = torch.randn(2, 4, 3, requires_grad=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 4]), batch_first=True)
    loss = torch.nn.functional.linear(packed.data, torch.ones(1, 3)).sin().sum()
    loss.backward()
    assert not autograd.seems_alive(packed.data.grad_fn) or autograd.is_used_up(loss.grad_fn)
    assert not autograd.seems_alive(loss.grad_fn)


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (lambda: torch.inference_mode(), "torch.inference_mode() is in use"),
        (lambda: torch.autograd.graph.save_on_cpu(), "saved_tensors_hooks of torch are in use"),
        (lambda: torch.autograd.forward_ad.dual_level(), "gradients are calculated forward"),
        (lambda: torch.autocast("cpu"), "weights that torch.autocast has cast are in use"),
        (lambda: torch._C.DisableTorchFunctionSubclass(), "torch has switched functions of subclasses"),
    ],
    ids=["inference_mode", "saved_tensors_hooks", "forward_ad", "autocast", "torch_function"],
)
def test_state_that_cannot_be_read_is_refused(
    context: Callable[[], AbstractContextManager[object]], reason: str
) -> None:
    assert settings.reason_now(torch) is None
    with context():
        assert str(settings.reason_now(torch)).startswith(reason)
        with pytest.raises(Unpicklable, match="the state of torch"):
            settings.note(torch)
    assert settings.reason_now(torch) is None


def test_within_a_transformed_function_no_image_is_taken() -> None:
    reasons: list[str | None] = []

    def f(x: Any) -> Any:
        reasons.append(settings.reason_now(torch))
        return x.sum()

    torch.func.vmap(f)(torch.ones(2, 2))
    torch.func.grad(f)(torch.ones(2))
    assert reasons == ["a transformation of a function runs (torch.func)"] * 2


def test_autocast_without_gradients_is_no_obstacle() -> None:
    with torch.no_grad(), torch.autocast("cpu"):
        assert settings.reason_now(torch) is None


def test_settings_come_back() -> None:
    noted = settings.note(torch)
    handle_number = torch.utils.hooks.RemovableHandle.next_id
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
            changed = settings.note(torch)
        settings.apply(torch, changed)
        torch.utils.hooks.RemovableHandle.next_id = handle_number + 7
        assert torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled()
        assert torch.get_autocast_dtype("cpu") is torch.float16
        torch.autocast_decrement_nesting()
    finally:
        settings.apply(torch, noted)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.utils.hooks.RemovableHandle.next_id == handle_number
    assert settings.note(torch)["nesting"] == noted["nesting"] == 0


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
@pytest.mark.parametrize("name", ["save", "load"])
def test_no_image_is_tried_while_a_file_of_torch_is_written_or_read(name: str, tmp_path: Path) -> None:
    """Each checkpoint that fell into torch.save or torch.load failed at the object in C++, and was lost."""
    refused: list[str] = []

    class Looking(pickle._Pickler if name == "save" else pickle._Unpickler):  # type: ignore[misc]
        def _looking(self, method: Callable[..., Any], *args: Any) -> Any:
            with pytest.raises(Refused) as caught:
                refuse_transient(capture(at="call"))
            refused.append(caught.value.reason)
            return method(*args)

        def dump(self, obj: Any) -> None:
            self._looking(super().dump, obj)

        def load(self) -> Any:
            return self._looking(super().load)

    def run() -> None:
        plain = {"pickle_module": pickle}
        module = SimpleNamespace(__name__="looking", Pickler=Looking, Unpickler=Looking, load=pickle.load)
        looking = {"pickle_module": module}
        torch.save([1, 2], tmp_path / "t.pt", **(looking if name == "save" else plain))
        looking |= {"weights_only": False}
        torch.load(tmp_path / "t.pt", **(looking if name == "load" else plain))

    run_base(run)
    assert refused == [f"torch.{name} is {'writing' if name == 'save' else 'reading'}, by an object in C++"]

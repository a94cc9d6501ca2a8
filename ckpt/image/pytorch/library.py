"""The class that serves torch. Tensors and graphs of gradients: :mod:`ckpt.image.libraries.tensors`.

Moments at which no image is taken: a running function holds a tensor with a graph of gradients that is still of use, alone
or in a list, tuple or dictionary; the state of torch's own stacks in C (a transformation such as vmap, a profiler, a
trace) cannot be read. A step of a training passes such a moment and comes to its end, where the graph is used up: so a
checkpoint waits for one step at most. How long one lasts nobody knows; after a minute an image is tried all the same, and
names the tensor that has kept it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pickle import PicklingError
from typing import Any

from ckpt.errors import StateError
from ckpt.image.interface.library import InPlace, Library, Reducer
from ckpt.image.libraries import autograd
from ckpt.image.libraries.tensors import Storage, reduce_storage, reduce_tensor, reduce_untyped_storage
from ckpt.image.pytorch import settings
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Torch"]

_CONTAINERS = (list, tuple, dict)
_LARGEST = 64
"""Larger containers are not looked into before an image is tried."""
_DEEPEST = 3
_RECORD_FUNCTION = "__torch__.torch.classes.profiler._RecordFunction"


class Torch(Library):
    """torch"""

    is_left_alone = True
    is_left_to_pickle = True
    moment_limit_s = 60.0
    transient_types = ("torch._C:_DisableFuncTorch",)  # while a tensor is being printed
    transient_functions = (
        ("torch.serialization:save", "torch.save is writing, by an object in C++"),
        ("torch.serialization:load", "torch.load is reading, by an object in C++"),
    )
    rebound_variables = (("torch.utils._device", "CURRENT_DEVICE"),)

    def when_imported(self) -> None:
        settings.prepare_optimizers(self.module)

    def reducers(self) -> dict[type, Reducer]:
        torch = self.module
        if getattr(torch, "UntypedStorage", None) is None or not hasattr(torch, "ops"):
            return {}
        found: dict[type, Reducer] = {
            Storage: reduce_storage,
            torch.UntypedStorage: reduce_untyped_storage,
            torch.TypedStorage: reduce_raw,  # its own way copies what it refers to
            type(torch.ops): lambda saver, obj: (operators, ("",)),
            type(torch.ops.aten): lambda saver, obj: (operators, (obj.name,)),
            torch._ops.OpOverloadPacket: reduce_packet,
            torch._ops.OpOverload: reduce_operator,
        }
        for name, reduce in (
            ("ScriptObject", reduce_script_object),
            ("_InferenceMode", reduce_inference_mode),
        ):
            cls = getattr(torch._C, name, None)
            if cls is not None:
                found[cls] = reduce
        return found

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """Tensors with all of their subclasses. What pickles itself without all of its state (hooks of optimizers)."""
        torch = self.module
        if issubclass(cls, getattr(torch, "Tensor", ())):
            return reduce_tensor
        whole = (getattr(torch.optim, "Optimizer", ()), getattr(torch.amp, "GradScaler", ()))
        return reduce_raw if any(issubclass(cls, base) for base in whole) else None

    def value_types(self) -> tuple[type, ...]:
        """Of what packages that use torch keep in their variables, such as the parameters of pyro."""
        torch = self.module
        names = ("Tensor", "device", "Generator", "dtype")
        return tuple(cls for name in names if isinstance(cls := getattr(torch, name, None), type))

    def reason_now(self, values: Iterable[Any]) -> str | None:
        torch = self.module
        if not hasattr(torch, "_C") or not hasattr(torch, "autograd"):
            return None  # it is being imported
        with torch._C.DisableTorchFunction():
            for tensor in _tensors(values, torch.Tensor, _DEEPEST):
                node = tensor.grad_fn
                if node is not None and autograd.seems_alive(node):
                    return f"a graph of gradients is in use (grad_fn {type(node).__name__}), which no image can hold"
        return settings.reason_now(torch)

    def note_settings(self) -> dict[str, Any]:
        return settings.note(self.module)

    def apply_settings(self, saved: dict[str, Any]) -> None:
        settings.apply(self.module, saved)

    def note_random(self) -> Any:
        return self.module.get_rng_state()

    def apply_random(self, saved: Any) -> None:
        self.module.set_rng_state(saved)

    def in_place(self) -> list[InPlace]:
        tensor_type = getattr(self.module, "Tensor", None)
        if tensor_type is None:
            return []
        return [InPlace("tensor", (tensor_type,), lambda obj: obj.detach(), _put_tensor)]

    def shape_of(self, obj: Any) -> str | None:
        is_tensor = isinstance(obj, getattr(self.module, "Tensor", ()))
        return f"{obj.dtype} {tuple(obj.shape)}" if is_tensor else None


def _tensors(values: Iterable[Any], tensor_type: type, depth: int) -> Iterator[Any]:
    """The tensors among these objects, and in small containers."""
    for value in values:
        cls = type(value)
        if issubclass(cls, tensor_type):
            yield value
        elif issubclass(cls, _CONTAINERS) and depth:
            base: Any = next(base for base in _CONTAINERS if issubclass(cls, base))
            if base.__len__(value) <= _LARGEST:
                inside = dict.values(value) if base is dict else base.__iter__(value)
                yield from _tensors(list(inside), tensor_type, depth - 1)


def _put_tensor(obj: Any, value: Any) -> None:
    if obj.shape != value.shape or obj.dtype != value.dtype:
        raise StateError(
            f"a tensor {tuple(obj.shape)} of {obj.dtype}; the checkpoint has {tuple(value.shape)} of {value.dtype}"
        )
    obj.data.copy_(value)


def reduce_script_object(saver: Any, obj: Any) -> Any:
    """The mark that a part of the program has begun, which a profiler would show. None runs (`settings.reason_now`)."""
    if obj._type().qualified_name() == _RECORD_FUNCTION:
        return begin_record, ()
    return NotImplemented


def begin_record() -> Any:
    return sys.modules["torch"].ops.profiler._record_function_enter_new("ckpt: before a restart", None)


def reduce_packet(saver: Any, packet: Any) -> Any:
    return operators, tuple(packet._qualified_op_name.split("::"))


def reduce_operator(saver: Any, operator: Any) -> Any:
    return operators, (*operator._overloadpacket._qualified_op_name.split("::"), operator._overloadname)


def operators(*names: str) -> Any:
    """``torch.ops``, or what it has: a namespace, an operator, one of an operator's forms."""
    found = sys.modules["torch"].ops
    for name in names:
        found = getattr(found, name) if name else found
    return found


def reduce_inference_mode(saver: Any, guard: Any) -> Any:
    """What the context ``torch.inference_mode()`` holds; which of several, one within another, cannot be told."""
    raise PicklingError(
        "torch.inference_mode() is in use, whose state is in C++; use torch.no_grad(), or leave it before a checkpoint"
    )

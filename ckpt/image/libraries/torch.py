"""torch tensors on the CPU: storage saved once, shared as it was, also with numpy arrays.

Rules
    - A tensor is saved as ``(storage, type, offset, size, stride)``; all tensors and arrays that use the same storage share
    it
      after loading. torch makes a new storage object whenever it is asked for one, so the pickler keeps one :class:`Storage`
      for each address. That memory may belong to a numpy array (``from_numpy``), or a numpy array may use it
      (``tensor.numpy()``).
    - Leaves of a graph of gradients keep ``requires_grad``, their gradient and their hooks. The results of a calculation
      cannot be saved while its graph may still be used: they are refused by name. When ``backward()`` has freed the graph,
      the results (a loss that is kept for printing) are saved as values.
    - Tensors without strided memory on the CPU (sparse, quantized, on other devices) are pickled as torch itself pickles
    them.

Loaded storages are torch's own memory, which can be resized. No function here imports torch unless the program has imported
it.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

from ckpt.errors import StateError
from ckpt.image.interface.library import InPlace, Library, Reducer
from ckpt.image.libraries.numpy import OUT_OF_BAND_BYTES

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["Storage", "Torch"]


class Storage:
    """Stands for one piece of memory. ``content``: bytes, an out-of-band buffer, or the array that owns the memory.
    ``kept``: an object that is kept alive, so that no other object gets the same address."""

    def __init__(self, content: Any, kept: Any) -> None:
        self.content = content
        self.kept = kept


class Torch(Library):
    is_left_alone = True
    is_left_to_pickle = True

    def reducers(self) -> dict[type, Reducer]:
        if getattr(self.module, "UntypedStorage", None) is None:
            return {}
        return {Storage: reduce_storage, self.module.UntypedStorage: reduce_untyped_storage}

    def reducer_by_base(self, cls: type) -> Reducer | None:
        """The reducer for tensors and all of their subclasses."""
        tensor_type = getattr(self.module, "Tensor", None)
        return reduce_tensor if tensor_type is not None and issubclass(cls, tensor_type) else None

    def note_settings(self) -> dict[str, Any]:
        torch = self.module
        return {
            "default": torch.get_default_dtype(),
            "threads": torch.get_num_threads(),
            "gradients": torch.is_grad_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }

    def apply_settings(self, saved: dict[str, Any]) -> None:
        torch = self.module
        torch.set_default_dtype(saved["default"])
        torch.set_num_threads(saved["threads"])
        torch.set_grad_enabled(saved["gradients"])
        torch.use_deterministic_algorithms(saved["deterministic"])

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


def _put_tensor(obj: Any, value: Any) -> None:
    if obj.shape != value.shape or obj.dtype != value.dtype:
        raise StateError(
            f"a tensor {tuple(obj.shape)} of {obj.dtype}; the checkpoint has {tuple(value.shape)} of {value.dtype}"
        )
    obj.data.copy_(value)


def reduce_tensor(pickler: Saver, tensor: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if not _is_plain(torch, tensor):
        return tensor.__reduce_ex__(5)
    requires_grad = tensor.requires_grad
    if tensor.grad_fn is not None and not _is_used_up(tensor.grad_fn):
        raise pickle.PicklingError(
            f"a tensor in the middle of a graph of gradients (grad_fn {type(tensor.grad_fn).__name__}) cannot be saved; "
            "it can be when backward() has run: the next image is tried later, or call ckpt.checkpoint() between two steps"
        )
    storage = storage_of(pickler, tensor.untyped_storage())
    place = (tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride()))
    hooks = {name: getattr(tensor, name, None) for name in _HOOKS} if tensor.grad_fn is None else {}
    state = (
        tensor.grad if tensor.grad_fn is None else None,
        {name: hook for name, hook in hooks.items() if hook},
        dict(tensor.__dict__),
    )
    args = (type(tensor), storage, place, requires_grad)
    if state == (None, {}, {}):
        return make_tensor, args
    return make_tensor, args, state, None, None, fill_tensor


_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _is_plain(torch: Any, tensor: Any) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not type(tensor).__name__.startswith("Uninitialized")
    )


def _is_used_up(node: Any) -> bool:
    """Has ``backward()`` freed the saved tensors of a node of this graph? Then the graph cannot be used again."""
    waiting, seen = [node], {id(node)}
    kept_alive = [node]  # so that no id is used twice
    while waiting:
        current = waiting.pop()
        for name in dir(current):
            if not name.startswith("_saved_"):
                continue
            try:
                getattr(current, name)
            except RuntimeError:
                return True
        for previous, _ in current.next_functions:
            if previous is not None and id(previous) not in seen:
                seen.add(id(previous))
                kept_alive.append(previous)
                waiting.append(previous)
    return False


def storage_of(pickler: Saver, untyped: Any) -> Storage:
    """The :class:`Storage` that stands for this storage in this image; one for each address."""
    address = untyped.data_ptr()
    known = pickler.memory.get(address) if address else None
    if isinstance(known, Storage):
        return known
    flat = _bytes_of(untyped)
    if known is not None and known.nbytes == flat.nbytes:
        content: Any = known
    else:
        content = pickle.PickleBuffer(flat) if flat.nbytes >= OUT_OF_BAND_BYTES else flat.tobytes()
    storage = Storage(content, untyped)
    if address:
        pickler.memory[address] = storage
    return storage


def _torch() -> Any:
    return importlib.import_module("torch")


def _bytes_of(untyped: Any) -> Any:
    torch = _torch()

    return torch.empty(0, dtype=torch.uint8).set_(untyped).numpy()


def reduce_untyped_storage(pickler: Saver, untyped: Any) -> Any:
    if untyped.device.type != "cpu":
        return untyped.__reduce_ex__(5)
    return make_untyped, (storage_of(pickler, untyped),)


def reduce_storage(pickler: Saver, storage: Storage) -> Any:
    if isinstance(storage.content, (bytes, pickle.PickleBuffer)):
        return make_storage, (storage.content,)
    return make_storage_over, (storage.content,)


# ---------------------------------------------------------------------- called while loading


def make_storage(content: Any) -> Any:
    """A storage with memory of its own."""
    torch = _torch()

    if not len(memoryview(content)):
        return torch.UntypedStorage(0)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).clone().untyped_storage()


def make_storage_over(array: Any) -> Any:
    """A storage that uses the memory of a dense numpy array."""
    torch = _torch()

    from ckpt.image.libraries.numpy import dense

    return torch.from_numpy(dense(array)).untyped_storage()


def make_untyped(storage: Any) -> Any:
    return storage


def make_tensor(cls: Any, storage: Any, place: tuple[Any, ...], requires_grad: bool) -> Any:
    torch = _torch()

    dtype, offset, size, stride = place
    made = torch.empty(0, dtype=dtype).set_(storage, offset, size, stride)
    if cls is torch.Tensor:
        return made.requires_grad_(requires_grad) if requires_grad else made
    return torch.Tensor._make_subclass(cls, made, requires_grad)


def fill_tensor(tensor: Any, state: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    gradient, hooks, attributes = state
    tensor.__dict__.update(attributes)
    if gradient is not None:
        tensor.grad = gradient
    for name, hook in hooks.items():
        setattr(tensor, name, hook)


def array_over(storage: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A numpy array that uses the memory of a storage."""
    from ckpt.image.libraries.numpy import make_view

    return make_view(_bytes_of(storage), dtype, shape, strides, offset, writeable)

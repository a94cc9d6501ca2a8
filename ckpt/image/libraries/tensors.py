"""torch tensors on the CPU and on GPUs: storage saved once, shared as it was, also with numpy arrays.

Rules
    - A tensor is saved as ``(storage, type, offset, size, stride)``; all tensors and arrays that use the same storage share
      it after loading. torch makes a new storage object whenever it is asked for one, so the pickler keeps one
      :class:`Storage` for each address. That memory may belong to a numpy array (``from_numpy``), or a numpy array may use
      it (``tensor.numpy()``).
    - Leaves of a graph of gradients keep ``requires_grad``, their gradient and their hooks. The results of a calculation
      cannot be saved while its graph may still be used: they are refused by name. When ``backward()`` has freed the graph,
      the results (a loss that is kept for printing) are saved as values.
    - The content of a storage on a GPU is that of the copy in the host's memory that was made before the fork
      (:func:`put_copies`), since no function here may call CUDA; it goes to the GPU of the same
      number.
    - Tensors without strided memory (sparse, quantized, on other devices) are pickled as torch itself pickles them.

Loaded storages are torch's own memory, which can be resized. No function here imports torch unless the program has imported
it.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import RestoreError
from ckpt.image.libraries import autograd
from ckpt.image.libraries.numpy import OUT_OF_BAND_BYTES
from ckpt.transport.records import NamedTuple

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "Copied",
    "Storage",
    "array_over",
    "copied_at",
    "gpu_of",
    "put_copies",
    "reduce_storage",
    "reduce_tensor",
    "reduce_untyped_storage",
    "storage_of",
]


class Copied(NamedTuple):
    """``nbytes`` of a GPU's memory from ``address`` on are in the host's memory from ``offset`` of the copies on."""

    address: int
    nbytes: int
    offset: int


class _Copies:
    def __init__(self) -> None:
        self.content: Any = None
        self.ranges: list[Copied] = []
        self.addresses: list[int] = []


_copies = _Copies()


def put_copies(content: Any, ranges: Iterable[Copied]) -> None:
    """From now on these are the copies. ``content``: an array of bytes; None: there are none."""
    _copies.content = content
    _copies.ranges = sorted(ranges)
    _copies.addresses = [each.address for each in _copies.ranges]


def copied_at(address: int, nbytes: int) -> Any:
    """The copy of these bytes, as a part of the array of all copies; ``None``: they have not been copied."""
    number = bisect_right(_copies.addresses, address) - 1
    if number < 0:
        return None
    found = _copies.ranges[number]
    if address + nbytes > found.address + found.nbytes:
        return None
    begin = found.offset + address - found.address
    return _copies.content[begin : begin + nbytes]


class Storage:
    """Stands for one piece of memory. ``content``: bytes, an out-of-band buffer, or the array that owns the memory.
    ``kept``: an object that is kept alive, so that no other object gets the same address. ``gpu``: the number of the GPU
    that has the memory, or None."""

    def __init__(self, content: Any, kept: Any, gpu: int | None = None) -> None:
        self.content = content
        self.kept = kept
        self.gpu = gpu


def reduce_tensor(pickler: Saver, tensor: Any) -> Any:
    torch: Any = sys.modules["torch"]
    if not _is_plain(torch, tensor):
        return _reduce_special(torch, tensor)
    requires_grad = tensor.requires_grad
    if tensor.grad_fn is not None and not autograd.is_used_up(tensor.grad_fn):
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


_DEVICES = ("cpu", "cuda")
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _is_plain(torch: Any, tensor: Any) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type in _DEVICES
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not type(tensor).__name__.startswith("Uninitialized")
    )


def storage_of(pickler: Saver, untyped: Any) -> Storage:
    """The :class:`Storage` that stands for this storage in this image; one for each address."""
    address = untyped.data_ptr()
    known = pickler.memory.get(address) if address else None
    if isinstance(known, Storage):
        return known
    flat = _bytes_of(untyped) if untyped.device.type == "cpu" else _bytes_copied(untyped)
    if known is not None and known.nbytes == flat.nbytes:
        content: Any = known
    else:
        content = pickle.PickleBuffer(flat) if flat.nbytes >= OUT_OF_BAND_BYTES else flat.tobytes()
    storage = Storage(content, untyped, untyped.device.index if untyped.device.type == "cuda" else None)
    if address:
        pickler.memory[address] = storage
    return storage


def _reduce_special(torch: Any, tensor: Any) -> Any:
    if tensor.layout is torch.strided and not tensor.requires_grad and tensor.device.type in _DEVICES:
        if tensor.is_conj():
            return conjugate_view, (tensor.conj(),)
        if tensor.is_neg():
            return negative_view, (torch._neg_view(tensor),)
    if tensor.device.type != "cuda":
        return tensor.__reduce_ex__(5)
    try:
        return tensor.__reduce_ex__(5)
    except RuntimeError as failure:  # of CUDA, which a forked child cannot use
        kind = "a quantized tensor" if tensor.is_quantized else f"a tensor ({tensor.layout})"
        raise pickle.PicklingError(
            f"{kind} on a GPU is saved by functions that use it, which no image can; keep it on the CPU "
            f"over a checkpoint ({str(failure).splitlines()[0]})"
        ) from None


def _bytes_copied(untyped: Any) -> Any:
    """The copy of a GPU's memory. Raises PicklingError: there is none."""
    nbytes = untyped.nbytes()
    found = copied_at(untyped.data_ptr(), nbytes)
    if found is not None:
        return found
    if not nbytes:
        return memoryview(b"")
    raise pickle.PicklingError(
        "a tensor is in memory of a GPU that torch's allocator does not know (of another library, of another process, or of "
        "an allocator of its own); keep a clone() of it over a checkpoint"
    )


def _torch() -> Any:
    return importlib.import_module("torch")


def _bytes_of(untyped: Any) -> Any:
    torch = _torch()

    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(untyped).numpy()


def reduce_untyped_storage(pickler: Saver, untyped: Any) -> Any:
    if untyped.device.type not in _DEVICES:
        return untyped.__reduce_ex__(5)
    return make_untyped, (storage_of(pickler, untyped),)


def reduce_storage(pickler: Saver, storage: Storage) -> Any:
    if storage.gpu is not None:
        return make_storage_on, (storage.gpu, storage.content)
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


def make_storage_on(gpu: int, content: Any) -> Any:
    """A storage on the GPU of that number. Raises RestoreError: there is no such one."""
    torch = _torch()

    place = gpu_of(gpu)
    if not len(memoryview(content)):
        return torch.UntypedStorage(0, device=place)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(place).untyped_storage()


def gpu_of(index: int) -> Any:
    """The GPU of that number, ready for use. Raises RestoreError: there is none here."""
    torch: Any = importlib.import_module("torch")
    count = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
    if index >= count:
        have = f"this host has {count} for the program, numbered from 0" if count else _none_here(torch)
        raise RestoreError(
            f"the image has memory of the GPU cuda:{index}; {have}. Restart the job where there is one of that number "
            "(CUDA_VISIBLE_DEVICES says which GPUs a program sees)"
        )
    return torch.device("cuda", index)


def _none_here(torch: Any) -> str:
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} here is built without CUDA"
    return "there is no GPU here that CUDA can use"


def conjugate_view(tensor: Any) -> Any:
    return tensor.conj()


def negative_view(tensor: Any) -> Any:
    return _torch()._neg_view(tensor)


def make_storage_over(array: Any) -> Any:
    """A storage that uses the memory of a dense numpy array."""
    torch = _torch()

    from ckpt.image.libraries.numpy_parts import dense

    return torch.from_numpy(dense(array)).untyped_storage()


def make_untyped(storage: Any) -> Any:
    return storage


def make_tensor(cls: Any, storage: Any, place: tuple[Any, ...], requires_grad: bool) -> Any:
    torch = _torch()

    dtype, offset, size, stride = place
    made = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
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

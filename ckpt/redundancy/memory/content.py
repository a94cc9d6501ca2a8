"""A digest of what an object holds, equal in all processes where the values are: what `same` and `result` compare. (driver)

It is the digest of a pickle, without that by which pickles of equal values differ:

    text, bytes, tuples of these        one that occurs twice counts as one, whether it is one object or two: what has come
    and of numbers                      by messages is other objects than a literal of the program
    an array of numpy                   class, type, shape, and the numbers in the order of the rows, whatever its strides
    a tensor of torch                   the same, whatever its device and its storage, whose pickle has an address in it
    memoryview, mmap                    format, shape and content

All else is as pickle has it: subclasses of arrays with what belongs to them (the mask), objects with their dictionary in
its order.

Not here: tensors in messages (:mod:`ckpt.redundancy.memory.pickles`).
"""

from __future__ import annotations

import marshal
import mmap
import pickle
import sys
from hashlib import blake2b
from typing import Any

from ckpt.redundancy.memory.values import PLAIN

__all__ = ["digest_of"]

BYTES = 16
_WITHOUT = frozenset({int, float, bool, type(None), list, dict})
"""Types whose pickles are as good as any, and that objects have most."""


def digest_of(obj: Any) -> bytes:
    """BYTES bytes. Raises what pickle raises, where `obj` or a part of it has neither pickle nor buffer."""
    written = _Written()
    _Pickler(written).dump(obj)
    return written.hash.digest()


class _Written:
    def __init__(self) -> None:
        self.hash = blake2b(digest_size=BYTES)

    def write(self, data: Any) -> None:
        self.hash.update(data)


class _Pickler(pickle.Pickler):
    def __init__(self, file: _Written) -> None:
        super().__init__(file, 5)
        self._texts: dict[str, Any] = {}
        self._bytes: dict[bytes, Any] = {}
        self._tuples: dict[bytes, Any] = {}
        self._numpy: Any = sys.modules.get("numpy")
        self._torch: Any = sys.modules.get("torch")

    def persistent_id(self, obj: Any) -> Any:
        """What stands for this object; None: its pickle."""
        kind = type(obj)
        if kind is str or kind is bytes:
            return (self._texts if kind is str else self._bytes).setdefault(obj, obj)
        if kind in _WITHOUT:
            return None
        if kind is tuple:
            if not PLAIN.issuperset(map(type, obj)):
                return None
            # version 2 of marshal has neither references nor marks of interned text: equal values give equal bytes
            return self._tuples.setdefault(marshal.dumps(obj, 2), obj)
        said = self._said_of(obj)
        return None if said is None else [said]  # no text of the program is a list

    def _said_of(self, obj: Any) -> str | None:
        kind = type(obj)
        if kind is memoryview or kind is mmap.mmap:
            view = memoryview(obj)
            return _text(kind, view.format, view.shape, view if view.c_contiguous else view.tobytes())
        if kind.__module__ == "numpy" or kind.__module__ == "numpy.dtypes":
            return self._of_numpy(obj)
        if getattr(self._torch, "UntypedStorage", None) is not None:
            return self._of_torch(obj)
        return None

    def _of_numpy(self, obj: Any) -> str | None:
        if isinstance(obj, self._numpy.dtype):
            return f"type {_of_type(obj)}"
        if type(obj) is not self._numpy.ndarray or obj.dtype.hasobject:
            return None
        whole = self._numpy.ascontiguousarray(obj).reshape(-1)
        return _text(type(obj), _of_type(obj.dtype), obj.shape, whole.view("B") if whole.size else b"")

    def _of_torch(self, obj: Any) -> str | None:
        torch = self._torch
        if type(obj) in (torch.Tensor, torch.nn.Parameter):
            return self._of_tensor(obj)
        if isinstance(obj, torch.storage.TypedStorage):
            return f"{obj.dtype} {self._of_torch(obj.untyped())}"
        if isinstance(obj, torch.UntypedStorage):
            return self._of_tensor(torch.tensor([], dtype=torch.uint8, device=obj.device).set_(obj))
        return None

    def _of_tensor(self, tensor: Any) -> str | None:
        torch = self._torch
        held = tensor.detach()
        if held.layout is not torch.strided or held.is_quantized or held.device.type == "meta":
            return None
        whole = held.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        content = whole.view(torch.uint8).numpy() if whole.numel() else b""
        return _text(type(tensor), f"{held.dtype} {tensor.requires_grad}", tuple(held.shape), content)


def _of_type(dtype: Any) -> str:
    """All of a type of numpy: where the fields of a structure are, and units of times."""
    return dtype.str if dtype.fields is None else repr(dtype)


def _text(kind: type, form: str, shape: Any, content: Any) -> str:
    found = blake2b(content, digest_size=BYTES).hexdigest()
    return f"{kind.__module__}.{kind.__qualname__} {form} {tuple(shape)} {found}"

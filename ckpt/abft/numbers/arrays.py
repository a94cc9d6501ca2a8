"""Arrays of numpy and tensors of torch behind the few names that the checks of a product need.

A `NumberType` says what a type of numbers is good for: the roundings of the products (`accumulated`) and of the result
(`stored`), as half the distance of 1 to the next number, and the type in which checksums are computed. torch is not
imported here: whoever has a tensor has imported it.

Pure. Not here: what is checked (checked.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ckpt.abft.errors import InputError

__all__ = ["NumberType", "is_tensor", "number_type_of", "operand", "places", "plain"]


class NumberType(NamedTuple):
    """A type of numbers, with its roundings. `xp`: the module whose functions take the arrays. `wide`: the type of the
    checksums, whose rounding is `checks`. `smallest`: the smallest number that has all digits; `factor`: of the variance,
    2 for complex numbers."""

    xp: Any
    wide: Any
    accumulated: float
    stored: float
    checks: float
    smallest: float
    largest: float
    factor: float
    factors: float = 0.0
    """Rounding of each factor before it is multiplied."""
    drift: float = 0.0
    """How much smaller a partial sum becomes by each number that is added, where sums are cut off, not rounded."""
    split: float = 0.0
    """Rounding of some few partial sums, into which a product may be divided."""


_NUMPY = {"float32": "float64", "float64": "float64", "complex64": "complex128", "complex128": "complex128"}
_TORCH = {**_NUMPY, "bfloat16": "float64", "float16": "float64"}
_TF32 = 2.0**-11
"""Rounding of the factors where float32 products are computed by tensor cores (TF32)."""
_TENSOR_CORES, _DRIFT = 2.0**-23, 2.0**-27
"""Tensor cores cut partial sums off: seen on an H100, of all types, are sums that are too small by 2⁻²⁷ for each number."""


def is_tensor(x: Any) -> bool:
    return any(each.__module__ == "torch" and each.__name__ == "Tensor" for each in type(x).__mro__)


def plain(x: Any, name: str) -> np.ndarray[Any, Any]:
    """What the program gives as an array of this machine's byte order (messages have that); `name` is in the message. Raises
    InputError: it makes none, or has a mask, which would be lost."""
    if isinstance(x, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: give its numbers, filled(0) for example")
    try:
        found = np.asarray(x)
    except ValueError as error:
        raise InputError(f"{name} is no array: {error}") from None
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def operand(x: Any, name: str) -> Any:
    """`x` as an array or a tensor. Raises InputError: of a type that cannot be checked; `name` is in the message."""
    if is_tensor(x):
        if str(x.layout) != "torch.strided":
            raise InputError(
                f"{name} is a tensor of layout {x.layout}: only dense ones are multiplied and checked"
            )
        kinds, kind = _TORCH, str(x.dtype).removeprefix("torch.")
    else:
        x = plain(x, name)
        kinds, kind = _NUMPY, x.dtype.name
    if kind not in kinds:
        raise InputError(
            f"{name} is of {kind}: products of {', '.join(kinds)} are checked; the sums of others overflow, or have too "
            f"few digits. Convert it, {name}.astype(numpy.float64) for example"
        )
    return x


def number_type_of(product: Any) -> NumberType:
    """What the numbers of this product are good for."""
    if is_tensor(product):
        return _number_type_of_tensor(product)
    info = np.finfo(product.dtype)
    wide = np.dtype(_NUMPY[product.dtype.name])
    own, checks = float(info.eps) / 2, float(np.finfo(wide).eps) / 2
    limits = float(info.smallest_normal), float(info.max)
    return NumberType(np, wide, own, own, checks, *limits, 2.0 if product.dtype.kind == "c" else 1.0)


def _number_type_of_tensor(product: Any) -> NumberType:
    import torch

    info, name = torch.finfo(product.dtype), str(product.dtype).removeprefix("torch.")
    wide = getattr(torch, _TORCH[name])
    own = accumulated = float(info.eps) / 2
    factors = drift = split = 0.0
    is_half, is_on_gpu = name in ("bfloat16", "float16"), product.device.type == "cuda"
    if is_on_gpu and (is_half or (name in ("float32", "complex64") and _uses_tf32(torch))):
        accumulated, drift = _TENSOR_CORES, _DRIFT
        factors, split = (0.0, own) if is_half else (_TF32, 0.0)
        if name == "float16" and getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False):
            accumulated = own
    elif name == "bfloat16" and product.device.type == "cpu":
        accumulated = 2.0**-24  # of float16, partial sums may be rounded
    limits = float(info.smallest_normal), float(info.max)
    return NumberType(
        torch,
        wide,
        accumulated,
        own,
        float(torch.finfo(wide).eps) / 2,
        *limits,
        2.0 if product.is_complex() else 1.0,
        factors,
        drift,
        split,
    )


def _uses_tf32(torch: Any) -> bool:
    """Asked for by the newer name where there is one: a program that sets that has no other answer than an error."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32 if precision is None else precision == "tf32")


def places(mask: Any) -> list[tuple[int, ...]]:
    """Where a mask (array or tensor) is true."""
    found = mask.cpu().numpy() if is_tensor(mask) else mask
    return [tuple(int(index) for index in place) for place in np.argwhere(found)]

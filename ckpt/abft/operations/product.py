"""`checked_matmul`: a product on one process that is checked by checksums. What was wrong is told to the job's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ckpt
from ckpt.abft.errors import InputError
from ckpt.abft.numbers.checked import Finding, checked_product

__all__ = ["checked_matmul", "multiply"]


def multiply(a: Any, b: Any) -> Any:
    """The product that is checked. Tests put a wrong one in its place."""
    return a @ b


def checked_matmul(a: Any, b: Any, *, told: Callable[[Finding], object] | None = None) -> Any:
    """``a @ b`` for arrays of numpy or tensors of torch, with the sums of its rows and columns compared (Huang and Abraham
    1984; thresholds by variance, V-ABFT 2026).

    float32, float64, complex64, complex128; of torch bfloat16 and float16 too. Shapes as for ``a @ b``: vectors, matrices
    and stacks of them. Local: no communication.

    One wrong number is located and put right. If there are more, the product is computed again. Each is told by a call of
    `told`, and by the event ``abft-corrected`` in the job's log. A wrong number that is smaller than the rounding of the
    sum of its row or column is not seen. Rounding is never taken for an error: suspects are computed once more before
    anything is said.

    Raises InputError: integers and other types; shapes that do not fit; NaN or infinite numbers, with their place; a product
    that overflows. WrongProduct: wrong three times in turn.
    """
    if not (told is None or callable(told)):
        raise InputError(f"told must be a function, not {type(told).__name__}")
    product, findings = checked_product(a, b, multiply)
    for finding in findings:
        place = list(finding.place)
        ckpt.log_event(
            "abft-corrected",
            operation="checked_matmul",
            what=finding.what,
            count=finding.numbers,
            place=place,
        )
        if told is not None:
            told(finding)
    return product

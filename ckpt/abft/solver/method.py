"""What a factorisation is made for: what differs in a member (member.py) between a solve and the factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckpt.abft.decisions.course import Course
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.numbers.local import Local, Panel

__all__ = ["Method"]


class Method:
    """What a factorisation is made for: its local part and panels, and whether copies of panels are kept. `shape`: of the
    result, an array. This one: the solution of a system."""

    keep = False

    def local(self, shape: Shape, p: int, dtype: np.dtype[Any], right: int) -> Local:
        return Local(shape, p, dtype, right)

    def panel(self, shape: Shape, p: int, k: int, dtype: np.dtype[Any]) -> Panel:
        return Panel(shape, p, k, dtype)

    def shape(self, n: int, right: int) -> tuple[int, ...]:
        return n, right

    def begin(self, local: Local, course: Course, v: int, k: int) -> None:
        """Step k of column v begins."""

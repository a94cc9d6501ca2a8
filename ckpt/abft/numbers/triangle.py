"""The upper triangle of a factorised matrix, as processes give it to each other: of each block row what lies from the
group of its diagonal block on. So half of the matrix travels, and the rest is not touched where it is put together.

`Parts`: by place (p, v) of a column of data, what that process has packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ckpt.abft.decisions.grid import Shape
from ckpt.abft.numbers.local import Array

__all__ = ["Parts", "cholesky_factor", "packed", "packed_size", "upper_triangle"]

Parts = Mapping[tuple[int, int], Array]


def packed_size(shape: Shape, p: int) -> int:
    """How many numbers a process of row p packs."""
    return sum(shape.nb * shape.nb * (shape.groups - i // shape.Q) for i in shape.block_rows(p))


def packed(shape: Shape, p: int, numbers: Array) -> Array:
    """What a process of row p gives, of its numbers."""
    found = np.empty(packed_size(shape, p), dtype=numbers.dtype)
    nb = shape.nb
    for at, (i, rows) in enumerate(_block_rows(shape, p, found)):
        start, stop = i // shape.Q * nb, shape.groups * nb
        rows.reshape(nb, stop - start)[...] = numbers[at * nb : (at + 1) * nb, start:stop]
    return found


def _block_rows(shape: Shape, p: int, part: Array) -> Iterator[tuple[int, Array]]:
    """The numbers of the block rows in a part, and views of them: nb × groups × nb."""
    first, nb = 0, shape.nb
    for i in shape.block_rows(p):
        count = shape.groups - i // shape.Q
        yield i, part[first : first + nb * count * nb].reshape(nb, count, nb)
        first += nb * count * nb


def upper_triangle(shape: Shape, parts: Parts, dtype: np.dtype[np.generic]) -> Array:
    """The matrix (order × order) that the parts are of; zeros where they have nothing."""
    found = np.zeros((shape.blocks, shape.nb, shape.groups, shape.Q, shape.nb), dtype=dtype)
    for (p, v), part in parts.items():
        for i, rows in _block_rows(shape, p, part):
            found[i, :, i // shape.Q :, v] = rows
    return found.reshape(shape.order, shape.order)


def cholesky_factor(shape: Shape, parts: Parts, dtype: np.dtype[np.generic]) -> Array:
    """L = (D^(-1/2)·U)^H of the parts of U, whose diagonal is D (order × order)."""
    nb, roots = shape.nb, {}
    for (p, v), part in parts.items():
        for i, rows in _block_rows(shape, p, part):
            if i % shape.Q == v:
                roots[i] = np.sqrt(np.diagonal(rows[:, 0]).real)[:, None, None]
    found = np.zeros((shape.groups, shape.Q, nb, shape.order), dtype=dtype)
    for (p, v), part in parts.items():
        for i, rows in _block_rows(shape, p, part):
            found[i // shape.Q :, v, :, i * nb : (i + 1) * nb] = (rows / roots[i]).conj().transpose(1, 2, 0)
    return found.reshape(shape.order, shape.order)

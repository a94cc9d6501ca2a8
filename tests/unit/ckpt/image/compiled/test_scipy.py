"""Factorised matrices: solutions after a restart have the same bits."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy
import pytest

from ckpt.image import Refused, run_base
from ckpt.image.compiled import scipy as scipy_factors
from ckpt.image.errors import RestoreError
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import capture
from ckpt.image.interface.transient import look_at_libraries, refuse_transient
from tests.unit.ckpt.image.support import copy_of, resumed_output

sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

SIZE = 120


def matrix(value_type: str) -> Any:
    made = sparse.random(SIZE, SIZE, 0.05, random_state=1, format="csc") + sparse.eye(SIZE, format="csc") * 3
    return made.astype(value_type) * (1 + (0.5j if value_type in "FD" else 0))


@pytest.mark.parametrize("factorise", ["splu", "spilu"])
@pytest.mark.parametrize("value_type", ["f", "d", "F", "D"])
def test_solutions_have_the_same_bits_through_two_generations(value_type: str, factorise: str) -> None:
    factors = getattr(linalg, factorise)(matrix(value_type))
    made = copy_of(copy_of(factors))
    right = numpy.random.default_rng(1).random((SIZE, 2)).astype(value_type)
    for transposed in "NTH":
        assert made.solve(right, transposed).tobytes() == factors.solve(right, transposed).tobytes()
    assert (made.shape, made.nnz, type(made.L)) == (factors.shape, factors.nnz, type(factors.L))
    assert (made.L != factors.L).nnz == (made.U != factors.U).nnz == 0
    assert numpy.array_equal(made.perm_r, factors.perm_r) and numpy.array_equal(made.perm_c, factors.perm_c)


@pytest.mark.skipif(not _frames.SUPPORTED, reason="frames of this interpreter are not known")
def test_no_image_is_taken_within_an_erosion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds a capsule between two calls of C: a round in which it was met failed."""
    morphology = pytest.importorskip("scipy.ndimage._morphology")
    look_at_libraries()
    said: list[str] = []

    def look(*arguments: Any, **named: Any) -> Any:
        with pytest.raises(Refused) as refused:
            refuse_transient(capture(at="call"))
        said.append(refused.value.reason)
        return get_output(*arguments, **named)

    get_output = morphology._ni_support._get_output
    monkeypatch.setattr(morphology._ni_support, "_get_output", look)
    run_base(lambda: morphology.binary_dilation(numpy.eye(9), iterations=3))
    assert said == ["an array is being eroded or dilated"]


def holders() -> list[Any]:
    """What keeps the memory of factors, of all that are there: other tests may have left some."""
    return [obj for obj in gc.get_objects() if type(obj) is scipy_factors.MatrixOf]


def test_the_memory_of_the_factors_lives_as_long_as_they_do() -> None:
    others = holders()
    made = copy_of(linalg.splu(matrix("d")))
    (holder,) = [each for each in holders() if not any(each is other for other in others)]
    del others
    arrays = weakref.ref(holder)
    del holder
    gc.collect()
    assert arrays() is not None
    del made
    gc.collect()
    assert arrays() is None


def test_arrays_that_do_not_fit_are_an_error() -> None:
    _, (kind, value_type, shape, counts, arrays) = scipy_factors.reduce_factors(
        None, linalg.splu(matrix("d"))
    )
    with pytest.raises(RestoreError, match="could not be made again"):
        scipy_factors.make_factors(kind, value_type, shape, (counts[0], counts[1], 1), arrays)


@pytest.mark.rotate(4)
def test_a_program_that_keeps_factors_and_their_solve(tmp_path: Path) -> None:
    source = """
    import numpy as np, scipy.sparse as sp, scipy.sparse.linalg as sl
    A = (sp.random(200, 200, 0.05, random_state=1) + sp.eye(200) * 3).tocsc()
    solve, factors, x = sl.factorized(A), sl.splu(A), np.ones(200)
    for step in range(4):
        x = solve(x) + factors.solve(x)
        if step == 1:
            driver_tick()
    print(x.tobytes().hex())
    """
    resumed_output(tmp_path, source)


def test_the_points_of_a_tree_were_copied() -> None:
    spatial = pytest.importorskip("scipy.spatial")
    points = numpy.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    first, second, points = copy_of((spatial.cKDTree(points), spatial.KDTree(points), points))
    assert numpy.shares_memory(first.data, points) and numpy.shares_memory(second.data, points)
    assert first.query([0.9, 0.9])[1] == second.query([0.9, 0.9])[1] == 1


def test_the_generator_of_a_distribution_is_put_back() -> None:
    stats = pytest.importorskip("scipy.stats")
    library, usual, own = scipy_factors.SciPy("scipy"), stats.norm.random_state, numpy.random.default_rng(1)
    try:
        stats.norm.random_state = own
        noted = library.note_settings()
        stats.norm.random_state = usual
        library.apply_settings(noted)
        assert noted == {"norm": own} and stats.norm.random_state is own
    finally:
        stats.norm.random_state = usual
    assert library.note_settings() == {}

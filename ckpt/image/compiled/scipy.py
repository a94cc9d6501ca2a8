"""scipy: factorised sparse matrices (``splu``, ``spilu``, ``factorized``), which SuperLU keeps in memory of its own.

An object of SuperLU is saved as the arrays that it consists of: the factors L and U in SuperLU's own formats, and the
two permutations. A restart has SuperLU factorise a matrix of one element, and has that object refer to these arrays.
So nothing is factorised again, and ``solve`` gives the same bits as before. Another way would not: the matrix itself
is not kept, and products of the factors are rounded.

The arrays live as long as the function that the object calls to make ``L`` and ``U`` as matrices, which is the
object's own. SuperLU frees only memory that it has allocated itself, so it leaves the arrays alone. The small arrays
of the first object are not freed.

The structs are those of ``SuperLUObject`` (``_superluobject.h``), ``SuperMatrix``, ``SCformat`` and ``NCformat``
(``supermatrix.h``). They are compared with what Python says of the object; if they differ, the object is refused by name.

A tree of points (``cKDTree``) refers to the program's array of points. Distributions of ``scipy.stats``, of which there is
one each, may have been given a generator of random numbers by the program (``norm.random_state = rng``).

Solvers (``quad``, ``curve_fit``, ``odeint``, ``brentq`` …) call a function of the program from C. They keep their state in
memory of their own, and depend on nothing but their arguments and on the numbers that they get returned. In a new process
they are called again with these (``frames_solvers.c``). What scipy does in Python (``minimize``) is like any code. Functions
that keep state in arrays of their caller (``scipy.integrate.ode``), or write to such (``generic_filter``), are left alone:
an image waits for the end of the call.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

from ckpt.compat.memory import in_place
from ckpt.image.errors import RestoreError
from ckpt.image.frames import _frames
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["MatrixOf", "SciPy", "Solvers", "make_factors", "reduce_factors", "reduce_tree"]

_PLACE = "scipy.sparse.linalg._dsolve._superlu"
_TREES = "scipy.spatial._kdtree"
_SUPERNODAL, _BY_COLUMN = 3, 0  # Stype: SLU_SC, SLU_NC
_TYPES = "fdFD"  # Dtype: single, double, complex, double complex


class SciPy(Library):
    transient_functions = (
        # between its two calls of C it holds what the first has made for the second
        ("scipy.ndimage._morphology:_binary_erosion", "an array is being eroded or dilated"),
    )

    def reducers(self) -> dict[type, Reducer]:
        trees = by_name("scipy.spatial._ckdtree", {"cKDTree": reduce_tree})
        return {
            **by_name(_PLACE, {"SuperLU": reduce_factors}),
            **by_name(_TREES, {"KDTree": reduce_tree}),
            **trees,
        }

    def note_settings(self) -> dict[str, Any]:
        usual = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
        generators = {name: each._random_state for name, each in _distributions()}
        return {name: generator for name, generator in generators.items() if generator is not usual}

    def apply_settings(self, saved: dict[str, Any]) -> None:
        found = dict(_distributions()) if saved else {}
        for name, generator in saved.items():
            if name in found:
                found[name]._random_state = generator


def _distributions() -> Iterator[tuple[str, Any]]:
    """Those that `scipy.stats` has once, as `norm`, by their names there."""
    kinds = getattr(sys.modules.get("scipy.stats._distn_infrastructure"), "rv_generic", ())
    stats = vars(sys.modules["scipy.stats"]) if kinds and "scipy.stats" in sys.modules else {}
    for name, each in stats.items():
        if isinstance(each, kinds) and hasattr(each, "_random_state"):
            yield name, each


_ONE: tuple[int, ...] = (0,)
_SOLVERS: dict[str, dict[str, tuple[int, ...]]] = {
    "scipy.integrate._odepack": {"odeint": (0, 4)},
    "scipy.integrate._quadpack": dict.fromkeys(
        ("qagse", "qagie", "qagpe", "qawoe", "qawfe", "qawse", "qawce"), _ONE
    ),
    "scipy.optimize._minpack": {"hybrd": _ONE, "hybrj": (0, 1), "lmdif": _ONE, "lmder": (0, 1)},
    "scipy.optimize._zeros": dict.fromkeys(("bisect", "ridder", "brentq", "brenth"), _ONE),
}
"""Module in C → its functions, most of which have an underscore before their name, and the places of those of their
arguments that are functions of the program."""


class Solvers(Library):
    def when_imported(self) -> None:
        """One instance serves `scipy.integrate` and `scipy.optimize`."""
        for name, functions in _SOLVERS.items():
            module = sys.modules.get(name)
            for function, places in functions.items():
                solver = getattr(module, f"_{function}", None) or getattr(module, function, None)
                if _frames.SUPPORTED and solver is not None:
                    _frames.follow_solver(solver, places)


class _Matrix(ctypes.Structure):
    """The struct ``SuperMatrix``."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("kind", "type", "form", "rows", "columns")),
        ("store", ctypes.c_void_p),
    )


class _Factors(ctypes.Structure):
    """The struct ``SuperLUObject`` behind its header."""

    _fields_ = (
        ("rows", ctypes.c_ssize_t),
        ("columns", ctypes.c_ssize_t),
        ("lower", _Matrix),
        ("upper", _Matrix),
        ("row_order", ctypes.c_void_p),
        ("column_order", ctypes.c_void_p),
        ("upper_made", ctypes.c_void_p),
        ("lower_made", ctypes.c_void_p),
        ("make_matrix", ctypes.py_object),
        ("type", ctypes.c_int),
    )


class _Supernodal(ctypes.Structure):
    """The struct ``SCformat``: L, in which columns of the same structure are one dense block."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("last", ctypes.c_int),
        *(
            (name, ctypes.c_void_p)
            for name in ("values", "value_starts", "rows", "row_starts", "node_of", "node_starts")
        ),
    )


class _ByColumn(ctypes.Structure):
    """The struct ``NCformat``: U, by its columns."""

    _fields_ = (
        ("count", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("values", "rows", "starts")),
    )


def reduce_tree(pickler: Any, tree: Any) -> Any:
    """A tree of points (``cKDTree``) looks at the program's own array of them, and its own way copies that."""
    make, args, state = tree.__reduce_ex__(5)[:3]
    own = [tree.data, tree.indices, tree.maxes, tree.mins]
    return make, args, tuple(next((each for each in own if _is_copy(part, each)), part) for part in state)


def _is_copy(part: Any, array: Any) -> bool:
    is_like = type(part) is type(array) and (part.dtype, part.shape) == (array.dtype, array.shape)
    return is_like and part.tobytes() == array.tobytes()


def reduce_factors(pickler: Any, factors: Any) -> Any:
    found = in_place(factors, _Factors)
    if found is None or not _is_known(factors, found):
        raise PicklingError(
            "a factorised matrix (splu, spilu, factorized) of this version of scipy has another layout than is known: keep "
            "the matrix, drop the factors before a checkpoint (an on_checkpoint hook), and factorise again in on_restart"
        )
    (lower, upper), columns = _stores(found), found.columns
    value_type = _TYPES[found.lower.type]
    arrays: dict[str, Any] = {
        "row_order": _array(found.row_order, found.rows),
        "column_order": _array(found.column_order, columns),
        "lower.value_starts": _array(lower.value_starts, columns + 1),
        "lower.row_starts": _array(lower.row_starts, columns + 1),
        "lower.node_of": _array(lower.node_of, columns + 1),
        "lower.node_starts": _array(lower.node_starts, lower.last + 2),
        "upper.starts": _array(upper.starts, columns + 1),
    }
    arrays["lower.rows"] = _array(lower.rows, arrays["lower.row_starts"][-1])
    arrays["lower.values"] = _array(lower.values, arrays["lower.value_starts"][-1], value_type)
    arrays["upper.rows"] = _array(upper.rows, arrays["upper.starts"][-1])
    arrays["upper.values"] = _array(upper.values, arrays["upper.starts"][-1], value_type)
    counts = (lower.count, lower.last, upper.count)
    make = found.make_matrix
    matrix_type = make.matrix_type if isinstance(make, MatrixOf) else make
    return make_factors, (matrix_type, value_type, factors.shape, counts, arrays)


def _is_known(factors: Any, found: _Factors) -> bool:
    """Does the struct agree with what Python says of the object?"""
    import numpy

    rows, columns = factors.shape
    lower, upper = found.lower, found.upper
    if not isinstance(found.make_matrix, (type, MatrixOf)):  # a function, for matrices of the package sparse
        return False
    if (found.rows, found.columns) != (rows, columns) or rows != columns:
        return False
    if (lower.kind, upper.kind) != (_SUPERNODAL, _BY_COLUMN) or lower.type != upper.type:
        return False
    if not 0 <= lower.type < len(_TYPES) or numpy.dtype(_TYPES[lower.type]).num != found.type:
        return False
    if {lower.rows, lower.columns, upper.rows, upper.columns} != {rows}:
        return False
    low, up = _stores(found)
    return bool(
        low.count + up.count == factors.nnz
        and _array(up.starts, columns + 1)[-1] <= up.count
        and numpy.array_equal(_array(found.row_order, rows), factors.perm_r)
        and numpy.array_equal(_array(found.column_order, columns), factors.perm_c)
    )


def _stores(found: _Factors) -> tuple[_Supernodal, _ByColumn]:
    return _Supernodal.from_address(found.lower.store), _ByColumn.from_address(found.upper.store)


def _array(address: int, size: int, value_type: str = "i") -> Any:
    """The array at an address, in place."""
    import numpy

    dtype = numpy.dtype(value_type)
    if not size:
        return numpy.zeros(0, dtype)
    memory: Any = (ctypes.c_ubyte * (int(size) * dtype.itemsize)).from_address(address)
    return numpy.frombuffer(memory, dtype)


# ---------------------------------------------------------------------- called while loading


class MatrixOf:
    """What the object calls to make ``L`` and ``U`` as matrices; holds the arrays that the object refers to."""

    def __init__(self, matrix_type: type, arrays: dict[str, Any]) -> None:
        self.matrix_type, self.arrays = matrix_type, arrays

    def __call__(self, *parts: Any) -> Any:
        return self.matrix_type(*parts)


def make_factors(
    matrix_type: Any,
    value_type: str,
    shape: tuple[int, int],
    counts: tuple[int, int, int],
    arrays: dict[str, Any],
) -> Any:
    import numpy

    own = {name: numpy.array(array) for name, array in arrays.items()}  # SuperLU needs whole, aligned arrays
    superlu = importlib.import_module(_PLACE)
    one, place = numpy.ones(1, value_type), numpy.array([0, 1], "i")
    made = superlu.gstrf(
        1, 1, one, place[:1], place, csc_construct_func=MatrixOf(matrix_type, own), ilu=False, options={}
    )
    found = in_place(made, _Factors)
    if found is None or not _is_known(made, found):
        raise RestoreError("factorised matrices of scipy have another layout here than in the image")
    parts: dict[str, Any] = dict(zip(("lower", "upper"), _stores(found), strict=True))
    found.rows, found.columns = shape
    for matrix in (found.lower, found.upper):
        matrix.rows, matrix.columns = shape
    parts["lower"].count, parts["lower"].last, parts["upper"].count = counts
    for name, array in own.items():
        part, _, field = name.rpartition(".")
        setattr(parts.get(part, found), field, array.ctypes.data)
    if not _is_known(made, found):
        raise RestoreError("a factorised matrix of scipy could not be made again")
    return made

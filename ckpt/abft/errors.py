"""The errors of ckpt.abft, drawn as a tree.

::

    CkptError
    └── AbftError           base class; every survivor of a solve raises the same one
        ├── GridError       the grid does not fit the ranks of the job
        ├── InputError      matrix, right-hand side or `fill` cannot be used; says at which rank and where
        ├── Singular        a pivot is exactly zero
        ├── TooManyLost     more process columns are gone than the checksums replace
        ├── Inaccurate      the solution does not solve the system: the residual is too large
        ├── WrongProduct    a product is wrong each time it is computed
        ├── NotLinear       an operation is not linear, or not its own adjoint
        ├── NotPositive     a matrix is not positive definite
        ├── NotConverged    an iteration has ended without a solution
        └── RankFailed      another rank raised an exception in the solve; says which one and its text
"""

from __future__ import annotations

from ckpt.errors import CkptError

__all__ = [
    "AbftError",
    "GridError",
    "Inaccurate",
    "InputError",
    "NotConverged",
    "NotLinear",
    "NotPositive",
    "RankFailed",
    "Singular",
    "TooManyLost",
    "WrongProduct",
]


class AbftError(CkptError):
    """Base class of the errors of linear algebra on encoded matrices."""


class GridError(AbftError):
    """The process grid cannot be made of the ranks that the job has."""


class InputError(AbftError, ValueError):
    """The matrix or the right-hand side cannot be used; the message names the rank and the place."""


class Singular(AbftError, ArithmeticError):
    """A pivot is zero: the matrix is singular."""


class TooManyLost(AbftError):
    """The data of more processes is gone than the checksums hold."""


class Inaccurate(AbftError, ArithmeticError):
    """The residual of the solution is larger than rounding explains: the solution must not be used."""


class RankFailed(AbftError):
    """A rank raised an exception in the middle of a solve; all others raise this one, which has its text."""


class WrongProduct(AbftError, ArithmeticError):
    """A product has wrong numbers each time it is computed: the hardware must not be trusted."""


class NotLinear(AbftError, ValueError):
    """The program's operation is not linear, or not its own adjoint where it must be."""


class NotPositive(AbftError, ArithmeticError):
    """The matrix is not positive definite."""


class NotConverged(AbftError, ArithmeticError):
    """An iteration has ended without a solution."""

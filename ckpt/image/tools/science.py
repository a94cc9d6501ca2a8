"""Packages of sciences: Biopython, statsmodels, astropy, gymnasium.

Biopython: the alignments that an aligner has found, of which the paths are listed one by one by an object in C. It tells
neither its matrix nor its place. In the forked child that writes the image it is asked for all paths that are left, and then
for all of them. Two sequences may have more alignments than any memory holds, so there is a limit.

statsmodels: a state space model in Cython works on arrays of the model in Python, which writes its parameters into them. Its
own ``__reduce__`` copies them, and the two would go on apart.

astropy: units, equivalencies and defaults that the program has set. The package has compiled modules, so its variables are
no part of images.

gymnasium: an environment that derives from ``EzPickle`` is pickled as the arguments it was made with; where it stands would
be lost. It is saved as it is, or refused where a part is in C (Box2D).
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pickle import PicklingError
from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.reducers.iterators import by_exhausting
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Astropy", "Biopython", "Gymnasium", "Paths", "Statsmodels", "reduce_paths", "reduce_state_space"]

_MOST_PATHS = 10_000


class Biopython(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        return reduce_paths if (cls.__module__, cls.__name__) == ("builtins", "Path generator") else None


class Paths:
    """What a list of paths does in Biopython's ``PairwiseAlignments``, from the ``place`` on."""

    def __init__(self, paths: list[Any], place: int) -> None:
        self.paths, self.place = paths, place

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Paths:
        return self

    def __next__(self) -> Any:
        if self.place == len(self.paths):
            raise StopIteration
        self.place += 1
        return self.paths[self.place - 1]

    def reset(self) -> None:
        self.place = 0


def reduce_paths(saver: Any, paths: Any) -> Any:
    """The reducer for the object in C. Raises PicklingError."""
    if not saver.is_disposable:
        raise PicklingError("alignments of Biopython cannot be saved without fork")
    if _count(paths) > _MOST_PATHS:
        raise PicklingError(
            f"more than {_MOST_PATHS} alignments of Biopython, which are found one by one: keep those that are needed "
            "(alignments[0]) and drop the object that lists them"
        )
    left, everything = by_exhausting(paths, _listed)
    return Paths, (everything, len(everything) - len(left))


def _count(paths: Any) -> int:
    try:
        return len(paths)
    except OverflowError:  # more than an index can count
        return _MOST_PATHS + 1


def _listed(paths: Any) -> tuple[list[Any], list[Any]]:
    left = list(paths)
    paths.reset()
    return left, list(itertools.islice(paths, _MOST_PATHS))


# ---------------------------------------------------------------------- statsmodels

_ARRAYS = [
    "obs",
    "design",
    "obs_intercept",
    "obs_cov",
    "transition",
    "state_intercept",
    "selection",
    "state_cov",
]


class Statsmodels(Library):
    def reducers(self) -> dict[type, Reducer]:
        names = dict.fromkeys((f"{letter}Statespace" for letter in "sdcz"), reduce_state_space)
        return by_name("statsmodels.tsa.statespace._representation", names)


def reduce_state_space(saver: Any, space: Any) -> Any:
    """The reducer for a model in Cython: its own way, with the very arrays instead of copies."""
    cls, copies, state = space.__reduce__()
    views = (getattr(space, name) for name in _ARRAYS)
    arrays = [_viewed(view, copy) for view, copy in zip(views, copies, strict=False)]
    for name, value in state.items():  # what has been allocated, and not initialised yet, is left out there
        if value is None and (view := getattr(space, name, None)) is not None:
            state[name] = importlib.import_module("numpy").array(view, order="F")
    return cls, (*arrays, *copies[len(arrays) :]), state


def _viewed(view: Any, copy: Any) -> Any:
    array: Any = getattr(view, "base", None)
    return array if type(array) is type(copy) and array.shape == copy.shape else copy


# ---------------------------------------------------------------------- astropy

_UNITS, _STATES = "astropy.units.core", "astropy.utils.state"


class Astropy(Library):
    def note_settings(self) -> Any:
        units, states = sys.modules.get(_UNITS), sys.modules.get(_STATES)
        registries = getattr(units, "_unit_registries", None)
        classes: list[Any] = getattr(getattr(states, "ScienceState", None), "__subclasses__", list)()
        values = {(cls.__module__, cls.__qualname__): cls.__dict__.get("_value") for cls in classes}
        return {"registries": list(registries or ()), "states": values}

    def apply_settings(self, saved: Any) -> None:
        if saved["registries"]:
            importlib.import_module(_UNITS)._unit_registries[:] = saved["registries"]
        for (module, name), value in saved["states"].items():
            cls = getattr(sys.modules.get(module), name, None)
            if cls is not None and value is not None:
                cls._value = value


# ---------------------------------------------------------------------- gymnasium


class Gymnasium(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        pickled_by_arguments = getattr(sys.modules.get("gymnasium.utils.ezpickle"), "EzPickle", ())
        return reduce_raw if issubclass(cls, pickled_by_arguments) else None

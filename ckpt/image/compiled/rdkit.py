"""rdkit: molecules, which are objects of C++.

rdkit pickles a molecule by itself, but leaves out what it has been told to leave out: by default all properties, and half of
the digits of coordinates. That is a setting of the program for its own pickles (``Chem.SetDefaultPickleProperties``). An
image holds all of a molecule, and the setting too.
"""

from __future__ import annotations

import sys
from typing import Any

from ckpt.image.interface.library import Library, Reducer

__all__ = ["RDKit", "reduce_molecule"]

_PLACE = "rdkit.Chem.rdchem"
_BASES = ("Mol", "MolBundle")


class RDKit(Library):
    def reducer_by_base(self, cls: type) -> Reducer | None:
        place = sys.modules.get(_PLACE)
        bases = tuple(base for name in _BASES if (base := getattr(place, name, None)) is not None)
        return reduce_molecule if issubclass(cls, bases) else None

    def note_settings(self) -> Any:
        place = sys.modules.get(_PLACE)
        return None if place is None else {"pickled properties": int(place.GetDefaultPickleProperties())}

    def apply_settings(self, saved: Any) -> None:
        __import__(_PLACE)
        sys.modules[_PLACE].SetDefaultPickleProperties(saved["pickled properties"])


def reduce_molecule(saver: Any, molecule: Any) -> Any:
    place: Any = sys.modules[_PLACE]
    chosen = int(place.GetDefaultPickleProperties())
    wanted = place.PropertyPickleOptions
    place.SetDefaultPickleProperties(int(wanted.AllProps) | int(wanted.CoordsAsDouble))
    try:
        return molecule.__reduce_ex__(5)
    finally:
        place.SetDefaultPickleProperties(chosen)

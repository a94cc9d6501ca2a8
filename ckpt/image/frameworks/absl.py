"""absl: flags, with the values that they have, and validators and parsers of the program.

Flags refuse to be pickled, since a copy of one would not be in the registry. In an image the registry is there, too.
"""

from __future__ import annotations

import sys

from ckpt.image.interface.library import Library, Reducer
from ckpt.image.reducers.raw_instances import reduce_raw

__all__ = ["Absl"]

_CLASSES = (("absl.flags._flag", "Flag"), ("absl.flags._flagvalues", "FlagValues"))


class Absl(Library):
    id_tables = ("absl.flags._flagvalues",)  # flags by module

    def reducer_by_base(self, cls: type) -> Reducer | None:
        bases = tuple(getattr(sys.modules.get(module), name, ()) for module, name in _CLASSES)
        return reduce_raw if issubclass(cls, bases) else None

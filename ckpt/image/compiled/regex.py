"""regex: matches are saved as those of ``re`` are; the iterator of ``finditer`` is saved as one over its remaining
matches."""

from __future__ import annotations

from ckpt.image.interface.library import Library, Reducer, by_name
from ckpt.image.stdlib.c_objects import reduce_match, reduce_remaining

__all__ = ["Regex"]


class Regex(Library):
    def reducers(self) -> dict[type, Reducer]:
        found = by_name("regex", {"Match": reduce_match})
        finditer = getattr(self.module, "finditer", None)
        if finditer is not None:  # the type of its result has no name
            found[type(finditer("", ""))] = reduce_remaining
        return found

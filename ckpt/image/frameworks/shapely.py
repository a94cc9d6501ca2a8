"""shapely: prepared geometries.

``shapely.prepared.prep`` returns an object in Python around a geometry for which C keeps an index. The object refuses to be
pickled for the index, which is computed again from the geometry, and changes no answer.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Shapely", "reduce_prepared"]


class Shapely(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("shapely.prepared", {"PreparedGeometry": reduce_prepared})


def reduce_prepared(saver: Any, prepared: Any) -> Any:
    """The reducer for a prepared geometry: the same geometry is prepared again."""
    return type(prepared), (prepared.context,)

"""pydantic_core: the arguments of a call that is validated (``validate_call``), which the caller's frame holds meanwhile.

Not here: how such a call is gone on with (:func:`ckpt.compat.referents.implementation_of`).
"""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["PydanticCore"]


class PydanticCore(Library):
    def reducers(self) -> dict[type, Reducer]:
        return by_name("pydantic_core", {"ArgsKwargs": reduce_arguments})


def reduce_arguments(pickler: Any, obj: Any) -> Any:
    return type(obj), (obj.args, obj.kwargs)

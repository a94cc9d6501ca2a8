"""`DatatypeInfo`: the content of a datatype, which all its handles share: layout, name, constructor, attributes."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.datatypes.layout import Layout


class DatatypeInfo:
    """The content of a datatype. `combiner` names its constructor, `params` are the constructor's arguments, and `base` is
    the datatype that the constructor was called on. `mpi_name` identifies a predefined type, also after Set_name."""

    __slots__ = ("attributes", "base", "combiner", "layout", "mpi_name", "name", "params", "predefined")

    def __init__(
        self,
        layout: Layout,
        name: str = "",
        *,
        predefined: bool = False,
        combiner: str = "NAMED",
        base: DatatypeInfo | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        self.layout = layout
        self.name = name
        self.mpi_name = name if predefined else ""
        self.predefined = predefined
        self.combiner = combiner
        self.base = base
        self.params: dict[str, Any] = {} if params is None else params
        self.attributes: dict[int, Any] = {}

    def clone(self) -> DatatypeInfo:
        """A copy of the content for a new handle that is freed separately. A predefined type returns itself."""
        if self.predefined:
            return self
        return DatatypeInfo(
            self.layout, self.name, combiner=self.combiner, base=self.base, params=self.params
        )

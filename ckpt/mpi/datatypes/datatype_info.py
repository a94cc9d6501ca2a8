"""What handles of one datatype share: its layout, its name, how it was made, its attributes."""

from __future__ import annotations

from typing import Any

from ckpt.mpi.datatypes.layout import Layout


class Kind:
    """`params` are the arguments of the constructor `combiner`, `base` the type it was called on. `mpi_name`
    identifies a predefined type whatever it is renamed to."""

    __slots__ = ("attributes", "base", "combiner", "layout", "mpi_name", "name", "params", "predefined")

    def __init__(
        self,
        layout: Layout,
        name: str = "",
        *,
        predefined: bool = False,
        combiner: str = "NAMED",
        base: Kind | None = None,
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

    def clone(self) -> Kind:
        """The same type as another object, for handles that are freed on their own; basic types stay."""
        if self.predefined:
            return self
        return Kind(self.layout, self.name, combiner=self.combiner, base=self.base, params=self.params)

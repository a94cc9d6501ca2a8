"""Constructors of derived datatypes (MPI standard, "Derived datatypes"), and the methods that decode a datatype.

A constructor computes the new layout at once, so `Commit` has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ckpt.mpi.base.constants import COMBINERS, NUMBERS
from ckpt.mpi.base.errors import ERR_ARG, ERR_TYPE, MpiException
from ckpt.mpi.base.handle import Handle
from ckpt.mpi.base.integers import COUNT, argument, elements
from ckpt.mpi.datatypes import layout as layouts
from ckpt.mpi.datatypes.datatype_info import DatatypeInfo
from ckpt.mpi.datatypes.layout import Layout
from ckpt.mpi.datatypes.typenames import PAIRS

if TYPE_CHECKING:
    from ckpt.mpi.datatypes.datatypes import Datatype

_ORDER_C = NUMBERS["ORDER_C"]


class Derived(Handle):
    """Base class of Datatype with the constructors. Each returns a new datatype whose elements are made of this one's."""

    __slots__ = ()

    if TYPE_CHECKING:
        _info: DatatypeInfo | None

        def _valid(self) -> DatatypeInfo: ...
        @classmethod
        def _of(cls, info: DatatypeInfo | None) -> Datatype: ...

    def _derive(self, layout: Layout, combiner: str, **params: Any) -> Any:
        return type(self)._of(DatatypeInfo(layout, combiner=combiner, base=self._valid(), params=params))

    def Dup(self) -> Any:
        info = self._valid()
        copy = type(self)._of(DatatypeInfo(info.layout, info.name, combiner="DUP", base=info))
        copy._info.mpi_name = ""  # type: ignore[union-attr]
        try:
            self._copy_attributes(copy)  # type: ignore[attr-defined]
        except MpiException:
            copy._info = None
            raise
        return copy

    Create_dup = Dup

    def Create_contiguous(self, count: int) -> Any:
        count = argument(count, COUNT)
        return self._derive(layouts.blocks([(self._valid().layout, count, 0)]), "CONTIGUOUS", count=count)

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Any:
        """`count` blocks of `blocklength` elements. The distance between starts of blocks is `stride` elements."""
        count, blocklength, stride = (argument(number, COUNT) for number in (count, blocklength, stride))
        layout = self._valid().layout
        pieces = [(layout, blocklength, number * stride * layout.extent) for number in range(count)]
        return self._derive(
            layouts.blocks(pieces), "VECTOR", count=count, blocklength=blocklength, stride=stride
        )

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Any:
        """`count` blocks of `blocklength` elements. The distance between starts of blocks is `stride` bytes."""
        count, blocklength, stride = (argument(number, COUNT) for number in (count, blocklength, stride))
        layout = self._valid().layout
        pieces = [(layout, blocklength, number * stride) for number in range(count)]
        return self._derive(
            layouts.blocks(pieces), "HVECTOR", count=count, blocklength=blocklength, stride=stride
        )

    def _indexed(self, lengths: Sequence[int], displacements: Sequence[int], unit: int) -> Layout:
        layout = self._valid().layout
        pieces = [(layout, lengths[at], displacements[at] * unit) for at in range(len(lengths))]
        return layouts.blocks(pieces)

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Any:
        """Blocks of different lengths, at displacements in elements."""
        lengths, places = _alike(blocklengths, displacements)
        layout = self._indexed(lengths, places, self._valid().layout.extent)
        return self._derive(layout, "INDEXED", blocklengths=lengths, displacements=places)

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Any:
        """Blocks of different lengths, at displacements in bytes."""
        lengths, places = _alike(blocklengths, displacements)
        layout = self._indexed(lengths, places, 1)
        return self._derive(layout, "HINDEXED", blocklengths=lengths, displacements=places)

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Any:
        blocklength, places = argument(blocklength, COUNT), elements(displacements, limit=COUNT)
        layout = self._indexed([blocklength] * len(places), places, self._valid().layout.extent)
        return self._derive(layout, "INDEXED_BLOCK", blocklength=blocklength, displacements=places)

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Any:
        blocklength, places = argument(blocklength, COUNT), elements(displacements, limit=COUNT)
        layout = self._indexed([blocklength] * len(places), places, 1)
        return self._derive(layout, "HINDEXED_BLOCK", blocklength=blocklength, displacements=places)

    @classmethod
    def Create_struct(
        cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]
    ) -> Any:
        """Blocks of different datatypes and lengths, at displacements in bytes. ValueError: the lists differ in length."""
        (lengths, places), types = _alike(blocklengths, displacements), list(datatypes)
        if len(types) != len(lengths):
            raise ValueError(f"expecting {len(lengths)} items, got {len(types)}")
        infos = [datatype._valid() for datatype in types]
        pieces = [(infos[at].layout, lengths[at], places[at]) for at in range(len(infos))]
        params = {"blocklengths": lengths, "displacements": places, "datatypes": infos}
        return cls._of(DatatypeInfo(layouts.blocks(pieces, pad=True), combiner="STRUCT", params=params))

    def Create_subarray(
        self,
        sizes: Sequence[int],
        subsizes: Sequence[int],
        starts: Sequence[int],
        order: int = _ORDER_C,
    ) -> Any:
        """A subarray with `subsizes`, at `starts`, of an array with `sizes` of this datatype.

        MpiException (ERR_ARG): the subarray is not inside the array."""
        order = argument(order)
        sizes, subsizes, starts = _alike(sizes, subsizes, starts)
        box = layouts.subarray(self._valid().layout, sizes, subsizes, starts, c_order=order == _ORDER_C)
        return self._derive(box, "SUBARRAY", sizes=sizes, subsizes=subsizes, starts=starts, order=order)

    def Create_darray(
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = _ORDER_C,
    ) -> Any:
        """The part of a distributed array that process `rank` of `size` owns (HPF distributions, as in the MPI standard).

        MpiException (ERR_ARG): the blocks do not cover the array."""
        size, rank, order = argument(size), argument(rank), argument(order)
        gsizes = elements(gsizes, limit=COUNT)
        distribs, dargs, psizes = (elements(values, len(gsizes)) for values in (distribs, dargs, psizes))
        rules = []
        for axis, distribution in enumerate(distribs):
            block, parts = dargs[axis], psizes[axis]
            if distribution == NUMBERS["DISTRIBUTE_NONE"]:
                rules.append((0, False))
                continue
            cyclic = distribution == NUMBERS["DISTRIBUTE_CYCLIC"]
            if block == NUMBERS["DISTRIBUTE_DFLT_DARG"]:
                block = 1 if cyclic else -(-gsizes[axis] // parts)
            if block < 1 or (not cyclic and block * parts < gsizes[axis]):
                raise MpiException(ERR_ARG, f"blocks of {block} on {parts} processes")
            rules.append((block, cyclic))
        layout = layouts.darray(self._valid().layout, rank, gsizes, rules, psizes, c_order=order == _ORDER_C)
        return self._derive(
            layout,
            "DARRAY",
            size=size,
            rank=rank,
            gsizes=gsizes,
            distribs=distribs,
            dargs=dargs,
            psizes=psizes,
            order=order,
        )

    def Create_resized(self, lb: int, extent: int) -> Any:
        """The same data with another lower bound and extent, in bytes."""
        lb, extent = argument(lb, COUNT), argument(extent, COUNT)
        return self._derive(self._valid().layout.resized(lb, extent), "RESIZED", lb=lb, extent=extent)

    Resized = Create_resized

    def Commit(self) -> Any:
        self._valid()
        return self

    # -- predefined datatypes with certain properties ----------------------------------------------

    @classmethod
    def Get_value_index(cls, value: Datatype, index: Datatype) -> Any:
        """The predefined pair type of `value` and `index` for MINLOC and MAXLOC; DATATYPE_NULL if there is none."""
        from ckpt.mpi.datatypes import datatypes

        code = f"{value._valid().layout.code},{index._valid().layout.code}"
        for pair in PAIRS:
            found = datatypes.PREDEFINED[pair]
            if found.code == code and value.is_predefined and index.is_predefined:
                return found
        return datatypes.DATATYPE_NULL

    @classmethod
    def _f90(cls, name: str, combiner: str, params: dict[str, int]) -> Any:
        from ckpt.mpi.datatypes import datatypes

        info = datatypes.PREDEFINED[name]._valid()
        made = DatatypeInfo(info.layout, "", predefined=True, combiner=combiner, params=params)
        return cls._of(made)

    @classmethod
    def Create_f90_integer(cls, r: int) -> Any:
        """An integer type with at least `r` decimal digits. MpiException (ERR_ARG): there is none."""
        r = argument(r)
        for digits, name in ((2, "MPI_INT8_T"), (4, "MPI_INT16_T"), (9, "MPI_INT32_T"), (18, "MPI_INT64_T")):
            if r <= digits:
                return cls._f90(name, "F90_INTEGER", {"r": r})
        raise MpiException(ERR_ARG, f"no integer of {r} digits")

    @staticmethod
    def _real_name(p: int, r: int, names: tuple[str, str, str]) -> str:
        digits = 0 if p == NUMBERS["UNDEFINED"] else p
        power = 0 if r == NUMBERS["UNDEFINED"] else r
        for places, reach, name in zip((6, 15, 18), (37, 307, 4931), names, strict=True):
            if digits <= places and power <= reach:
                return name
        raise MpiException(ERR_ARG, f"no real number of {p} digits and range {r}")

    @classmethod
    def Create_f90_real(cls, p: int, r: int) -> Any:
        """A real type with at least `p` decimal digits and decimal exponent range `r`; either may be UNDEFINED.

        MpiException (ERR_ARG): there is none."""
        p, r = argument(p), argument(r)
        name = cls._real_name(p, r, ("MPI_FLOAT", "MPI_DOUBLE", "MPI_LONG_DOUBLE"))
        return cls._f90(name, "F90_REAL", {"p": p, "r": r})

    @classmethod
    def Create_f90_complex(cls, p: int, r: int) -> Any:
        p, r = argument(p), argument(r)
        names = ("MPI_C_FLOAT_COMPLEX", "MPI_C_DOUBLE_COMPLEX", "MPI_C_LONG_DOUBLE_COMPLEX")
        return cls._f90(cls._real_name(p, r, names), "F90_COMPLEX", {"p": p, "r": r})

    @classmethod
    def Match_size(cls, typeclass: int, size: int) -> Any:
        """The Fortran type of this type class with `size` bytes. MpiException (ERR_ARG): there is none."""
        typeclass, size = argument(typeclass), argument(size)
        from ckpt.mpi.datatypes import datatypes

        for word in ("LOGICAL", "INTEGER", "REAL", "COMPLEX"):
            if typeclass == NUMBERS[f"TYPECLASS_{word}"]:
                found = datatypes.PREDEFINED.get(f"MPI_{word}{size}")
                if found is not None:
                    return found
        raise MpiException(ERR_ARG, f"no type of class {typeclass} and {size} bytes")

    # -- decoding a datatype -----------------------------------------------------------------------

    def Get_envelope(self) -> tuple[int, int, int, int, int]:
        """(number of integers, of addresses, of large counts, of datatypes in Get_contents, combiner)"""
        info = self._valid()
        number = COMBINERS.index(info.combiner) + 1
        if info.combiner == "NAMED":
            return 0, 0, 0, 0, number
        integers, addresses, types = _contents(info)
        return len(integers), len(addresses), 0, len(types), number

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Any]]:
        """(integers, addresses, large counts, datatypes): the arguments of the constructor, in the standard's order.

        MpiException (ERR_TYPE): the datatype is a basic one."""
        info = self._valid()
        if info.combiner == "NAMED":
            raise MpiException(ERR_TYPE, "a basic type has no contents")
        integers, addresses, types = _contents(info)
        return integers, addresses, [], [_handle(each) for each in types]

    @property
    def envelope(self) -> tuple[int, int, int, int, int]:
        return self.Get_envelope()

    @property
    def contents(self) -> tuple[list[int], list[int], list[int], list[Any]]:
        return self.Get_contents()

    @property
    def combiner(self) -> int:
        return self.Get_envelope()[4]

    @property
    def is_named(self) -> bool:
        return self._valid().combiner == "NAMED"

    def decode(self) -> tuple[Any, str, dict[str, Any]]:
        """(datatype the constructor was called on, combiner's name, keyword arguments of the constructor), as mpi4py."""
        from ckpt.mpi.datatypes.datatypes import DATATYPE_NULL

        info = self._valid()
        if info.combiner == "NAMED":
            return self, "NAMED", {}
        params = dict(info.params)
        if "datatypes" in params:
            params["datatypes"] = [_handle(each) for each in params["datatypes"]]
        base = DATATYPE_NULL if info.base is None else _handle(info.base)
        return base, info.combiner, params


def _alike(first: Sequence[int], *others: Sequence[int]) -> list[list[int]]:
    """The arguments as lists of integers. ValueError: one is not as long as the first."""
    numbers = elements(first, limit=COUNT)
    return [numbers, *(elements(values, len(numbers), COUNT) for values in others)]


def _handle(info: DatatypeInfo) -> Any:
    """A handle of a copy of `info`, which can be freed separately; for a basic type, the constant."""
    from ckpt.mpi.datatypes.datatypes import PREDEFINED, Datatype

    if info.mpi_name in PREDEFINED:
        return PREDEFINED[info.mpi_name]
    return Datatype._of(info.clone())


def _contents(info: DatatypeInfo) -> tuple[list[int], list[int], list[DatatypeInfo]]:
    """(integers, addresses, types) given to the constructor, in the order of the standard's MPI_Type_get_contents."""
    p = info.params
    base = [] if info.base is None else [info.base]
    match info.combiner:
        case "CONTIGUOUS":
            return [p["count"]], [], base
        case "VECTOR":
            return [p["count"], p["blocklength"], p["stride"]], [], base
        case "HVECTOR":
            return [p["count"], p["blocklength"]], [p["stride"]], base
        case "INDEXED":
            return [len(p["blocklengths"]), *p["blocklengths"], *p["displacements"]], [], base
        case "HINDEXED":
            return [len(p["blocklengths"]), *p["blocklengths"]], list(p["displacements"]), base
        case "INDEXED_BLOCK":
            return [len(p["displacements"]), p["blocklength"], *p["displacements"]], [], base
        case "HINDEXED_BLOCK":
            return [len(p["displacements"]), p["blocklength"]], list(p["displacements"]), base
        case "STRUCT":
            return (
                [len(p["blocklengths"]), *p["blocklengths"]],
                list(p["displacements"]),
                list(p["datatypes"]),
            )
        case "SUBARRAY":
            return [len(p["sizes"]), *p["sizes"], *p["subsizes"], *p["starts"], p["order"]], [], base
        case "DARRAY":
            head = [p["size"], p["rank"], len(p["gsizes"]), *p["gsizes"]]
            return [*head, *p["distribs"], *p["dargs"], *p["psizes"], p["order"]], [], base
        case "RESIZED":
            return [], [p["lb"], p["extent"]], base
        case "F90_INTEGER" | "F90_REAL" | "F90_COMPLEX":
            return list(p.values()), [], []
        case _:
            return [], [], base

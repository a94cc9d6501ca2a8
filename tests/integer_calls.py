"""A table of every integer argument of MPI calls and of the values that mpi4py accepts there; it holds for our MPI and for a
real one.

An *argument* is passed alone: mpi4py declares it as a C integer. An *element* is part of a list, or a count or displacement
of a message: mpi4py takes `operator.index` of it. Every call is made with the same number in many *guises* (types); each
guise is accepted as the number, or refused with the error that mpi4py raises.

    python integer_calls.py      with mpi4py on a real MPI, two processes: prints where mpi4py differs from the table
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

ARGUMENT, ELEMENT = "argument", "element"
INT, COUNT = 31, 63
"""Bits of the number without its sign."""


@dataclass(frozen=True)
class Call:
    """`run(value)` makes the call. `number`: what the value stands for, or a function that gives it. `not_as`: guises that
    mean something else there."""

    name: str
    how: str
    bits: int
    number: int | Callable[[], int]
    run: Callable[[Any], Any]
    not_as: tuple[str, ...] = ()


class Subclass(int):
    """An integer."""


class OnlyIndex:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class OnlyInt:
    def __init__(self, number: int) -> None:
        self.number = number

    def __int__(self) -> int:
        return self.number


class IndexButNotInt(OnlyIndex):
    def __int__(self) -> int:
        raise TypeError("only __index__ is supported")


class IntButNotIndex(OnlyInt):
    def __index__(self) -> int:
        raise TypeError("only __int__ is supported")


def guises(number: int, bits: int) -> dict[str, tuple[Any, str, str]]:
    """The guises of the number by name: the value, and the outcome as an argument and as an element: "taken", or the
    name of an error."""
    more = number + 0.5 if number >= 0 else number - 0.5
    taken, refused = "taken", "TypeError"
    found: dict[str, tuple[Any, str, str]] = {
        "int": (number, taken, taken),
        "subclass of int": (Subclass(number), taken, taken),
        "numpy.int64": (np.int64(number), taken, taken),
        "array of no dimension": (np.array(number), taken, taken),
        "only __index__": (OnlyIndex(number), taken, taken),
        "__index__ but not __int__": (IndexButNotInt(number), refused, taken),
        "float": (more, taken, refused),
        "numpy.float64": (np.float64(more), taken, refused),
        "array of no dimension, float": (np.array(more), taken, refused),
        "only __int__": (OnlyInt(number), taken, refused),
        "__int__ but not __index__": (IntButNotIndex(number), taken, refused),
        "Decimal": (Decimal(more), taken, refused),
        "Fraction": (Fraction(more), taken, refused),
        "None": (None, refused, refused),
        "text": (str(number), refused, refused),
        "bytes": (str(number).encode(), refused, refused),
        "list": ([number], refused, refused),
        "complex": (complex(number), refused, refused),
        "array of one dimension": (np.array([number, number]), refused, refused),
        "too large": (1 << bits, "OverflowError", "OverflowError"),
        "much too large": (-(1 << 70), "OverflowError", "OverflowError"),
        "infinity": (float("inf"), "OverflowError", refused),
        "not a number": (float("nan"), "ValueError", refused),
    }
    if number in (0, 1):
        found["bool"] = (bool(number), taken, taken)
        found["numpy.bool"] = (np.bool_(number), taken, refused)
    if abs(number) < 1 << 20:
        found["numpy.float32"] = (np.float32(more), taken, refused)
    return found


PARTS = (
    "sends",
    "receives",
    "both_ways",
    "in_parts",
    "roots",
    "collective_counts",
    "groups_and_statuses",
    "keys_and_errors",
    "grids",
    "graphs",
    "datatypes",
    "datatypes_of_lists",
    "packing",
    "windows",
    "rest",
)


class Table:
    """The calls of a communicator of one rank. `parts`: methods that make them."""

    def __init__(self, MPI: Any, alone: Any, parts: Sequence[str] = PARTS) -> None:
        self.MPI, self.alone = MPI, alone
        self.calls: list[Call] = []
        self.buffer = np.zeros(4, "i")
        for part in parts:
            getattr(self, part)()

    def argument(
        self, name: str, number: Any, run: Any, bits: int = INT, not_as: tuple[str, ...] = ()
    ) -> None:
        self.calls.append(Call(name, ARGUMENT, bits, number, run, not_as))

    def element(
        self, name: str, number: Any, run: Any, bits: int = INT, not_as: tuple[str, ...] = ()
    ) -> None:
        self.calls.append(Call(name, ELEMENT, bits, number, run, not_as))

    # -- messages ----------------------------------------------------------------------------------

    def _done(self, request: Any) -> None:
        if isinstance(request, self.MPI.Prequest):
            request.Free()
        elif isinstance(request, self.MPI.Request):
            request.wait()

    def sends(self) -> None:
        null = self.MPI.PROC_NULL
        for name in (
            "Send",
            "Ssend",
            "Bsend",
            "Rsend",
            "Isend",
            "Issend",
            "Ibsend",
            "Irsend",
            "Send_init",
            "Ssend_init",
            "Bsend_init",
            "Rsend_init",
            "send",
            "ssend",
            "bsend",
            "isend",
            "issend",
            "ibsend",
        ):
            call = getattr(self.alone, name)
            self.argument(f"{name}: dest", null, lambda at, call=call: self._done(call(self.buffer, at)))
            self.argument(f"{name}: tag", 7, lambda tag, call=call: self._done(call(self.buffer, null, tag)))

    def receives(self) -> None:
        null = self.MPI.PROC_NULL
        for name in ("Recv", "Irecv", "Recv_init", "recv", "irecv"):
            call, buf = getattr(self.alone, name), self.buffer if name[0].isupper() else None
            self.argument(f"{name}: source", null, lambda at, call=call, buf=buf: self._done(call(buf, at)))
            self.argument(f"{name}: tag", 7, lambda tag, call=call, buf=buf: self._done(call(buf, null, tag)))
        for name in ("Probe", "Iprobe", "Mprobe", "Improbe", "probe", "iprobe", "mprobe", "improbe"):
            call = getattr(self.alone, name)
            self.argument(f"{name}: source", null, lambda at, call=call: bool(call(at)))
            self.argument(f"{name}: tag", 7, lambda tag, call=call: bool(call(null, tag)))
        for name in ("Probe", "Iprobe", "probe", "iprobe"):
            call = getattr(self.MPI.Message, name)
            self.argument(f"Message.{name}: source", null, lambda at, call=call: bool(call(self.alone, at)))
            self.argument(f"Message.{name}: tag", 7, lambda tag, call=call: bool(call(self.alone, null, tag)))

    def both_ways(self) -> None:
        null, buf = self.MPI.PROC_NULL, self.buffer
        for name in ("Sendrecv", "Isendrecv", "sendrecv", "Sendrecv_replace", "Isendrecv_replace"):
            call = getattr(self.alone, name)
            for place, word in enumerate(("dest", "sendtag", "source", "recvtag")):

                def run(value: Any, call: Any = call, place: int = place, name: str = name) -> None:
                    given = [null, 7, null, 7]
                    given[place] = value
                    between = (
                        ()
                        if "replace" in name
                        else (buf,)
                        if name[-8].isupper() or name[0] == "I"
                        else (None,)
                    )
                    self._done(call(buf, *given[:2], *between, *given[2:]))

                self.argument(f"{name}: {word}", 7 if "tag" in word else null, run)

        def to_itself(message: Any) -> Any:
            into = np.zeros(4, "i")
            self.alone.Sendrecv(message, 0, 0, [into, self.MPI.INT], 0, 0)
            return into.tolist()

        numbers, INT32 = np.arange(4, dtype="i"), self.MPI.INT
        skip = "None", "text", "list"
        self.element("message: count", 1, lambda n: to_itself([numbers, n]), COUNT, skip)
        self.element("message: count, type", 1, lambda n: to_itself([numbers, n, INT32]), COUNT, skip)
        self.element("message: count of pair", 1, lambda n: to_itself([numbers, (n, 1)]), COUNT, ("None",))
        self.element(
            "message: displacement of pair", 1, lambda n: to_itself([numbers, (1, n)]), COUNT, ("None",)
        )
        self.element(
            "message: displacement", 1, lambda n: to_itself([numbers, 1, n, INT32]), COUNT, ("None",)
        )

    def in_parts(self) -> None:
        make = self.alone.Psend_init, self.alone.Precv_init
        for first, name in enumerate(("Psend_init", "Precv_init")):
            for place, word in enumerate(("partitions", "rank", "tag")):

                def whole(value: Any, first: int = first, place: int = place) -> Any:
                    given: list[Any] = [2, 0, 5]
                    given[place] = value
                    into = np.zeros(4, "i")
                    ends: list[Any] = [np.arange(4, dtype="i"), into]
                    ends[first] = make[first](ends[first], *given)
                    ends[1 - first] = make[1 - first](ends[1 - first], 2, 0, 5)
                    for end in ends:
                        end.Start()
                    ends[0].Pready_range(0, 1)
                    for end in ends:
                        end.Wait()
                        end.Free()
                    return into.tolist()

                self.argument(f"{name}: {word}", (2, 0, 5)[place], whole)

        def ready(mark: Callable[[Any], None], *rest: int) -> Any:
            """`rest`: the partitions that `mark` leaves; all when it fails."""
            into = np.zeros(4, "i")
            ends = make[0](np.arange(4, dtype="i"), 2, 0, 5), make[1](into, 2, 0, 5)
            for end in ends:
                end.Start()
            left: tuple[int, ...] = (0, 1)
            try:
                mark(ends[0])
                left = rest
            finally:
                for part in left:
                    ends[0].Pready(part)
                for end in ends:
                    end.Wait()
                    end.Free()
            return into.tolist()

        self.argument("Prequest.Pready", 1, lambda n: ready(lambda send: send.Pready(n), 0))
        self.argument(
            "Prequest.Pready_range: low", 1, lambda n: ready(lambda send: send.Pready_range(n, 1), 0)
        )
        self.argument(
            "Prequest.Pready_range: high", 0, lambda n: ready(lambda send: send.Pready_range(0, n), 1)
        )
        self.element("Prequest.Pready_list", 1, lambda n: ready(lambda send: send.Pready_list([n]), 0))

        def arrived(part: Any) -> Any:
            ends = make[0](self.buffer, 2, 0, 5), make[1](np.zeros(4, "i"), 2, 0, 5)
            for end in ends:
                end.Start()
            ends[0].Pready_range(0, 1)
            try:
                ends[1].Parrived(part)
            finally:
                for end in ends:
                    end.Wait()
                    end.Free()

        self.argument("Prequest.Parrived: partition", 1, arrived)

    # -- collectives -------------------------------------------------------------------------------

    def roots(self) -> None:
        alone, op = self.alone, self.MPI.SUM
        into = np.zeros(4, "i")
        for form in ("{}", "I{}", "{}_init"):
            for name, given in (
                ("Bcast", (into,)),
                ("Gather", (self.buffer, into)),
                ("Gatherv", (self.buffer, into)),
                ("Scatter", (self.buffer, into)),
                ("Scatterv", (self.buffer, into)),
                ("Reduce", (self.buffer, into, op)),
            ):
                full = form.format(name.lower() if form == "I{}" else name)
                call = getattr(alone, full)
                self.argument(
                    f"{full}: root", 0, lambda root, call=call, given=given: self._done(call(*given, root))
                )
        self.argument("bcast: root", 0, lambda root: alone.bcast(5, root))
        self.argument("gather: root", 0, lambda root: alone.gather(5, root))
        self.argument("scatter: root", 0, lambda root: alone.scatter([5], root))
        self.argument("reduce: root", 0, lambda root: alone.reduce(5, op, root))

    def collective_counts(self) -> None:
        alone, INT32 = self.alone, self.MPI.INT
        numbers = np.arange(4, dtype="i")

        def vector(message: Any) -> Any:
            into = np.zeros(4, "i")
            alone.Alltoallv(message, [into, INT32])
            return into.tolist()

        def typed(message: Any) -> Any:
            into = np.zeros(4, "i")
            alone.Alltoallw(message, [into, [2], [0], [INT32]])
            return into.tolist()

        def reduce(call: Any, count: Any) -> Any:
            into = np.zeros(4, "i")
            self._done(call(numbers, into, [count]))
            return into.tolist()

        one = ("None", "text", "list", "bytes", "array of one dimension")
        self.element("vector: a count", 4, lambda n: vector([numbers, n, INT32]), COUNT, one)
        self.element("vector: counts", 4, lambda n: vector([numbers, [n], INT32]), COUNT)
        self.element("vector: counts of pair", 4, lambda n: vector([numbers, ([n], [0])]), COUNT)
        self.element("vector: displacements of pair", 0, lambda n: vector([numbers, ([4], [n])]), COUNT)
        self.element("vector: displacements", 0, lambda n: vector([numbers, [4], [n], INT32]), COUNT)
        self.element("vector with types: counts", 2, lambda n: typed([numbers, [n], [4], [INT32]]), COUNT)
        self.element(
            "vector with types: displacements", 4, lambda n: typed([numbers, [2], [n], [INT32]]), COUNT
        )
        for name in ("Reduce_scatter", "Ireduce_scatter", "Reduce_scatter_init"):
            call = getattr(alone, name)
            self.element(f"{name}: recvcounts", 4, lambda n, call=call: reduce(call, n), COUNT)

    # -- groups, statuses, keys, errors ------------------------------------------------------------

    def groups_and_statuses(self) -> None:
        alone, group, status = self.alone, self.alone.Get_group(), self.MPI.Status()
        self.element("Translate_ranks", 0, lambda n: group.Translate_ranks([n], group))
        self.element("Group.Incl", 0, lambda n: group.Incl([n]).size)
        self.element("Group.Excl", 0, lambda n: group.Excl([n]).size)
        for name in ("Range_incl", "Range_excl"):
            call = getattr(group, name)
            self.argument(f"Group.{name}: first", 0, lambda n, call=call: call([(n, 0, 1)]).size)
            self.argument(f"Group.{name}: last", 0, lambda n, call=call: call([(0, n, 1)]).size)
            self.argument(f"Group.{name}: stride", 1, lambda n, call=call: call([(0, 0, n)]).size)
        for word in ("source", "tag", "error"):

            def method(number: Any, word: str = word) -> Any:
                getattr(status, f"Set_{word}")(number)
                return getattr(status, word)

            def attribute(number: Any, word: str = word) -> Any:
                setattr(status, word, number)
                return getattr(status, word)

            self.argument(f"Status.Set_{word}", 3, method)
            self.argument(f"Status.{word}", 3, attribute)

        def elements(number: Any) -> Any:
            status.Set_elements(self.MPI.INT, number)
            return status.Get_elements(self.MPI.INT)

        def count(number: Any) -> Any:
            status.count = number
            return status.count

        self.argument("Status.Set_elements: count", 3, elements, COUNT)
        self.argument("Status.count", 3, count, COUNT)
        self.argument("Split: color", 0, lambda n: alone.Split(n, 0).size)
        self.argument("Split: key", 1, lambda n: alone.Split(0, n).size)
        shared = self.MPI.COMM_TYPE_SHARED
        self.argument("Split_type: split_type", shared, lambda n: alone.Split_type(n, 0).size)
        self.argument("Split_type: key", 1, lambda n: alone.Split_type(shared, n).size)
        self.argument("Create_group: tag", 1, lambda n: alone.Create_group(group, n).size)

    def keys_and_errors(self) -> None:
        MPI, alone = self.MPI, self.alone
        for kind, thing in (("Comm", alone), ("Datatype", MPI.INT.Dup())):
            key = type(thing).Create_keyval()

            def put(number: Any, thing: Any = thing) -> Any:
                thing.Set_attr(number, "kept")

            def drop(number: Any, thing: Any = thing, key: int = key) -> Any:
                thing.Set_attr(key, "kept")
                thing.Delete_attr(number)

            self.argument(f"{kind}.Set_attr", key, put)
            self.argument(f"{kind}.Get_attr", key, lambda n, thing=thing: thing.Get_attr(n))
            self.argument(f"{kind}.Delete_attr", key, drop)
            self.argument(f"{kind}.Free_keyval", type(thing).Create_keyval, type(thing).Free_keyval)
        self.argument("Comm.Call_errhandler", 1, alone.Call_errhandler)
        self.argument("Get_error_class", 1, MPI.Get_error_class)
        self.argument("Get_error_string", 1, MPI.Get_error_string)
        self.argument("Exception", 1, lambda n: MPI.Exception(n).Get_error_code())
        self.argument("Add_error_code", 1, lambda n: MPI.Remove_error_code(MPI.Add_error_code(n)))
        self.argument("Add_error_string", MPI.Add_error_class, lambda n: MPI.Add_error_string(n, "text"))

        def texted() -> Any:
            code = MPI.Add_error_class()
            MPI.Add_error_string(code, "text")
            return code

        self.argument("Remove_error_string", texted, MPI.Remove_error_string)
        self.argument("Remove_error_class", MPI.Add_error_class, MPI.Remove_error_class)
        self.argument("Remove_error_code", lambda: MPI.Add_error_code(1), MPI.Remove_error_code)

    # -- topologies --------------------------------------------------------------------------------

    def grids(self) -> None:
        alone, MPI = self.alone, self.MPI
        grid = alone.Create_cart([1], [True])
        self.element("Create_cart: dims", 1, lambda n: alone.Create_cart([n]).Get_topo())
        self.element("Create_cart: periods", 1, lambda n: alone.Create_cart([1], [n]).Get_topo())
        self.element("Cart_map: dims", 1, lambda n: alone.Cart_map([n]))
        self.element("Cart_map: periods", 1, lambda n: alone.Cart_map([1], [n]))
        self.element("Get_cart_rank", 0, lambda n: grid.Get_cart_rank([n]))
        self.argument("Get_coords", 0, grid.Get_coords)
        self.argument("Shift: direction", 0, lambda n: grid.Shift(n, 1))
        self.argument("Shift: disp", 1, lambda n: grid.Shift(0, n))
        self.element("Sub", 1, lambda n: grid.Sub([n]).Get_topo())
        self.argument("Compute_dims: nnodes", 6, lambda n: MPI.Compute_dims(n, 2))
        self.element(
            "Compute_dims: their number",
            2,
            lambda n: MPI.Compute_dims(6, n),
            INT,
            ("bytes", "list", "array of one dimension"),
        )
        self.element("Compute_dims: dims", 2, lambda n: MPI.Compute_dims(6, [n, 0]))

    def graphs(self) -> None:
        alone = self.alone
        graph = alone.Create_graph([1], [0])
        self.element("Create_graph: index", 1, lambda n: alone.Create_graph([n], [0]).Get_topo())
        self.element("Create_graph: edges", 0, lambda n: alone.Create_graph([1], [n]).Get_topo())
        self.element("Graph_map: index", 1, lambda n: alone.Graph_map([n], [0]))
        self.element("Graph_map: edges", 0, lambda n: alone.Graph_map([1], [n]))
        self.argument("Get_neighbors_count", 0, graph.Get_neighbors_count)
        self.argument("Get_neighbors", 0, graph.Get_neighbors)
        for place, word in enumerate(("sources", "destinations", "sourceweights", "destweights")):

            def adjacent(value: Any, place: int = place) -> Any:
                given: list[Any] = [[0], [0], [1], [1]]
                given[place] = [value]
                return alone.Create_dist_graph_adjacent(*given).Get_dist_neighbors()

            self.element(f"Create_dist_graph_adjacent: {word}", place // 2, adjacent)
        for place, word in enumerate(("sources", "degrees", "destinations", "weights")):

            def edges(value: Any, place: int = place) -> Any:
                given: list[Any] = [[0], [1], [0], [1]]
                given[place] = [value]
                return alone.Create_dist_graph(*given).Get_dist_neighbors()

            self.element(f"Create_dist_graph: {word}", place % 2, edges)

    # -- datatypes ---------------------------------------------------------------------------------

    def datatypes(self) -> None:
        MPI, base = self.MPI, self.MPI.INT

        def what(made: Any) -> Any:
            return made.Get_extent(), made.Get_size()

        for name, given in (
            ("Create_contiguous", (2,)),
            ("Create_vector", (2, 1, 2)),
            ("Create_hvector", (2, 1, 8)),
            ("Create_resized", (0, 8)),
        ):
            for place, number in enumerate(given):

                def run(value: Any, name: str = name, given: Any = given, place: int = place) -> Any:
                    return what(getattr(base, name)(*given[:place], value, *given[place + 1 :]))

                self.argument(f"{name}: {place}", number, run, COUNT)
        for name in ("Create_indexed_block", "Create_hindexed_block"):
            call = getattr(base, name)
            self.argument(f"{name}: blocklength", 2, lambda n, call=call: what(call(n, [0, 8])), COUNT)
            self.element(f"{name}: displacements", 8, lambda n, call=call: what(call(2, [0, n])), COUNT)
        self.argument(
            "Create_subarray: order", MPI.ORDER_C, lambda n: what(base.Create_subarray([4], [2], [1], n))
        )
        whole = [4], [MPI.DISTRIBUTE_BLOCK], [MPI.DISTRIBUTE_DFLT_DARG], [2]
        self.argument("Create_darray: size", 2, lambda n: what(base.Create_darray(n, 0, *whole)))
        self.argument("Create_darray: rank", 1, lambda n: what(base.Create_darray(2, n, *whole)))
        self.argument(
            "Create_darray: order", MPI.ORDER_C, lambda n: what(base.Create_darray(2, 1, *whole, n))
        )
        self.argument("Create_f90_integer", 4, lambda n: MPI.Datatype.Create_f90_integer(n).Get_size())
        for name in ("Create_f90_real", "Create_f90_complex"):
            call = getattr(MPI.Datatype, name)
            self.argument(f"{name}: p", 6, lambda n, call=call: call(n, 30).Get_size())
            self.argument(f"{name}: r", 30, lambda n, call=call: call(6, n).Get_size())
        kind, match = MPI.TYPECLASS_INTEGER, MPI.Datatype.Match_size
        self.argument("Match_size: typeclass", kind, lambda n: match(n, 4).Get_size())
        self.argument("Match_size: size", 4, lambda n: match(kind, n).Get_size())

    def datatypes_of_lists(self) -> None:
        MPI, base = self.MPI, self.MPI.INT

        def listed(
            name: str, call: Any, given: tuple[list[Any], ...], bits: tuple[int, ...], *rest: Any
        ) -> None:
            for place, values in enumerate(given):

                def run(value: Any, place: int = place) -> Any:
                    lists = [list(each) for each in given]
                    lists[place][0] = value
                    made = call(*lists, *rest)
                    return made.Get_extent(), made.Get_size()

                self.element(f"{name}: list {place}", values[0], run, bits[place])

        listed("Create_indexed", base.Create_indexed, ([1, 2], [8, 0]), (COUNT, COUNT))
        listed("Create_hindexed", base.Create_hindexed, ([1, 2], [8, 0]), (COUNT, COUNT))
        types = [base, base]
        listed(
            "Create_struct",
            lambda *lists: MPI.Datatype.Create_struct(*lists, types),
            ([1, 2], [8, 0]),
            (COUNT, COUNT),
        )
        listed("Create_subarray", base.Create_subarray, ([4, 4], [2, 2], [1, 1]), (COUNT,) * 3)
        listed(
            "Create_darray",
            lambda *lists: base.Create_darray(2, 0, *lists),
            ([4], [MPI.DISTRIBUTE_BLOCK], [MPI.DISTRIBUTE_DFLT_DARG], [2]),
            (COUNT, INT, INT, INT),
        )

    def packing(self) -> None:
        kind, comm = self.MPI.INT, self.alone
        items, packed = np.arange(2, dtype="i"), np.zeros(64, "B")
        self.argument("Pack: position", 4, lambda n: kind.Pack(items, packed, n, comm), COUNT)
        self.argument("Unpack: position", 4, lambda n: kind.Unpack(packed, n, items, comm), COUNT)
        self.argument("Pack_size", 3, lambda n: kind.Pack_size(n, comm), COUNT)
        form = "external32"
        self.argument(
            "Pack_external: position", 4, lambda n: kind.Pack_external(form, items, packed, n), COUNT
        )
        self.argument(
            "Unpack_external: position", 4, lambda n: kind.Unpack_external(form, packed, n, items), COUNT
        )
        self.argument("Pack_external_size", 3, lambda n: kind.Pack_external_size(form, n), COUNT)

    def windows(self) -> None:
        MPI, buf, null = self.MPI, self.buffer, self.MPI.PROC_NULL
        win = MPI.Win.Allocate(64, 4, comm=self.alone)
        one, result = np.ones(1, "i"), np.zeros(1, "i")

        def locked(run: Callable[..., Any], *values: Any) -> None:
            win.Lock(0)
            try:
                self._done(run(*values))
            finally:
                win.Unlock(0)

        def lock(*values: Any) -> None:
            win.Lock(*values)
            win.Unlock(0)

        self.argument(
            "Win.Allocate: size", 8, lambda n: MPI.Win.Allocate(n, 1, comm=self.alone).Free(), COUNT
        )
        self.argument(
            "Win.Create: disp_unit", 4, lambda n: MPI.Win.Create(buf, n, comm=self.alone).Free(), COUNT
        )
        self.argument("Win.Lock: rank", 0, lock)
        self.argument("Win.Lock: lock_type", int(MPI.LOCK_SHARED), lambda n: lock(0, n))
        self.argument("Win.Lock: assertion", 0, lambda n: lock(0, MPI.LOCK_SHARED, n))
        self.argument("Win.Fence: assertion", 0, win.Fence)
        for name in ("Put", "Get", "Accumulate", "Rput", "Rget", "Raccumulate"):
            call = getattr(win, name)
            self.argument(f"Win.{name}: target_rank", null, lambda at, call=call: locked(call, buf, at))
            self.element(f"Win.{name}: disp", 1, lambda at, call=call: locked(call, buf, 0, [at, 4]), COUNT)
            self.element(f"Win.{name}: count", 4, lambda n, call=call: locked(call, buf, 0, [0, n]), COUNT)
        self.argument(
            "Win.Fetch_and_op: disp", 1, lambda at: locked(win.Fetch_and_op, one, result, 0, at), COUNT
        )

    def rest(self) -> None:
        MPI = self.MPI
        info = MPI.Info.Create({"a": "1", "b": "2"})
        self.argument("Info.Get_nthkey", 1, info.Get_nthkey)
        self.argument("Pcontrol", 1, MPI.Pcontrol)
        self.argument("Aint_add: base", 3, lambda n: MPI.Aint_add(n, 1), COUNT)
        self.argument("Aint_add: disp", 3, lambda n: MPI.Aint_add(1, n), COUNT)
        self.argument("Aint_diff: first", 3, lambda n: MPI.Aint_diff(n, 1), COUNT)
        self.argument("Aint_diff: second", 3, lambda n: MPI.Aint_diff(1, n), COUNT)
        self.argument("Alloc_mem", 3, lambda n: len(MPI.Alloc_mem(n)), COUNT)
        self.argument("buffer.allocate", 3, lambda n: len(MPI.buffer.allocate(n)), COUNT)
        memory = MPI.buffer.allocate(8, True)
        self.argument(
            "buffer.fromaddress: nbytes", 3, lambda n: len(MPI.buffer.fromaddress(memory.address, n)), COUNT
        )
        session = MPI.Session.Init()
        self.argument("Session.Get_nth_pset", 0, session.Get_nth_pset)
        self.argument("Comm.Ack_failed", 0, self.alone.Ack_failed, INT, ("None",))
        self.argument("Comm.Agree", 1, self.alone.Agree)


def calls_of_two(MPI: Any, world: Any, alone: Any) -> Iterator[Call]:
    """What needs two ranks: every rank joins itself and the other one."""
    other = 1 - world.rank

    def join(local: Any, remote: Any, tag: Any) -> int:
        return int(alone.Create_intercomm(local, world, remote, tag).remote_size)

    yield Call("Create_intercomm: local_leader", ARGUMENT, INT, 0, lambda n: join(n, other, 3))
    yield Call("Create_intercomm: remote_leader", ARGUMENT, INT, other, lambda n: join(0, n, 3))
    yield Call("Create_intercomm: tag", ARGUMENT, INT, 3, lambda n: join(0, other, n))
    both = alone.Create_intercomm(0, world, other, 3)
    yield Call("Intercomm.Split: color", ARGUMENT, INT, 0, lambda n: both.Split(n, 0).remote_size)
    yield Call("Intercomm.Split: key", ARGUMENT, INT, 1, lambda n: both.Split(0, n).remote_size)
    yield Call("Intercomm.send: dest", ARGUMENT, INT, MPI.PROC_NULL, lambda n: both.send(1, n))
    yield Call("Intercomm.bcast: root", ARGUMENT, INT, MPI.PROC_NULL, lambda n: both.bcast(1, n))


def outcome(run: Callable[[Any], Any], value: Any) -> str:
    try:
        return f"gives {run(value)!r}"
    except Exception as error:
        return type(error).__name__


def differences(call: Call, leave_out: tuple[str, ...] = ()) -> list[str]:
    """The calls whose outcome differs from the table. `leave_out`: names of guises."""
    found = []

    def given() -> int:
        return operator.index(call.number() if callable(call.number) else call.number)

    expected = outcome(call.run, given())
    for name in guises(given(), call.bits):
        if name in call.not_as or name in leave_out:
            continue
        value, as_argument, as_element = guises(given(), call.bits)[name]
        wanted = as_argument if call.how == ARGUMENT else as_element
        wanted = expected if wanted == "taken" else wanted
        got = outcome(call.run, value)
        if got != wanted:
            found.append(f"{call.name} as {name}: {got}, not {wanted}")
    return found


def main() -> int:
    from mpi4py import MPI

    world, alone = MPI.COMM_WORLD, MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank)
    count = 0
    for call in [*Table(MPI, alone).calls, *calls_of_two(MPI, world, alone)]:
        # A wheel for one version of Python takes no `__index__` for a C integer, one for all versions does.
        left_out = ("only __index__",) if call.how == ARGUMENT else ()
        for line in differences(call, left_out):
            count += 1
            if world.rank == 0:
                print(line)
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())

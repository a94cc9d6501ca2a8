"""A null or freed communicator: every use raises ERR_COMM, and no other communicator pays for it."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt.mpi.base.errhandler import ERRORS_RETURN
from ckpt.mpi.base.errors import ERR_COMM, MpiException
from ckpt.mpi.base.group import Group
from ckpt.mpi.base.info import Info
from ckpt.mpi.base.null_handles import NULL_PART, NullCommunicator
from ckpt.mpi.comm.comm_base import CommBase
from ckpt.mpi.comm.comm_inter import Intercomm
from ckpt.mpi.comm.comm_topology import Cartcomm, Distgraphcomm, Graphcomm, Topocomm
from ckpt.mpi.comm.communicator import COMM_NULL, Comm, Intracomm
from ckpt.mpi.datatypes.op import SUM
from tests.unit.ckpt.mpi.bus import run_ranks

CLASSES = (Comm, Intracomm, Intercomm, Topocomm, Cartcomm, Graphcomm, Distgraphcomm)

WITHOUT_A_COMMUNICATOR = frozenset(
    # As in mpi4py: the null one has a name and a number
    {
        "Get_name",
        "name",
        "free",
        "handle",
        "toint",
        "py2f",
    }
    | {"Accept", "Connect", "Spawn", "Spawn_multiple"}  # not offered at all
)

VALUES: dict[str, Any] = {
    "sendobj": [1],
    "op": SUM,
    "errhandler": ERRORS_RETURN,
    "name": "x",
    "partitions": 1,
}


def value_of(parameter: inspect.Parameter) -> Any:
    """Something that the call takes, as far as can be told without a communicator."""
    name = parameter.name
    if "buf" in name or (name == "flag" and parameter.annotation != "int"):
        return np.zeros(1, "i4")
    if name == "group":
        return Group._make((0,), 0)
    if name == "info":
        return Info.Create()
    if name.endswith("comm"):
        return COMM_NULL
    if name in ("dims", "coords", "index", "edges", "sources", "destinations", "degrees", "remain_dims"):
        return [0]
    return VALUES.get(name, 0)


def uses(cls: type[Comm]) -> list[tuple[str, Callable[[Any], Any]]]:
    """(name, what is done to a communicator) for every public name that an object of the class has."""
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for name in dir(cls):
        static = inspect.getattr_static(cls, name)
        if name.startswith("_") or isinstance(static, (classmethod, staticmethod)):
            continue
        if isinstance(static, property):
            found.append((name, operator.attrgetter(name)))
        elif callable(static):
            parameters = list(inspect.signature(static).parameters.values())[1:]
            options = {
                each.name: value_of(each)
                for each in parameters
                if each.kind is not each.VAR_KEYWORD and each.kind is not each.VAR_POSITIONAL
                if each.default is each.empty or each.name in ("op", "flag")
            }
            found.append((name, operator.methodcaller(name, **options)))
    return found


@pytest.mark.parametrize("cls", CLASSES)
def test_every_call_on_a_null_communicator_is_an_error(cls: type[Comm]) -> None:
    tried = 0
    for name, use in uses(cls):
        if name in WITHOUT_A_COMMUNICATOR:
            continue
        with pytest.raises(MpiException) as caught:
            use(cls())
        assert caught.value.error_code == ERR_COMM, name
        tried += 1
    assert tried > 120


def freed(comm: Any) -> None:
    for name, use in uses(Intracomm):
        if name in WITHOUT_A_COMMUNICATOR:
            continue
        gone = comm.Dup()
        other = Intracomm(gone)
        gone.Free()
        assert not gone and not other
        with pytest.raises(MpiException) as caught:
            use(gone)
        assert caught.value.error_code == ERR_COMM, name
        gone.free()  # never raises
    assert gone == COMM_NULL and gone.name == "MPI_COMM_NULL"


def test_every_call_on_a_freed_communicator_is_an_error() -> None:
    run_ranks(1, freed)


@pytest.mark.parametrize("cls", CLASSES)
def test_no_communicator_pays_for_the_null_one(cls: type[Comm]) -> None:
    # A class with one of these gets no attribute and no method in the interpreter's quick ways.
    assert not hasattr(cls, "__getattr__")
    assert cls.__getattribute__ is object.__getattribute__
    assert cls.__setattr__ is object.__setattr__


def test_to_python_a_null_communicator_has_no_such_attributes() -> None:
    assert not hasattr(COMM_NULL, "rank") and getattr(COMM_NULL, "size", None) is None
    with pytest.raises(AttributeError, match="nonsense") as caught:
        _ = COMM_NULL.nonsense  # type: ignore[attr-defined]
    assert not isinstance(caught.value, MpiException)
    assert weakref.ref(COMM_NULL)() is COMM_NULL
    assert copy.copy(Comm()) == COMM_NULL and copy.deepcopy(COMM_NULL) is COMM_NULL


class Named(Intracomm):
    """A program's own, with a field that needs no communicator and a default for what it lacks."""

    def __new__(cls, comm: Any = None) -> Any:
        self = super().__new__(cls, comm)
        self.label = "mine"
        return self

    def __getattr__(self, name: str) -> Any:
        return f"no {name}"


def test_programs_may_derive_from_it() -> None:
    def program(comm: Any) -> None:
        mine = Named(comm.Dup())
        assert (mine.label, mine.rank, mine.what) == ("mine", 0, "no what")
        mine.Free()
        assert mine.label == "mine" and not mine
        with pytest.raises(NullCommunicator):
            mine.Get_rank()
        assert mine.rank == "no rank"

    run_ranks(1, program)


@pytest.mark.parametrize(
    "use",
    [
        operator.attrgetter("group"),
        lambda it: setattr(it, "name", "x"),
        lambda it: delattr(it, "name"),
        lambda it: it(),
        lambda it: it[0],
        lambda it: operator.setitem(it, 0, 0),
        lambda it: operator.delitem(it, 0),
        lambda it: 0 in it,
        lambda it: {it: 0},
        *[len, iter, bool, int, operator.index, float, hash],
        *[operator.pos, operator.neg, operator.invert],
    ],
)
def test_every_use_of_nothing_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(NullCommunicator) as caught:
        use(NULL_PART)
    assert caught.value.error_code == ERR_COMM


COMBINATIONS = (
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    *(operator.add, operator.sub, operator.mul, operator.mod, operator.floordiv),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_nothing_can_be_combined_with_nothing(combine: Callable[[Any, Any], Any]) -> None:
    for pair in ((NULL_PART, 1), (1, NULL_PART)):
        with pytest.raises(NullCommunicator):
            combine(*pair)
    with pytest.raises(NullCommunicator), NULL_PART:
        pass


def test_there_is_one_nothing() -> None:
    assert pickle.loads(pickle.dumps(NULL_PART)) is NULL_PART and copy.deepcopy(NULL_PART) is NULL_PART
    null = CommBase.__new__(Intracomm)
    restored = CommBase.__new__(Intracomm)
    restored.__setstate__(null.__getstate__())
    assert restored._shared is NULL_PART and restored == null

"""Reductions that wait for nobody and survive a death: tasks of two items instead of rounds of all ranks.

::

    import ckpt, ckpt.reduction

    f = ckpt.reduction.allreduce(gradient)          # a Future, at once
    total = f.result()                              # a new array

Public names: :func:`allreduce`, :func:`reduce`, :class:`Body`, :class:`Future`, :func:`pending`, :func:`free`, and the
errors. It is not imported by ``import ckpt``. docs/reduction.md says what holds, and which options there are.

    service                       the reductions of one communicator at this rank. Start reading here
    members, member, master       all reductions of a rank; its part of one; who decides. Pure
    messages, scheduler           what ranks tell each other; which two items are combined, and where. Pure
    recovery, partial             after a death; without waiting for all. Pure
    body, values, copies          what is combined; its forms at a rank; memory that others read
    keeping                       what a rank gives outlives the rank
    combining, posted             who computes; work for the handler, and timers
    future                        the result, and how reductions end
    errors                        the exceptions
"""

from __future__ import annotations

import operator
import threading
from functools import cache
from typing import Any

import ckpt
from ckpt.errors import NotInHandler
from ckpt.reduction.body import MPI, Body, array_of, checksum, content_of, name_of
from ckpt.reduction.combining import Local
from ckpt.reduction.copies import remove_of
from ckpt.reduction.errors import (
    CombineFailed,
    ContributionLost,
    InputChanged,
    InvalidInput,
    LateContribution,
    Mismatch,
    NameInUse,
    QuorumNotReached,
    ReductionError,
    RootLost,
    WouldDeadlock,
)
from ckpt.reduction.future import Future
from ckpt.reduction.members import PART
from ckpt.reduction.messages import Contract
from ckpt.reduction.partial import quorum_of
from ckpt.reduction.service import Service

__all__ = [
    "Body",
    "CombineFailed",
    "ContributionLost",
    "Future",
    "InputChanged",
    "InvalidInput",
    "LateContribution",
    "Mismatch",
    "NameInUse",
    "QuorumNotReached",
    "ReductionError",
    "RootLost",
    "WouldDeadlock",
    "allreduce",
    "free",
    "pending",
    "reduce",
]

MOST_PARTS = 1024
_services: list[Service] = []
_making = threading.RLock()
"""Held while a service is made: threads whose first reductions begin at once are to have one channel, as at other ranks."""
_hooks: dict[Service, _Restored] = {}
_CHOICES = {
    "order": ("tree", "ready"),
    "on_loss": ("raise", "partial", "restart"),
    "on_root_loss": ("raise", "next"),
    "late": ("carry", "drop", "raise"),
    "copies": (0, 1, 2),
}


def allreduce(data: Any, **options: Any) -> Future:
    """Reduce over all ranks of a communicator; all get the result. As :func:`reduce`, without `root` and `on_root_loss`."""
    return _start(data, -1, options)


def reduce(data: Any, *, root: int = 0, **options: Any) -> Future:
    """Reduce over all ranks of a communicator; `root` gets the result. Returns at once.

    `data`: a numpy array (or what makes one), or a :class:`Body`. It must not be changed before the end.

    Options, the same at all ranks but for `late`, `weight`, `warn_after_s` and `check`:

    - `op`: an operation of MPI, default `MPI.SUM`. `comm`: default `ckpt.comm`.
    - `name`: tells reductions apart; without one the order of calls does.
    - `order`: "tree": the same bits in every run; "ready": first come, first combined. An operation that does not commute is
      done in the order of ranks in both.
    - `copies`: 0, 1, 2 further ranks that keep each contribution; default 1.
    - `on_loss`: "raise": ContributionLost at every rank if the contribution of a dead rank cannot be had; "partial": the
      result is without it; "restart": the job goes back to its last checkpoint (:func:`ckpt.go_back`).
    - `on_root_loss`: "raise": RootLost (or "restart"); "next": the next living rank gets the result.
    - `deadline_s`, `quorum` (number or fraction of ranks): it ends with what is there.
    - `late`: what becomes of a contribution that came too late: "carry" adds it to this rank's next reduction of that name,
      shape and operation; "drop"; "raise" LateContribution at this rank.
    - `weight`: of this rank's contribution, for `Future.weight`; default 1.0.
    - `warn_after_s`: ranks that have not called by then are named in the log `ckpt.reduction`, at the master; 0: never.
    - `parts`: long arrays, and bodies with `split`, are reduced in so many parts, which overlap; default 1.
    - `check`: look for data that are changed before the end, by checksums.

    Raises ValueError for an option out of its range, NameInUse. All else is raised by `Future.result`, at every rank alike.
    Source: Li, Zhao, Yan et al. (2018); MPI 4.1, 6.9 (reductions) and 6.12 (nonblocking)."""
    size = _comm_of(options).Get_size()
    try:
        rank = operator.index(root)
    except TypeError:
        rank = -1
    if not 0 <= rank < size:
        raise ValueError(f"root is a rank below {size}, not {root!r}")
    return _start(data, rank, options)


def pending(comm: Any = None) -> dict[str, list[int] | None]:
    """The reductions that are not done at this rank: name and number, and at the master the ranks it waits for."""
    return _service(ckpt.comm if comm is None else comm).pending()


def free(comm: Any = None) -> None:
    """Let go of what reductions of a communicator need: a channel of active messages, a thread. Collective, and waits until
    all that live have called it; the next reduction makes them anew.

    Raises ReductionError if a reduction of this rank is not done, or one that it has not called is under way."""
    comm = ckpt.comm if comm is None else comm
    for service in [each for each in _services if each.comm == comm]:
        service.free()
        _services.remove(service)
        ckpt.remove_hook(_hooks.pop(service))


def _start(data: Any, root: int, options: dict[str, Any]) -> Future:
    given: dict[str, Any] = {
        "op": MPI.SUM, "comm": None, "name": "", "order": "tree", "copies": 1, "on_loss": "raise", "on_root_loss": "raise",
        "deadline_s": None, "quorum": None, "late": "carry", "weight": 1.0, "warn_after_s": 60.0, "check": False,
        "parts": 1,
    }  # fmt: skip
    for name in options:
        if name not in given:
            raise TypeError(f"reductions have no option {name!r}; they have {', '.join(given)}")
    given |= options
    given["name"] = "" if given["name"] is None else given["name"]
    for name in ("copies", "parts", "quorum"):
        if hasattr(given[name], "dtype"):  # a number of numpy counts as one of Python
            given[name] = given[name].item()
    comm = _comm_of(options)
    size = comm.Get_size()
    if any(service.is_in_combine() for service in _services):
        raise NotInHandler(
            "a reduction cannot be begun in combine() or in an operation: others would wait for it"
        )
    for name, choices in _CHOICES.items():
        if type(given[name]) not in (str, int) or given[name] not in choices:  # 1.0 and True are equal to 1
            raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {given[name]!r}")
    weight, deadline_s, warn_after_s = (
        _number(given, each) for each in ("weight", "deadline_s", "warn_after_s")
    )
    if not deadline_s and given["deadline_s"] is not None:
        raise ValueError(f"deadline_s is a number of seconds above 0, not {given['deadline_s']!r}")
    if not isinstance(given["name"], str) or PART in given["name"]:
        raise ValueError(f"name is a text without NUL characters, not {given['name']!r}")
    if not isinstance(given["parts"], int) or not 1 <= given["parts"] <= MOST_PARTS:
        raise ValueError(f"parts is a number from 1 to {MOST_PARTS}, not {given['parts']!r}")
    op, problem = given["op"], ""
    value, content, total = data, "|", None
    try:
        if isinstance(data, Body):
            if op is not MPI.SUM and op != MPI.SUM:
                raise InvalidInput(
                    f"a {type(data).__qualname__} has its own operation, combine(): op is for arrays"
                )
            content = content_of(data, "")
        else:
            value = array_of(data, name_of(op))
            content = content_of(value, name_of(op))
        total = checksum(value) if given["check"] else None
    except Exception as failure:  # told to all ranks, which raise it alike
        problem = f"{failure}"
    contract = Contract(
        root, content, given["order"], isinstance(data, Body) or not isinstance(op, MPI.Op) or op.Is_commutative(),
        given["copies"], given["on_loss"], given["on_root_loss"], quorum_of(given["quorum"], size),
        max(1, int(deadline_s * 1e9)) if deadline_s else 0,
    )  # fmt: skip
    own = op if isinstance(op, MPI.Op) and not op.is_predefined else None
    local = Local(
        value,
        weight,
        own,
        given["late"],
        total,
        int(warn_after_s * 1e9),
        deadline_s > 0 or contract.quorum > 0,
        contract.on_loss,
        given["parts"],
    )
    return _service(comm).start(given["name"], value, contract, local, problem)


def _comm_of(options: dict[str, Any]) -> Any:
    comm = options.get("comm")
    if comm is None:
        return _world()
    if not isinstance(comm, MPI.Intracomm):
        raise ValueError(f"comm is a communicator of one group of ranks, not {comm!r}")
    return comm


def _number(given: dict[str, Any], name: str) -> float:
    """An option that is a number from 0 on; 0.0 for a deadline of None."""
    value = given[name]
    try:
        number = 0.0 if value is None and name == "deadline_s" else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, str) or not 0 <= number < float("inf"):
        raise ValueError(f"{name} is a number from 0 on, not {value!r}")
    return number


@cache
def _world() -> Any:
    """`ckpt.comm`, asked for once: each time takes 0.1 ms or more, in which a contribution is not safe yet.

    After a restart this package is imported anew."""
    return ckpt.comm


def _service(comm: Any) -> Service:
    for service in _services:
        if service.comm == comm:
            return service
    with _making:
        return next((each for each in _services if each.comm == comm), None) or _new_service(comm)


def _new_service(comm: Any) -> Service:
    if not _services and comm.Get_size() > 1:
        remove_of(ckpt.comm.Get_rank())  # of this rank, before it was started again
    service = Service(comm, 1 + max((each.values.memory.number for each in _services), default=0))
    _services.append(service)
    _hooks[service] = ckpt.on_restart(_Restored(service))
    return service


class _Restored:
    """After a restart this package is imported anew, and finds its services by these hooks, which images hold."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __call__(self, epoch: int) -> None:
        self.service.restored()
        if self.service not in _services:
            _services.append(self.service)
            _hooks[self.service] = self

"""The plan of a launch: on which nodes ranks run, and from which line they resume. Pure.

`place` assigns ranks to nodes; `specs` makes the start parameters for each rank's process; `resumable` selects the lines
that a restart may use; `check_fit` raises an error if a job cannot go on under this command line and interpreter.

A rank is identified by its number. Images hold nothing of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ckpt.controller.errors import NoSuchJob, NotCompatible, UsageError
from ckpt.controller.supervision.events import SpawnRequested
from ckpt.transport.records import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that can run up to `slots` ranks."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True)
class Placement:
    rank: int
    node: str
    local_rank: int
    local_size: int


def place(
    size: int,
    nodes: Sequence[Node],
    before: Mapping[int, str] = MappingProxyType({}),
    absent: Collection[int] = (),
) -> list[Placement]:
    """Assign the ranks that are not `absent` to nodes. A rank stays on the node where it was `before`, if that is there and
    has a slot; the others fill the nodes that have none of these (spares) first, in blocks and in the order of the nodes.
    Raises UsageError when there are not enough slots."""
    free = {node.name: node.slots for node in nodes}
    ranks = [rank for rank in range(size) if rank not in absent]
    if len(ranks) > sum(free.values()):
        raise UsageError(f"{len(ranks)} ranks do not fit into {sum(free.values())} slots")
    at: dict[int, str] = {}
    for rank in ranks:
        name = before.get(rank, "")
        if free.get(name, 0) > 0:
            at[rank] = name
            free[name] -= 1
    kept = set(at.values())
    slots = [
        node.name
        # Stable: else in the order of the nodes
        for node in sorted(nodes, key=lambda node: node.name in kept)
        for _ in range(free[node.name])
    ]
    at |= dict(zip((rank for rank in ranks if rank not in at), slots, strict=False))
    together = {name: [rank for rank in ranks if at[rank] == name] for name in free}
    return [
        Placement(rank, at[rank], together[at[rank]].index(rank), len(together[at[rank]])) for rank in ranks
    ]


@dataclass(frozen=True, slots=True)
class Program:
    """The start parameters that all ranks of a job have in common. `argv`: the program's words, as ``python`` takes them."""

    job_id: str
    job_dir: str
    runtime_dir: str
    argv: tuple[str, ...]
    options: Mapping[str, Any]


def with_spares(size: int, spares: int) -> Callable[[int], Mapping[str, Any]]:
    """The `more` of `specs` for the ranks of a job in which so many processes may be started later: see `started`."""

    def more(rank: int) -> Mapping[str, Any]:
        own = {"rank": rank, "size": size, "local_rank": rank, "local_size": size, "streams": str(rank)}
        return {"size": size + spares, "reserved": spares, "world": [0, size], "identity": own}

    return more


def started(
    program: Program,
    request: SpawnRequested,
    counts: Sequence[int],
    first: int,
    *,
    size: int,
    spares: int,
    node: str,
    epoch: int,
) -> list[dict[str, Any]]:
    """The descriptions of the processes that are started for a request, with the numbers from `first` on; `counts`: of each
    of its commands. `size`: of the job; `epoch`: the highest number of a checkpoint.

    Their COMM_WORLD has these processes alone. They are on one host, `node`, with all others.
    """
    total, found = sum(counts), []
    commands = [
        command for command, count in zip(request.commands, counts, strict=True) for _ in range(count)
    ]
    placed = [Placement(first + at, node, at, size) for at in range(total)]
    plain = specs(program, placed, incarnation=request.incarnation, epoch=None)
    of_command = [number for number, count in enumerate(counts) for _ in range(count)]
    for at, (spec, command) in enumerate(zip(plain, commands, strict=True)):
        own = {"rank": at, "size": total, "local_rank": at, "local_size": total, "streams": str(first + at)}
        spec |= {
            "argv": list(command["argv"]),
            "size": size + spares,
            "reserved": spares,
            "world": [first, total],
            "identity": own,
            "epoch": epoch,
            "parent": {
                **request.parent,
                "token": request.token,
                "appnum": of_command[at],
                "directory": command.get("directory"),
            },
        }
        found.append(spec)
    return found


def no_more(process: int) -> Mapping[str, Any]:
    """A process of a job without replicas has no more in its description."""
    return {}


def specs(
    program: Program,
    placements: Sequence[Placement],
    *,
    incarnation: int,
    epoch: int | None,
    more: Callable[[int], Mapping[str, Any]] = no_more,
    absent: Collection[int] = (),
) -> list[dict[str, Any]]:
    """One description per process, as `ckpt.rank.boot.run_rank` takes it.

    `epoch`: the line to resume from; None: start the program. `restarts` is the incarnation: the first is 0. `more`:
    what is different, or is added, by number of the process. `absent`: ranks that are dead for good, and have no placement.
    """
    return [
        {
            "rank": placement.rank,
            "size": len(placements) + len(absent),
            "host": placement.node,
            "local_rank": placement.local_rank,
            "local_size": placement.local_size,
            "job_id": program.job_id,
            "job_dir": program.job_dir,
            "runtime_dir": program.runtime_dir,
            "argv": list(program.argv),
            "incarnation": incarnation,
            "restarts": incarnation,
            "resume": epoch,
            "epoch": epoch or 0,
            "options": dict(program.options),
            **({"absent": sorted(absent)} if absent else {}),
            **more(placement.rank),
        }
        for placement in placements
    ]


def words_of(command: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """The program's words, as ``python`` takes them. Jobs of version 0.1.0 have a module's name without ``-m``."""
    return ["-m", *command] if options.get("module") else list(command)


def resumable(committed: Sequence[int], requested: int | None) -> tuple[int, ...]:
    """The epochs of the lines that a restart may use, ascending: all, or only the requested one. Raises NoSuchJob."""
    if requested is None:
        return tuple(sorted(committed))
    if requested not in committed:
        known = ", ".join(map(str, sorted(committed))) or "none"
        raise NoSuchJob(f"no committed epoch {requested}; committed: {known}")
    return (requested,)


def check_fit(
    *,
    size: int,
    command: Sequence[str],
    python: str,
    new_size: int | None,
    new_command: Sequence[str],
    new_python: str,
) -> None:
    """Raise NotCompatible unless a job can go on under this command line and interpreter.

    Only major and minor version of Python count (an image of 3.11.7 resumes on 3.11.2). `new_size` None and an empty
    `new_command` mean: as before.
    """
    if new_size is not None and new_size != size:
        raise NotCompatible(f"the job has {size} ranks, not {new_size}: an image fits its own number only")
    if new_command and list(new_command) != list(command):
        raise NotCompatible(f"the job runs {' '.join(command)!r}, not {' '.join(new_command)!r}")
    if python.split(".")[:2] != new_python.split(".")[:2]:
        raise NotCompatible(f"the job runs under Python {python}, this is Python {new_python}")

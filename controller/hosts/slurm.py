"""Slurm: the nodes of the allocation that this process is in, and the step that starts an agent on each. Pure.

    srun --nodes=N --ntasks=N --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --overlap … ckpt agent …

--no-kill --kill-on-bad-exit=0 --wait=0   the others go on when a node is lost, or one agent ends
--overlap --mem=0 --cpu-bind=none         the agent, and so its ranks, may use all that the job has of its node
--mpi=none                                the agents are no MPI program
--jobid, --nodelist                       those of the allocation, without nodes that it has lost

`srun` is never signalled while the job runs: SIGTERM to it is SIGKILL to all ranks at once. What Slurm says of a node is
never the proof that its ranks live or are gone: a node that is cut off runs on until it talks to Slurm again.

Source: the manual pages srun(1), sbatch(1) of Slurm 22.05.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ckpt.controller.errors import UsageError
from ckpt.controller.supervision.plan import Node
from ckpt.transport.records import dataclass

__all__ = ["NAMING", "Allocation", "allocation_of", "hosts_of", "node_count", "step_words", "survives_a_node"]

NAMING = "SLURMD_NODENAME"
"""The environment variable of a task with the name of its node, as Slurm knows it."""

_OUTSIDE = (
    "--engine slurm: not in an allocation of Slurm: run it in a batch script (`ckpt submit` writes one) or under salloc, or "
    "name the hosts (--hosts)"
)
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_LIST = re.compile(r"(?:[A-Za-z0-9_.,-]|\[[0-9,-]+\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Allocation:
    """`nodes`: with the number of tasks, or else of processors, that the job has on each."""

    job: str
    nodes: list[Node]


def node_count(environment: Mapping[str, str]) -> int:
    """The number of nodes of this process's allocation; 0: it is in none."""
    text = environment.get("SLURM_JOB_NUM_NODES", "")
    return int(text) if environment.get("SLURM_JOB_ID") and text.isdecimal() else 0


def allocation_of(environment: Mapping[str, str], present: Sequence[str] | None = None) -> Allocation:
    """The allocation that the environment describes. Raises UsageError: there is none, or it cannot be understood.

    `present`: the names of the nodes that it has now; None: unknown, all.
    """
    job, text = environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_NODELIST")
    if not job or not text:
        raise UsageError(_OUTSIDE)
    names = hosts_of(text)
    for variable in ("SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"):
        slots = _repeated(environment.get(variable, ""))
        if len(slots) == len(names):
            break
    else:
        raise UsageError(f"SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE do not fit the nodes {text}")
    nodes = [
        Node(name, count)
        for name, count in zip(names, slots, strict=True)
        if present is None or name in present
    ]
    return Allocation(job, nodes)


def survives_a_node(script: str, environment: Mapping[str, str]) -> bool:
    """Was the job submitted with --no-kill, so that it lives on without a node? `script`: its batch script; `environment`:
    of the job, which has what the user has set for sbatch. What was given on a command line cannot be seen."""
    lines = [line.split("#", 2)[1] for line in script.splitlines() if line.startswith("#SBATCH")]
    given = {word for line in lines for word in line.split()[1:]}
    return bool(
        given & {"--no-kill", "-k"} or "SBATCH_NO_KILL" in environment or "SALLOC_NO_KILL" in environment
    )


def step_words(allocation: Allocation, agent: str) -> list[str]:
    """The command that starts the agents; `agent` stands for theirs."""
    count = len(allocation.nodes)
    return [
        "srun",
        f"--jobid={allocation.job}",
        f"--nodelist={','.join(node.name for node in allocation.nodes)}",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--label",
        agent,
    ]


def hosts_of(text: str) -> list[str]:
    """The names that a list of Slurm stands for: `n[1-3,07],x` is n1, n2, n3, n07, x. Raises UsageError."""
    names: list[str] = []
    for word in _words(text) if _LIST.fullmatch(text) else ():
        found = [""]
        for piece in re.split(r"(\[[^\]]*\])", word):
            ends = _numbers(piece[1:-1], text) if piece.startswith("[") else [piece]
            found = [begun + end for begun in found for end in ends]
        names += found
    if not names:
        raise UsageError(f"{text!r} is no list of nodes")
    return names


def _words(text: str) -> list[str]:
    """Cut at the commas that are not in brackets."""
    return re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+", text)


def _numbers(text: str, whole: str) -> list[str]:
    found = []
    for part in text.split(","):
        ends = _RANGE.fullmatch(part)
        if ends is None:
            raise UsageError(f"{whole!r} is no list of nodes")
        first, last = ends[1], ends[2] or ends[1]
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _repeated(text: str) -> list[int]:
    """The numbers of `4(x2),1`: 4, 4, 1; none if the text is another one."""
    found: list[int] = []
    for part in text.split(","):
        piece = _REPEATED.fullmatch(part)
        if piece is None:
            return []
        found += [int(piece[1])] * int(piece[2] or 1)
    return found

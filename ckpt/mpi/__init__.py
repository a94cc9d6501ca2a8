"""Message passing with mpi4py's names and semantics over a reliable point-to-point transport.

The package does not use sockets, processes, checkpoints or files. It uses one interface of the transport, `Progress`
(base/progress.py): enqueue a message, ask which messages are acknowledged, make progress, wait. All other state is
pickled by value into the process image, together with the user's stack. So a restart restores a blocked receive, a
collective under way and a pending request like any other object.

    base/          constants, errors, the envelope of a message, groups, infos, error handlers, attributes
    datatypes/     datatypes, buffers, reduction operations, Status
    engine/        one rank's engine over a Progress
        matching.py       posted receives and unexpected messages
        operations.py     the operation of a request: a send, a receive
        schedule.py       a collective under way: a program of sends, receives and local steps
        comm_state.py     the engine's state of a communicator
        quick.py          the fast path for small pickled objects, in C
        failures.py       failed ranks and revoked communicators; agreement.py: agreement of the living ranks
        spawning.py       processes that a rank starts, or that have started it
        windows.py        the windows of a rank, and the messages that come for them
        imports.py        what library modules make, and hear from other ranks, while they are imported
    requests/      Request, Prequest, Grequest, and calls on several requests
    collectives/   the algorithms, as builders of schedules
    slots/         small collectives of a few ranks of one host
    comm/          communicators, messages (send, Send …), collectives (bcast, Bcast …), Message, Session
    active/        active messages: channels, their handlers, who calls these
    members/       what windows and files have in common: handles, messages between the members of a group
    rma/           one-sided communication: `MPI.Win`, loaded at its first use
    io/            parallel files: `MPI.File`, loaded at its first use
    environment.py, mpi4py_private.py   functions of the module MPI, and those that packages of mpi4py call
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt.mpi.base.constants import ANY_SOURCE, ANY_TAG, BOTTOM, IN_PLACE, PROC_NULL, UNDEFINED
from ckpt.mpi.base.errors import MpiException
from ckpt.mpi.datatypes.op import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    NO_OP,
    PROD,
    REPLACE,
    SUM,
    Op,
)
from ckpt.mpi.datatypes.status import Status
from ckpt.mpi.requests.request import Request

if TYPE_CHECKING:
    from ckpt.mpi.base.progress import Progress
    from ckpt.mpi.comm.communicator import Intracomm
    from ckpt.mpi.engine.engine import Engine

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOR",
    "BOTTOM",
    "BXOR",
    "IN_PLACE",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "NO_OP",
    "PROC_NULL",
    "PROD",
    "REPLACE",
    "SUM",
    "UNDEFINED",
    "MpiException",
    "Op",
    "Request",
    "Status",
    "make_world",
]


def make_world(progress: Progress, members: range | None = None) -> tuple[Engine, Intracomm]:
    """A fresh engine over `progress` and its COMM_WORLD. `members`: its processes; None: all that `progress` knows."""
    from ckpt.mpi.comm.communicator import world_of
    from ckpt.mpi.engine.engine import Engine

    engine = Engine(progress)
    return engine, world_of(engine, members)

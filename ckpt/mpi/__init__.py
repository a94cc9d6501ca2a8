"""Message passing with mpi4py's names and semantics over a reliable point-to-point transport.

The package knows nothing of sockets, processes, checkpoints or files. It needs one thing from below, a
`Progress` (progress.py): enqueue a message, say what is acknowledged, make progress, wait. Everything else
is state that is pickled by value into a process image together with the user's stack, so a blocked receive,
a half-done collective and a pending request are simply there again after a restart.

    errors.py        error classes, MpiException
    constants.py     wildcard ranks and tags, IN_PLACE …
    envelope.py      the 32 bytes in front of every message
    matching.py      posted receives against unexpected messages
    operations.py    what a request stands for: a send, a receive
    schedule.py      a collective under way: a program of sends, receives and local steps
    engine.py        binds these to a Progress
    comm_state.py    what it knows of a communicator
    request.py status.py op.py datatypes.py buffers.py group.py    the objects a user sees
    object_messages.py buffer_messages.py                          send, recv …; Send, Recv …
    quick.py                                                       the short way of ordinary objects, in C
    object_collectives.py buffer_collectives.py                    bcast …; Bcast, Ibcast, Bcast_init …
    communicator.py and comm_*.py                                  communicators: what else they are made of, by area
    plans.py, collectives_*.py                                     arguments to schedules; algorithms
    losses.py, agreement.py                                        who has failed, and what the living agree on
    imports.py                                                     what libraries make while a restart imports them anew
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


def make_world(progress: Progress) -> tuple[Engine, Intracomm]:
    """A fresh engine over `progress` and the communicator of all ranks."""
    from ckpt.mpi.comm.communicator import world_of
    from ckpt.mpi.engine.engine import Engine

    engine = Engine(progress)
    return engine, world_of(engine)

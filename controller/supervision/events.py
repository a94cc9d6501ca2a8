"""What happens to a job (events) and what is to be done about it (actions): the alphabet of the pure core.

Events go into `Job.handle(event, now_ns=…)` (and from there to `Supervisor` and `Coordinator`), actions come
out; a driver (`service.py`) carries them out, and reports completions of durable work as events again. All
are values: comparable, without behaviour, without time (time is the argument `now_ns`, integer nanoseconds of
any monotonic clock).

Actions are to be carried out in the order in which they are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ckpt.transport.records import dataclass, field

Token = int | str

# ---- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The controller holds the job's lock and has an agent."""


@dataclass(frozen=True, slots=True)
class Hello:
    rank: int
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class Captured:
    rank: int
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Voted:
    """The image of `rank` is durable. `vectors`: peer -> (tx, base, rx) at the moment of the image."""

    rank: int
    incarnation: int
    epoch: int
    label: tuple[int, int]
    manifest: str
    digest: str
    vectors: Mapping[int, tuple[int, int, int]] = field(hash=False)
    bytes_raw: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The rank could be captured when it was asked."""

    rank: int
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The rank cannot be captured where it is, and keeps trying."""

    rank: int
    incarnation: int
    epoch: int
    reason: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Boundary:
    """An explicit rank has passed `count` boundaries (−1: no more will come); `reached`: it waits at the agreed one."""

    rank: int
    incarnation: int
    epoch: int
    count: int
    reached: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """There will be no vote of this rank in this round, which has held its program up for `held_ns`."""

    rank: int
    incarnation: int
    epoch: int
    reason: str
    where: str = ""
    held_ns: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    rank: int
    incarnation: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class ProgramError:
    """The program on this rank raised, or called sys.exit with a code other than 0."""

    rank: int
    incarnation: int
    exit_code: int
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Died:
    """The process is gone and reaped: by `signal`, or with exit status `code`."""

    rank: int
    incarnation: int
    signal: int | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """No process of this or an older incarnation exists any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The agent died, and its ranks with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """By a rank (`rank` given; there is no answer, yet its program `waits` for the round) or by a client that waits under
    `token`.
    """

    token: Token | None = None
    rank: int | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Ctrl-C, a signal, `ckpt stop`, the time limit. A second one does not wait for the last checkpoint.

    `signal` is passed on to the ranks before the end. `exit_code` is the job's unless a last `checkpoint` was
    asked for and committed (then 75).
    `only_if_committed`: when that checkpoint fails, the job goes on.
    """

    exit_code: int
    reason: str
    checkpoint: bool = False
    only_if_committed: bool = False
    token: Token | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class ControlWritten:
    """The control file of `epoch` and its directory are durable: the line is committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ControlFailed:
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see `deadline_ns`."""


Event = (
    Begin | Hello | Ready | Boundary | Captured | Voted | Refused | Failed | Finished | ProgramError | Died | Fenced
    | AgentLost | CheckpointRequested | StopRequested | ControlWritten | ControlFailed | Tick
)  # fmt: skip

RoundEvent = (
    CheckpointRequested | Ready | Boundary | Captured | Voted | Refused | Failed | ControlWritten | ControlFailed | Tick
)  # fmt: skip

# ---- actions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Fork all ranks as `incarnation`, from the line of `epoch`, or from the program's start when it is
    None.
    """

    incarnation: int
    epoch: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The ranks are about to go on from this line (None: from the program's start), and newer ones are on disk: make it
    durable that these are left behind.
    """

    epoch: int | None


@dataclass(frozen=True, slots=True)
class Fence:
    """Kill and reap everything of `incarnation` and before; answered by `Fenced`."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Send:
    """A packet (`messages`) to the given ranks; None: to all."""

    packet: Mapping[str, Any]
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Terminate:
    """This signal (by default SIGTERM) to these ranks, as far as they are left; None: to all."""

    number: int = 15
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WriteControl:
    """Commit the line; answered by `ControlWritten` or `ControlFailed`. Votes are in rank order."""

    epoch: int
    incarnation: int
    votes: tuple[Voted, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Images of this epoch and of earlier ones since the last commit will never be part of a line: free the
    disk.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the event log."""

    event: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to the client that waits under `token`."""

    token: Token
    ok: bool
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the user (standard error)."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to do: the controller ends with this code.

    `kind`: "finished" (the program came to its end, with whatever code), "stopped" (somebody asked),
    "interrupted" (it could not go on; a restart by hand may).
    """

    exit_code: int
    reason: str
    kind: Literal["finished", "stopped", "interrupted"] = "finished"


Action = Launch | Turn | Fence | Send | Terminate | WriteControl | Discard | Log | Reply | Say | End

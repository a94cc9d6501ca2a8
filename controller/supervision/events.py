"""The events of a job and the actions that follow: inputs and outputs of the controller's state machines. Pure.

Events go into `Supervisor.handle(event, now_ns=…)` (and from there to the `Coordinator`), which returns actions. A driver
(`ckpt.controller.service.service`) carries the actions out, and reports the completion of durable work as events again.
Events and actions are values: comparable, without behaviour and without time. The time is the argument `now_ns`, in
integer nanoseconds of any monotonic clock.

The driver must carry out actions in the order in which they are returned.

This module is long because all state machines of a job share one list of events and one of actions.
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
    """The image of `rank` is being written. `pause_ns`: how long the rank has stood still for it."""

    rank: int
    incarnation: int
    epoch: int
    pause_ns: int = 0


@dataclass(frozen=True, slots=True)
class Voted:
    """The image of `rank` is durable. `vectors`: peer -> (tx, base, rx) at the moment of the image. `not_covered`: the
    number of changes of files that a restart cannot put back."""

    rank: int
    incarnation: int
    epoch: int
    label: tuple[int, int]
    manifest: str
    digest: str
    vectors: Mapping[int, tuple[int, int, int]] = field(hash=False)
    bytes_raw: int = 0
    bytes_written: int = 0
    not_covered: int = 0


@dataclass(frozen=True, slots=True)
class Adopt:
    """In the place of `Begin`: the ranks of this incarnation run, and this controller goes on with them.

    `addresses`, `finished`: of each rank, and the exit codes of those whose programs have ended. `open_round`: the last one
    that was begun, and of which the event log has no end. `failed`: dead ranks, without which the others go on; `told`:
    those of them of which the event log says so; `absent`: those that were dead before the line of this incarnation."""

    incarnation: int
    addresses: Mapping[int, str]
    finished: Mapping[int, int]
    open_round: int | None = None
    failed: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()
    absent: frozenset[int] = frozenset()


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
    """This rank will not vote in this round. `held_ns`: for how long the round has held its program up."""

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

    @property
    def exception(self) -> str:
        """The line of the traceback that names the exception, and not one of a note (`add_note`) or of a message of several
        lines behind it; "": there is no text."""
        text = self.traceback.rstrip().split("\n")
        lines = [line[4:] if line.startswith(("  | ", "  + ")) else line for line in text]  # of a group
        frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
        behind = lines[frames[-1] + 1 :] if frames else []
        return next((line for line in behind if line[:1].strip()), lines[-1])


@dataclass(frozen=True, slots=True)
class BackRequested:
    """The program wants the job to go back to its last checkpoint."""

    rank: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """The process has ended and was reaped: killed by `signal`, or with exit status `code`. Or its `host` was lost and is
    fenced; `diagnosis`: the fault that was located there by then (`ckpt.controller.faults`)."""

    rank: int
    incarnation: int
    signal: int | None = None
    code: int | None = None
    host: str | None = None
    diagnosis: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """No process of this or an older incarnation exists any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class FilesDamaged:
    """No rank was started: what was kept of the program's files for the line is damaged, and there is an older line."""

    reason: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rank has loaded what of its image needs no file, and waits for :class:`PutFilesBack`. `is_all`: that was all, and
    nothing of it can fail any more."""

    rank: int
    incarnation: int
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class FilesKept:
    """What was put back stays: the ranks of this incarnation may go on."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class FilesRefused:
    """Files could not be put back: the file system has refused a step."""

    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The agent died, and its ranks with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A rank or a client asks for a checkpoint.

    `rank`: the rank; it gets no answer. `waits`: the rank's program waits for the round. `token`: names the client that
    waits for the answer.
    """

    token: Token | None = None
    rank: int | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The job is to stop: a signal, `ckpt stop`, the time limit. A second request does not wait for a last checkpoint.

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
class SpawnRequested:
    """A program asks for more processes (MPI's Spawn). `token`: names the request. `counts`: for each command, the numbers
    of processes that are allowed; `commands`, `parent`: for the descriptions of the processes, which the rank has made."""

    rank: int
    incarnation: int
    token: str
    counts: tuple[tuple[int, ...], ...]
    commands: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    parent: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class SpawnVoid:
    """Nobody who lives has got the answer to this request for processes."""

    rank: int
    incarnation: int
    token: str


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
    """A deadline has passed; see `Supervisor.deadline_ns`."""


Event = (
    Begin | Adopt | Hello | Ready | Boundary | Captured | Voted | Refused | Failed | Finished | ProgramError | Died | Fenced
    | BackRequested | SpawnRequested | SpawnVoid | FilesDamaged | FilesKept | FilesRefused | Loaded
    | AgentLost | CheckpointRequested | StopRequested | ControlWritten | ControlFailed | Tick
)  # fmt: skip

RoundEvent = (
    CheckpointRequested | Ready | Boundary | Captured | Voted | Refused | Failed | ControlWritten | ControlFailed | Tick
)  # fmt: skip

# ---- actions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Fork all ranks as `incarnation`, from the line of `epoch`; `epoch` None: from the program's start. `absent`: ranks
    that were dead before that line, and are not forked."""

    incarnation: int
    epoch: int | None
    reason: str
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LaunchMore:
    """Fork processes for this request, in the present incarnation: `counts` of its commands, with the numbers from `first`
    on."""

    request: SpawnRequested
    counts: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class PutFilesBack:
    """All ranks have loaded what of their images needs no file: put the program's files back, and tell the ranks. Or the
    answer is `FilesRefused`. `stays`: no rank can fail to load any more; else :class:`KeepFiles` follows."""

    stays: bool


@dataclass(frozen=True, slots=True)
class KeepFiles:
    """All ranks have loaded their images: what was put back stays, also if a rank fails from now on. The answer is
    `FilesKept` or `FilesRefused`."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class SetBranch:
    """Record durably that the job goes on from the line of `epoch` (None: from the program's start).

    Newer lines are on disk; they do not count any more.
    """

    epoch: int | None


@dataclass(frozen=True, slots=True)
class Fence:
    """Kill and reap all processes of `incarnation` and of earlier ones. The answer is the event `Fenced`. `final`: no others
    are started, so hosts that may come back are not waited for."""

    incarnation: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send a packet (`messages`) to these ranks; None: to all."""

    packet: Mapping[str, Any]
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send the signal `number` (by default SIGTERM) to those of these ranks that still live; None: to all."""

    number: int = 15
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WriteControl:
    """Commit the line. The answer is `ControlWritten` or `ControlFailed`. Votes: in the order of ranks. `absent`: the dead.
    `verified`: other processes compute the same ranks, and agree with what images follow from; None: there are none."""

    epoch: int
    incarnation: int
    votes: tuple[Voted, ...]
    verified: bool | None = None
    absent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the images of this epoch and of earlier ones since the last commit: they will never be part of a line."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Log:
    """Append a line to the event log."""

    event: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the client `token`."""

    token: Token
    ok: bool
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """Print a message for the user (standard error)."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to do: the controller ends with this code.

    `kind`: "finished" (the program has ended, with any exit code), "stopped" (a user or the time limit asked),
    "interrupted" (the job could not go on; the user may restart it).
    """

    exit_code: int
    reason: str
    kind: Literal["finished", "stopped", "interrupted"] = "finished"


Action = (
    Launch
    | LaunchMore
    | PutFilesBack
    | KeepFiles
    | SetBranch
    | Fence
    | Send
    | Terminate
    | WriteControl
    | Discard
    | Log
    | Reply
    | Say
    | End
)

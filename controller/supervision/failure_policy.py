"""The decision after the death of a rank: restart, continue without the rank, or end the job. Pure.

A death by signal (or of the agent) is an accident: the job is restarted, within the number of allowed restarts. An exit code
other than 0, or an exit with status 0 without the packet `finished`, is caused by the program: a restart would not help.

Where the program itself handles failures (`--on-failure continue`), a process that has ended without `finished` or `error`,
in whatever way, is a failed rank, and the other ranks go on. So is a rank of a host that was lost, when the host is fenced.
"""

from __future__ import annotations

from signal import Signals
from typing import Literal

from ckpt.controller.errors import EXIT_FAILURE, EXIT_RESTARTS_USED_UP
from ckpt.controller.supervision.events import Died
from ckpt.transport.records import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision after a death, and its reason. `exit_code`: of the job, if `verdict` is "end"."""

    verdict: Literal["restart", "continue", "end"]
    reason: str
    exit_code: int = 0


def signal_name(number: int) -> str:
    """The name of a signal: "SIGKILL" for 9; "signal 77" for a signal without a name."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


OnFailure = Literal["restart", "continue"]


def judge(died: Died, *, restarts: int, max_restarts: int, on_failure: OnFailure = "restart") -> Decision:
    """The decision after the unexpected death of one rank.

    `restarts`: the number of restarts made under this controller; `max_restarts`: the number allowed.
    """
    if on_failure == "continue":
        how = f"was killed by {signal_name(died.signal)}" if died.signal is not None else "left"
        if died.host is not None:
            how = f"was lost with host {died.host}"
        return Decision("continue", f"rank {died.rank} {how}")
    if died.signal is not None:
        what = f"rank {died.rank} was killed by {signal_name(died.signal)}"
        return restart_if_left(what, restarts=restarts, max_restarts=max_restarts)
    if died.code:
        return Decision("end", f"rank {died.rank} left with exit code {died.code}", died.code)
    return Decision(
        "end",
        f"rank {died.rank} left with exit code 0 without finishing (os._exit?): "
        "the others cannot finish without it",
        EXIT_FAILURE,
    )


def restart_if_left(what: str, *, restarts: int, max_restarts: int) -> Decision:
    """Restart because of `what`, or end with exit code 14 when all allowed restarts are used up."""
    if restarts >= max_restarts:
        used = "no restarts are allowed" if max_restarts == 0 else f"all {max_restarts} restarts are used up"
        return Decision("end", f"{what}, and {used}", EXIT_RESTARTS_USED_UP)
    return Decision("restart", what)

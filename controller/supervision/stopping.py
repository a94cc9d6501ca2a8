"""How the ranks of a job are ended: who has asked, what ranks are sent, and what is done to those that do not end. Pure.

    ranks run ──force──▶ SIGTERM after `TERM_AFTER_NS`, SIGKILL after `KILL_AFTER_NS`
              ──pass_on──▶ the program gets the signal, and has `grace_ns` to end; then SIGKILL
    a rank has failed (`ending`): these times begin when its process has ended

Rules
- A request to stop with a last checkpoint waits for that (`request`): the supervisor asks for the round itself, and takes
  the answer out of the actions (`take_answer`).
- A second signal during `grace_ns` kills the ranks at once, unless it comes within `AGAIN_AFTER_NS` (some senders send
  each signal twice).
- A rank that has finished while a signal is passed on is released when all ranks have finished or ended.
- All who have asked get the same answer when the job has ended.

Not here: whether the job ends, and with which exit code (:mod:`ckpt.controller.supervision.supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import (
    Action,
    End,
    Fence,
    Reply,
    Say,
    Send,
    StopRequested,
    Terminate,
    Token,
)
from ckpt.controller.supervision.failure_policy import signal_name

__all__ = ["AGAIN_AFTER_NS", "GRACE_NS", "KILL_AFTER_NS", "STOP_TOKEN", "TERM_AFTER_NS", "Stopping"]

_MS = 1_000_000
TERM_AFTER_NS = 400 * _MS
KILL_AFTER_NS = 900 * _MS
GRACE_NS = 5_000 * _MS
AGAIN_AFTER_NS = 500 * _MS
STOP_TOKEN: Token = "stop"


class Stopping:
    """The end of one job's ranks. `grace_ns`: the time that ranks have to end after a signal."""

    def __init__(self, grace_ns: int = GRACE_NS) -> None:
        self.grace_ns = grace_ns
        self.request: StopRequested | None = None  # that waits for its last checkpoint
        self.passed_on_ns: int | None = None  # when the ranks got the signal that ends the job
        self.ending: int | None = None  # the rank that has failed and whose process has not ended yet
        self.steps: list[tuple[int, Action]] = []  # actions that are due later, with their times
        self._tokens: list[Token] = []
        self._result: dict[str, object] = {}

    # ---- who has asked -----------------------------------------------------------------------------------

    def asked(self, event: StopRequested) -> None:
        """Somebody has asked: the answer comes later."""
        if event.token is not None:
            self._tokens.append(event.token)

    def is_again(self, now_ns: int) -> bool:
        """Is a signal that comes now meant to end the ranks at once?"""
        return self.passed_on_ns is not None and now_ns >= self.passed_on_ns + AGAIN_AFTER_NS

    def take_answer(self, actions: Iterable[Action]) -> tuple[list[Action], Reply | None]:
        """The answer to the supervisor's own request for a round, and the other actions."""
        kept: list[Action] = []
        answer: Reply | None = None
        for action in actions:
            if isinstance(action, Reply) and action.token == STOP_TOKEN:
                answer = action
            else:
                kept.append(action)
        return kept, answer

    def committed(self, answer: Reply) -> None:
        """The last checkpoint is committed: who has asked is told of it in the end."""
        self._result = dict(answer.fields)

    def give_up(self, answer: Reply) -> list[Action]:
        """There is no last checkpoint, and without it nobody wants to stop."""
        replies: list[Action] = [Reply(token, False, answer.fields) for token in self._tokens]
        self.request, self._tokens = None, []
        return replies

    def ended(self, outcome: End) -> list[Action]:
        """The job has ended: the answers."""
        result = {"exit_code": outcome.exit_code, "reason": outcome.reason, **self._result}
        return [Reply(token, True, result) for token in self._tokens]

    # ---- what is done to ranks ---------------------------------------------------------------------------

    def force(self, incarnation: int, now_ns: int, *, waits: bool = True) -> None:
        """Ranks that do not leave are ended. Not yet, while the process of a failed rank ends and this `waits` for it."""
        self.steps = []
        if self.ending is None or not waits:
            self.steps = [(now_ns + TERM_AFTER_NS, Terminate()), (now_ns + KILL_AFTER_NS, Fence(incarnation))]

    def left(self, rank: int, incarnation: int, now_ns: int) -> None:
        """The process of a rank has ended while ranks are stopped."""
        if rank == self.ending:
            self.ending = None
            self.force(incarnation, now_ns)

    def pass_on(self, number: int, ranks: tuple[int, ...], incarnation: int, now_ns: int) -> Terminate:
        """These ranks get the signal, and time to end."""
        self.passed_on_ns = now_ns
        self.steps = [(now_ns + self.grace_ns, Fence(incarnation))]
        return Terminate(number, ranks)

    def say_passed_on(self, number: int) -> Say:
        patience = (
            f"{signal_name(number)} is passed on to the ranks, which have {self.grace_ns / 1e9:g} s to end; "
        )
        return Say(f"{patience}once more, and they are killed")

    def release(self, finished: Collection[int], gone: Collection[int], size: int) -> list[Action]:
        """Release the finished ranks when every rank has finished or has ended."""
        if self.passed_on_ns is None or len({*finished, *gone}) < size or len(gone) == size:
            return []
        return [Send(messages.release(final=False))]

    def due(self, now_ns: int) -> list[Action]:
        """The actions whose time has come."""
        actions: list[Action] = []
        while self.steps and self.steps[0][0] <= now_ns:
            step = self.steps.pop(0)[1]
            if isinstance(step, Fence):
                self.steps = []
            actions.append(step)
        return actions

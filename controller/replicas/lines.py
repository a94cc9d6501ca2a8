"""The lines (checkpoints) of a job with replicas: which count, which may hold an error, to which it goes back. Pure.

Which line is older than an error? All replicas of an incarnation begin alike, from one image, so what makes them differ has
happened since then. A verified line is one before which all have sent the same; but an error may have been in the memory of
the plane that has given the images, and not been sent yet. So a plane that was wrong takes with it the lines that it has
given in this incarnation; where it is not known which plane was wrong, all lines of this incarnation are passed over.

A line that is not verified is on disk, and no restart uses it by itself. One that is verified by what was sent and printed
counts in full when its memory has been compared, too (`memory`): until then it is *open*.

    there is a line that counts in full   a restart goes on from the newest of these, and passes over newer ones that are
    open all lines are open                    it goes on from the newest, and says that its memory was not compared

Lines that count in full are kept on disk until a newer one does. A job that is being stopped waits for the comparison of its
last line for LAST_NS.

Where nobody knows who is right, all planes go back to a line that is older than the error, or to the beginning; RERUNS_MAX
times at most to the same one, then the job ends with EXIT_REPLICAS_DIFFER.

Not here: the rounds that take lines (`coordinator`), when somebody is wrong (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ckpt.controller.errors import EXIT_REPLICAS_DIFFER
from ckpt.controller.replicas.coordinator import ReplicaCoordinator
from ckpt.controller.supervision.events import Action, ControlWritten, End, Log, Reply, Say
from ckpt.controller.supervision.failure_policy import Decision, restart_if_left
from ckpt.controller.supervision.stopping import STOP_TOKEN
from ckpt.controller.supervision.supervisor import Supervisor

RERUNS_MAX: Final = 2
LAST_NS: Final = 2_000_000_000


class ReplicaLines(Supervisor):
    """The part of the supervisor that knows of lines. `replicas`: N; the coordinator's size is the number of processes with
    which all begins, n·N."""

    coordinator: ReplicaCoordinator

    def __init__(self, coordinator: ReplicaCoordinator, *, replicas: int, **options: Any) -> None:
        super().__init__(coordinator, **options)
        self.replicas = replicas
        self.numbers = coordinator.numbers
        self.lineage = coordinator.lineage
        self.needed = replicas // 2 + 1
        self.reruns = 0
        self.unverified: list[int] = []
        """Lines since the newest verified one that are on disk, and that no restart uses by itself."""
        self.rerun_from: int | None = None
        self.compared = set(self.lines.epochs)
        """Lines that count in full; those with which a controller begins have been chosen by `ckpt restart`."""
        self.last: Reply | None = None
        """The last line of a job that is being stopped is committed, and its memory is being compared."""
        self.last_until_ns: int | None = None
        self._begin()

    def _begin(self) -> None:
        """All planes are started."""
        self.size = self.numbers.ranks * self.replicas
        self.coordinator.begin()
        self.taken: list[tuple[int, int]] = []
        """The verified lines of this incarnation, each with the plane that has given the images."""
        self.planes = set(range(self.replicas))
        """Those that compute or have finished."""

    @property
    def last_line(self) -> int | None:
        return self.unverified[-1] if self.unverified else super().last_line

    @property
    def needed_lines(self) -> Collection[int]:
        full = max(self.compared.intersection(self.lines.epochs), default=None)
        return {epoch for epoch in (self.resumed, self.lines.newest, full) if epoch is not None}

    def _line_written(self, event: ControlWritten, now_ns: int) -> list[Action]:
        """A line that is not verified counts only where somebody asks for it by its number."""
        if self.coordinator.round is None or self.coordinator.round.verified:
            self.taken.append((event.epoch, self.coordinator.donor))
            return super()._dispatch(event, now_ns)
        why = _ONE_LEFT if len(self.planes) == 1 else _WAS_ALONE
        say = [] if self.unverified else [Say(f"checkpoint {event.epoch} is not verified: {why}")]
        self.unverified.append(event.epoch)
        return [*say, *self.coordinator.handle(event, now_ns=now_ns)]

    def _distrust(self, planes: Collection[int], why: str) -> list[Action]:
        """One of these planes has computed wrongly, since it was started with this incarnation. The images that it has given
        may hold that error, also where it had not sent it yet: no restart uses them."""
        bad = [epoch for epoch, donor in self.taken if donor in planes]
        if not bad:
            return []
        self.taken = [each for each in self.taken if each[0] not in bad]
        self.lines.keep([epoch for epoch in self.lines.epochs if epoch not in bad])
        self.lines.needs_branch = True
        self.coordinator.wanted = True  # a new one, as soon as it can be had
        numbers = ", ".join(map(str, bad))
        text = f"{_count(bad)} {numbers} may hold the error, and will not be used"
        return [Log("lines-distrusted", {"epochs": bad, "reason": why}), Say(text)]

    def _carry_out(self, decision: Decision, now_ns: int) -> list[Action]:
        """Whoever starts again goes back behind lines that are not verified, and says so."""
        if decision.verdict == "end" or self.stopping.request is not None:
            return super()._carry_out(decision, now_ns)
        opened = [epoch for epoch in self.lines.epochs if epoch not in self.compared]
        if opened and len(opened) == len(self.lines.epochs):
            text = f"{no_memory(opened[-1])}: no checkpoint is verified in full"
            log = Log("memory-not-compared", {"epoch": opened[-1], "reason": decision.reason})
            return [log, Say(text), *self._pass_over([], decision, now_ns)]
        return self._pass_over(opened, decision, now_ns)

    def _pass_over(self, opened: list[int], decision: Decision, now_ns: int) -> list[Action]:
        """Start again from a line before those that are not verified, and these `opened` ones."""
        passed, self.unverified = sorted([*self.unverified, *opened]), []
        if not passed:
            return super()._carry_out(decision, now_ns)
        self.lines.keep([epoch for epoch in self.lines.epochs if epoch not in opened])
        self.lines.needs_branch = True
        numbers = ", ".join(map(str, passed))
        fields = {"epochs": passed, "reason": decision.reason}
        say = Say(f"no restart from what is not verified: passing over {_count(passed)} {numbers}")
        return [Log("unverified-passed-over", fields), say, *super()._carry_out(decision, now_ns)]

    def _after_last_checkpoint(self, actions: list[Action], now_ns: int) -> list[Action]:
        """Whoever stops the job waits a moment for the comparison of the last line."""
        if self.stopping.request is not None and self.outcome is None:
            for answer in actions:
                if isinstance(answer, Reply) and answer.token == STOP_TOKEN and self._is_open(answer):
                    actions = [action for action in actions if action is not answer]
                    self.last, self.last_until_ns = answer, now_ns + LAST_NS
        if self.last is not None and (now_ns >= (self.last_until_ns or 0) or not self._is_open(self.last)):
            actions = [*actions, self.last]
            self.last = self.last_until_ns = None
        return super()._after_last_checkpoint(actions, now_ns)

    def _is_open(self, answer: Reply) -> bool:
        epoch = answer.fields.get("epoch")
        return answer.ok and epoch in self.lines.epochs and epoch not in self.compared

    def _run_again(self, why: str, now_ns: int) -> list[Action]:
        """Nobody knows who is right: back to the last line that is older than the error, or to the beginning."""
        distrusted = self._distrust({plane for _, plane in self.taken}, why)
        if self.lines.newest != self.rerun_from:
            self.reruns, self.rerun_from = 0, self.lines.newest  # it has come further meanwhile
        if self.reruns >= RERUNS_MAX:
            reason = (
                f"{why}. This was run {self.reruns + 1} of the program: it does not compute the same each time "
                "(docs/redundancy.md names usual reasons), or this machine computes wrongly"
            )
            return [*distrusted, *self._stop_now(End(EXIT_REPLICAS_DIFFER, reason, "interrupted"), now_ns)]
        self.reruns += 1
        decision = restart_if_left(why, restarts=self.restarts, max_restarts=self.max_restarts)
        if decision.verdict == "end":
            end = End(EXIT_REPLICAS_DIFFER, decision.reason, "interrupted")
            return [*distrusted, *self._stop_now(end, now_ns)]
        return [*distrusted, *self._carry_out(decision, now_ns)]


_ONE_LEFT = "one replica of each rank is left, and nothing is compared"
_WAS_ALONE = "one replica of each rank was left for a time, and nothing was compared then"


def no_memory(epoch: int) -> str:
    """What is said of a line that is open."""
    return (
        f"going on from checkpoint {epoch}, before which what was sent and printed is verified, but whose memory has not "
        "been compared between the replicas"
    )


def _count(lines: Sequence[int]) -> str:
    return "checkpoint" if len(lines) == 1 else "checkpoints"

"""Checkpoint rounds: from a request to a committed line. Pure (no clock, no I/O).

A round is one epoch number. Its states:

    idle ──request, schedule──▶ asking ──all ready──▶ collecting ──all votes, vectors hold──▶ writing ──▶ committed
                                  │                       │                                      │
                                  │                       └── failed vote · death · timeout ·    └── ControlFailed ──▶ burnt
                                  └── the same ──▶ burnt      bad label · bad vectors ──▶ burnt

A *burnt* round is one that was aborted. A *line* is the images of all ranks that live, for one epoch.

Rules
- There is one round at a time. Epoch numbers only grow, above the highest number ever used in the job (`highest`). The
  number of a burnt round is never used again, since frames and images with this label may exist.
- If there are several ranks, the coordinator first *asks* them whether they could be captured. No rank stops or waits for
  that, and no frame is labelled before all ranks have answered `ready`: a rank that cannot be captured costs the others
  nothing. The question names the ranks whose programs wait for the round. If a rank cannot be captured because its program
  waits, perhaps for a message of one of these ranks, it gives the round up.
- A round needs the vote of every rank of the present incarnation that is not lost. An image stands for the epochs in
  (label[0], label[1]].
- A vote counts only for the open round; any other vote is late, and ignored.
- No line is committed without the check of every link's vectors (`vectors.check`), and no commit is announced before
  the control file is durable.
- While the control file is being written, deaths change nothing: the images are complete.
- Requests merge. A request joins the open round if no rank has captured its image yet (for a rank's own request: if that
  rank has not); later requests share the next round. A request survives a rollback: the next incarnation serves it. When a
  round fails, its requests are answered with the reason.
- If a rank is dead and will not be restarted (`lost`), it is absent from later lines. The open round is burnt, and its
  requests are served by the next one, which begins after the death is known: so nothing of the dead rank is of its epoch.
  Committed lines stay valid, and so does one that is being written. Where ranks are replayed (`goes_on` false), and after
  `refuse`, there are no more rounds in this incarnation: every request is refused with the reason.
- The schedule's interval counts from the start of a round, and begins anew after a restart. After a commit the next
  scheduled round comes no sooner than after the duration of the last one, so that the program makes progress even if the
  interval is too short. Failed rounds make the interval longer, and are reported once (`uncommitted.CommitGap`).

Not here: what is known of one round (`rounds`), when processes are started or killed (`supervisor`), how a control file is
written (`ckpt.controller.service.commit`, `ckpt.store`).

This module is long because a round, and the requests that wait for it or for the next one, are one state machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpt.controller.supervision import messages
from ckpt.controller.supervision.cuts import vectors
from ckpt.controller.supervision.events import (
    Action,
    Boundary,
    Captured,
    CheckpointRequested,
    ControlFailed,
    ControlWritten,
    Discard,
    Failed,
    Log,
    Ready,
    Refused,
    Reply,
    RoundEvent,
    Say,
    Send,
    Token,
    Voted,
    WriteControl,
)
from ckpt.controller.supervision.lines import NOBODY
from ckpt.controller.supervision.rounds import Round, RoundOptions
from ckpt.controller.supervision.uncommitted import CommitGap
from ckpt.transport.records import replace


class Coordinator:
    """The rounds of one job. `highest`: the highest epoch number ever used; `committed`: the newest committed epoch.

    Raises ValueError for an impossible `size` or `committed`.
    """

    def __init__(
        self,
        size: int,
        *,
        highest: int = 0,
        committed: int | None = None,
        options: RoundOptions | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"size is {size}")
        if committed is not None and committed > highest:
            raise ValueError(f"epoch {committed} is committed, yet the highest number seen is {highest}")
        self.size = size
        self.options = options or RoundOptions()
        self.highest = highest
        self.committed = committed
        self.incarnation: int | None = None  # None: the ranks are not all connected, so no round can begin
        self.round: Round | None = None
        self.waiting: list[Token] = []  # clients that wait for the next round
        self.waiting_ranks: set[int] = set()  # ranks whose programs wait for the next round
        self.wanted = False  # a next round is wanted, by a request or by the schedule
        self.due_ns: int | None = None
        self._go_on_without(NOBODY)
        self.refusal: str | None = None  # why this incarnation can have no more rounds
        self.gap = CommitGap()

    @property
    def members(self) -> Sequence[int]:
        """The processes whose images make a line."""
        return self._living

    def _go_on_without(self, absent: frozenset[int]) -> None:
        """These ranks are dead, and not restarted in this incarnation."""
        self.absent = absent
        self._living = tuple(rank for rank in range(self.size) if rank not in absent)

    def rank_of(self, process: int) -> int:
        """The rank that this process computes."""
        return process

    # ---- what the supervisor says ------------------------------------------------------------------------

    def ready(self, incarnation: int, *, now_ns: int, absent: frozenset[int] = NOBODY) -> list[Action]:
        """All ranks of `incarnation` but those that are `absent` are connected: rounds may start."""
        self.incarnation = incarnation
        self._go_on_without(absent)
        self.gap.incarnation_begins()
        self._schedule(now_ns)
        return self._maybe_start(now_ns)

    def interrupted(self, reason: str) -> list[Action]:
        """The ranks will be ended: the open round is burnt, and its requests wait for the next incarnation."""
        self.incarnation = None
        self.refusal = None
        self.due_ns = None
        self.waiting_ranks.clear()
        if self.round is None or self.round.writing:
            return []
        return self._burn(reason, keep_requests=True)

    def lost(self, rank: int, reason: str, *, now_ns: int) -> list[Action]:
        """A rank is dead and will not be restarted: the others go on without it."""
        if not self.options.goes_on:
            return self.refuse(f"{reason}: there is no checkpoint without it")
        self._go_on_without(self.absent | {rank})
        self.waiting_ranks.discard(rank)
        if not self._is_open():
            return []
        self.wanted = True  # by whoever has asked for this round, or by the schedule
        return self._burn(reason, keep_requests=True) + self._maybe_start(now_ns)

    def refuse(self, why: str) -> list[Action]:
        """There is no round from now on in this incarnation. All waiting requests are answered."""
        self.refusal, self.due_ns, self.wanted = why, None, False
        burnt: list[Action] = []
        if self.round is not None and self._is_open():
            say = Say(f"checkpoint {self.round.epoch} failed, the job goes on: {why}")
            burnt = [*self._burn(why), say]
        return burnt + self._answer_waiting(why)

    @property
    def is_taking(self) -> bool:
        """Are the images of a round being taken, or its control file written?"""
        return self.round is not None and self.round.ready is None

    def _is_open(self) -> bool:
        return self.incarnation is not None and self.round is not None and not self.round.writing

    def _answer_waiting(self, reason: str) -> list[Action]:
        waiting, self.waiting = self.waiting, []
        return [Reply(token, False, {"reason": reason}) for token in waiting]

    def closed(self, reason: str) -> list[Action]:
        """The job is over: all waiting requests are answered."""
        actions = self.interrupted(reason)
        if self.round is not None:
            self.waiting, self.round.tokens = self.round.tokens + self.waiting, []
        final_notice = self.gap.final_notice()
        if final_notice is not None:
            actions.append(Say(final_notice))
        return actions + self._answer_waiting(reason)

    # ---- events ------------------------------------------------------------------------------------------

    def handle(self, event: RoundEvent, *, now_ns: int) -> list[Action]:
        match event:
            case CheckpointRequested():
                return self._request(event, now_ns)
            case Captured():
                if self._concerns_round(event):
                    assert self.round is not None
                    self.round.captures(event.rank, now_ns - event.pause_ns)
                return []
            case Ready():
                return self._ready(event, now_ns)
            case Boundary():
                return self._boundary(event)
            case Voted():
                return self._vote(event, now_ns)
            case Refused():
                return self._refused(event)
            case Failed():
                if not self._concerns_round(event):
                    return []
                where = f" ({event.where})" if event.where else ""
                return self._fail(f"rank {event.rank}: {event.reason}{where}", now_ns, event.held_ns)
            case ControlWritten():
                return self._written(event, now_ns)
            case ControlFailed():
                assert self.round is not None and self.round.writing and self.round.epoch == event.epoch
                return self._fail(f"the control file: {event.reason}", now_ns)
            case _:
                return self._tick(now_ns)

    def deadline_ns(self) -> int | None:
        """When `Tick` is due; None: not before another event."""
        if self.incarnation is None or (self.round is not None and self.round.writing):
            return None
        times = (self.gap.deadline_ns(), self.due_ns if self.round is None else self.round.deadline_ns)
        return min((each for each in times if each is not None), default=None)

    # ---- the inside --------------------------------------------------------------------------------------

    def _concerns_round(self, event: Ready | Boundary | Captured | Voted | Refused | Failed) -> bool:
        return (
            self.round is not None
            and not self.round.writing
            and (self.round.ready is None or not isinstance(event, (Captured, Voted, Boundary)))
            and event.incarnation == self.incarnation
            and event.rank in self.members
            and event.epoch == self.round.epoch
        )

    def _request(self, event: CheckpointRequested, now_ns: int) -> list[Action]:
        if self.refusal is not None:
            answers = [] if event.token is None else [Reply(event.token, False, {"reason": self.refusal})]
            return [Log("round-refused", {"reason": self.refusal}), *answers]
        open_round = self.round
        if open_round is not None and not open_round.writing:
            late = event.rank in open_round.captured if event.rank is not None else bool(open_round.captured)
            if not late:
                if event.token is not None:
                    open_round.tokens.append(event.token)
                return self._wait(open_round, event)
        self.wanted = True
        if event.rank is not None and event.waits:
            self.waiting_ranks.add(event.rank)
        if event.token is not None:
            self.waiting.append(event.token)
        return self._maybe_start(now_ns)

    def _wait(self, asking: Round, event: CheckpointRequested) -> list[Action]:
        """A request joins the open round. While ranks are asked, a question that is sent again names the waiting ranks."""
        if event.rank is None or not event.waits or asking.ready is None:
            return []
        told = (event.rank,) if asking.waiting else None  # the others know of one already
        asking.waiting.add(event.rank)
        return [Send(messages.ask(asking.epoch, asking.waiting), told)]

    def _schedule(self, from_ns: int) -> None:
        every_ns = self.options.every_ns
        self.due_ns = None if every_ns is None or self.refusal is not None else from_ns + every_ns

    def _maybe_start(self, now_ns: int) -> list[Action]:
        if self.round is not None or self.incarnation is None or not self.wanted:
            return []
        self.wanted = False
        self.highest += 1
        deadline_ns = now_ns + self.options.timeout_ns
        self.round = Round(self.highest, now_ns, deadline_ns, tokens=self.waiting, absent=self.absent)
        self.waiting = []
        self.round.waiting, self.waiting_ranks = self.waiting_ranks, set()
        self._schedule(now_ns)
        self.gap.round_begins(now_ns)
        # The number is in the event log before any rank can label a frame with it.
        log = Log("round-started", {"epoch": self.highest, "incarnation": self.incarnation})
        if not self.options.asks or len(self.members) == 1:
            return [log, self._take()]
        self.round.ready = set()
        return [log, Send(messages.ask(self.highest, self.round.waiting))]

    def _ready(self, event: Ready, now_ns: int) -> list[Action]:
        if not self._concerns_round(event):
            return []
        assert self.round is not None
        if self.round.ready is None:
            return []
        self.round.ready.add(event.rank)
        if len(self.round.ready) < len(self.members):
            return []
        self.round.ready = None
        self.round.refusals.clear()
        self.round.started_ns = now_ns
        self.round.deadline_ns = now_ns + self.options.timeout_ns
        return [self._take()]

    def _take(self) -> Send:
        """The images of the round are to be taken."""
        return Send(messages.checkpoint(self.highest, self.options.mode))

    def _vote(self, vote: Voted, now_ns: int) -> list[Action]:
        if not self._concerns_round(vote):
            return self._late(vote)
        assert self.round is not None and self.incarnation is not None
        previous, epoch = vote.label
        if not previous < self.round.epoch <= epoch:
            reason = f"rank {vote.rank} voted with an image for epochs ({previous}, {epoch}]"
            return self._fail(reason, now_ns)
        self.round.captured.add(vote.rank)
        self.round.votes[vote.rank] = vote
        if len(self.round.votes) < len(self.members):
            return []
        votes = [self.round.votes[process] for process in self.members]  # of rank 0, 1, …
        wrong = vectors.check({self.rank_of(vote.rank): vote.vectors for vote in votes})
        if wrong:
            text = "; ".join(str(each) for each in wrong[:3])
            return self._fail(f"the images are no consistent line: {text}", now_ns)
        return self._complete(votes, now_ns)

    def _complete(self, votes: list[Voted], now_ns: int) -> list[Action]:
        """All images of the line are durable, and consistent."""
        assert self.round is not None and self.incarnation is not None
        self.round.writing = True
        absent = tuple(sorted(self.round.absent))
        return [WriteControl(self.round.epoch, self.incarnation, tuple(votes), absent=absent)]

    def _late(self, vote: Voted) -> list[Action]:
        """A vote that does not count: remove the image if it belongs to a burnt round."""
        newest_burnt = self.highest if self.round is None else self.round.epoch - 1
        if (self.committed or 0) < vote.epoch <= newest_burnt:
            return [Discard(vote.epoch)]
        return []

    def _boundary(self, event: Boundary) -> list[Action]:
        if not self._concerns_round(event):
            return []
        assert self.round is not None
        due = self.round.agreement.heard(
            event.rank, event.count, event.reached, captured=self.round.captured, size=self.size
        )
        return [] if due is None else [Send(messages.cut(event.epoch, due["at"], due["take"]))]

    def _refused(self, event: Refused) -> list[Action]:
        if not self._concerns_round(event):
            return []
        assert self.round is not None
        before = self.round.refusals.get(event.rank)
        self.round.refusals[event.rank] = event
        self.gap.refused(event.rank, event.reason)
        if before is not None and replace(before, where=event.where) == event:
            return []  # the same reason, perhaps at another place: the log has it already
        fields = {"epoch": event.epoch, "rank": event.rank, "reason": event.reason, "where": event.where}
        return [Log("refused", fields)]

    def _written(self, event: ControlWritten, now_ns: int) -> list[Action]:
        done = self.round
        assert done is not None and done.writing and done.epoch == event.epoch
        self.round = None
        self.committed = event.epoch
        self.gap.ends()
        if self.due_ns is not None:
            # The wait for a place where the ranks can be captured costs them nothing, and is not counted.
            self.due_ns = max(self.due_ns, now_ns + (now_ns - done.costs_since_ns))
        fields = {
            "epoch": event.epoch,
            "ms": round((now_ns - done.started_ns) / 1e6, 3),
            "bytes": sum(vote.bytes_raw for vote in done.votes.values()),
            "bytes_written": sum(vote.bytes_written for vote in done.votes.values()),
            **({} if done.verified is None else {"verified": done.verified}),
        }
        actions: list[Action] = [Log("committed", fields), Send(messages.committed(event.epoch))]
        actions += [Reply(token, True, fields) for token in done.tokens]
        return actions + self._maybe_start(now_ns)

    def _tick(self, now_ns: int) -> list[Action]:
        if self.incarnation is None:
            return []
        notice = self.gap.notice(now_ns)
        actions: list[Action] = [] if notice is None else [Say(notice)]
        if self.round is not None:
            if self.round.writing or now_ns < self.round.deadline_ns:
                return actions
            limit_s = self.options.timeout_ns / 1e9
            return actions + self._fail(f"no line after {limit_s:g} s: {self._missing(self.round)}", now_ns)
        if self.due_ns is not None and now_ns >= self.due_ns:
            self.wanted = True
        return actions + self._maybe_start(now_ns)

    def _missing(self, late: Round) -> str:
        """What the round waits for."""
        return late.who_is_missing(self.members)

    def _fail(self, reason: str, now_ns: int, held_ns: int = 0) -> list[Action]:
        """The round has failed: burn it, delay the next one, and print a message if this is the gap's first failure."""
        assert self.round is not None
        is_first = self.gap.round_fails(reason)
        epoch = self.round.epoch
        actions = self._burn(reason)
        if is_first:
            actions.append(Say(f"checkpoint {epoch} failed, the job goes on: {reason}"))
        notice = self.gap.notice(now_ns)
        if notice is not None:
            actions.append(Say(notice))
        if self.options.every_ns is not None and self.due_ns is not None:
            self.due_ns = max(self.due_ns, now_ns + self.gap.interval_ns(self.options.every_ns, held_ns))
        return actions + self._maybe_start(now_ns)

    def _burn(self, reason: str, *, keep_requests: bool = False) -> list[Action]:
        burnt = self.round
        assert burnt is not None
        self.round = None
        fields = {"epoch": burnt.epoch, "reason": reason}
        actions: list[Action] = [
            Log("round-aborted", fields),
            Send(messages.abort(burnt.epoch, reason)),
            Discard(burnt.epoch),
        ]
        if keep_requests:
            self.waiting = burnt.tokens + self.waiting
            self.wanted = self.wanted or bool(burnt.tokens)
            return actions
        return actions + [Reply(token, False, fields) for token in burnt.tokens]

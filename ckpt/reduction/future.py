"""The result of a call: the outcome of one reduction, now or later.

    pending    nothing is known yet
    done       the outcome is known; the result, where this rank is to have it, is here
    over       and every rank that lives has it: nobody else needs this rank's copy

The names are those of `concurrent.futures.Future`. A pending future is part of an image; after a restart it goes on.

A reduction in parts (members.py) ends when all of its parts have, or the first one with an error. Each part costs the
messages of a reduction; a level of the tree begins with the first one while the level below is at the next ones, so it pays
where processors are idle, or networks. Where not everybody has to be in the result, or the root may change, parts could end
in different ways: there is one part then. Source of pieces that overlap: Hoplite (SIGCOMM 2021).

    Future     of a call
    Whole      the parts of one reduction: which have ended
    Ending     the ends of all reductions of a service: events, what comes too late

Not here: who decides the outcome (master.py), how it comes (service.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

import ckpt
from ckpt.reduction import errors
from ckpt.reduction.body import Body, Packed
from ckpt.reduction.combining import Carried, Combining, Local
from ckpt.reduction.copies import Piece, Where
from ckpt.reduction.members import Completed, whole_of
from ckpt.reduction.messages import Contract, Key, Outcome, Path, ranks_of
from ckpt.reduction.partial import Pace, event_of
from ckpt.reduction.values import Joined, Shared, apart


class Waits(Protocol):
    """What a future needs of the service."""

    def wait(self, future: Future, timeout: float | None) -> bool: ...
    def call_later(self, function: Callable[[Future], object], future: Future) -> bool: ...


class Future:
    """The outcome of one reduction at this rank."""

    def __init__(self, service: Waits, key: Key, value: Any) -> None:
        self.name = key[0]
        self._service, self._key, self._input = service, key, value
        self._outcome: Outcome | None = None
        self._value: Any = None
        self._result: Any = None
        self._given = self._is_mine = False
        self._over = False
        self.is_in_parts = False
        self._late: errors.ReductionError | None = None
        self._callbacks: list[Callable[[Future], object]] = []
        self._counts = {
            "messages_sent": 0,
            "messages_received": 0,
            "bytes_sent": 0,
            "bytes_read": 0,
            "tasks": 0,
            "combine_ns": 0,
        }

    def __repr__(self) -> str:
        state = "pending" if self._outcome is None else self._outcome.error or "done"
        return f"<Future of reduction {self.name or self._key[1]!r}: {state}>"

    # -- for the program

    def done(self) -> bool:
        """Whether the outcome is known: `result` returns or raises at once then."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Any:
        """The result: a new array or body, the program's own; None at ranks that are not to have it. Waits for it.

        Raises TimeoutError after `timeout` seconds, an error of ckpt.reduction.errors that all ranks get alike, or
        LateContribution; WouldDeadlock in a callback."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        if not self._given:
            self._given = True
            self._result = self._own_copy(self._value)
        return self._result

    def exception(self, timeout: float | None = None) -> errors.ReductionError | None:
        """The error with which it ended; None: it has a result. Waits as `result`."""
        if self._outcome is None and not self._service.wait(self, timeout):
            raise TimeoutError(f"reduction {self.name or self._key[1]!r} is not done after {timeout} s")
        outcome = self._outcome
        assert outcome is not None
        if outcome.error:
            error: errors.ReductionError = getattr(errors, outcome.error)(
                f"reduction {self.name or self._key[1]!r}: {outcome.text}",
                self.name,
                tuple(ranks_of(outcome.ranks)),
            )
            return error
        return self._late

    def add_done_callback(self, function: Callable[[Future], object]) -> None:
        """Have `function(future)` called when it is done, in the reduction's thread; at once if it is done.

        What it raises is raised in the program's next call that communicates. Raises TypeError for what is no function."""
        if not callable(function):
            raise TypeError(f"a callback is a function of one argument, not {function!r}")
        if not self._service.call_later(function, self):
            function(self)

    @property
    def contributors(self) -> tuple[int, ...]:
        """The ranks whose contribution is in the result; the same at every rank. Empty as long as it is not done."""
        return () if self._outcome is None else tuple(ranks_of(self._outcome.contributors))

    @property
    def missing(self) -> tuple[int, ...]:
        """The other ranks."""
        return () if self._outcome is None else tuple(ranks_of(self._outcome.missing))

    @property
    def weight(self) -> float:
        """The sum of the contributors' weights: what a sum is divided by to be a mean. 0.0 as long as it is not done."""
        return 0.0 if self._outcome is None else self._outcome.weight

    @property
    def root(self) -> int | None:
        """The rank that has the result; None: all have it, or it is not done."""
        return None if self._outcome is None or self._outcome.root < 0 else self._outcome.root

    def stats(self) -> dict[str, int]:
        """What this rank did: messages, bytes of data in them, bytes read where they lie, tasks and their nanoseconds."""
        return dict(self._counts)

    # -- for the service, under its lock

    def settle(
        self, outcome: Outcome, value: Any, late: errors.ReductionError | None, is_mine: bool
    ) -> list[Callable[[Future], object]]:
        """The outcome is known. Returns the callbacks. `is_mine`: the value is kept for nobody else."""
        self._value, self._late, self._is_mine = value, late, is_mine
        self._outcome = outcome
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def let_go(self) -> None:
        """Nobody else needs the result that is kept here."""
        self._over, self._input = True, None if self._value is not self._input else self._input

    def remember(self, function: Callable[[Future], object]) -> bool:
        """Keep a callback; False: it is done already."""
        if self._outcome is not None:
            return False
        self._callbacks.append(function)
        return True

    def count(self, what: str, by: int = 1) -> None:
        self._counts[what] += by

    def _own_copy(self, value: Any) -> Any:
        """What is kept for others, or is the program's own input, is not given away."""
        if isinstance(value, Joined):
            self._value = None
            return value.join()
        if isinstance(value, Packed):
            return value.body()
        if isinstance(value, Piece):
            self._value = None
            return value.content()
        value = value.body if isinstance(value, Shared) else value
        if isinstance(value, np.ndarray):
            mine = self._is_mine or (self._over and value is not self._input and value.flags.writeable)
            return value if mine else value.copy()
        return copy.deepcopy(value) if isinstance(value, Body) else value


def is_divisible(contract: Contract) -> bool:
    """Do all parts end alike? Everybody contributes, to one root or all, or all get an error."""
    tolerant = contract.quorum or contract.deadline_ns or contract.on_loss == "partial"
    return not tolerant and (contract.root < 0 or contract.on_root_loss == "raise")


class Whole:
    """A reduction in parts at this rank. It ends when all have, or the first one with an error; then that is the outcome."""

    __slots__ = ("count", "future", "joined", "late", "outcome", "outcomes")

    def __init__(self, future: Future, value: Any, count: int) -> None:
        self.future, self.count, self.joined = future, count, Joined(value, count)
        self.outcomes: dict[int, Outcome] = {}
        self.outcome: Outcome | None = None
        self.late: errors.ReductionError | None = None

    def complete(self, part: int, outcome: Outcome, value: Any, late: errors.ReductionError | None) -> bool:
        """A part has ended. True: the whole has, now. `late`: an error of this rank alone."""
        if self.outcome is not None:
            return False
        self.outcomes[part], self.late = outcome, self.late or late
        if not outcome.error:
            self.joined.put(part, value)
        if len(self.outcomes) < self.count and not (part == 0 and outcome.error):
            return False
        ends = [self.outcomes[each] for each in sorted(self.outcomes)]
        self.outcome = next((end for end in ends if end.error), ends[0])
        return True


class Ending(Combining):
    """The ends of all reductions of a service. Its methods need the lock."""

    def __init__(self, rank: int, size: int, world_rank: int, number: int) -> None:
        super().__init__(rank, size, world_rank, number)
        self.size = size
        self.carried: dict[tuple[str, str], list[Carried]] = {}
        self.wholes: dict[Key, Whole] = {}
        """Reductions in parts that have not ended here."""
        self.told: Path = 0  # who is missing, by the last event
        self.pace = Pace()

    def log(self, text: str) -> None:
        """Have the thread write a line to the log."""
        raise NotImplementedError

    def drop_timers(self, key: Key) -> None:
        raise NotImplementedError

    def place(self, key: Key) -> Any:
        """See Combining."""
        whole_key, part = whole_of(key)
        whole = self.wholes.get(whole_key)
        return None if whole is None else whole.joined.place(part)

    def _complete(self, step: Completed) -> None:
        """A reduction has ended, or a part of one."""
        outcome: Outcome = step.outcome
        (whole_key, part), local = whole_of(step.key), self.locals[step.key]
        late: errors.ReductionError | None = None
        if not outcome.error and not outcome.contributors >> self.rank & 1:
            late = self._late(step.key, local)
        try:
            self._check_input(step.key, local.value)
        except errors.InputChanged as failure:
            late = failure  # what the others have is from before
        value = self.values.own(step.value) if isinstance(step.value, Where) else step.value
        if outcome.contributors == 1 << self.rank and value is not None:
            value = self._kept_apart(step.key, value)
        whole = self.wholes.get(whole_key)
        if whole is None:
            member = self.members.members.get(step.key)
            items = () if member is None else member.items.values()
            kept = [local.value, *(held.value for held in items)]
            is_mine = all(value is not each for each in kept)
            self._end(step.key, self.futures[step.key], local, outcome, value, late, is_mine)
            return
        if isinstance(value, Piece) and self._at_once(value.nbytes):
            place = self.place(step.key)
            if place is not None:
                np.copyto(place, value.value)
                value = place
        if whole.complete(part, outcome, value, late):
            del self.wholes[whole_key]
            assert whole.outcome is not None
            has_result = not whole.outcome.error and whole.outcome.root in (-1, self.rank)
            joined = whole.joined if has_result else None
            self._end(whole_key, whole.future, local, whole.outcome, joined, whole.late, True)
            whole.future.let_go()

    def _kept_apart(self, key: Key, value: Any) -> Any:
        """The result is what this rank alone gave, by a quorum or deadline: the others read it here, also after the program
        has used its memory again, for which it has to wait for its own end only."""
        value = apart(value)
        member = self.members.members.get(key)
        if member is not None:
            path = 1 << self.rank
            member.items[path] = member.items[path]._replace(value=value)
        return value

    def _end(
        self,
        key: Key,
        future: Future,
        local: Local,
        outcome: Outcome,
        value: Any,
        late: errors.ReductionError | None,
        is_mine: bool,
    ) -> None:
        """The program may have the outcome. `is_mine`: nobody else needs the value."""
        self.drop_timers(key)
        self.calls.end(key)
        is_first = self.members.is_master()
        if is_first and (said := event_of(key, outcome, self.members.dead, local.tolerant, self.told)):
            self.told = outcome.missing
            ckpt.log_event(said.pop("name"), **said)
        if outcome.error in ("ContributionLost", "RootLost") and local.on_loss == "restart" and self.size > 1:
            if is_first:
                ckpt.go_back(f"reduction {key[0] or key[1]!r}: {outcome.text}")
            return  # nobody gets a result: all processes are about to be ended
        for said in self.pace.look(self.members.ranks.times) if is_first else ():
            self.log(
                f"rank {said['slow']} is slow: its last task took {said['ms']} ms, others {said['others_ms']}"
            )
            ckpt.log_event("reduction-slow", reduction=key[0] or str(key[1]), **said)
        for function in future.settle(outcome, value, late, is_mine):
            self.give((function, future))

    def _late(self, key: Key, local: Local) -> errors.ReductionError | None:
        """This rank's contribution is not in the result."""
        if local.late == "raise":
            return errors.LateContribution(
                f"reduction {key[0] or key[1]!r} had ended without rank {self.rank}", key[0], (self.rank,)
            )
        if local.late == "carry":
            try:  # a copy: once it is told of the end, the program may write to its own
                value = copy.deepcopy(local.value)
            except Exception as failure:
                return errors.LateContribution(
                    f"reduction {key[0] or key[1]!r} had ended without rank {self.rank}, and what that gave cannot be "
                    f"copied for the next one: {type(failure).__name__}: {failure}",
                    key[0],
                    (self.rank,),
                )
            self.carried.setdefault((key[0], self.contents[key]), []).append(Carried(value, local.weight))
        return None

    def _let_go(self, key: Key) -> None:
        """All that live have what they are to have of a reduction, or of a part of one."""
        future = self.futures.pop(key, None)
        if future is not None and not future.is_in_parts:
            future.let_go()
        self.locals.pop(key, None)
        self.contents.pop(key, None)
        self.kept.pop(key, None)
        self.originals.pop(key, None)
        for each in [each for each in self.under_way if each[0] == key]:
            del self.under_way[each]

"""The result of a call: the outcome of one reduction, now or later.

    pending    nothing is known yet
    done       the outcome is known; the result, where this rank is to have it, is here
    over       and every rank that lives has it: nobody else needs this rank's copy

The names are those of `concurrent.futures.Future`. A pending future is part of an image; after a restart it goes on.

Not here: how the outcome comes (service.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ckpt.reduction import errors
from ckpt.reduction.body import Body, Packed
from ckpt.reduction.copies import Piece
from ckpt.reduction.messages import Key, Outcome, ranks_of
from ckpt.reduction.values import Shared


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

        What it raises is raised in the program's next call that communicates."""
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

"""The work that the thread of reductions posts for the handler: called under the lock, by whoever has it. (driver)

And its timers: deadlines and warnings of the reductions that are under way, each until its reduction is done. The thread
sleeps until the first of them. It is woken for a new one only if that comes before: to wake it for each call costs more than
a short reduction.

Not here: the thread (service.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.reduction.members import Reading
from ckpt.reduction.messages import Key

if TYPE_CHECKING:
    from ckpt.reduction.service import Service


AWAKE = 1 << 63
"""For `wakes_ns`: the thread has not looked at the timers since; it may have to be woken."""


class Timers:
    """Moments of the monotonic clock, in nanoseconds. `add` and `drop` need the lock, the others are the thread's."""

    def __init__(self) -> None:
        self.due_ns: dict[tuple[Key, str], int] = {}
        self.wakes_ns = AWAKE

    def add(self, key: Key, what: str, after_ns: int) -> bool:
        """A new one; True: the thread is to be woken, since it sleeps for longer."""
        self.due_ns[key, what] = due_ns = time.monotonic_ns() + after_ns
        return due_ns < self.wakes_ns

    def drop(self, key: Key) -> None:
        """A reduction is done."""
        for each in list(self.due_ns):  # a copy, made at once: the thread may take one out meanwhile
            if each[0] == key:
                self.due_ns.pop(each, None)

    def drop_warnings(self) -> None:
        """The program has ended: it names nobody any more."""
        for each in list(self.due_ns):
            if each[1] == "warn":
                self.due_ns.pop(each, None)

    def sleep_s(self) -> float | None:
        """How long the thread may sleep; None: until it is woken. What is added from now on before that wakes it."""
        self.wakes_ns = AWAKE  # before the look: what is added meanwhile wakes the thread in any case
        first_ns = min(list(self.due_ns.values()), default=AWAKE)
        if first_ns == AWAKE:
            return None
        self.wakes_ns = first_ns
        return max(0.0, (first_ns - time.monotonic_ns()) / 1e9)

    def take(self) -> list[tuple[Key, str]]:
        """Those that have run out, once each."""
        now_ns = time.monotonic_ns()
        found = [each for each, due_ns in list(self.due_ns.items()) if due_ns <= now_ns]
        for each in found:
            self.due_ns.pop(each, None)
        return found


class Posted:
    """What the thread has for the handler: run under the lock."""

    def run(self, service: Service) -> None:
        raise NotImplementedError


class Raise(Posted):
    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    def run(self, service: Service) -> None:
        raise self.failure


class Run(Posted):
    """A function of this package, called under the lock. What it raises is for the thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.result: object = None
        self.failure: Exception | None = None

    def run(self, service: Service) -> None:
        try:
            self.result = self.function()
        except Exception as failure:
            self.failure = failure


class Due(Posted):
    """A timer has run out."""

    def __init__(self, key: Key, what: str) -> None:
        self.key, self.what = key, what

    def run(self, service: Service) -> None:
        if self.what == "deadline":
            service.do(service.members.expire(self.key))
            return
        contract_and_ranks = service.members.pending().get(self.key)
        if contract_and_ranks is None or self.key not in service.locals:
            return
        waits = contract_and_ranks[1]
        if waits:
            ranks = [rank for rank in range(service.size) if waits >> rank & 1]
            service.work.put(
                f"reduction {self.key[0] or self.key[1]!r} waits for ranks {ranks}, which have not called"
            )
        service.later(self.key, "warn", service.locals[self.key].warn_ns)


class Missing(Posted):
    """One of those that were to be combined was taken away meanwhile."""

    def __init__(self, key: Key, number: int, which: int) -> None:
        self.key, self.number, self.which = key, number, which

    def run(self, service: Service) -> None:
        service.under_way.pop((self.key, self.number), None)
        service.do(service.members.vanished(self.key, self.number, self.which))


class Obtained(Posted):
    """A result was read; None: it was not there any more."""

    def __init__(self, step: Reading, value: Any) -> None:
        self.step, self.value = step, value

    def run(self, service: Service) -> None:
        key, path, where = self.step
        service.under_way.pop((key, 0), None)
        if self.value is None:
            service.do(service.members.unread(key, path, where))
        else:
            # The program's: others read it there
            service.do(service.members.read(key, path, where, self.value))


class Computed(Posted):
    """A combination is there, or has failed."""

    def __init__(
        self,
        key: Key,
        number: int,
        value: Any,
        elapsed_ns: int,
        error: str = "",
        text: str = "",
        is_given: bool = True,
    ) -> None:
        """`is_given`: to the thread that runs the program's functions."""
        self.key, self.number, self.value, self.elapsed_ns = key, number, value, elapsed_ns
        self.error, self.text, self.is_given = error, text, is_given

    def run(self, service: Service) -> None:
        if self.is_given:
            service.given_back()
        service.under_way.pop((self.key, self.number), None)
        if self.error:
            service.do(service.members.trouble(self.key, self.number, self.error, self.text))
            return
        future = service.futures.get(self.key)
        if future is not None:
            future.count("tasks")
            future.count("combine_ns", self.elapsed_ns)
        begun_ns = service.begun.pop((self.key, self.number), None)
        since_ns = (
            self.elapsed_ns if begun_ns is None else max(time.monotonic_ns() - begun_ns, self.elapsed_ns)
        )
        try:
            value, where = service.values.shared(self.value)
        except Exception as failure:
            text = f"what the operation returned cannot be sent: {type(failure).__name__}: {failure}"
            service.do(service.members.trouble(self.key, self.number, "CombineFailed", text))
            return
        service.do(service.members.computed(self.key, self.number, value, since_ns, where))

"""The lock of a window at one target: who holds it, and who waits for it, first come, first served. (pure)

    free        nobody holds it
    exclusive   one origin holds it alone
    shared      one or more origins hold it together

An origin that asks waits behind all that asked before, also if it could share the lock with those who hold it: otherwise a
stream of shared locks would keep an exclusive one waiting for ever. A dead origin holds nothing and waits for nothing.

Not here: messages, and what is done under the lock (target.py).
"""

from __future__ import annotations

from collections import deque

Grant = tuple[int, int]
"""(origin, token of its request): the origin has the lock from now on."""


class LockQueue:
    """The lock. `waiting`: (origin, whether exclusive, token), oldest first. Origins are ranks in the window."""

    __slots__ = ("exclusive", "shared", "waiting")

    def __init__(self) -> None:
        self.exclusive: int | None = None
        self.shared: set[int] = set()
        self.waiting: deque[tuple[int, bool, int]] = deque()

    def ask(self, origin: int, token: int, *, exclusive: bool) -> list[Grant]:
        """An origin wants the lock. Returns the grants to tell: its own, or none."""
        self.waiting.append((origin, exclusive, token))
        return self._grant()

    def release(self, origin: int) -> list[Grant]:
        """An origin gives the lock back, or gives up waiting for it. Returns the grants to tell.

        ValueError: it neither holds the lock nor waits for it."""
        if not self.holds(origin) and all(each[0] != origin for each in self.waiting):
            raise ValueError(f"rank {origin} does not hold the lock")
        return self.lost(origin)

    def lost(self, origin: int) -> list[Grant]:
        """An origin has died: it neither holds the lock nor waits for it. Returns the grants to tell."""
        self.waiting = deque([each for each in self.waiting if each[0] != origin])
        self.shared.discard(origin)
        if self.exclusive == origin:
            self.exclusive = None
        return self._grant()

    def holds(self, origin: int) -> bool:
        """Whether the origin holds the lock, alone or with others."""
        return self.exclusive == origin or origin in self.shared

    def _grant(self) -> list[Grant]:
        grants = []
        while self.waiting and self.exclusive is None:
            origin, exclusive, token = self.waiting[0]
            if exclusive and self.shared:
                break
            self.waiting.popleft()
            if exclusive:
                self.exclusive = origin
            else:
                self.shared.add(origin)
            grants.append((origin, token))
        return grants

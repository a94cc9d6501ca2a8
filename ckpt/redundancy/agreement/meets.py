"""Changes of files, for `ReplicaChoices`: each is a question, which the leader answers when all replicas have come to it.
(driver)

Not here: who has come to which (:mod:`ckpt.redundancy.files.together`), what a change is
(:mod:`ckpt.redundancy.files.changes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ckpt.redundancy.agreement.order import MISSING, Key, Message, Order
from ckpt.redundancy.files.together import Together

__all__ = ["Meets"]

T = TypeVar("T")


class Meets:
    """Base class of `ReplicaChoices` with `together`."""

    _engine: Any
    _order: Order
    _together: Together
    _meets: tuple[int, str] | None
    _next: Callable[[str], Key]
    _decide: Callable[[Key, Any], None]
    _follow: Callable[[Key], None]
    _pass_on: Callable[[list[tuple[int, Message]]], None]

    def together(self, digest: str, look: Callable[[], T]) -> T:
        """What came of `look` at the leader, which calls it when all replicas have come here with the same digest. It must
        not raise; another leader may call it again. The lock is held."""
        key = self._next("q")
        self._meets = key[1], digest
        while (found := self._meet(key, digest, look)) is MISSING:
            self._engine.block(hungry=True)  # whoever goes on from an image here arrives again
        self._meets = None
        return found  # type: ignore[no-any-return]

    def _meet(self, key: Key, digest: str, look: Callable[[], Any]) -> Any:
        """What came of it, or MISSING."""
        value = self._order.look_up(key)
        if value is MISSING:
            self._meets = key[1], digest
            self._pass_on(self._together.arrive(key[1], digest))
            if not self._order.leads or not self._together.is_agreed(key[1], digest):
                return MISSING
            value = look()
            self._decide(key, value)
        self._follow(key)
        return value

    def missing(self) -> set[int]:
        """The replicas that are not at the change of files at which this one waits."""
        return set() if self._meets is None else self._together.missing() & self._together.living

    def _arrive_again(self) -> None:
        if self._meets is not None:
            self._pass_on(self._together.arrive(*self._meets))

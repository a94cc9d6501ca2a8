"""Two answers that all replicas of a rank need alike, for `ReplicaChoices`: whose request to a window is handled next
(`Serves`), and whether `Request.Cancel` has withdrawn a receive (`Cancels`). (driver)

A receive that names its source is matched by each replica when the message comes, without a choice. So when the program
cancels it, one replica may have the message in the program's memory already, and another one not. Every replica says at its
call whether it has (``taken``, ``free``); who does not lead lets no message match the receive from then on
(`OrderedMatcher.question`). The leader answers

    it has a message     as soon as one replica says so: the others will get that message, too, and keep the receive
    it is cancelled      when all replicas are here and have none: nobody will ever match it

Where the leader is lost before anybody has heard its answer, the next one asks itself the same. A copy that is being made is
waited for, as with changes of files (:mod:`ckpt.redundancy.files.together`): it computes what the others have done already.

A wrong replica may say that it has a message that nobody else gets. Then the receive is kept, and where the others still
wait for it 10 s after that one is lost, the program goes back (`kept`).

Not here: the order of requests (order.py), what a request does (ckpt/mpi/rma/target.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import Buffer, Receive
from ckpt.redundancy.files.together import Together
from ckpt.redundancy.matcher import OrderedMatcher
from ckpt.redundancy.order import MISSING, Key, Message, Order, Turns

__all__ = ["Cancels", "Serves"]

TAKEN, FREE = "taken", "free"


class Cancels:
    """Base class of `ReplicaChoices` with `cancel`."""

    _engine: Any
    _has_replicas: bool
    _order: Order
    _together: Together
    _meets: tuple[int, str] | None
    matcher: OrderedMatcher
    kept: list[Receive]
    """Receives that were not cancelled since another replica has their message, and that wait for it here."""
    _next: Callable[[str], Key]
    _decide: Callable[[Key, Any], None]
    _follow: Callable[[Key], None]
    _pass_on: Callable[[list[tuple[int, Message]]], None]
    _take_held: Callable[[], None]

    def cancel(self, receive: Receive) -> bool:
        """Withdraw the receive, in all replicas or in none. Was it withdrawn? The lock is held."""
        key = self._next("q")
        while (is_withdrawn := self._try_cancel(key, receive)) is None:
            self._engine.block(hungry=True)  # whoever goes on from an image here says again what it has
        self._meets = None
        return is_withdrawn

    def _try_cancel(self, key: Key, receive: Receive) -> bool | None:
        """The answer; None: it is not known yet."""
        if not self._has_replicas:  # it has begun to wait in an image of one that had
            self._follow(key)
            return not receive.done and bool(self._engine.matcher.withdraw(receive))
        value, order = self._order.look_up(key), self._order
        if value is MISSING:
            if not order.leads:
                self.matcher.question(receive)
            mine = TAKEN if receive.done else FREE
            self._meets = key[1], mine
            self._pass_on(self._together.arrive(key[1], mine))
            if not order.leads:
                return None
            states = self._together.states(key[1])
            if TAKEN in states:
                value = False
            elif None in states:
                return None
            else:
                value = True
            self._decide(key, value)
        self.matcher.questioned.discard(id(receive))
        if value:
            self._withdraw(receive)
        elif not receive.done:
            self.kept = [*(each for each in self.kept if not each.done), receive]
        self._follow(key)
        self._take_held()
        return bool(value)

    def _withdraw(self, receive: Receive) -> None:
        opened = self.matcher.open.get(id(receive))
        if receive.done or not self.matcher.withdraw(receive):
            raise NotReplicable(
                "Cancel under --redundancy: another replica has no message, and this one has one"
            )
        if opened is not None:
            self._follow(opened[0])  # nobody will choose its source any more


class Serves:
    """Base class of `ReplicaChoices` for windows: requests to this rank are handled in their turn. The lock is held.

    The leader handles each as it comes, and tells the others of which rank it was. So it keeps none, and images have none;
    but one that has just become the leader may know a choice of the one before whose request is still on its way: then no
    image is taken (`obstacle`). A wrong leader may have chosen a request that never comes (`waits_in_vain`)."""

    _engine: Any
    _order: Order
    _turns: Turns
    _decide: Callable[[Key, Any], None]
    _follow: Callable[[Key], None]

    def request(self, source: int, data: Buffer) -> None:
        """A request to the windows of this rank has come."""
        self._turns.add(source, bytes(data))
        self._serve()

    def _serve(self) -> None:
        order, turns = self._order, self._turns
        while (turn := turns.take(order.look_up, leads=order.leads)) is not None:
            key, source, data, is_new = turn
            if is_new:
                self._decide(key, source)
            self._follow(key)
            self._engine.windows.handle(source, data)

    def obstacle(self) -> str:
        """Why no image can be taken of this replica, which is the one that leads, just now; empty: one can be."""
        if not self._order.leads:
            return "this replica has just become the one that leads, and learns what the others know"
        if self._turns.has_waiting:
            return "this replica has just become the one that leads, and waits for requests to its windows"
        return ""

    def waits_in_vain(self, handled: int | None) -> bool:
        """Is the next request the one behind `handled` others, and has it been chosen, but has not come?"""
        return handled == self._turns.handled and self._turns.awaits(self._order.look_up) is not None

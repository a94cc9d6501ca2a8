"""Two answers that all replicas of a rank need alike, for `ReplicaChoices`: whose request to a window or parallel file is
handled next (`Serves`), and whether `Request.Cancel` has withdrawn a receive (`Cancels`). (driver)

A file is there once. So a write to a parallel file, when it is its turn, waits with all requests behind it until every
replica has come to it and means the same; then the leader makes it, and says what came of it. It is made once more where
the leader dies before anybody has heard that. Who waits at it may compute meanwhile: nothing is asked of its program.

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

import time
from collections.abc import Callable
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import FILE_WRITE, Buffer, Receive, unpack
from ckpt.redundancy.agreement.matcher import OrderedMatcher
from ckpt.redundancy.agreement.order import MISSING, WRITE, Key, Message, Order
from ckpt.redundancy.agreement.turns import Turns
from ckpt.redundancy.files.together import WRITTEN, Together

__all__ = ["Cancels", "Serves"]

TAKEN, FREE = "taken", "free"

REST_S = 0.002
"""At most so long the leader rests before the program looks again at memory that nobody has changed since."""

STILL_NS = 5_000_000_000
"""So long a program may look at its memory without a call while requests wait."""


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
    """Base class of `ReplicaChoices` for windows: requests to this rank are handled in their turn. The lock is held."""

    _engine: Any
    _has_replicas: bool
    _order: Order
    _turns: Turns
    _decide: Callable[[Key, Any], None]
    _follow: Callable[[Key], None]
    _together: Together
    _pass_on: Callable[[list[tuple[int, Message]]], None]
    digest_of: Callable[[int, bytes], str]
    """That of all writes to parallel files until this one."""
    _pending_ns = _wrote_ns = 0
    """When a write began to wait, and the one before was made."""
    _still_ns = 0
    _looked_at = -1
    _rest_s = 0.0
    wait: Callable[[Callable[[], Any], Callable[[Any], bool]], Any]

    def request(self, source: int, data: Buffer) -> None:
        """A request to the windows of this rank has come."""
        self._turns.add(source, bytes(data))
        self._serve()

    def _serve(self) -> bool:
        """Handle what is due; was there something?"""
        order, turns, before = self._order, self._turns, self._turns.handled
        self._write()
        while turn := turns.take(order.look_up, leads=order.leads and not order.is_catching_up):
            key, source, data, is_new = turn
            if is_new:
                self._decide(key, (source, turns.period))
            self._follow(key)
            if unpack(data)[2] == FILE_WRITE:
                turns.pending = source, data, self.digest_of(source, data)
                self._pending_ns = time.monotonic_ns()
                self._write()
            else:
                self._engine.windows.handle(source, data)
        return turns.handled > before

    def _write(self) -> None:
        """Go on with a write to a parallel file: the leader makes it when all replicas have come to it."""
        turns, order, windows = self._turns, self._order, self._engine.windows
        if turns.pending is None:
            return
        source, data, digest = turns.pending
        if unpack(data)[3] not in windows.open:
            return  # the program is about to open it
        key = WRITE, turns.written
        failure = order.look_up(key)
        if failure is MISSING:
            self._pass_on(self._together.arrive(turns.written, digest, WRITTEN))
            if not order.leads or not self._together.is_agreed(turns.written, digest, WRITTEN):
                return
            failure = windows.change(data)
            self._decide(key, failure)
        self._follow(key)
        turns.pending, turns.written = None, turns.written + 1
        self._wrote_ns = time.monotonic_ns()
        windows.changed(source, data, failure)

    def go_on_serving(self) -> None:
        """An image has been loaded, and the engine can send: handle what waits there, if it is its turn now."""
        if self._has_replicas:
            self._serve()
            return
        for source, data in self._turns.take_all():
            self._engine.windows.handle(source, data)

    def still(self) -> None:
        """The program looks at its windows' memory now: until its next call no request changes that."""
        turns = self._turns
        if turns.handled != self._looked_at:
            self._looked_at, self._rest_s = turns.handled, REST_S / 32
        elif self._order.leads:
            time.sleep(self._rest_s)  # each look is a message to each other replica
            self._rest_s = min(2 * self._rest_s, REST_S)

        def look() -> int | None:
            if turns.is_behind(self._order.look_up):
                return None  # others have handled more, as the leader before this one has chosen
            turns.still = True
            return turns.handled

        self.wait(look, lambda handled: turns.handled == handled)
        turns.still = True
        self._still_ns = time.monotonic_ns()

    def called(self) -> bool:
        """The program has called the library again. Have requests been handled now?"""
        has_begun = self._turns.begin_period()
        return (has_begun or self._turns.has_waiting) and self._serve()

    def tick(self, now_ns: int, *, has_ended: bool) -> None:
        """Called often. A program that does not call the library for long, or has ended, must not keep others waiting."""
        if self._turns.pending is not None:
            self._serve()
        if not self._turns.still:
            return
        self._still_ns = self._still_ns or now_ns  # it has begun to look before the image
        if has_ended or now_ns - self._still_ns >= STILL_NS:
            self.called()

    def writes_late(self, now_ns: int, least_ns: int) -> set[int]:
        """The replicas for which a write has waited for `least_ns`, and half as long as the time since the one before."""
        if self._turns.pending is None:
            return set()
        begun_ns = self._pending_ns = self._pending_ns or now_ns  # it has begun before the image
        if now_ns - begun_ns < max(least_ns, (begun_ns - (self._wrote_ns or begun_ns)) // 2):
            return set()
        self._pending_ns = now_ns  # the next one is told as late again
        return self._together.missing(WRITTEN) & self._together.living

    def waits_in_vain(self, handled: int | None) -> bool:
        """Is the next request the one behind `handled` others, and has a wrong leader chosen it, though it never comes?"""
        return handled == self._turns.handled and self._turns.awaits(self._order.look_up)

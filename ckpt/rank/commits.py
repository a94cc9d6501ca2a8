"""Calls that wait for a commit: effects outside of the job (:func:`ckpt.when_committed`). (driver)

A program cannot take back a mail that it has sent. So it asks for the call, and the call is made when the line that holds
the request is committed: what the program does after a restart then begins after the request.

    asked      by the program; the next image of this rank holds the request
    held       an image has been prepared that holds the request, as all later ones do, until the call
    due        a line with that image, or with a later one, is committed; after a restart, all requests of its line
    called     in the main thread, and forgotten

Rules
- A request of an image that is not committed is never due. A program that is set back to a line before a request makes the
  request again, under the same number, and so with the same key, if it makes its requests in the same order.
- The process may die between commit and call, and between the call and the next image: then the restart makes the call
  (again), with the same key. The receiver has to do nothing for a key that it has seen before.
- Calls are made in the order of the requests, wherever the program is: when it waits in the library, or between two of its
  instructions. Meanwhile no image is taken, and the call may not wait for messages, as in a hook. An exception goes to the
  program, as that of a signal handler does; its note names function and key.
- A program that ends with requests asks for a last checkpoint, and the calls are made after its commit. If there is none,
  they are made when all ranks have finished: nothing goes back then.

Not here: what an image holds beside (:mod:`ckpt.capture.description`), when a line is committed (the controller).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.capture.hooks import name_of
from ckpt.capture.places import library_caller, queue_after_call, queue_at_checks
from ckpt.errors import NotEnabled, RegistrationError
from ckpt.transport.records import NamedTuple

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime

__all__ = ["Commits", "CommitsAtOnce", "Request"]


class Request(NamedTuple):
    """``function(*arguments, key=key)`` is to be called."""

    function: Callable[..., object]
    arguments: tuple[Any, ...]
    key: str

    def call(self) -> None:
        """What the function raises passes through; a note (PEP 678) in it names the function and the key."""
        try:
            self.function(*self.arguments, key=self.key)
        except BaseException as failure:
            failure.add_note(
                f"in {name_of(self.function)}, called by ckpt.when_committed with key {self.key!r}"
            )
            raise


class Commits:
    """The requests of one rank that have not been called yet."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._made = 0  # the number of requests so far, over restarts
        self._asked: deque[Request] = deque()
        self._held: deque[tuple[int, Request]] = deque()  # with the epoch of the first image that holds it
        self._committed = 0  # the newest epoch that is known to be committed

    @property
    def is_due(self) -> bool:
        """Is there a call to be made?"""
        return bool(self._held) and self._held[0][0] <= self._committed

    # ------------------------------------------------------------------ program, image, controller

    def ask(self, function: Callable[..., object], arguments: tuple[Any, ...], key: str | None) -> str:
        """Have the call made when the request is committed. Returns the key. Raises RegistrationError, NotEnabled."""
        runtime = self._runtime
        check(function, arguments, key)
        if runtime.explicit is not None:
            raise NotEnabled(
                "when_committed needs images of the whole program: a program that saves itself (ckpt run --explicit) runs "
                "again from its start after a restart, and would ask again for what was done before"
            )
        if runtime.layer is not None:
            raise NotEnabled(
                "when_committed under --redundancy: each replica of this rank would make the call"
            )
        if threading.current_thread() is not threading.main_thread() or os.getpid() != runtime.pid:
            raise RegistrationError(
                "when_committed is for the main thread of the program, not for others or its children"
            )
        with (runtime.engine or runtime).lock:  # the engine's refuses handlers of active messages
            self._made += 1
            request = Request(
                function, arguments, key or f"{runtime.spec['job_id']}-{runtime.rank}-{self._made}"
            )
            self._asked.append(request)
        return request.key

    def taken(self, epoch: int) -> tuple[int, list[Request]]:
        """An image of this epoch is prepared, which holds what is returned. Under the lock."""
        while self._asked:
            self._held.append((epoch, self._asked.popleft()))
        return self._made, [request for _, request in self._held]

    def load(self, taken: tuple[int, list[Request]], epoch: int) -> None:
        """A restart goes on from the line of this epoch, whose image holds what :meth:`taken` has returned."""
        self._made, requests = taken
        self._held = deque((epoch, request) for request in requests)
        self._committed = epoch

    def forget(self) -> None:
        """The rank has ended: no call is made any more."""
        self._asked.clear()
        self._held.clear()

    def committed(self, epoch: int) -> None:
        """A line of this epoch is committed. Under the lock."""
        self._committed = max(self._committed, epoch)
        self.tick()

    # ------------------------------------------------------------------ the calls

    def tick(self) -> None:
        """If a call is due, have it made at the main thread's next check. From any thread."""
        from ckpt.image.frames import _frames

        if self.is_due:
            queue_at_checks(_frames.call_in_program, self._at_check)

    def _at_check(self) -> None:
        """Between two instructions. Those of the library are left to :meth:`in_call`, or to the end of the library's call: a
        program that calls it all the time, between long calls in C, is met by checks only where such a call has begun."""
        if not self.is_due:
            return  # it has been made meanwhile, or the rank has ended
        from ckpt.image.frames import _frames

        runtime = self._runtime
        if (caller := library_caller()) is not None:
            queue_after_call(_frames.call_in_program, self._at_check, caller)
            return
        if not self._can_call() or not runtime.lock.acquire(blocking=False):
            return
        runtime.lock.release()
        self.call()

    def in_call(self) -> bool:
        """The main thread waits in the library, under the lock: make the calls that are due. ``False``: there is none."""
        if not self.is_due or not self._can_call():
            return False
        self._runtime.lock.release()
        try:
            self.call()
        finally:
            self._runtime.lock.acquire()
        return True

    def _can_call(self) -> bool:
        runtime = self._runtime
        return (
            threading.current_thread() is threading.main_thread()
            and os.getpid() == runtime.pid
            and not runtime.in_hook
            and runtime.port is not None
            and not runtime.port.interrupts.running
        )

    def call(self, *, all_requests: bool = False) -> None:
        """Make the calls that are due, or all of them. In the main thread, without the lock."""
        runtime = self._runtime
        while True:
            with runtime.lock:
                if self.is_due or (all_requests and self._held):
                    _, request = self._held.popleft()
                elif all_requests and self._asked:
                    request = self._asked.popleft()
                else:
                    return
                runtime.in_hook = True
            try:
                request.call()
            finally:
                runtime.in_hook = False

    # ------------------------------------------------------------------ the end of the program

    def settle(self) -> None:
        """The program has ended without failure: have a checkpoint taken for its requests, and make the calls."""
        while True:
            self.call()
            if not (self._asked or self._held) or not self._await_commit():
                return

    def _await_commit(self) -> bool:
        """``False``: what has been asked for is not committed, and will not be."""
        runtime = self._runtime
        request = {"m": "request", "what": "checkpoint", "wait": True}
        with runtime.lock:
            runtime.imager.expect()
            if runtime.alone or runtime.incomplete or not runtime.control.send(request):
                return False
            before = self._committed
            while self._committed == before:
                if runtime.imager.awaited_round_failed or runtime.alone or runtime.incomplete:
                    return False
                runtime.block(False)
        return True


class CommitsAtOnce:
    """Outside of a job nothing goes back: calls are made at once."""

    def __init__(self) -> None:
        self._made = 0
        self._unique = os.urandom(8).hex()

    def ask(self, function: Callable[..., object], arguments: tuple[Any, ...], key: str | None) -> str:
        """See :meth:`Commits.ask`."""
        check(function, arguments, key)
        self._made += 1
        request = Request(function, arguments, key or f"{self._unique}-0-{self._made}")
        request.call()
        return request.key


def check(function: object, arguments: tuple[Any, ...], key: object) -> None:
    """Raises RegistrationError for what cannot be called so, for a call that does nothing, and for what is no key."""
    if not callable(function):
        raise RegistrationError(f"when_committed takes a function, not {function!r}")
    if key is not None and (not isinstance(key, str) or not key):
        raise RegistrationError(f"the key of a request is a text, not {key!r}")
    import inspect  # needed by few programs, and slow

    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    for each in (function, type(function).__call__):
        if any(is_one(each) for is_one in kinds):
            raise RegistrationError(
                f"{name_of(function)} is a coroutine or generator function: its call does nothing by itself. Give "
                "when_committed a function that runs it to its end, with asyncio.run for example"
            )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # one in C, which does not say what it takes
    try:
        signature.bind(*arguments, key="")
    except TypeError as failure:
        raise RegistrationError(
            f"when_committed calls {name_of(function)} with these arguments and key=…, and it does not take them: {failure}"
        ) from None

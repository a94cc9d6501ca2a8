"""A one-shot child process: it gets one request, gives one answer, both a line of JSON, and is ended. (driver)

It may be started before the request is known, since a start takes long on a busy machine, and told what is known already
(`tell`). It leads a session of its own, and whatever it has started ends with it.

    started    the process is there, and waits for its request
    asked      the request is under way to it; `on_answer` or `on_failure` is called once, then it is ended
    ended      by its answer, its failure, its time (`tick`) or `close`: nothing is called after that

A line with `"more": true` is not the answer, but what can be said until that comes: `on_failure` gets it.

Nothing here blocks for long: a process that hangs in the kernel is killed and left to a thread, which waits for its end.

`AskedOnce` asks such a process once in a job, and the job does not wait: the base of `topology` and `baseline`. Where none
can be started, or none answers, the job goes on, and the reason is given as an answer.

Not here: what is asked (`topology`, `baseline`, `locator`).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

__all__ = ["AskedOnce", "OneShotProcess"]

_AT_ONCE = 1 << 16
_END_S = 0.2


class OneShotProcess:
    """`module` is run with this interpreter. `stderr`: a descriptor for what it says on its standard error; nowhere if
    not given. Raises OSError: it cannot be started."""

    def __init__(
        self, module: str, selector: selectors.BaseSelector, *, stderr: int = subprocess.DEVNULL
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._selector = selector
        self._said = b""
        self._is_asked = self._is_ended = False
        self._until_ns: int | None = None
        self._on_answer: Callable[[Mapping[str, Any]], None]
        self._on_failure: Callable[[bool, Mapping[str, Any] | None], None]
        self._writing: threading.Thread | None = None

    def tell(self, what: Mapping[str, Any]) -> None:
        """Before `ask`: what it can begin with."""
        self._send(what, is_last=False)

    def ask(
        self,
        request: Mapping[str, Any],
        limit_ns: int,
        on_answer: Callable[[Mapping[str, Any]], None],
        on_failure: Callable[[bool, Mapping[str, Any] | None], None],
        *,
        now_ns: int | None = None,
    ) -> None:
        """Send the request. `on_answer` gets what it answers within `limit_ns` from now; `on_failure`, if that is no JSON
        object, False, and if there is none, True; and what it has said until then, or None."""
        self._is_asked = True
        self._on_answer, self._on_failure = on_answer, on_failure
        self._until_ns = (time.monotonic_ns() if now_ns is None else now_ns) + limit_ns
        self._send(request, is_last=True)
        os.set_blocking(self._stdout.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ, self._read)

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        return None if self._is_ended else self._until_ns

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        until_ns = self.deadline_ns()
        if until_ns is not None and now_ns >= until_ns:
            with contextlib.suppress(OSError, ValueError):
                while data := self._stdout.read(_AT_ONCE):
                    self._said += data
            self._finish(is_late=True)

    def close(self) -> None:
        """End it, and what it has started."""
        if self._is_ended:
            return
        self._is_ended = True
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._stdout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self.process.wait, daemon=True).start()
        self._stdout.close()
        if not self._is_asked:  # otherwise the thread closes it
            with contextlib.suppress(BrokenPipeError):  # the thread was about to tell it something
                self._stdin.close()

    def _read(self) -> None:
        data = self._stdout.read(_AT_ONCE)
        if data is None:
            return
        self._said += data
        if not data:
            self._finish(is_late=False)

    def _finish(self, *, is_late: bool) -> None:
        self.close()
        said = [each for line in self._said.splitlines() if (each := _object(line)) is not None]
        last = said[-1] if said else None
        if last is not None and not last.pop("more", False):
            self._on_answer(last)
        else:
            self._on_failure(is_late, last)

    def _send(self, request: Mapping[str, Any], *, is_last: bool) -> None:
        # in a thread: it may be more than a pipe takes, and the process may be starting still
        data, before = json.dumps(request).encode() + b"\n", self._writing
        self._writing = threading.Thread(
            target=_write, args=(self._stdin, data, before, is_last), daemon=True
        )
        self._writing.start()


class AskedOnce:
    """`asking`, `asked`: what the process does, and what could not be done, in words: "asks", "asked"."""

    def __init__(self, selector: selectors.BaseSelector, *, asking: str, asked: str) -> None:
        self._selector = selector
        self._asking, self._asked = asking, asked
        self._child: OneShotProcess | None = None
        self._limit_ns = 0

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        return None if self._child is None else self._child.deadline_ns()

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        if self._child is not None:
            self._child.tick(now_ns)

    def close(self) -> None:
        """End what is under way."""
        if self._child is not None:
            self._child.close()

    def _ask(self, module: str, request: Mapping[str, Any], limit_ns: int) -> None:
        """Start the process and send the request. `_take` is called once: with its answer, or with a `reason`."""
        self._limit_ns = limit_ns
        try:
            self._child = OneShotProcess(module, self._selector)
        except OSError as error:  # no more processes: the job goes on without
            self._take({"reason": f"cannot be {self._asked}: {error.strerror}"})
            return
        self._child.ask(request, limit_ns, self._take, self._fail)

    def _fail(self, is_late: bool, said: Mapping[str, Any] | None) -> None:
        late = f"no answer within {self._limit_ns / 1e9:g} s"
        self._take({"reason": late if is_late else f"the process that {self._asking} has failed"})

    def _take(self, found: Mapping[str, Any]) -> None:
        raise NotImplementedError


def _write(pipe: IO[bytes], data: bytes, before: threading.Thread | None, is_last: bool) -> None:
    if before is not None:
        before.join()
    with contextlib.suppress(OSError, ValueError):  # the process has ended, and its answer is empty
        pipe.write(data)
        pipe.flush()
        if is_last:
            pipe.close()


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

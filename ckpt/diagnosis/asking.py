"""All questions of a diagnosis at once, each with a deadline, in processes that are killed at the end.

One process for each machine (`ckpt.diagnosis.handlers`), and one for each address where the library of a handler is not
made for threads; each question has a thread of its own there, so one that hangs holds up no other. More processes would
take longer to start than to ask. On another machine it is started by the words of the topology's `shell`. Secrets go by
its standard input.

On a busy machine a process takes longer to start than to answer. So processes may be started before the questions are to be
asked (`Ready`): they import what they will need, and ask nothing until they are told.

All is over as soon as everybody has answered, at the deadline, or when what has been answered is `enough`.

Not here: which questions there are, and what the answers mean (`manager`).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.handlers.face import HANDLERS

__all__ = ["Question", "Ready", "Reply", "ask"]

_GRACE_S = 0.5  # before the deadline, handlers have to be done
_REAP_S = 0.2  # for all processes together
_AT_ONCE = 1 << 15  # bytes: a pipe takes twice as much without a reader
_LOOK_S = 0.1
_LONGEST_LINE = 1 << 20  # bytes
_LONGEST_COMPLAINT = 200


@dataclass(frozen=True, slots=True)
class Question:
    """`arguments`: JSON, with sorted keys, so that equal questions are equal. `shell`: words before the command;
    empty: this machine."""

    machine: str
    shell: tuple[str, ...]
    python: str
    handler: str
    arguments: str

    @property
    def address(self) -> str:
        return str(json.loads(self.arguments).get("address", ""))

    @property
    def key(self) -> str:
        """The same for the same question in another process, and in a file."""
        return f"{self.machine} {self.handler} {self.arguments}"

    @property
    def source(self) -> str:
        """Who is asked, for people."""
        if HANDLERS[self.handler].local:
            return f"{self.handler} of {self.machine}"
        return f"{self.handler} {self.address}"


@dataclass(frozen=True, slots=True)
class Reply:
    """`values` is empty if there is a reason why. `silent`: nothing came back. `after_s`: how long it took.
    `asked_s`: when it was asked, as given to `ask`."""

    values: dict[str, float | str]
    reason: str
    after_s: float
    silent: bool = False
    asked_s: float = 0.0


class _Worker:
    """One process, and the questions that it is given."""

    def __init__(self, first: Question) -> None:
        """Start the process that asks this question. Raises OSError."""
        self.questions: list[Question] = []
        self.text = b""
        words = self.words = [*first.shell, first.python, "-m", "ckpt.diagnosis.handlers"]
        self.child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if first.shell else subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.child.stdin is not None and self.child.stdout is not None
        self._input, self.output = self.child.stdin, self.child.stdout
        self.complaint = ""
        self.ended_after_s: float | None = None
        for pipe in filter(None, (self.output, self.child.stderr)):
            os.set_blocking(pipe.fileno(), False)

    def prepare(self, handlers: Iterable[str]) -> None:
        """Let it import these handlers; it asks nothing."""
        self._write({"prepare": sorted(handlers)}, is_last=False)

    def give(self, questions: list[Question], credentials: Credentials, within_s: float) -> None:
        """Let it ask these questions."""
        self.questions = questions
        asked: list[dict[str, Any]] = []
        for number, question in enumerate(questions):
            arguments = json.loads(question.arguments)
            part = HANDLERS[question.handler].secret
            secret = credentials.of(part, str(arguments.get("address", ""))) if part else None
            asked.append(
                {"id": number, "handler": question.handler, "arguments": arguments, "secret": secret}
            )
        self._write({"within_s": within_s, "queries": asked}, is_last=True)

    def _write(self, request: Mapping[str, Any], *, is_last: bool) -> None:
        data = (json.dumps(request) + "\n").encode()
        if len(data) > _AT_ONCE:  # a remote shell that hangs reads nothing, and would hold up all others
            threading.Thread(target=self._write_now, args=(data, is_last), daemon=True).start()
        else:
            self._write_now(data, is_last)

    def _write_now(self, data: bytes, is_last: bool) -> None:
        try:
            self._input.write(data)
            self._input.flush()
            if is_last:
                self._input.close()
        except (OSError, ValueError):
            pass  # it has ended; its end says so

    def read(self) -> tuple[list[tuple[Question, dict[str, Any]]], bool]:
        """The answers that have come, and whether the process has ended."""
        data = self.output.read()
        if data:
            self.text += data
        *lines, self.text = self.text.split(b"\n")
        if len(self.text) > _LONGEST_LINE:  # whatever it is, it is no answer
            return [], True
        found = []
        for line in lines:
            try:
                answer = json.loads(line)
                found.append((self.questions[answer["id"]], answer))
            except (ValueError, KeyError, IndexError, TypeError):
                continue  # a remote shell's greeting, for example
        return found, data == b""

    def kill(self) -> None:
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self, until: float) -> None:
        """After `kill`; waits until then at most."""
        try:
            self.child.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            pass  # it hangs in the kernel, and ends when that lets it go
        self.output.close()
        if self.child.stderr is not None:  # of a remote shell: why it does not get there
            said = (self.child.stderr.read() or b"").decode(errors="ignore").strip()
            self.complaint = "".join(filter(str.isprintable, said.rpartition("\n")[2]))[:_LONGEST_COMPLAINT]
            self.child.stderr.close()


def _end(workers: Iterable[_Worker]) -> None:
    workers = list(workers)
    for worker in workers:
        worker.kill()
    until = time.monotonic() + _REAP_S
    for worker in workers:
        worker.end(until)


class Ready:
    """Processes that wait for their questions. `start` and `take` may be called by different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[object, ...], _Worker] = {}
        self._is_over = False

    def start(self, questions: Iterable[Question]) -> None:
        """Start those that will ask these questions. One that cannot be started is not there: `ask` will say why."""
        groups: dict[tuple[object, ...], list[Question]] = {}
        for question in questions:
            groups.setdefault(_process(question), []).append(question)
        for key, group in groups.items():
            with self._lock:
                if self._is_over or key in self._waiting:
                    continue
                try:
                    worker = self._waiting[key] = _Worker(group[0])
                except OSError:
                    continue
            worker.prepare({question.handler for question in group})

    def take(self, key: tuple[object, ...]) -> _Worker | None:
        """The process for these questions (`_process`), if one waits and lives; it is the caller's from now on."""
        with self._lock:
            worker = self._waiting.pop(key, None)
        if worker is not None and worker.child.poll() is not None:
            worker.output.close()
            return None
        return worker

    def end(self) -> None:
        """End those that were not taken."""
        with self._lock:
            self._is_over = True
            left, self._waiting = list(self._waiting.values()), {}
        _end(left)


def ask(
    questions: Iterable[Question],
    credentials: Credentials,
    within_s: float,
    asked_s: float = 0.0,
    enough: Callable[[Mapping[Question, Reply], float], bool] = lambda replies, after_s: False,
    ready: Ready | None = None,
) -> dict[Question, Reply]:
    """Every question with its reply; after `within_s` seconds at most. Equal questions are asked once. `enough`: of the
    replies so far, and the seconds since all were asked: need the others not be waited for?"""
    began = time.monotonic()
    deadline = began + within_s
    groups: dict[tuple[object, ...], list[Question]] = {}
    for question in dict.fromkeys(questions):
        groups.setdefault(_process(question), []).append(question)
    for group in groups.values():  # whole tables come last: a handler may ask one question after the other
        group.sort(key=lambda question: "table" in json.loads(question.arguments))
    replies: dict[Question, Reply] = {}
    workers: list[_Worker] = []
    try:
        with selectors.DefaultSelector() as selector:
            for key, group in groups.items():
                try:
                    worker = (ready and ready.take(key)) or _Worker(group[0])
                except OSError as error:
                    words = group[0].shell or (group[0].python,)
                    for question in group:
                        replies[question] = Reply({}, f"{words[0]} cannot be started: {error.strerror}", 0.0)
                    continue
                workers.append(worker)
                worker.give(group, credentials, within_s - min(_GRACE_S, within_s / 5))
                selector.register(worker.output, selectors.EVENT_READ, worker)
            while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
                if enough(replies, time.monotonic() - began):
                    within_s = time.monotonic() - began
                    break
                for chosen, _ in selector.select(min(left_s, _LOOK_S)):
                    worker = chosen.data
                    found, ended = worker.read()
                    for question, answer in found:
                        replies[question] = _reply(answer, time.monotonic() - began)
                    if ended:
                        selector.unregister(worker.output)
                        worker.ended_after_s = time.monotonic() - began
    finally:
        _end(workers)
    for worker in workers:
        for question in worker.questions:
            if question not in replies:
                after_s = within_s if worker.ended_after_s is None else worker.ended_after_s
                replies[question] = Reply({}, _missing(worker, question, within_s), after_s, True)
    return {question: replace(reply, asked_s=asked_s) for question, reply in replies.items()}


def _reply(answer: dict[str, Any], after_s: float) -> Reply:
    values = answer.get("values")
    if not isinstance(values, dict):
        reason = str(answer.get("reason", "an answer without a value"))
        return Reply({}, reason, after_s, answer.get("silent") is True)
    good = {
        str(name): value if isinstance(value, str) else float(value)
        for name, value in values.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    }
    return Reply(good, "" if good else "an answer without a value", after_s)


def _process(question: Question) -> tuple[object, ...]:
    """What is equal for the questions that one process asks."""
    face = HANDLERS[question.handler]
    if face.alone:
        return (question.handler, question.address)
    return (question.machine, question.shell, question.python)


def _missing(worker: _Worker, question: Question, within_s: float) -> str:
    code = worker.child.returncode
    if code not in (None, 0, -signal.SIGKILL, -signal.SIGALRM):
        how = f"ended with exit code {code}" + (f": {worker.complaint}" if worker.complaint else "")
        return f"{worker.words[0]}, which asks {question.source}, {how}"
    return f"no answer within {round(within_s, 1):g} s"

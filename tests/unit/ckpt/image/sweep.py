"""Runs a small program and takes its image at its checks; every image is resumed in a fresh process.

    python sweep.py < {"program": text, "every": n, "generations": g, "at": "check" | "call"}

The program writes with out(text). It is run once undisturbed, and once with a capture at every check (or at every call of
`library()`); every n-th captured stack is pickled in a forked child and resumed in a process that was forked before the
program began. The output of every resumed run, and of the disturbed run, must equal that of the undisturbed one. With g > 1
the resumed program is imaged again at some later check, g generations deep.

Prints {"checks", "captured", "restored", "failures": [text], "unpicklable": [text], "refused": {reason: count},
"modes": [text]}.
"""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import random
import socket
import struct
import sys
import traceback

from ckpt.image import resume
from ckpt.image.frames import _frames
from ckpt.image.frames.running import run_base
from ckpt.image.frames.stack import Refused, capture
from ckpt.image.modules.references import References
from ckpt.image.pickling.pickler import ImagePickler, Stream
from ckpt.image.pickling.unpickler import ImageUnpickler
from ckpt.image.threads.contexts import outside_of

UNPICKLABLE = "unpicklable: "
CALLS_PER_CHECK = 32  # of a pending call that queues itself again, in one check of the interpreter

output: list[str] = []
out = output.append
hooks: list = []


class Memory:
    """A sink in memory."""

    def __init__(self):
        self.stream, self.buffers = io.BytesIO(), []

    def write(self, data):
        self.stream.write(data)

    def buffer(self, buffer):
        self.buffers.append(bytes(buffer.raw()))


def library():
    """A library call of the program; its frames are not part of the image, its result is."""
    if hooks:
        hooks[0]()
    return "taken"


LIVE = {"out": out, "library": library}


def dump(image):
    references, memory = References(), Memory()
    references.refresh()
    stream = Stream(memory)
    pickler = ImagePickler(stream, references, live=LIVE, is_disposable=True)
    pickler.cached_calls = image["stack"].cached_calls()
    sys.setrecursionlimit(100_000)
    with outside_of(image["stack"].context_runs()):
        pickler.dump(image)
        pickler.dump(pickler.deferred)
    stream.flush()
    return memory.stream.getvalue()


def load(data):
    unpickler = ImageUnpickler(io.BytesIO(data), [], LIVE)
    image = unpickler.load()
    for function, arguments in unpickler.load():
        function(*arguments)
    return image


def receive(connection):
    def exactly(size):
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return data

    return exactly(struct.unpack("q", exactly(8))[0])


def send(connection, data):
    connection.sendall(struct.pack("q", len(data)) + data)


def restored_run(data, generations):
    """Resume an image to the end in this process; "" or what went wrong."""
    hooks.clear()
    image = load(data)
    stack, want, limit = image.pop("stack"), image.pop("want"), image.pop("limit")
    output[:] = image.pop("output")
    random.setstate(image.pop("random"))
    del image
    sys.setrecursionlimit(limit)
    trouble = []
    if generations > 1:
        again(random.Random(len(output)).randrange(1, 8), want, generations - 1, trouble)
    try:
        resume(stack)
    except SystemExit:
        pass
    except BaseException:
        return traceback.format_exc()[-2000:]
    if trouble:
        return "next generation: " + trouble[0]
    return "" if output == want else difference(want)


def again(countdown, want, generations, trouble):
    """Image the running program once more, `countdown` checks from now."""
    left = [countdown * CALLS_PER_CHECK]

    def at_check():
        left[0] -= 1
        if left[0] <= 0 and left[0] % CALLS_PER_CHECK == 0:
            try:
                stack = capture(at="check")
            except Refused:
                pass
            else:
                trouble.extend(forked(stack, want, lambda data: restored_run(data, generations)))
                return
        _frames.request(at_check)

    _frames.request(at_check)


def difference(want):
    pairs = enumerate(zip(output, want, strict=False))
    first = next((f"{i}: {a} is not {b}" for i, (a, b) in pairs if a != b), "lengths")
    return f"output differs ({len(output)}, {len(want)} lines) at {first}"


def forked(stack, want, judge):
    """[what went wrong] with one image of this moment: pickled in a forked child and handed to judge(data) there."""
    reading, writing = os.pipe()
    child = _frames.fork()
    if child == 0:
        try:
            where = stack.describe()[-1]
            modes = "".join(record.mode for record in stack.frames)
            limit = sys.getrecursionlimit()
            image = {
                "stack": stack,
                "output": output,
                "want": want,
                "random": random.getstate(),
                "limit": limit,
            }
            try:
                data = dump(image)
            except (pickle.PicklingError, AttributeError) as error:
                problem = f"{UNPICKLABLE}{error}"
            else:
                problem = judge(data)
            if problem:
                os.write(writing, f"{modes} {where['function']}:{where['line']}: {problem}".encode())
        except BaseException:
            os.write(writing, traceback.format_exc()[-2000:].encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return [answer] if answer else [f"died with status {status}"] if status else []


def zygote(connection, generations):
    """Forks a fresh process for every image it is sent and sends back what went wrong."""
    while True:
        data = receive(connection)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                answer = restored_run(data, generations)
            except BaseException:
                answer = traceback.format_exc()[-2000:]
            os.write(writing, answer.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        status = os.waitpid(child, 0)[1]
        send(connection, answer or (f"died with status {status}".encode() if status else b""))


class Victim:
    """The disturbed run."""

    def __init__(self, task, connection, want):
        self.every, self.connection, self.want = task.get("every", 1), connection, want
        self.calls = self.checks = self.captured = self.restored = 0
        self.active = True
        self.failures, self.unpicklable, self.modes = [], [], set()
        self.refused = collections.Counter()

    def at_check(self):
        if not self.active:
            return
        self.calls += 1
        if self.calls % CALLS_PER_CHECK == 0:
            self.image("check", ())
        _frames.request(self.at_check)

    def at_call(self):
        self.image("call", (library.__code__, Victim.at_call.__code__, Victim.image.__code__))

    def image(self, at, skip):
        self.checks += 1
        try:
            stack = capture(at=at, skip=skip, value="taken")
        except Refused as refusal:
            self.refused[refusal.reason] += 1
            return
        self.captured += 1
        self.modes.add("".join(record.mode for record in stack.frames))
        if self.checks % self.every == 0:
            problems = forked(stack, self.want, self.elsewhere)
            unpicklable = any(UNPICKLABLE in problem for problem in problems)
            (self.unpicklable if unpicklable else self.failures).extend(problems)
            self.restored += not problems

    def elsewhere(self, data):
        send(self.connection, data)
        return receive(self.connection).decode()


def main():
    task = json.load(sys.stdin)
    generations = task.get("generations", 1)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        zygote(theirs, generations)
    theirs.close()
    code = compile(task["program"], "program", "exec")
    random.seed(1)
    run_base(exec, code, {"__name__": "program", "out": out, "library": library})
    want = list(output)
    output.clear()
    random.seed(1)
    victim = Victim(task, ours, want)
    if task.get("at") == "call":
        hooks.append(victim.at_call)
    else:
        _frames.request(victim.at_check)
    run_base(exec, code, {"__name__": "program", "out": out, "library": library})
    victim.active = False
    if output != want:
        victim.failures.append("disturbed run: " + difference(want))
    print(
        json.dumps(
            {
                "checks": victim.checks,
                "captured": victim.captured,
                "restored": victim.restored,
                "failures": victim.failures,
                "unpicklable": victim.unpicklable,
                "refused": victim.refused,
                "modes": sorted(victim.modes),
            }
        )
    )


if __name__ == "__main__":
    main()

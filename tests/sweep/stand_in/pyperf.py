"""What the programs of pyperformance import as ``pyperf``: runs each benchmark once and prints what came of it, no times.

Printed are digests: of every result, and at the end of all data that the program's module holds. A digest covers values,
types, order, and which of two names lead to one object, so that a program resumed from an image prints the same only if
it has the same.
"""

import argparse
import atexit
import functools
import hashlib
import os
import re
import sys
import types
from collections import deque

__version__ = "0"


def perf_counter():
    return 0.0


def python_implementation():
    return sys.implementation.name


# a pattern too: whether two names lead to one is up to the cache of re, which a new process does not have
_ATOMS = (re.Pattern, int, float, complex, str, bytes, bool, type(None), type(...))
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType)


class Text:
    """What a digest covers; with $SWEEP_TRACE also written there, for who looks for a difference."""

    def __init__(self):
        self.lines = []
        self.trace = os.environ.get("SWEEP_TRACE")

    def update(self, line):
        self.lines.append(line)
        if self.trace:
            with open(f"{self.trace}.{os.getpid()}", "a") as trace:
                trace.write(line)


def digest(*roots):
    """Hex digest of everything that can be reached from roots, as far as it is data.

    Objects are told apart by their addresses meanwhile, so no image may be taken within: none is inside of reduce().
    """
    return functools.reduce(lambda _, given: _digest(given), [roots], None)


def _digest(roots):
    text = Text()
    seen = {}
    kept = []  # no id is used twice
    stack = list(reversed(roots))
    while stack:
        obj = stack.pop()
        kind = type(obj)
        if kind in _ATOMS:
            text.update(f"{kind.__name__} {obj!r}\n")
            continue
        if isinstance(obj, os.PathLike):
            # And not what it has computed of itself so far
            text.update(f"{kind.__name__} {os.fspath(obj)!r}\n")
            continue
        # Of all libraries' loggers
        if isinstance(obj, (_NAMED, types.ModuleType)) or kind.__qualname__ == "Manager":
            text.update(f"named {getattr(obj, '__name__', '')}\n")
            continue
        if id(obj) in seen:
            text.update(f"again {seen[id(obj)]}\n")
            continue
        seen[id(obj)] = len(seen)
        kept.append(obj)
        children = []
        if isinstance(obj, dict):
            for key, value in dict.items(obj):
                if key != "_cache":  # of a logger: what it has found out so far
                    children += [key, value]
        elif isinstance(obj, (list, tuple, deque)):
            children += list(obj)
        elif isinstance(obj, (set, frozenset)):
            if all(type(member) in _ATOMS for member in obj):
                children += list(obj)  # in its very order
        elif isinstance(obj, (bytearray, memoryview)):
            children.append(bytes(obj))
        text.update(f"{kind.__qualname__} {len(children)}\n")
        children.append(getattr(obj, "__dict__", None))
        for cls in kind.__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and not name.startswith("_hash"):
                    try:
                        children.append(object.__getattribute__(obj, name))
                    except AttributeError:
                        children.append("unset")
        stack += reversed(children)
    return hashlib.sha256("".join(text.lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Runner:
    def __init__(self, add_cmdline_args=None, **_options):
        self.metadata = {}
        self.argparser = argparse.ArgumentParser()
        self.argparser.add_argument("--loops", type=int, default=1)
        self.args = None
        atexit.register(self.last)

    def parse_args(self, args=None):
        if self.args is None:
            self.args = self.argparser.parse_args(args)
        return self.args

    def bench_func(self, name, function, *args, inner_loops=None, metadata=None):
        for turn in range(self.parse_args().loops):
            print(name, turn, digest(function(*args)), flush=True)

    def bench_time_func(self, name, function, *args, inner_loops=None, metadata=None):
        function(self.parse_args().loops, *args)
        print(name, digest(args), flush=True)

    def bench_async_func(self, name, function, *args, inner_loops=None, metadata=None, loop_factory=None):
        import asyncio

        for turn in range(self.parse_args().loops):
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                print(name, turn, digest(runner.run(function(*args))), flush=True)

    def last(self):
        main = sys.modules["__main__"].__dict__
        held = {
            name: value
            for name, value in main.items()
            if not name.startswith("__") and value is not self and not isinstance(value, types.ModuleType)
        }
        print("in the end", digest(held), flush=True)

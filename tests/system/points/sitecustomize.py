"""Ends (or stops) a process of a job at a named point: the site module of every process of a job under test.

A point is the beginning or the end of a function of the code that ships, in one kind of process. The shipped code
knows nothing of it: when a module that holds a wanted function has been imported, the function is replaced by one that
looks first. `tests.system.points.catalogue` names the points and puts this directory on PYTHONPATH.

    CKPT_TEST_POINT    JSON: module, function (dotted), when (before, after), process (controller, agent, rank, child),
                       packet (only if that is the `m` of an argument), nth, action (kill, stop)
    CKPT_TEST_ARMED    a file: while it is there the point is armed. Who reaches the point first takes it away, so
                       it acts once, whatever is started again later.
"""

import functools
import importlib.abc
import importlib.util
import json
import os
import signal
import sys

_POINT = json.loads(os.environ.get("CKPT_TEST_POINT", "null"))
_ARMED = os.environ.get("CKPT_TEST_ARMED", "")
_STARTED_AS = "agent" if "--control-fd" in sys.argv else "controller"
_STARTED_PID = os.getpid()


def _process():
    """Which kind of process this is."""
    if os.getpid() == _STARTED_PID:
        return _STARTED_AS
    runtime = sys.modules.get("ckpt.rank.runtime")
    rank = runtime.current() if runtime is not None else None
    return "rank" if rank is None or rank.pid == os.getpid() else "child"


class _Counter:
    def __init__(self):
        self.left = _POINT.get("nth", 1)

    def here(self, values):
        if _process() != _POINT["process"] or not os.path.exists(_ARMED):
            return
        packet = _POINT.get("packet")
        if packet is not None and not any(
            isinstance(value, dict)
            and packet in (value.get("m"), value.get("a"), value.get("e"), value.get("event"))
            for value in values
        ):
            return
        if "argument" in _POINT and not any(_POINT["argument"] in str(value) for value in values):
            return
        self.left -= 1
        if self.left:
            return
        try:
            os.rename(_ARMED, _ARMED + ".reached")
        except OSError:
            return  # another process was faster
        os.kill(os.getpid(), signal.SIGKILL if _POINT["action"] == "kill" else signal.SIGSTOP)


def _wrap(function, counter):
    if _POINT["when"] == "before":

        @functools.wraps(function)
        def reached(*args, **kwargs):
            counter.here((*args, *kwargs.values()))
            return function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def reached(*args, **kwargs):
            result = function(*args, **kwargs)
            counter.here((*args, *kwargs.values()))
            return result

    return reached


def _replace(module):
    *path, name = _POINT["function"].split(".")
    owner = functools.reduce(getattr, path, module)
    found = owner.__dict__[name]
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    wrapped = _wrap(found.__func__ if kind else found, _Counter())
    setattr(owner, name, kind(wrapped) if kind else wrapped)


class _Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _replace(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        # What a rank has in sys.modules from outside the packages is part of its image: this is no part of any program.
        sys.modules.pop("sitecustomize", None)
        if name != _POINT["module"]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        spec.loader = _Loader(spec.loader)
        return spec


if _POINT is not None:
    sys.meta_path.insert(0, _Finder())

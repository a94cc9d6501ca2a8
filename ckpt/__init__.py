"""Checkpoint/restart for message-passing Python.

In an application::

    import ckpt

    comm = ckpt.enable()            # under `ckpt run -n 4 app.py`: four ranks; under plain `python app.py`: one
    total = comm.allreduce(comm.rank)

Nothing else is needed: checkpoints are taken where the program is, and after a ``kill -9`` it goes on from the last
committed one.

Public names: :func:`enable`, :data:`comm`, :func:`checkpoint`, :func:`epoch`, :func:`restarts`, :class:`CkptError`; for
programs with state that an image does not hold by itself :func:`register_type`, :func:`register_child`,
:func:`keep_package`, :func:`on_checkpoint`, :func:`on_restart`, :func:`remove_hook`, :func:`harmless_threads`; for
effects that stay :func:`keep_file`, :func:`when_committed`, :func:`log_event`; for `ckpt status` :func:`on_status`; to
give up what was done since the last checkpoint :func:`go_back`; what the death of a rank does :func:`failure_policy`;
for messages that call a function where they arrive :class:`ActiveMessages`; for programs that save themselves
:func:`register` and :func:`loop`. Larger modules are imported when they are first used.
"""

from __future__ import annotations

from ckpt.errors import CkptError

TYPE_CHECKING = False  # what typing has, without importing it: every command starts here
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from os import PathLike
    from subprocess import Popen
    from typing import Any, TypeVar

    from ckpt.mpi.active.channel import ActiveMessages as ActiveMessages
    from ckpt.mpi.comm.communicator import Communicator
    from ckpt.rank.world import World

    comm: Communicator
    T = TypeVar("T")
    H = TypeVar("H", bound=Callable[[int], object])
    P = TypeVar("P", bound=Popen[Any])
    S = TypeVar("S", bound=Callable[[], str])

__all__ = [
    "ActiveMessages",
    "CkptError",
    "checkpoint",
    "comm",
    "enable",
    "epoch",
    "failure_policy",
    "go_back",
    "harmless_threads",
    "keep_file",
    "keep_package",
    "log_event",
    "loop",
    "on_checkpoint",
    "on_restart",
    "on_status",
    "register",
    "register_child",
    "register_type",
    "remove_hook",
    "restarts",
    "when_committed",
]

_SUBMODULES = ("MPI", "abft", "diagnosis", "ready", "reduction", "redundancy")
"""``ckpt.reduction`` can be written after ``import ckpt`` alone; none of them is imported before."""

_world: list[World] = []


def _runtime() -> World:
    if not _world:
        from ckpt.rank.runtime import current

        runtime = current()
        if runtime is None:
            from ckpt.rank.standalone import Standalone

            _world.append(Standalone.start())
        else:
            _world.append(runtime)
    return _world[0]


def enable(
    *, harmless_threads: Iterable[str | threading.Thread] = (), explicit: bool = False
) -> Communicator:
    """The world communicator of this job, with mpi4py's names; a world of one rank outside ``ckpt run``.

    May be called any number of times; always returns the same communicator. ``harmless_threads``: as for
    :func:`harmless_threads`. Raises :class:`ckpt.errors.ThreadsRunning` if threads run that no image can hold,
    because ``threading.Thread`` has not started them. ``explicit``: the program saves itself (:func:`register`,
    :func:`loop`); raises :class:`ckpt.errors.NotEnabled` in a job that was started without ``--explicit``.
    """
    runtime = _runtime()
    if isinstance(harmless_threads, str):  # by its letters, a pattern with a * would be one for all threads
        harmless_threads = (harmless_threads,)
    runtime.threads.allow(*harmless_threads)
    runtime.enter(explicit)
    assert runtime.world is not None
    return runtime.world


def harmless_threads(*threads: str | threading.Thread) -> None:
    """Declare threads harmless, each by itself or by a pattern for names (``"progress-*"``).

    Images are taken while they run. After a restart they do not exist, and their objects are those of threads that have
    ended; an :func:`on_restart` hook may start them again.
    """
    _runtime().threads.allow(*threads)


def on_checkpoint(hook: H) -> H:
    """Have ``hook(epoch)`` called in the program's main thread just before each image; returns it (a decorator).

    The hook should be quick, and must not wait for messages. If it raises, this checkpoint is given up, the report names the
    hook, and the program goes on. The hook that was registered last is called first.
    """
    return _runtime().hooks.on_checkpoint(hook)


def on_restart(hook: H) -> H:
    """Have ``hook(epoch)`` called in the new process after each restart, before the program goes on; returns it.

    If the hook raises, the job fails with that error. The hook that was registered first is called first.
    """
    return _runtime().hooks.on_restart(hook)


def on_status(function: S) -> S:
    """Have what ``function()`` returns shown for this rank by ``ckpt status``: a text of one line, "" for none; returns it.

    The function is called by whoever makes progress, also while the program computes, and must not communicate or wait. What
    it raises is shown instead. :func:`remove_hook` removes it. Images hold it.
    """
    return _runtime().hooks.on_status(function)


def remove_hook(hook: Callable[..., object]) -> None:
    """Remove a hook. Raises :class:`ckpt.errors.RegistrationError` if it is not registered."""
    _runtime().hooks.remove(hook)


def register_type(cls: type, save: Callable[[Any], object], load: Callable[[Any], object]) -> None:
    """Save objects of exactly the class ``cls`` as ``save(obj)``, and make them again by ``load(state)``.

    For objects that cannot be pickled: handles of C libraries, connections. If several variables of the program refer to
    such an object, they refer to one object again after a restart. ``save`` runs while the image is written, in a copy of
    the process: it may read everything, and must change nothing outside the process. Instances of subclasses are not
    included. The state must not contain the object itself.
    """
    _runtime().hooks.register_type(cls, save, load)


def register_child(process: P, start: Callable[[], P]) -> P:
    """Say how a child process is started again after a restart; returns ``process``.

    ``process``: a ``subprocess.Popen`` that runs beside the program, such as a server or a solver behind pipes, which
    an image cannot hold. From now on it is no obstacle to checkpoints. After a restart, before the ``on_restart``
    hooks, ``start()`` is called, and the object ``process`` stands for the process that ``start`` has started, with
    its pipes: use ``process.stdin`` and ``process.stdout`` where they are needed, and keep them in no other variable.
    What the child has done and knows is lost: ``start`` brings it to where it has to be. A child that has ended is
    not started again. A request that waits for its answer must be asked again by ``start`` too.

    Raises :class:`ckpt.errors.RegistrationError` for what is no ``subprocess.Popen`` or no function.
    """
    _runtime().hooks.register_child(process, start)
    return process


def keep_package(name: str) -> None:
    """Have images hold all that the program has changed in the variables of an installed package.

    Images hold the changes in a package that is written in Python if all of them are settings and registries. They do not
    hold others (generators, weak references, files), nor those in a package with modules in C, because such modules may
    have state that belongs to the variables: ``ckpt doctor`` and ``ckpt inspect`` say "changed, not kept". With this
    call, the changes in the package's modules, their classes and objects are restored after a restart, when the package has
    been imported again. ``name``: of the top-level module. Call it before or after the import, in every rank that needs it;
    it stays in force after restarts.

    Raises :class:`ckpt.errors.RegistrationError` if no module of this name can be imported, for the standard library, for
    ckpt itself, and for packages whose settings images hold in another way (numpy, torch, …).
    """
    _runtime().hooks.keep_package(name)


def keep_file(path_or_pattern: str | PathLike[str]) -> None:
    """Have what the program does to these files stay when a restart goes back: a log for people, a queue to others.

    A path, or a pattern as in :mod:`fnmatch`; a directory covers what is below it; a relative one begins in the working
    directory. After a restart such a file is opened as it is then, and not cut: one that is appended to goes on at its
    present end, another one at the program's position. So what the program repeats may be there twice. Say it before the
    first change of the file, in every rank that changes it; images remember it. If the file has been changed since the last
    checkpoint, these changes stay, too. Outside of a job nothing happens.

    Raises :class:`ckpt.errors.RegistrationError` for what is no path.
    """
    world = _runtime()
    world.files.keep(world.hooks.keep_file(path_or_pattern))


def when_committed(function: Callable[..., object], *args: object, key: str | None = None) -> str:
    """Have ``function(*args, key=key)`` called once a checkpoint that holds this request is committed: no restart goes back
    to a moment before the request then. For effects outside of the job: mails, uploads, rows in a database of others.

    ``key``: a text that is this request's own; default: made of the job, the rank and the number of the request. Returns it.
    A restart from a checkpoint with a request makes the call (again) with the same key, and a program that is set back to
    before a request and makes its requests in the same order makes it under the same key. So the effect happens exactly once
    if the receiver, or the function, does nothing for a key that has been there.

    The call is made in the main thread, wherever the program is, in the order of the requests. It must not wait for
    messages. What it raises is raised in the program. Function and arguments are part of images. When the program ends, a
    last checkpoint is taken for the requests that are left; where there can be none, the calls are made when all ranks have
    finished. Outside of a job the call is made at once.

    Raises :class:`ckpt.errors.RegistrationError` for what cannot be called so (or does nothing then: a coroutine function),
    for what is no key, in other threads, in child processes; :class:`ckpt.errors.NotEnabled` under ``ckpt run --explicit``.
    """
    return _runtime().commits.ask(function, args, key)


def loop(items: Iterable[T] | None = None, *, name: str | None = None) -> Iterable[T]:
    """The items as an iterable that a restart can resume at any step: ``for step in ckpt.loop(range(n)):``.

    Under ``ckpt run --explicit`` images are taken between the steps; they hold the objects given to :func:`register`. A
    restart runs the script from its start, skips the finished steps, restores the registered objects, and goes on. Elsewhere
    the result is ``items`` itself. Without ``items``: counts 0, 1, 2, …. ``name``: of the loop; by default its place in the
    source.

    Raises :class:`ckpt.errors.LoopError` (also :class:`ckpt.errors.StateError`) if the new run differs from the old one.
    """
    if items is None:
        import itertools

        items = itertools.count()  # type: ignore[assignment]
        assert items is not None
    replay = _runtime().explicit
    if replay is None:
        return items
    from ckpt.replay.loop import Loop, name_of_caller

    return Loop(replay, items, name or name_of_caller(2))


def checkpoint(wait: bool = True) -> int | None:
    """Ask for a checkpoint of the whole job.

    With ``wait`` the call returns the epoch when this rank's image is captured (the checkpoint need not be committed yet),
    or ``None`` if no image will be taken. Without ``wait`` it returns ``None`` at once. An explicit program (:func:`loop`)
    always gets ``None`` at once; with ``wait`` the image is taken before a later step of the loop, on which the ranks
    agree. A program that is resumed from that image returns from this call too: compare :func:`restarts`. In a signal
    handler the call never waits: the image is taken when the handler has returned. Outside a job nothing happens, and
    the result is ``None``. Calls of several ranks at about the same time lead to one checkpoint.
    """
    return _runtime().checkpoint(wait)


def register(name: str, obj: T) -> T:
    """Give ``obj`` a name in this rank's images; returns ``obj``.

    Under ``ckpt run --explicit`` the registered objects are saved, and a restart puts the saved content into the object that
    the new run registers under this name: dicts, lists, sets, numpy arrays, random generators, files open for writing, other
    objects by their attributes. Register everything before the loop.

    Raises :class:`ckpt.errors.RegistrationError` if another object has the name, or if the name cannot be used.
    """
    _runtime().register(name, obj)
    return obj


def log_event(name: str, /, **fields: Any) -> None:
    """Write a line with ``event: name`` and these fields to the job's event log (``JOB/events.jsonl``, ``ckpt run --json``).

    ``name``: words of small letters and digits, joined by hyphens, none of the job's own events. ``fields``: what JSON has,
    4 KiB in all. Rank, incarnation and time are added. From any thread, and in handlers. The line stays when the rank goes
    back to a checkpoint, and is written again when the program comes there again. Outside a job nothing is written. Raises
    :class:`ckpt.errors.EventError`.
    """
    from ckpt.rank.channel.program_events import packet

    _runtime().log(packet(name, fields))


def go_back(reason: str) -> None:
    """Have the job go back to its last checkpoint that has all ranks with which these processes began (or begin anew if
    there is none), the dead ones too.

    For a program under ``ckpt run --on-failure continue`` that cannot go on without a rank; the job counts it as a restart
    (``--max-restarts``). Returns at once, and the process is ended soon; so what comes after it may or may not be done. From
    any thread, and in handlers. ``reason``: for the event ``restarting`` and standard error. Raises CkptError outside a job.
    """
    from ckpt.rank.runtime import current

    if current() is None:
        raise CkptError(f"there is no job that could go back ({reason})")
    _runtime().log({"m": "request", "what": "go-back", "reason": str(reason)[:500]})


def failure_policy() -> str | None:
    """What the job does when a rank dies, as ``ckpt run --on-failure`` says: ``"restart"`` or ``"continue"``.

    ``"restart"``: all ranks go back to the last checkpoint, the dead ones too, and no program sees the death.
    ``"continue"``: the others go on, and are told (``ERR_PROC_FAILED``). The same at all ranks. ``ckpt restart
    --on-failure`` may change it. ``None`` outside of a job, where there is one rank.
    """
    from ckpt.rank.runtime import current

    runtime = current()
    return None if runtime is None else str(runtime.options.get("on_failure", "restart"))


def epoch() -> int:
    """The epoch of this rank's last image; 0 before the first."""
    return _runtime().epoch


def restarts() -> int:
    """How many times this job has been restarted so far."""
    return _runtime().restarts


def __getattr__(name: str) -> Any:
    if name == "comm":
        return enable()
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f"ckpt.{name}")
    if name == "ActiveMessages":
        from ckpt.mpi.active.channel import ActiveMessages

        return ActiveMessages
    raise AttributeError(f"module 'ckpt' has no attribute {name!r}")

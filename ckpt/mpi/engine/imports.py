"""What library modules do with communicators while they are imported: `comm = MPI.COMM_WORLD.Dup()`, `comm.bcast(seed)`.

Library modules are not part of an image. A restart imports them again, each rank at its own time, before the rank reads
its image. At that time the ranks cannot talk to each other. They need not: what a module learns from other ranks is what it
learned when it was imported first, and that is noted.

    first run     while a module is imported, collectives work as always; `heard` notes what comes out of each,
                  `made` the context of each new communicator
    restart       under a provisional engine, the n-th call of a collective by a module gives what its n-th call gave then
                  (`hear_again`). So `Split` and `Dup` make the same communicators, which cannot carry messages yet
    image read    `Engine.take_over` binds every handle of the provisional engine to its communicator of the image

`refusal`: why no restart could import a module again; then there are no images.

Not here: other messages of a module that is being imported (`send`, nonblocking calls, windows). A provisional engine cannot
carry them, so the restart fails, and says why.
"""

from __future__ import annotations

import pickle
import sys
from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ckpt.compat.stdlib import is_initializing
from ckpt.mpi.base.constants import IN_PLACE

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.engine import Engine

__all__ = ["Imports", "module_being_imported", "repeatable", "take_over"]

_OBJECTS: Final = "barrier bcast gather scatter allgather alltoall reduce allreduce scan exscan"
_BUFFERS: Final = (
    "Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Alltoallw Reduce Allreduce "
    "Reduce_scatter_block Reduce_scatter Scan Exscan"
)
_COLLECTIVES: Final = frozenset(
    [f"ObjectCollectives.{name}" for name in _OBJECTS.split()]
    + [f"BufferCollectives.{name}" for name in _BUFFERS.split()]
)
_MOST_BYTES: Final = 1 << 20

under_way: Mapping[int, int] = {}
"""By thread: imports of libraries that are under way. Who knows of them sets this. While there are none, a collective
costs this look."""
_inside: set[int] = set()
"""Threads within a collective: those that it is made of are not noted."""


class Imports:
    """The record of one engine. `handles` is used in a provisional engine only: all handles made under that engine."""

    __slots__ = ("handles", "heard", "made", "provisional", "refusal")

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], int] = {}
        """(module, number of communicators that it had made before) -> the communicator's first context number."""
        self.heard: dict[tuple[str, str], list[bytes]] = {}
        """(module, collective) -> what has come out of each call, pickled: see `repeatable`. In a provisional engine: of
        the calls that are to come."""
        self.refusal = ""
        self.provisional = False
        """Whether the engine is provisional: the engine of an image will replace it."""
        self.handles: list[CommHandle] = []

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        self.heard, self.refusal = {}, ""  # for an image that has none
        for name, value in state[1].items():
            setattr(self, name, value)

    def note(self, shared: CommShared) -> None:
        """Record a new communicator, if a module that is being imported has made it."""
        module = module_being_imported()
        if module is not None:
            number = sum(1 for name, _ in self.made if name == module)
            self.made[module, number] = shared.base

    def note_heard(self, module: str, name: str, result: Any, filled: Any) -> None:
        """Record what has come out of a collective. `filled`: the buffer that has received, or None."""
        try:
            data = pickle.dumps((result, None if filled is None else bytes(_bytes_of(filled))), 5)
        except Exception as failure:
            self._refuse(module, name, f"what comes out of it cannot be kept ({failure})")
            return
        self.heard.setdefault((module, name), []).append(data)
        if sum(len(each) for of_call in self.heard.values() for each in of_call) > _MOST_BYTES:
            self._refuse(module, name, f"that has brought more than {_MOST_BYTES} bytes")

    def _refuse(self, module: str, name: str, what: str) -> None:
        self.refusal = self.refusal or (
            f"the package's module {module} calls {name} while it is imported, and {what}: a restart, which imports it "
            "anew, could not give it the same. Let it communicate when it is first used"
        )

    def told(self) -> list[Any]:
        """What `hear_again` needs, for JSON."""
        return [[*call, [each.hex() for each in results]] for call, results in self.heard.items()]

    def hear_again(self, told: Iterable[Any]) -> None:
        """This engine is provisional. `told`: by the record of the image's engine."""
        self.provisional = True
        self.heard = {(module, name): [*map(bytes.fromhex, results)] for module, name, results in told}

    def again(self, module: str, name: str, filled: Any) -> tuple[Any] | None:
        """What the next call gives, in a tuple; None: nothing was noted."""
        results = self.heard.get((module, name))
        if not results:
            return None
        result, data = pickle.loads(results.pop(0))
        if data is not None:
            _bytes_of(filled)[:] = memoryview(data)
        return (result,)

    def successors(self, later: Imports) -> dict[int, int]:
        """First context number under this engine -> first context number of the same communicator in `later`.

        `later` is the record of the image's engine."""
        return {base: later.made[key] for key, base in self.made.items() if key in later.made}


def repeatable(
    method: Callable[..., Any], comm: CommHandle, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call a method of a communicator while a library is imported: what comes out of a collective that the library calls is
    noted. Under a provisional engine it is what was noted."""
    thread, name = get_ident(), method.__qualname__
    module = None if name not in _COLLECTIVES or thread in _inside else module_being_imported()
    if module is None:
        return method(comm, *args, **options)
    name = method.__name__
    imports, filled = comm._engine.imports, _filled(method, args, options)
    if imports.provisional and (found := imports.again(module, name, filled)) is not None:
        (result,) = found
        return result
    _inside.add(thread)
    try:
        result = method(comm, *args, **options)
    finally:
        _inside.discard(thread)
    imports.note_heard(module, name, result, filled)
    return result


def _filled(method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The buffer that this call of a collective fills, or None."""
    names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
    name = "recvbuf" if "recvbuf" in names else "buf"
    given = dict(zip(names, args, strict=False)) | options
    buffer: Any = given.get(name)
    if type(buffer) in (list, tuple):
        buffer = buffer[0]
    return None if buffer is IN_PLACE else buffer


def _bytes_of(buffer: Any) -> memoryview:
    """Raises TypeError: it has gaps, or is none."""
    return memoryview(buffer).cast("B")


def take_over(engine: Engine, provisional: Engine, states: dict[str, Any]) -> None:
    """Bind every handle of `provisional` to its communicator of `engine`, the engine of an image.

    Libraries may keep COMM_WORLD, other handles of it, or communicators made of it when they are imported. So COMM_WORLD has
    to exist before the image is read, and these handles have to become handles of the program's communicators.
    states: the states of the predefined communicators in the image, by slot.
    """
    successors = provisional.imports.successors(engine.imports)
    predefined = {id(comm._shared): comm for comm in provisional.predefined.values()}
    handles = [(handle, handle._shared) for handle in provisional.imports.handles if handle]
    for slot, comm in provisional.predefined.items():
        if slot in states:
            comm.__setstate__(states[slot])
        else:
            comm._bind(engine, comm._shared)
            engine.register(comm._shared)
        setattr(engine, slot, comm)
    for handle, former in handles:
        found = predefined.get(id(former))
        shared = engine.shared.get(successors.get(former.base, -1)) if found is None else found._shared
        if shared is None:
            handle._unbind()  # freed before the image was taken
        elif handle is not found:
            handle._bind(engine, shared)


def module_being_imported() -> str | None:
    """The name of the innermost module whose import is under way in this thread; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            spec: Any = frame.f_globals.get("__spec__")
            if is_initializing(spec):
                return str(spec.name)
        frame = frame.f_back  # type: ignore[assignment]
    return None

"""Communicators that library modules duplicate while they are imported (`comm = MPI.COMM_WORLD.Dup()`).

Library modules are not part of an image. A restart imports them again, each rank at its own time, before the rank reads
its image. At that time the ranks cannot agree on the context of a new communicator. They need not: the n-th
communicator that a module makes during its import is the n-th communicator that it made in the first run, and the
image holds that communicator.

    first run     Dup works as always; `made` records the context of the new communicator, by module and n
    restart       Dup under a provisional engine returns a handle of the same ranks, which cannot carry messages yet
    image read    `Engine.take_over` binds every handle of the provisional engine to its communicator of the image

Not here: other ways to make communicators (Split, Create …). Their members follow from what the ranks tell each other, and
a provisional engine cannot carry messages.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ckpt.compat.stdlib import is_initializing

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.engine import Engine


class Imports:
    """The record of one engine. `handles` is used in a provisional engine only: all handles made under that engine."""

    __slots__ = ("handles", "made", "provisional")

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], int] = {}
        """(module, number of communicators that it had made before) -> the communicator's first context number."""
        self.provisional = False
        """Whether the engine is provisional: the engine of an image will replace it."""
        self.handles: list[CommHandle] = []

    def note(self, shared: CommShared) -> None:
        """Record a new communicator, if a module that is being imported has made it."""
        module = module_being_imported()
        if module is not None:
            number = sum(1 for name, _ in self.made if name == module)
            self.made[module, number] = shared.base

    def successors(self, later: Imports) -> dict[int, int]:
        """First context number under this engine -> first context number of the same communicator in `later`.

        `later` is the record of the image's engine."""
        return {base: later.made[key] for key, base in self.made.items() if key in later.made}


def take_over(engine: Engine, provisional: Engine, states: dict[str, Any]) -> None:
    """Bind every handle of `provisional` to its communicator of `engine`, the engine of an image.

    Libraries may keep COMM_WORLD, other handles of it, or duplicates when they are imported. So COMM_WORLD has to exist
    before the image is read, and these handles have to become handles of the program's communicators.
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

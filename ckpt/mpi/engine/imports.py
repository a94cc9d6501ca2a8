"""Duplicates that libraries make of communicators while they are imported (`comm = MPI.COMM_WORLD.Dup()`).

Library modules are not part of an image: a restart imports them anew, each rank at its own time, before it reads its
image, and nobody can agree on anything with the others then. But all has been agreed on already: the n-th
communicator that a module makes while it is imported is the one that was its n-th before, and is in the image.

    first run     Dup works as always; `made` keeps which context it got, by module and number
    restart       Dup under a provisional engine: a handle of the same ranks, which cannot carry messages yet
    image read    `Engine.take_over` binds every handle of the provisional engine to what it stands for

Not here: other ways of making communicators. Who gets into them is what the ranks have to tell each other.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.mpi.engine.comm_state import CommHandle, CommShared
    from ckpt.mpi.engine.engine import Engine


class Imports:
    """Of one engine. `handles` is kept by a provisional one only."""

    __slots__ = ("handles", "made", "provisional")

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], int] = {}
        """(module, how many it had made before) → number of the communicator's first context."""
        self.provisional = False
        """Under an engine that an image's is about to replace."""
        self.handles: list[CommHandle] = []

    def note(self, shared: CommShared) -> None:
        """A communicator was made, perhaps by a module that is being imported."""
        module = module_being_imported()
        if module is not None:
            number = sum(1 for name, _ in self.made if name == module)
            self.made[module, number] = shared.base

    def successors(self, later: Imports) -> dict[int, int]:
        """Contexts made under this engine → what `later`, that of an image, has for them."""
        return {base: later.made[key] for key, base in self.made.items() if key in later.made}


def take_over(engine: Engine, provisional: Engine, states: dict[str, Any]) -> None:
    """Bind every handle of `provisional` to the communicator of `engine` that it stands for.

    Libraries may keep COMM_WORLD when they are imported, other handles of it, or duplicates: so it has to be there before
    the image is read, and to be the one that the program had. `states`: those of the predefined communicators.
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
    """The innermost module whose import is under way in this thread; None in a program that runs."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            spec: Any = frame.f_globals.get("__spec__")
            if getattr(spec, "_initializing", False):
                return str(spec.name)
        frame = frame.f_back  # type: ignore[assignment]
    return None

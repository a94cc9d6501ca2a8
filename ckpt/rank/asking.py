"""What a program asks of its rank: a checkpoint of the whole job, and names for objects. (driver)

A program may wait for the image of its rank. The image is taken while it waits here, so the frames of these functions are in
it, and their variables are the program's. Where no image comes nobody waits: in a signal handler, where the program is
replayed, where several processes compute the rank, without a controller, and in an explicit job that has lost a rank for
good.

Not here: how an image is taken (:mod:`ckpt.capture.imager`), what a program calls (`ckpt/__init__.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt.compat.threads import captured_in_threads
from ckpt.errors import RegistrationError

if TYPE_CHECKING:
    from ckpt.rank.runtime import Runtime

__all__ = ["checkpoint", "register"]


@captured_in_threads
def checkpoint(runtime: Runtime, wait: bool, *, is_main: bool) -> int | None:
    """Ask the controller for a checkpoint; wait for the image of this rank if `wait`. Returns its epoch; ``None``: there is
    none, or nobody has waited for it. `is_main`: this is the program's main thread."""
    if runtime.port is not None and runtime.port.interrupts.running:
        wait = False  # called in a signal handler: there is no image before the handler has returned
    request = {"m": "request", "what": "checkpoint", "wait": wait and runtime.explicit is None}
    with (runtime.engine or runtime).lock:  # the engine's refuses handlers
        if wait and runtime.layer is None:
            runtime.imager.expect()
        if runtime.layer is not None:
            if runtime.layer.takes_images:
                runtime.control.send({**request, "wait": False})
            return None
        if runtime.alone or runtime.incomplete:
            return None
        if not runtime.control.send(request) or not wait:
            return None
        if runtime.explicit is not None:
            runtime.explicit.ask()
            return None
        runtime.imager.places.is_awaited = is_main
        try:
            return _await_image(runtime, is_main)
        finally:
            runtime.imager.places.is_awaited = False


@captured_in_threads
def _await_image(runtime: Runtime, is_main: bool) -> int | None:
    """Wait for the next image. Returns its epoch; ``None``: there is none."""
    before = runtime.imager.epoch
    while not (
        runtime.imager.epoch != before
        or runtime.imager.awaited_round_failed
        or runtime.alone
        or runtime.incomplete
    ):
        runtime.block(False)
        if is_main and runtime.imager.give_up_here():
            return None
    return (
        None
        if runtime.imager.awaited_round_failed or runtime.imager.epoch == before
        else runtime.imager.epoch
    )


def register(runtime: Runtime, name: str, obj: object) -> object:
    """Register ``obj`` under ``name``: identifiers, separated by dots. Returns the object. Raises RegistrationError."""
    if not name.isidentifier() and not all(part.isidentifier() for part in name.split(".")):
        raise RegistrationError(f"{name!r} is no usable name: letters, digits, '_' and '.' only")
    if runtime.explicit is not None:
        runtime.explicit.register(name, obj)
    with (runtime.engine or runtime).lock:
        present = runtime.registered.get(name, runtime)
        if present is not runtime and present is not obj:
            raise RegistrationError(f"{name!r} is registered already, for another object")
        runtime.registered[name] = obj
    return obj

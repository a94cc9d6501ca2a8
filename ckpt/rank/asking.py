"""What a program asks of its rank: a checkpoint of the whole job, names for objects, more processes. (driver)

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
    from ckpt.rank.channel.control import Packet
    from ckpt.rank.runtime import Runtime

__all__ = ["ask_again", "checkpoint", "register", "spawn", "spawned", "without_controller"]

_ALONE = "the controller is gone, and nobody starts processes"
_REQUEST_BYTES_MAX = 128 << 10


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
    check_name(name)
    if runtime.explicit is not None:
        runtime.explicit.register(name, obj)
    with (runtime.engine or runtime).lock:
        note_registered(runtime.registered, name, obj)
    return obj


def check_name(name: object) -> None:
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise RegistrationError(f"{name!r} is no usable name: letters, digits, '_' and '.' only")


def note_registered(registered: dict[str, object], name: str, obj: object) -> None:
    if registered.setdefault(name, obj) is not obj:
        raise RegistrationError(f"{name!r} is registered already, for another object")


def spawn(runtime: Runtime, packet: Packet | None) -> str | None:
    """Ask the controller for processes; ``None``: do not. Returns why there are none, or are not asked for."""
    if not runtime.spec.get("reserved") or runtime.layer is not None:
        return "the job has none to start"
    if packet is None:
        return None
    if "commands" in packet and (refused := _complete(packet, runtime.spec["reserved"])):
        return refused
    is_heard = packet["what"] == "void" or not runtime.alone  # that one also by the agent
    if not is_heard or not runtime.control.send(packet):
        return _ALONE
    return None


def _complete(packet: Packet, most: int) -> str | None:
    """Make the commands of the request into words of ``python``. Returns why that cannot be."""
    import json

    from ckpt.rank.channel.commands import Refused, completed

    try:
        packet["commands"] = [completed(command, most) for command in packet["commands"]]
    except Refused as why:
        return f"{why}"
    if len(json.dumps(packet)) > _REQUEST_BYTES_MAX:
        return f"its words are longer than {_REQUEST_BYTES_MAX >> 10} KiB"
    return None


def ask_again(runtime: Runtime) -> None:
    """The image of a rank that waits for processes has been loaded: the request was of a job that has gone back."""
    if runtime.engine is not None and runtime.engine.spawns is not None:
        for asked in runtime.engine.spawns.pending.values():
            runtime.control.send(asked.packet)


def spawned(runtime: Runtime, packet: Packet) -> None:
    """The controller tells of processes that were started, or answers that there are none. The lock is held."""
    engine, port = runtime.engine, runtime.port
    assert engine is not None and port is not None
    for peer, (incarnation, address) in packet.get("peers", {}).items():
        port.set_peer(int(peer), address, incarnation)
    if engine.spawns is not None:
        if runtime.rank in packet.get("numbers", ()):
            assert engine.spawns.parent is not None
            engine.spawns.parent["is_known"] = True
        if packet["by"] == runtime.rank:
            engine.spawns.answer(packet)
    engine.tell()


def without_controller(runtime: Runtime) -> str | None:
    """The controller is gone: nobody will answer. Returns why this process has to leave; ``None``: it goes on."""
    if runtime.engine is None or runtime.engine.spawns is None:
        return None
    spawns = runtime.engine.spawns
    spawns.refuse_all(_ALONE)
    runtime.engine.tell()
    if spawns.parent is not None and not spawns.parent.get("is_known"):
        return _ALONE  # nobody has been told of this process, and nobody will be
    return None

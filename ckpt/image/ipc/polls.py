"""``select.epoll`` and ``select.poll``: after a restart they wait for the same descriptors.

What an epoll instance waits for was noted in the parent (:mod:`ckpt.image.process.moment`), because parent and child share
the instance. The registrations are made again when everything has been loaded, and so has its number.
"""

from __future__ import annotations

import os
import re
import select
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat.memory import registered_in_poll
from ckpt.image.errors import RestoreError
from ckpt.image.ipc import remake
from ckpt.image.ipc.survey import channels_of

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = ["make_epoll", "make_poll", "reduce_epoll", "reduce_poll", "register"]

_TARGET = re.compile(rb"^tfd:\s*(\d+) events:\s*([0-9a-f]+) data:\s*([0-9a-f]+)", re.MULTILINE)


def reduce_epoll(saver: Saver, obj: Any) -> Any:
    if obj.closed:
        return make_epoll, (-1,)
    fd = obj.fileno()
    channels = channels_of(saver)
    text = channels.registered.get(fd)
    if text is None:
        raise PicklingError(f"what the epoll instance with descriptor {fd} waits for cannot be read")
    targets = [(int(number), int(events, 16)) for number, events, data in _TARGET.findall(text)]
    for number, _ in targets:
        if number in channels.reasons:
            raise PicklingError(
                f"an epoll instance waits for descriptor {number}: {channels.reasons[number]}"
            )
    saver.defer(register, obj, targets)
    return make_epoll, (fd,)


def reduce_poll(saver: Saver, obj: Any) -> Any:
    registered = registered_in_poll(obj)
    if registered is None:
        raise PicklingError("a poll object has another layout in this Python than is known: use select.epoll")
    return make_poll, (dict(registered),)


# ---------------------------------------------------------------------- called while loading


def make_epoll(number: int) -> Any:
    new = select.epoll()
    if number < 0:
        new.close()
        return new
    remake.place(os.dup(new.fileno()), number, what="an epoll instance")
    new.close()
    return select.epoll.fromfd(number)


def register(epoll: Any, targets: list[tuple[int, int]]) -> None:
    for number, events in targets:
        try:
            epoll.register(number, events)
        except OSError as failure:
            raise RestoreError(
                f"an epoll instance of the program waited for descriptor {number}, which could not be opened again: "
                f"{failure.strerror}"
            ) from failure


def make_poll(registered: dict[int, int]) -> Any:
    new = select.poll()
    for number, events in registered.items():
        new.register(number, events)
    return new

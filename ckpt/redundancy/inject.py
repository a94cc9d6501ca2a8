"""Bit flips on purpose: ``CKPT_FLIPS``, for tests of the comparison, beside ``CKPT_FAULTS`` for the network.

    CKPT_FLIPS=rank=1,replica=2,message=17        one bit of the 17th message that replica 2 of rank 1 sends
    CKPT_FLIPS=seed=7,rate=1e-3                   each message of each replica with this probability
    CKPT_FLIPS=seed=7,rate=1,replica=0,limit=1    `limit`: at most so many flips in a process (default 1)
    CKPT_FLIPS=seed=7,every=2                     every two seconds one process, in its next message: all agree on which
    CKPT_FLIPS=…,where=array                      not in that message, but in an array of the program, when it is sent;
                                                  `variable=solver.grid.u`: in that one
    CKPT_FLIPS=…,where=scalar                     the same in a number or text that a variable has itself
    CKPT_FLIPS=…,where=object                     the same in one that is in an object, list or dictionary
    CKPT_FLIPS=…,where=description                in what a one-sided operation is: kind, place, length, type; messages of
                                                  other kinds are left alone, and not counted

``CKPT_FLIPS_SAY=FILE``: the time of the last flip (ns since 1970) is written there.

The bit flips in the content, before the digest is made: as if the replica had computed that value. Messages are counted from
1, those without content too. Which bit, and which message, follow from the seed, rank and replica. They are made in the
first run of a program only: what has to start again is left alone then.

Not here: faults of the wire, which a checksum finds (``ckpt.transport.wires.faultinject``).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from random import Random

from ckpt.errors import CkptError
from ckpt.layer import SIZE, WINDOW, WINDOW_CALLS, Buffer, unpack
from ckpt.redundancy.memory import flips

__all__ = ["Flips", "from_environment", "parse"]

_NUMBERS = {
    "seed": int,
    "rank": int,
    "replica": int,
    "message": int,
    "rate": float,
    "limit": int,
    "every": float,
}
_WORDS = ("where", "variable")

DESCRIPTION = "description"
_ACTION = 8
"""Where an envelope has what a one-sided operation is."""
_DESCRIPTION_BYTES = 20
"""Place, number of elements, and the length of what else describes it (ckpt/mpi/rma/wire.py)."""


class Turns:
    """Every `every_s` seconds of the clock that all processes of a host share it is the turn of one of `count` processes,
    which follows from the seed; this is process `number`."""

    def __init__(self, seed: int, every_s: float, number: int, count: int) -> None:
        self._seed, self._every_s, self._number, self._count = seed, every_s, number, count
        self._last: int | None = None

    def is_due(self, now_s: float) -> bool:
        """Is it the turn of this process, for the first time? Never in the turn in which it has started."""
        turn = int(now_s / self._every_s)
        if self._last is None or turn == self._last:
            self._last = turn
            return False
        self._last = turn
        return Random(f"{self._seed} {turn}").randrange(self._count) == self._number


class Flips:
    """The flips of one process. `at`: number of the message; None: each with probability `rate`. `where`:
    "message", DESCRIPTION or one of `memory.flips.WHERE`; `variable`: the name of what is to change, empty: any."""

    def __init__(
        self,
        random: Random,
        *,
        at: int | None,
        rate: float,
        limit: int,
        where: str = "message",
        variable: str = "",
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns
        self.where, self.variable = where, variable
        self._random = random
        self._at = at
        self._rate = rate
        self._left = limit
        self._count = 0
        self.made = 0

    def message(self, data: Buffer, payload: Buffer | None) -> tuple[Buffer, Buffer | None]:
        """The message as it is sent."""
        if self.where == DESCRIPTION:
            return self._description(data), payload
        self._count += 1
        if not self._is_due():
            return data, payload
        if self.where != "message":
            if flips.flip(sys._getframe(), self._random, self.where, self.variable):
                self._note()
            return data, payload
        if payload is not None and len(payload):
            return data, self._flipped(payload)
        if len(data) <= SIZE:
            return data, payload
        return bytes(data[:SIZE]) + self._flipped(data[SIZE:]), payload

    def _description(self, data: Buffer) -> Buffer:
        """A message whose description may be another one."""
        kind, _, action, _, _ = unpack(data)
        if kind != WINDOW or action > WINDOW_CALLS or len(data) <= SIZE:
            return data
        self._count += 1
        if not self._is_due():
            return data
        if self._random.random() < 0.2:
            at, nbytes = _ACTION, 1
        else:
            at, nbytes = SIZE, min(_DESCRIPTION_BYTES, len(data) - SIZE)
        return bytes(data[:at]) + self._flipped(data[at : at + nbytes]) + bytes(data[at + nbytes :])

    def content(self, data: bytes) -> bytes:
        """A result as it is compared."""
        self._count += 1
        return self._flipped(data) if data and self.where == "message" and self._is_due() else data

    def _is_due(self) -> bool:
        if self._left <= 0:
            return False
        if self._turns is not None:
            return self._turns.is_due(time.monotonic())
        return self._count >= self._at if self._at is not None else self._random.random() < self._rate

    def _flipped(self, data: Buffer) -> bytes:
        self._note()
        changed = bytearray(data)
        bit = self._random.randrange(8 * len(changed))
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    def _note(self) -> None:
        self._left -= 1
        self.made += 1
        if "CKPT_FLIPS_SAY" in os.environ:
            with open(os.environ["CKPT_FLIPS_SAY"], "w", encoding="ascii") as file:
                file.write(str(time.time_ns()))


def parse(text: str, rank: int, replica: int, ranks: int = 1, replicas: int = 1) -> Flips | None:
    """What a value of ``CKPT_FLIPS`` means for one process; None: no flips. `ranks`, `replicas`: how many of each there are.
    Raises CkptError for what it cannot read."""
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name in _WORDS:
            words[name] = value
            continue
        try:
            values[name] = _NUMBERS[name](value)
        except (KeyError, ValueError):
            known = f"known are {', '.join(_NUMBERS)}, with numbers, and {', '.join(_WORDS)}"
            raise CkptError(f"CKPT_FLIPS: {item!r}: {known}") from None
    places = ("message", DESCRIPTION, *flips.WHERE)
    if words.setdefault("where", "message") not in places:
        raise CkptError(f"CKPT_FLIPS: where={words['where']!r}: {', '.join(places)}")
    if values.get("rank", rank) != rank or values.get("replica", replica) != replica:
        return None
    at = values.get("message")
    if at is None and "rate" not in values and not values.get("every"):
        raise CkptError("CKPT_FLIPS needs message=N, rate=P or every=S")
    turns = None
    if at is None and values.get("every"):
        number, count = rank * replicas + replica % replicas, ranks * replicas
        turns = Turns(int(values.get("seed", 0)), values["every"], number, count)
    random = Random(f"{values.get('seed', 0)} {rank} {replica}")
    return Flips(
        random,
        at=None if at is None else int(at),
        rate=values.get("rate", 0),
        limit=int(values.get("limit", 1 if turns is None else 1 << 30)),
        turns=turns,
        **words,
    )


def from_environment(
    rank: int, replica: int, ranks: int, replicas: int, environment: Mapping[str, str] = os.environ
) -> Flips | None:
    """The flips that ``CKPT_FLIPS`` asks for in this process; None: none."""
    text = environment.get("CKPT_FLIPS", "")
    return parse(text, rank, replica, ranks, replicas) if text else None

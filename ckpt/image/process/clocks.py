"""The monotonic clocks of a program: they never go back, wherever it goes on. (driver)

``time.monotonic``, ``perf_counter``, their ``_ns``, and ``clock_gettime`` of CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW and
CLOCK_BOOTTIME. An image has what they show (:func:`note`); a restart compares that with the clocks that it finds, and
has the functions show something else where need be (:func:`go_on`, ``_clock.c``). From there on ckpt itself sees the
same clocks as the program; its C code is told the offset (:func:`monotonic_offset_ns`).

Not here: by how much (:mod:`ckpt.image.process.clock_offsets`). Not changed: ``time.time``; ``process_time`` and
``thread_time``, which count what this process has used.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ckpt.image.lowlevel import _clock
from ckpt.image.process.clock_offsets import Reading, offsets_ns

__all__ = ["go_on", "monotonic_offset_ns", "note"]

_FUNCTIONS = (
    time.monotonic,
    time.monotonic_ns,
    time.perf_counter,
    time.perf_counter_ns,
    time.clock_gettime,
    time.clock_gettime_ns,
)

_CLOCKS = (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME)
_LOOKS = 3


def note() -> tuple[Any, ...]:
    """The fields of a :class:`Reading`, now: plain values."""
    return tuple(_read())


def go_on(saved: tuple[Any, ...] | None) -> None:
    """From now on the clocks go on from where they were. ``saved``: of :func:`note`; None: an image of an earlier version of
    ckpt does not say."""
    if saved is not None:
        _clock.shift(_FUNCTIONS, offsets_ns(Reading(*saved), _read()))


def monotonic_offset_ns() -> int:
    """What ``time.monotonic_ns`` shows more than the host's CLOCK_MONOTONIC."""
    return _clock.offsets()[0]


def _read() -> Reading:
    """The clocks are read one after the other: the look that took least time counts."""
    looks = (
        (*map(time.clock_gettime_ns, _CLOCKS), time.time_ns(), time.clock_gettime_ns(_CLOCKS[0]))
        for _ in range(_LOOKS)
    )
    *shown_ns, wall_ns, _ = min(looks, key=lambda look: look[-1] - look[0])
    host_ns = (now - offset for now, offset in zip(shown_ns, _clock.offsets(), strict=True))
    return Reading(_boot(), wall_ns, tuple(host_ns), tuple(shown_ns))


def _boot() -> str:
    """A time namespace is named by its offsets: its number is given away again when it has ended."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            found = file.read().strip()
    except OSError:
        return ""
    with contextlib.suppress(OSError), open("/proc/self/timens_offsets", encoding="utf-8") as file:
        found += " " + " ".join(file.read().split())
    return found

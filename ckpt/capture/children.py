"""What a rank knows of the children that write its images.

:class:`Lesson`: the message of a child whose image has failed, one number, in memory that both have. The child has no other
way to the rank; what it reports to the controller comes back as a text for people.

:class:`StuckWriters`: a child that waits for ever, for a thread that only the process has of which it is a copy. Objects of
libraries that compute in threads of their own (polars) may ask these to save them. A forked child has one thread; so if that
one sleeps in a futex and uses no processor, nobody is left to wake it.

Not here: what the number means (:func:`ckpt.image.learn`); who ends a child that waits for ever, and reports it
(:mod:`ckpt.capture.taker`).
"""

from __future__ import annotations

import mmap

__all__ = ["REASON", "Lesson", "StuckWriters"]

_BYTES = 8


class Lesson:
    """The number, 0 until it is told. Made before the fork."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BYTES)  # MAP_SHARED

    def tell(self, number: int) -> None:
        """In the child, or in the rank itself where it writes without fork."""
        self._memory[:] = number.to_bytes(_BYTES, "little")

    def take(self) -> int:
        """In the rank: the number, which is then 0."""
        number = int.from_bytes(self._memory[:], "little")
        if number:
            self.tell(0)
        return number


# ---------------------------------------------------------------------- children that wait for ever

_STUCK_NS = 5_000_000_000
_LOOK_NS = 1_000_000_000
_STATE, _USER, _SYSTEM, _THREADS = 0, 11, 12, 17  # fields of /proc/PID/stat behind the name

REASON = (
    "the image writer has waited in vain for a thread, which a forked copy of the program does not have: an object of a "
    "library with threads of its own asks these to save it. `--image-mode sync` writes images in the program itself"
)


class StuckWriters:
    """Whether a child makes progress, by its id."""

    def __init__(self) -> None:
        self._next_ns = 0
        self._seen: dict[int, tuple[tuple[str, ...], int]] = {}
        """By pid: its times, and since when they are the same."""

    def found(self, pids: list[int], now_ns: int) -> list[int]:
        """Those of them that are stuck. Quick: it looks once a second."""
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + _LOOK_NS
        before, self._seen = self._seen, {}
        for pid in pids:
            times = _waits_alone(pid)
            if times is not None:
                seen = before.get(pid)
                self._seen[pid] = seen if seen is not None and seen[0] == times else (times, now_ns)
        return [pid for pid, (_, since_ns) in self._seen.items() if now_ns - since_ns >= _STUCK_NS]


def _waits_alone(pid: int) -> tuple[str, ...] | None:
    """The processor's times of a process of one thread that sleeps in a futex; None: it is none, or nobody says."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[_STATE] != "S" or fields[_THREADS] != "1":
            return None
        with open(f"/proc/{pid}/wchan") as file:
            return (fields[_USER], fields[_SYSTEM]) if file.read().startswith("futex") else None
    except (OSError, IndexError):
        return None

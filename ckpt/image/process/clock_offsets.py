"""How much a clock has to be set forward or back, so that it goes on when its program goes on elsewhere. Pure.

The monotonic clocks of Linux begin with the boot of a host. A program keeps what they have shown: deadlines, times of
starts. In another boot, of the same or of another host, the clock would show something else: on a host that has been up for
weeks, a moment that is weeks ahead; on a host that has just been started, a moment long ago.

::

    same boot        the host's clock goes on. So does what the program sees of it: the offset stays
    another boot     the clock goes on from where it was, plus what has passed since by the wall clocks. They may be
                     apart: if they say that the time has gone back, no time has passed

So a clock never goes back, and what passes between an image and a restart counts in both cases.

Not here: reading clocks, and setting them (:mod:`ckpt.image.process.clocks`).
"""

from __future__ import annotations

from ckpt.transport.records import NamedTuple

__all__ = ["Reading", "offsets_ns"]


class Reading(NamedTuple):
    """Clocks at one moment, in nanoseconds. ``boot``: names the boot of the kernel, and the time namespace by its offsets;
    "": unknown. ``wall_ns``: since 1970. ``host_ns``: what the host's monotonic clocks show. ``shown_ns``: what the program
    sees of them."""

    boot: str
    wall_ns: int
    host_ns: tuple[int, ...]
    shown_ns: tuple[int, ...]


def offsets_ns(saved: Reading, here: Reading) -> tuple[int, ...]:
    """What the program's clocks have to show more than those of this host. ``saved``: when the image was taken; ``here``:
    now.

    A clock that shows less than then is another one, whatever the names of the boots say: names can come again."""
    is_same = saved.boot == here.boot != "" and all(
        now_ns >= then_ns for now_ns, then_ns in zip(here.host_ns, saved.host_ns, strict=True)
    )
    if is_same:
        return tuple(
            shown_ns - host_ns for shown_ns, host_ns in zip(saved.shown_ns, saved.host_ns, strict=True)
        )
    passed_ns = max(here.wall_ns - saved.wall_ns, 0)
    return tuple(
        shown_ns + passed_ns - host_ns for shown_ns, host_ns in zip(saved.shown_ns, here.host_ns, strict=True)
    )

"""The clock of leases. (driver)

Not here: what follows from the time (:mod:`ckpt.controller.hosts.lease`)."""

from __future__ import annotations

import time

__all__ = ["now_ns"]


def now_ns() -> int:
    """The clock of leases: it goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

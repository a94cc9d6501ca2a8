"""One connection to a port: does a process accept it, does the host's kernel refuse it?

    address, port    where to

    values           answer: "accepted" or "refused"; alive: "yes": one of the two came, so a kernel runs there

Silence is no value: the way may be broken anywhere.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask"]

_WITHIN_S = 0.6


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Connect and close at once. Raises NoAnswer for anything but a connection or a refusal."""
    address, port = str(arguments["address"]), int(arguments["port"])
    limit_s = min(_WITHIN_S, within_s)
    try:
        socket.create_connection((address, port), timeout=limit_s).close()
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return {"answer": "refused", "alive": "yes"}
        # the kernel's ETIMEDOUT is a TimeoutError, too; ours has no number
        what = f"no answer within {limit_s:g} s" if error.errno is None else os.strerror(error.errno)
        raise NoAnswer(f"{address} port {port}: {what}", silent=True) from None
    return {"answer": "accepted", "alive": "yes"}

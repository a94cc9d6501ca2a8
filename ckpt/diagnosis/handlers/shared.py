"""One read for several questions to the same device: the first one reads, the others wait for what it finds.

Management controllers and switches answer slowly, and some badly, when several ask at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["Once", "host_and_port"]


class Once:
    """`once(key, read)`: what `read()` has returned or raised for this key, which was called once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Any, tuple[threading.Lock, list[Any]]] = {}

    def __call__(self, key: Any, read: Callable[[], Any]) -> Any:
        with self._lock:
            own, kept = self._slots.setdefault(key, (threading.Lock(), []))
        with own:
            if not kept:
                try:
                    kept.append(read())
                except NoAnswer as error:
                    kept.append(error)
        if isinstance(kept[0], NoAnswer):
            raise kept[0]
        return kept[0]


def host_and_port(address: str, default: int) -> tuple[str, int]:
    """`10.1.0.7`, `10.1.0.7:6230`, `bmc7`, `[fd00::7]:623`, `fd00::7` → host and port. Raises NoAnswer for
    anything else."""
    host, port = address, str(default)
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    if not host or not port.isdecimal():
        raise NoAnswer(f"{address} is no address: write HOST or HOST:PORT")
    return host, int(port)

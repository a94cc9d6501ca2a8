"""Does a process of this machine listen at a TCP port? From /proc/net/tcp and tcp6.

port      the number

values    listening: "yes" or "no"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask"]

_LISTEN = "0A"


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Read the tables. Raises NoAnswer where the kernel has none."""
    wanted, tables = f"{int(arguments['port']):04X}", []
    for name in ("tcp", "tcp6"):
        try:
            tables.append(Path(f"/proc/net/{name}").read_text())
        except OSError:
            continue
    if not tables:
        raise NoAnswer("there is no /proc/net/tcp")
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = any(row[3] == _LISTEN and row[1].rpartition(":")[2] == wanted for row in rows)
    return {"listening": "yes" if listening else "no"}

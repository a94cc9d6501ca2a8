"""The neighbours of a machine, as its own lldpd knows them (IEEE 802.1AB): `lldpcli show neighbors -f json`.

socket       of lldpd, if it is not the usual one

values       links (number of neighbours); neighbours: JSON, a list of [own port, system, far port], where a port is
             the list of its names, the best one first, and empty if only a hardware address is told

Also here: the same list from what a switch tells by SNMP (LLDP-MIB), for the handler `snmp`. Who may ask lldpd is
root and the group _lldpd; nothing is ever changed there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["LOCAL_PORTS", "REMOTE", "as_values", "ask", "from_lldpcli", "from_mib"]

REMOTE = "1.0.8802.1.1.2.1.4.1.1"
"""lldpRemEntry; its index is time mark, number of the own port, number of the neighbour."""
LOCAL_PORTS = "1.0.8802.1.1.2.1.3.7.1"
"""lldpLocPortEntry; its index is the number of the port."""
_LOC_SUBTYPE, _LOC_ID, _LOC_DESC = "2", "3", "4"
_REM_SUBTYPE, _REM_ID, _REM_DESC, _REM_SYSTEM = "6", "7", "8", "9"
_NAMED = {"1": "ifalias", "5": "ifname", "7": "local"}  # LldpPortIdSubtype; the others are no names
_MOST = 4096  # ports of a switch

Row = list[Any]
"""[own port, system, far port]"""


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Raises NoAnswer: no lldpcli, no lldpd, not allowed to ask, something else than JSON."""
    program = shutil.which("lldpcli", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise NoAnswer("lldpcli is not installed (package lldpd)")
    at = ["-u", str(arguments["socket"])] if "socket" in arguments else []
    try:
        done = subprocess.run(
            [program, *at, "-f", "json", "show", "neighbors"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within_s,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer("lldpd does not answer", silent=True) from None
    except OSError as error:
        raise NoAnswer(f"lldpcli: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoAnswer(f"lldpcli: {said[-1] if said else f'exit code {done.returncode}'}")
    return as_values(from_lldpcli(done.stdout.decode(errors="replace")))


def as_values(rows: list[Row]) -> dict[str, float | str]:
    return {"links": float(len(rows)), "neighbours": json.dumps(rows)}


def from_lldpcli(text: str) -> list[Row]:
    """The neighbours in what lldpcli prints in JSON. Raises NoAnswer if it is something else."""
    try:
        interfaces = _entries(json.loads(text)["lldp"].get("interface", {}))
        rows = []
        for own, interface in interfaces:
            # without a name of the system, the table is not keyed by it
            chassis = interface.get("chassis", {})
            system = next((name for name, each in chassis.items() if "id" in _table(each)), "")
            port = _table(interface.get("port", {}))
            kind_and_id = _table(port.get("id", {}))
            kind, value = str(kind_and_id.get("type", "")), str(kind_and_id.get("value", ""))
            told = [value] if kind in _NAMED.values() else []
            rows.append([[own], system, _ports(kind, told, str(port.get("descr", "")))])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoAnswer("lldpcli: what it prints is no list of neighbours") from None
    return rows[:_MOST]


def _entries(found: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """One interface is a table, several are a list of tables."""
    return [(str(name), table) for part in _list(found) for name, table in part.items()]


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _table(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _ports(kind: str, told: list[str], description: str) -> list[str]:
    """The names of a port. An alias is text of whoever runs the switch, so the description, if there is one, is
    the better one."""
    names = [*told, description]
    if kind == "ifalias":
        names.reverse()
    return [name for name in dict.fromkeys(name.strip() for name in names) if name]


def from_mib(local: Mapping[str, str], remote: Mapping[str, str]) -> list[Row]:
    """The neighbours of a switch from two of its tables: `COLUMN.INDEX` → value, below LOCAL_PORTS and REMOTE.

    A row without the port that it is about is none of a table, and is left out.
    """
    rows = []
    for key in remote:
        column, _, index = key.partition(".")
        parts = index.split(".")
        if column != _REM_SUBTYPE or len(parts) != 3:
            continue
        own = _of_mib(local, (_LOC_SUBTYPE, _LOC_ID, _LOC_DESC), parts[1])
        if own:
            far = _of_mib(remote, (_REM_SUBTYPE, _REM_ID, _REM_DESC), index)
            rows.append([own, remote.get(f"{_REM_SYSTEM}.{index}", "").strip(), far])
    return rows[:_MOST]


def _of_mib(table: Mapping[str, str], columns: tuple[str, str, str], index: str) -> list[str]:
    kind, told, description = (table.get(f"{column}.{index}", "") for column in columns)
    return _ports(_NAMED.get(kind, ""), [told] if kind in _NAMED else [], description)

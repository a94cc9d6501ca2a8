"""A switch by SNMP, version 2c or 3: does it answer, and what does it say of a port? With ezsnmp (`pip install
ckpt[diagnosis]`).

    address    HOST or HOST:PORT; several with commas: tried in this order
    port       name of a port, as in ifName or ifDescr
    oid        any object; its value is `value`
    table      "lldp": its neighbours; "entity": its fans and power supplies

    values     alive: "yes"; of the port: admin: "up" or "down"; link: "up" or "down" (of a port that is up); in_errors,
               out_errors, in_discards, out_discards, in_packets, out_packets (numbers; packets to one receiver each),
               in_bytes, out_bytes;
               speed (Mbit/s, of a port that has a link); of the table: links, neighbours, as those of the
               handler `lldp`; slowest_fan, fan_failed, supply_failed, hottest (`entity`)

Only GET and its like are sent.
"""

from __future__ import annotations

import time
from typing import Any, Final

from ckpt.diagnosis.errors import NoAnswer
from ckpt.diagnosis.handlers import entity
from ckpt.diagnosis.handlers.lldp import LOCAL_PORTS, REMOTE, as_values, from_mib
from ckpt.diagnosis.handlers.shared import Once, host_and_port

__all__ = ["ask"]

_PORT = 161
_TRIES = 3
_SHARE = 8  # of the whole time, one try takes so small a part
_IF_DESCR, _IF_NAME = "1.3.6.1.2.1.2.2.1.2", "1.3.6.1.2.1.31.1.1.1.1"
_ADMIN, _OPER, _SPEED = (f"1.3.6.1.2.1.2.2.1.{column}" for column in (7, 8, 5))
_HIGH_SPEED: Final = "1.3.6.1.2.1.31.1.1.1.15"
_COUNTERS: Final = {
    name: f"1.3.6.1.2.1.2.2.1.{column}"
    for name, column in {
        "in_packets": 11,
        "in_discards": 13,
        "in_errors": 14,
        "out_packets": 17,
        "out_discards": 19,
        "out_errors": 20,
    }.items()
}
_BYTES: Final = {
    "in_bytes": ("1.3.6.1.2.1.31.1.1.1.6", "1.3.6.1.2.1.2.2.1.10"),
    "out_bytes": ("1.3.6.1.2.1.31.1.1.1.10", "1.3.6.1.2.1.2.2.1.16"),
}
"""The first one that an agent has: of 64 bits, or of 32."""
_NO_SPEED: Final = 4_294_967_295
"""Of ifSpeed, in bit/s: it is more, and ifHighSpeed has it."""
_ALIVE = "1.3.6.1.2.1.1.3.0"  # sysUpTime
_UP = "1"
_UNKNOWN_SPEED: Final = 10.0
_once = Once()


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Raises NoAnswer: no credentials, no library, no answer from any of the addresses, garbage."""
    addresses = str(arguments["address"])
    if secret is None:
        raise NoAnswer(f"{addresses}: no credentials for snmp")
    try_s = within_s / _SHARE
    deadline = time.monotonic() + within_s
    reached: str = _once((addresses, "reached"), lambda: _reach(addresses, secret, try_s, deadline))
    values: dict[str, float | str] = {"alive": "yes"}
    port = arguments.get("port")
    try:
        if port is not None:
            names: dict[str, str] = _once((reached, "names"), lambda: _names(reached, secret, try_s))
            if str(port) not in names:
                raise NoAnswer(f"{reached} has no port {port}: is the topology right?")
            values |= _look(reached, secret, try_s, names[str(port)])
        if oid := arguments.get("oid"):
            [found] = _session(reached, secret, try_s).get([str(oid)])
            text = str(found.value)
            if str(found.type).upper().startswith(("NOSUCH", "ENDOFMIB")):
                raise NoAnswer(f"{reached} has no object {oid}")
            values["value"] = float(text) if text.lstrip("-").isdecimal() else text
        if arguments.get("table") == "entity":
            values |= _once((reached, "entity"), lambda: _entity(reached, secret, try_s))
        if arguments.get("table") == "lldp":
            local, remote = (_walk(reached, secret, try_s, each) for each in (LOCAL_PORTS, REMOTE))
            if not local:
                raise NoAnswer(f"{reached} tells nothing of LLDP (LLDP-MIB): does it speak LLDP?")
            known: dict[str, str] = _once((reached, "names"), lambda: _names(reached, secret, try_s))
            rows = from_mib(local, remote)
            for row in rows:  # of several names of a port, first the one by which its interface can be asked
                row[0].sort(key=lambda name: name not in known)
            values |= as_values(rows)
    except NoAnswer:
        raise
    except Exception as error:  # of ezsnmp, in C++; its texts may name the community
        raise NoAnswer(
            f"{reached}: {type(error).__name__} of SNMP", silent="imeout" in type(error).__name__
        ) from None
    return values


def _reach(addresses: str, secret: dict[str, str], try_s: float, deadline: float) -> str:
    """The first address that answers."""
    for address in addresses.split(","):
        if time.monotonic() + try_s > deadline:
            break
        try:
            _session(address, secret, try_s).get([_ALIVE])
        except NoAnswer:
            raise
        except Exception:
            continue
        return address
    raise NoAnswer(
        f"{addresses.replace(',', ', ')}: no answer (or another community, user or password)", silent=True
    )


def _names(address: str, secret: dict[str, str], try_s: float) -> dict[str, str]:
    """Name of a port → its index."""
    session = _session(address, secret, try_s)
    found: dict[str, str] = {}
    for column in (_IF_DESCR, _IF_NAME):
        try:
            rows = session.bulk_walk([column])
        except Exception:
            if column == _IF_DESCR:
                raise
            continue  # small switches have no ifXTable
        found |= {
            str(row.value).strip('"'): str(row.index) or str(row.oid).rpartition(".")[2] for row in rows
        }
    return found


def _walk(address: str, secret: dict[str, str], try_s: float, table: str) -> dict[str, str]:
    """All of a table: `COLUMN.INDEX` → value."""
    found: dict[str, str] = {}
    for row in _session(address, secret, try_s).bulk_walk([table]):
        full = _oid(row)
        if full.startswith(f"{table}."):
            found[full.removeprefix(f"{table}.")] = str(row.value).strip('"')
    return found


def _entity(address: str, secret: dict[str, str], try_s: float) -> dict[str, float | str]:
    tables = (entity.PARTS, entity.SENSORS, entity.STATES)
    found = entity.from_mib(*(_walk(address, secret, try_s, each) for each in tables))
    if not found:
        raise NoAnswer(f"{address} tells nothing of fans and power supplies (ENTITY-MIB)")
    return found


def _look(address: str, secret: dict[str, str], try_s: float, index: str) -> dict[str, float | str]:
    columns = [
        _ADMIN,
        _OPER,
        _SPEED,
        _HIGH_SPEED,
        *_COUNTERS.values(),
        *(each for both in _BYTES.values() for each in both),
    ]
    rows = _session(address, secret, try_s).get([f"{column}.{index}" for column in columns])
    if [_oid(row) for row in rows] != [f"{column}.{index}" for column in columns]:
        raise NoAnswer(f"{address} answers for another port than was asked about")
    told = dict(zip(columns, (str(row.value) for row in rows), strict=True))
    admin, oper, speed, high_speed = (told[column] for column in (_ADMIN, _OPER, _SPEED, _HIGH_SPEED))
    if not admin.isdecimal() or not oper.isdecimal():
        raise NoAnswer(f"{address}: says {admin!r} and {oper!r} of a port, which are no states")
    values: dict[str, float | str] = {"admin": "up" if admin == _UP else "down"}
    if admin == _UP:
        values["link"] = "up" if oper == _UP else "down"
    if values.get("link") == "up":
        values |= _speed(speed, high_speed)
    for name, choice in (*((name, (column,)) for name, column in _COUNTERS.items()), *_BYTES.items()):
        if known := [told[column] for column in choice if told[column].isdecimal()]:
            values[name] = float(known[0])
    return values


def _oid(row: Any) -> str:
    """Whole, and without the leading dot."""
    return ".".join(part for part in (str(row.oid).strip("."), str(row.index).strip(".")) if part)


def _speed(speed: str, high_speed: str) -> dict[str, float | str]:
    """In Mbit/s; nothing of a port that does not know it: it says 0, or, with net-snmp, 10 Mbit/s."""
    found = 0.0
    if high_speed.isdecimal() and int(high_speed):
        found = float(high_speed)
    elif speed.isdecimal() and int(speed) < _NO_SPEED:
        found = int(speed) / 1e6
    return {"speed": found} if found not in (0.0, _UNKNOWN_SPEED) else {}


def _session(address: str, secret: dict[str, str], try_s: float) -> Any:
    try:
        from ezsnmp import Session
    except ImportError:
        raise NoAnswer("ezsnmp is not installed: pip install ezsnmp") from None
    host, port = host_and_port(address, _PORT)
    common: dict[str, Any] = {
        "hostname": host,
        "port_number": port,
        "timeout": f"{try_s:.2f}",
        "retries": _TRIES - 1,
        "print_enums_numerically": True,
        "print_oids_numerically": True,
        "print_full_oids": True,
    }
    if "community" in secret:
        return Session(version=2, community=secret["community"], **common)
    parts = (
        "auth" if "auth_password" in secret else "noAuth",
        "Priv" if "privacy_password" in secret else "NoPriv",
    )
    return Session(
        version=3,
        security_username=secret.get("user", ""),
        security_level="".join(parts),
        auth_protocol=secret.get("auth_protocol", ""),
        auth_passphrase=secret.get("auth_password", ""),
        privacy_protocol=secret.get("privacy_protocol", ""),
        privacy_passphrase=secret.get("privacy_password", ""),
        **common,
    )

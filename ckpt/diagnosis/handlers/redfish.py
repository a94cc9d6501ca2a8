"""A management controller by Redfish: power, fans, temperatures, and what it says of its parts. HTTPS and JSON,
read only.

    address    HOST or HOST:PORT of the controller

    values     power: "on" or "off"; slowest_fan (RPM); hottest_cpu (degrees C)
               processors, memory, drives, disk_controllers, supplies, network: is one of them reported as failed,
               "yes" or "no"

What it does not tell is not among the values, and neither is a fan at 0 while the power is off. Its certificate is
checked, against `ca` of the credentials if that is given.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

from ckpt.diagnosis.errors import NoAnswer
from ckpt.diagnosis.handlers.shared import Once, host_and_port

__all__ = ["ask"]

_PORT = 443
_TRY_S = 2.0
_MOST_BYTES = 4 << 20
_MOST_MEMBERS = 32
_ROOT = "/redfish/v1"
_once = Once()


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """One connection for all questions to one controller. Raises NoAnswer."""
    address = str(arguments["address"])
    if secret is None:
        raise NoAnswer(f"{address}: no credentials for redfish")
    deadline = time.monotonic() + within_s
    found: dict[str, float | str] = _once(address, lambda: _read(address, secret, deadline))
    return found


def _read(address: str, secret: dict[str, str], deadline: float) -> dict[str, float | str]:
    service = _Service(address, secret, deadline)
    try:
        values: dict[str, float | str] = {}
        for system in service.members(f"{_ROOT}/Systems"):
            if system.get("PowerState") in ("On", "Off"):
                values["power"] = str(system["PowerState"]).lower()
            for name, key in (("processors", "ProcessorSummary"), ("memory", "MemorySummary")):
                _tell(values, name, [system.get(key)])
            for storage in service.members(_link(system, "Storage")):
                drives = [
                    service.get(_link(drive, None)) for drive in _list(storage.get("Drives"))[:_MOST_MEMBERS]
                ]
                _tell(values, "drives", drives)
                _tell(values, "disk_controllers", _list(storage.get("StorageControllers")))
                _tell(values, "disk_controllers", list(service.members(_link(storage, "Controllers"))))
        for chassis in service.members(f"{_ROOT}/Chassis"):
            _thermal(values, service.get(_link(chassis, "Thermal")))
            _tell(values, "supplies", _list(service.get(_link(chassis, "Power")).get("PowerSupplies")))
            _tell(values, "network", list(service.members(_link(chassis, "NetworkAdapters"))))
        return values
    finally:
        service.close()


def _thermal(values: dict[str, float | str], thermal: dict[str, Any]) -> None:
    fans = [
        float(fan["Reading"])
        for fan in _list(thermal.get("Fans"))
        if isinstance(fan.get("Reading"), (int, float)) and fan.get("ReadingUnits") == "RPM"
    ]
    fans = [speed for speed in fans if speed or values.get("power") != "off"]
    heats = [
        float(sensor["ReadingCelsius"])
        for sensor in _list(thermal.get("Temperatures"))
        if isinstance(sensor.get("ReadingCelsius"), (int, float))
        and "CPU" in f"{sensor.get('PhysicalContext')} {sensor.get('Name')}".upper()
    ]
    if fans:
        values["slowest_fan"] = min([*fans, float(values.get("slowest_fan", fans[0]))])
    if heats:
        values["hottest_cpu"] = max([*heats, float(values.get("hottest_cpu", heats[0]))])


def _tell(values: dict[str, float | str], name: str, parts: list[Any]) -> None:
    """Is the health of one of these parts critical? Of one that says nothing of its health, nothing is said."""
    for part in parts:
        status = part.get("Status") if isinstance(part, dict) else None
        health = status.get("Health") if isinstance(status, dict) else None
        if isinstance(health, str):
            values[name] = "yes" if health == "Critical" or values.get(name) == "yes" else "no"


def _list(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _link(resource: dict[str, Any], name: str | None) -> str:
    inner = resource if name is None else resource.get(name)
    link = inner.get("@odata.id") if isinstance(inner, dict) else None
    return link if isinstance(link, str) and link.startswith(_ROOT) else ""


class _Service:
    """One connection. `get`: a resource; empty for one that is not there."""

    def __init__(self, address: str, secret: dict[str, str], deadline: float) -> None:
        self._address, self._deadline = address, deadline
        host, port = host_and_port(address, _PORT)
        try:
            context = ssl.create_default_context(cafile=secret.get("ca"))
        except (OSError, ssl.SSLError):
            raise NoAnswer(f"{address}: the file of the certificate (ca) cannot be read") from None
        self._connection = http.client.HTTPSConnection(host, port, timeout=_TRY_S, context=context)
        pair = f"{secret.get('user', '')}:{secret.get('password', '')}".encode()
        self._headers = {
            "Authorization": f"Basic {base64.b64encode(pair).decode()}",
            "Accept": "application/json",
        }

    def close(self) -> None:
        self._connection.close()

    def members(self, path: str) -> Iterator[dict[str, Any]]:
        collection = self.get(path)
        for member in _list(collection.get("Members"))[:_MOST_MEMBERS]:
            yield self.get(_link(member, None))

    def get(self, path: str) -> dict[str, Any]:
        if not path:
            return {}
        address = self._address
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise NoAnswer(f"{address} does not answer in time", silent=True)
        try:
            self._connection.timeout = min(_TRY_S, left_s)
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            body = response.read(_MOST_BYTES)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise NoAnswer(
                f"{address}: its certificate is not trusted ({why}): give ca in the credentials"
            ) from None
        except TimeoutError:
            raise NoAnswer(f"{address} does not answer within {_TRY_S:g} s", silent=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{address}: {type(error).__name__}", silent=True) from None
        if response.status in (401, 403):
            raise NoAnswer(f"{address} refuses the name or the password ({response.status})")
        if response.status != 200:
            return {}
        try:
            found = json.loads(body)
        except ValueError:
            raise NoAnswer(f"{address}: what it answers is no JSON") from None
        return found if isinstance(found, dict) else {}

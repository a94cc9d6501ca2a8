"""Names and passwords for management controllers and switches: from one file that only its owner can read.

    [ipmi]
    user = "reader"
    password = "…"

    [ipmi."10.1.0.7"]        # for one address
    user = "other"
    password = "…"

    [snmp]
    community = "public"     # version 2c
    # version 3: user, auth_protocol, auth_password, privacy_protocol, privacy_password

    [redfish]
    user = "reader"
    password = "…"
    ca = "/etc/ssl/bmc.pem"  # the certificate of whoever has signed those of the controllers

They go by a pipe to the process that asks, and nowhere else: no command line, no environment, no log, no event. No
text of an error and no `repr` has any of them, and they cannot be pickled, so no image can hold them.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Final, NoReturn

from ckpt.diagnosis.errors import BadCredentials

__all__ = ["Credentials", "load"]

_KEYS: Final = {
    "ipmi": frozenset({"user", "password", "cipher"}),
    "snmp": frozenset(
        {"community", "user", "auth_protocol", "auth_password", "privacy_protocol", "privacy_password"}
    ),
    "redfish": frozenset({"user", "password", "ca"}),
}
_MOST_BYTES = 1 << 20


class Credentials:
    """What is in the file. `of(part, address)`: what a handler is given; None: there is nothing for it."""

    __slots__ = ("_by_part",)

    def __init__(self, by_part: dict[str, dict[str, dict[str, str]]] | None = None) -> None:
        self._by_part = by_part or {}

    def of(self, part: str, address: str) -> dict[str, str] | None:
        known = self._by_part.get(part, {})
        return known.get(address) or known.get("")

    def parts(self) -> tuple[str, ...]:
        """Which handlers have something."""
        return tuple(sorted(self._by_part))

    def __repr__(self) -> str:
        return f"<credentials for {', '.join(self.parts()) or 'nothing'}>"

    def __reduce__(self) -> NoReturn:
        raise BadCredentials("credentials cannot be pickled: they must not be in any image or message")


def load(path: Path) -> Credentials:
    """Read the file. Raises BadCredentials: not there, not ours, readable by others, not as above; never with what
    is in it."""
    if path.is_symlink():
        raise BadCredentials(f"{path} is a link; name the file itself")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadCredentials(f"{path}: {error.strerror}") from None
    try:
        _check_owner(path, os.fstat(fd))
        data = os.read(fd, _MOST_BYTES)
    finally:
        os.close(fd)
    try:
        raw = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # the parser's text may quote what is in the file
        raise BadCredentials(f"{path} is no TOML") from None
    return Credentials({part: _part(path, part, table) for part, table in raw.items()})


def _check_owner(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise BadCredentials(f"{path} is no regular file")
    if facts.st_uid != os.geteuid():
        raise BadCredentials(f"{path} belongs to another user; make one of your own")
    if facts.st_mode & 0o077:
        raise BadCredentials(f"others can read {path} (mode {facts.st_mode & 0o777:o}): chmod 600 {path}")


def _part(path: Path, part: str, table: object) -> dict[str, dict[str, str]]:
    if part not in _KEYS:
        raise BadCredentials(f"{path}: there are only {', '.join(_KEYS)}; remove the others")
    if not isinstance(table, dict):
        raise BadCredentials(f"{path}: {part} is no table: write [{part}] above it")
    own = {key: value for key, value in table.items() if not isinstance(value, dict)}
    found: dict[str, dict[str, str]] = {}
    for address, values in [
        ("", own),
        *((key, each) for key, each in table.items() if isinstance(each, dict)),
    ]:
        for key, value in values.items():
            if key not in _KEYS[part]:
                raise BadCredentials(f"{path}: {part} knows only {', '.join(sorted(_KEYS[part]))}")
            if not isinstance(value, str):
                raise BadCredentials(f"{path}: {part}: {key} is no text; put it in quotes")
        if values:
            found[address] = values
    return found

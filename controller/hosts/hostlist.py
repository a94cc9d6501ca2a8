"""`--hosts a:4,b:4` and `--hostfile FILE`: names of hosts with their slots. Pure.

A host file has one host in a line, as MPI's launchers take it: `a`, `a:4` or `a slots=4`; `#` begins a comment. A host may
be named by its address; one of IPv6 is written in brackets: `[fd00::1]:4`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Sequence

from ckpt.controller.errors import UsageError
from ckpt.controller.supervision.plan import Node

__all__ = ["MOST_HOSTS", "check_ports", "check_size", "of_file", "of_text", "text_of"]

MOST_HOSTS = 1000
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_.-]+@)?\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_](?:[A-Za-z0-9_.@-]*[A-Za-z0-9_])?))(?::(?P<slots>[0-9]+))?"
)
_LINE = re.compile(r"(?P<host>\S+)(?:\s+slots\s*=\s*(?P<slots>[0-9]+))?")


def of_text(text: str) -> list[Node]:
    """The hosts of `a:4,b`; a host without a number has one slot. Raises UsageError, which names what is wrong."""
    nodes = [_node(part.strip(), "--hosts") for part in text.split(",")]
    return _checked(nodes, "--hosts")


def of_file(text: str, name: str) -> list[Node]:
    """The hosts of a host file's text; `name`: of the file. Raises UsageError, which names file and line."""
    nodes = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        found = _LINE.fullmatch(words)
        if found is None:
            raise UsageError(f"{name}, line {number}: {words!r} is no host: use `a`, `a:4` or `a slots=4`")
        node = _node(found["host"], f"{name}, line {number}")
        nodes.append(node if found["slots"] is None else Node(node.name, _slots(found["slots"], name)))
    return _checked(nodes, name)


def text_of(nodes: Sequence[Node]) -> str:
    """The inverse of `of_text`."""
    return ",".join(f"{_written(node.name)}:{node.slots}" for node in nodes)


def _written(name: str) -> str:
    user, at, host = name.rpartition("@")
    return f"{user}{at}[{host}]" if ":" in host else name


def check_size(size: int, nodes: Sequence[Node]) -> None:
    """Raise UsageError unless the hosts have slots for `size` ranks."""
    slots = sum(node.slots for node in nodes)
    if size > slots:
        raise UsageError(
            f"{size} ranks do not fit into the {slots} slots of {text_of(nodes)}: name more hosts, or more slots (host:N)"
        )


def check_ports(text: str, nodes: Sequence[Node]) -> None:
    """Raise UsageError unless `text` is a range of ports, A-B, with enough of them for each host, and `ckpt run` on it."""
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        raise UsageError(f"--ports {text}: give the first and the last one, as in 50000-50100")
    count, needed = int(found[2]) - int(found[1]) + 1, max((node.slots for node in nodes), default=-1) + 2
    if count < needed:
        raise UsageError(
            f"--ports {text}: {count} ports; a host needs {needed}: one for each rank, one for its agent, one for `ckpt run`"
        )


def _node(word: str, where: str) -> Node:
    found = _HOST.fullmatch(word)
    if found is None:
        raise UsageError(f"{where}: {word!r} is no host: {_hint(word, where)}")
    name = found["name"] or (found["user"] or "") + _address(found["address"], where)
    return Node(name, _slots(found["slots"] or "1", where))


def _hint(word: str, where: str) -> str:
    parts = [part for part in re.split(r"[;|+&\s]+", word) if part]
    if len(parts) > 1 and all(_HOST.fullmatch(part) and not part.isdecimal() for part in parts):
        return f"separate hosts by commas: {','.join(parts)}" if where == "--hosts" else "one host in a line"
    for address in (word, word.rpartition(":")[0]):
        with contextlib.suppress(ValueError):
            ipaddress.IPv6Address(address)
            return "an IPv6 address stands in brackets: [ADDRESS] or [ADDRESS]:SLOTS"
    return "use NAME, NAME:SLOTS, or [ADDRESS]:SLOTS for an IPv6 address"


def _address(text: str, where: str) -> str:
    """An IPv6 address in its one short form."""
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError as error:
        raise UsageError(f"{where}: [{text}] is no IPv6 address: {error}") from None


def _slots(text: str, where: str) -> int:
    slots = int(text)
    if not 1 <= slots <= 4096:
        raise UsageError(f"{where}: {text} slots: a host has 1 to 4096")
    return slots


def _checked(nodes: list[Node], where: str) -> list[Node]:
    names = [node.name for node in nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"{where}: {', '.join(twice)} more than once: give a host all its slots at one place"
        )
    if not nodes or len(nodes) > MOST_HOSTS:
        raise UsageError(f"{where}: {len(nodes)} hosts: 1 to {MOST_HOSTS} can be used")
    return nodes

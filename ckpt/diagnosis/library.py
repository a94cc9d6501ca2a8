"""The user's files, and the files of fault models: those of this package, of the user, and of a directory that is
named.

    ~/.config/ckpt/topology.toml, credentials.toml, models/*.toml      or under XDG_CONFIG_HOME

Ours lie in `models` beside this file, the user's in ~/.config/ckpt/models, more with `--models DIR`. All count
together: a name may be there once only.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.credentials import load as load_credentials
from ckpt.diagnosis.errors import BadModel, BadTopology
from ckpt.diagnosis.growth import Counters
from ckpt.diagnosis.handlers.face import HANDLERS, HandlerFace
from ckpt.diagnosis.models import Model, check, parse
from ckpt.diagnosis.surroundings import own as surroundings
from ckpt.diagnosis.topology import Host, Topology
from ckpt.diagnosis.topology import parse as parse_topology

__all__ = [
    "NO_TOPOLOGY",
    "OURS",
    "among",
    "between",
    "counters",
    "credentials",
    "has_topology",
    "is_this_machine",
    "load",
    "of_this_machine",
    "topology",
    "users",
]

OURS = Path(__file__).resolve().parent / "models"
NO_TOPOLOGY = (
    "without a topology nobody but this machine can be asked: no switch, no controller, no other host "
    "(docs/diagnosis.md)"
)
_ANY_PORT = "22"
"""Where a kernel that is alive accepts or refuses a connection, whatever listens there."""


def users(name: str) -> Path:
    """Where a file of the user lies, or the directory of the user's models; it need not be there."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "ckpt" / name


def topology(given: str | None = None) -> Topology:
    """The topology, of the user if no file is given. Raises BadTopology."""
    path = users("topology.toml") if given is None else Path(given)
    if given is None and not path.exists():
        raise BadTopology(f"no topology: write {path}, or name a file with --topology (docs/diagnosis.md)")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadTopology(f"{path}: {error.strerror}") from None
    return parse_topology(data, str(path))


def has_topology(given: str | None = None) -> bool:
    """Is a file given, or has the user one?"""
    return given is not None or users("topology.toml").exists()


def between(here: str, there: str) -> Topology:
    """What is known of two hosts without any file: their addresses by their names, and of this machine, if it is one of
    them, over which interface it reaches the other one. Raises BadTopology: a name that is not known; one machine twice."""
    known = surroundings.resolve(list(dict.fromkeys((here, there))))
    own = [name for name in known if _is_this_machine(name, known[name])]
    if len(own) > 1 or known[here] == known[there]:
        raise BadTopology(f"{here} and {there} are the same machine; no network is between them")
    hosts = {}
    for name, address in known.items():
        other = there if name == here else here
        if name in own:
            end = surroundings.own(known[other])
            address = end.address if end.address or end.interface else address
            hosts[name] = Host(address=address, interface=end.interface, shell=())
        else:
            hosts[name] = Host(address=address, names={"any_port": _ANY_PORT})
    return Topology(host=hosts, wired=False)


def among(addresses: Mapping[str, str]) -> tuple[Topology | None, str | None]:
    """What is known of the hosts of a job without any file: their addresses in its network, and of this machine, if it is
    one of them, over which interface it reaches the others. With its name; (None, None): it is none of them, or there is
    no other."""
    mine = [name for name in addresses if is_this_machine(name)]
    mine += [name for name, address in addresses.items() if surroundings.is_own(address)]
    own = mine[0] if mine else None
    others = [name for name in addresses if name != own]
    if own is None or not others:
        return None, None
    end = surroundings.own(addresses[others[0]])
    hosts = {name: Host(address=addresses[name], names={"any_port": _ANY_PORT}) for name in others}
    hosts[own] = Host(address=addresses[own], interface=end.interface, shell=())
    return Topology(host=hosts, wired=False), own


def of_this_machine() -> tuple[Topology, str, str]:
    """What is known without any file and without a name; this machine, and the other end: its router, if it has one."""
    here, peer = socket.gethostname().partition(".")[0] or "localhost", surroundings.router()
    end = surroundings.own(peer)
    there = peer or "nowhere"
    hosts = {
        here: Host(address=end.address, interface=end.interface, shell=()),
        there: Host(address=peer, names={"any_port": _ANY_PORT} if peer else {}),
    }
    return Topology(host=hosts, wired=False), here, there


def _is_this_machine(name: str, address: str) -> bool:
    return is_this_machine(name) or surroundings.is_own(address)


def is_this_machine(name: str) -> bool:
    """By its name only: what another machine has or lacks must not be taken for a fault of this one."""
    own = socket.gethostname()
    return own == name or own.partition(".")[0] == name or own == name.partition(".")[0]


def credentials(given: str | None = None) -> Credentials:
    """The credentials, of the user if no file is given: then there may be none. Raises BadCredentials."""
    path = users("credentials.toml") if given is None else Path(given)
    if given is None and not os.path.lexists(path):
        return Credentials()
    return load_credentials(path)


def counters(path: str) -> Counters | None:
    """What counters were at the start of a job; None: that cannot be read, or is nothing of ours."""
    try:
        kept = json.loads(Path(path).read_bytes())
        return {
            str(question): {str(name): float(value) for name, value in values.items()}
            for question, values in kept.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def load(more: Iterable[Path] = (), handlers: Mapping[str, HandlerFace] = HANDLERS) -> tuple[Model, ...]:
    """All models, checked. `more`: further directories, which must be there. Raises BadModel with file, line and
    remedy."""
    own = users("models")
    folders = [OURS, *([own] if own.is_dir() else []), *more]
    models = []
    for folder in folders:
        try:
            paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
        except OSError as error:
            raise BadModel(f"{folder}: {error.strerror}") from None
        for path in paths:
            source = path.name if folder == OURS else str(path)
            try:
                text = path.read_text(encoding="utf-8")
            except OSError as error:
                raise BadModel(f"{path}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise BadModel(f"{path}:1: this is no text in UTF-8; save it as such") from None
            models.append(parse(text, source, handlers))
    check(models)
    return tuple(models)

"""The user's files, and the files of fault models: those of this package, of the user, and of a directory that is
named.

    ~/.config/ckpt/topology.toml, credentials.toml, models/*.toml      or under XDG_CONFIG_HOME

Ours lie in `models` beside this file, the user's in ~/.config/ckpt/models, more with `--models DIR`. All count
together: a name may be there once only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ckpt.diagnosis.credentials import Credentials
from ckpt.diagnosis.credentials import load as load_credentials
from ckpt.diagnosis.errors import BadModel, BadTopology
from ckpt.diagnosis.growth import Counters
from ckpt.diagnosis.handlers.face import HANDLERS, HandlerFace
from ckpt.diagnosis.models import Model, check, parse
from ckpt.diagnosis.topology import Topology
from ckpt.diagnosis.topology import parse as parse_topology

__all__ = ["OURS", "counters", "credentials", "load", "topology", "users"]

OURS = Path(__file__).resolve().parent / "models"


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

"""The files of fault models: those of this package, of the user, and of a directory that is named.

Ours lie in `models` beside this file, the user's in ~/.config/ckpt/models, more with `--models DIR`. All count
together: a name may be there once only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ckpt.diagnosis.errors import BadModel
from ckpt.diagnosis.handlers.face import HANDLERS, HandlerFace
from ckpt.diagnosis.models import Model, check, parse

__all__ = ["OURS", "load", "users"]

OURS = Path(__file__).resolve().parent / "models"


def users() -> Path:
    """Where the user's own models lie; the directory need not be there."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "ckpt" / "models"


def load(more: Iterable[Path] = (), handlers: Mapping[str, HandlerFace] = HANDLERS) -> tuple[Model, ...]:
    """All models, checked. `more`: further directories, which must be there. Raises BadModel with file, line and
    remedy."""
    folders = [OURS, *([users()] if users().is_dir() else []), *more]
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

"""A rank that is hindered: HINDRANCE=fork (the kernel refuses to fork), memory (hardly any is left)."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NoReturn


def run_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    from ckpt import boot, memory, taking

    def refuse() -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    if os.environ["HINDRANCE"] == "fork":
        taking._fork = refuse
    else:
        memory.available_bytes = lambda *paths: 1 << 20
    boot.run_rank(spec, control_fd)

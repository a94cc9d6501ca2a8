"""A rank that is hindered: HINDRANCE=fork (the kernel refuses to fork), memory (hardly any is left), optimism (it seems
that there is enough), killer (of each child that writes)."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import Any, NoReturn


def run_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    from ckpt.capture import memory, taker
    from ckpt.capture.memory_groups import MemoryLeft
    from ckpt.rank import boot

    def refuse(noted: bytes | None, others: object) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    if os.environ["HINDRANCE"] == "fork":
        taker._fork = refuse
    elif os.environ["HINDRANCE"] == "killer":
        memory.prefer_for_oom_kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
    elif os.environ["HINDRANCE"] == "optimism":
        memory.available = lambda *paths: None
    else:
        memory.available = lambda *paths: MemoryLeft(1 << 20, kills_group=False)
    boot.run_rank(spec, control_fd)

"""A rank on an interpreter whose frames cannot be captured: the real one, with what reads and builds frames taken away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


def run_rank(spec: Mapping[str, Any], control_fd: int) -> NoReturn:
    from ckpt import image
    from ckpt.image.frames import _frames, stack
    from ckpt.rank import boot

    def available() -> tuple[bool, str]:
        return False, "frames can be captured in CPython 3.11, 3.12, 3.13; this is 9.9.9"

    image.available = stack.available = available
    for name in ("walk", "slots", "run", "generator_read", "generator_fill", "generator_make"):
        if hasattr(_frames, name):
            delattr(_frames, name)
    _frames.SUPPORTED = 0
    boot.run_rank(spec, control_fd)

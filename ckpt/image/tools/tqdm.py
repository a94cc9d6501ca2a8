"""tqdm: its monitor thread is started again with the next progress bar."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Tqdm"]


class Tqdm(Library):
    harmless_threads = ("tqdm",)

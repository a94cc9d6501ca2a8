"""tqdm: its monitor is a thread that is started again with the next bar."""

from __future__ import annotations

from ckpt.image.interface.library import Library

__all__ = ["Tqdm"]


class Tqdm(Library):
    harmless_threads = ("tqdm",)

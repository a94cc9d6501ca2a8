"""loguru: the handlers, levels and patches of its only logger. They are more than settings (files, functions), so nothing
else would save them, and after a restart all messages would go to standard error."""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library

__all__ = ["Loguru"]

_OF_THE_PROCESS = ("lock", "thread_locals")


class Loguru(Library):
    def note_settings(self) -> Any:
        core = getattr(getattr(self.module, "logger", None), "_core", None)
        return core and {name: value for name, value in vars(core).items() if name not in _OF_THE_PROCESS}

    def apply_settings(self, saved: Any) -> None:
        vars(self.module.logger._core).update(saved)

"""The program's files where ranks are on several hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt.controller.sharing.proof import SharedFiles
    from ckpt.undo.planning.plan import Clocks

__all__ = ["HostFiles"]


class HostFiles:
    """What a job needs whose ranks are on several hosts: the file systems that these share, and their clocks."""

    def __init__(self, shared: SharedFiles, *, is_on: bool) -> None:
        """``is_on``: files go back; then this process knows the file systems by their numbers from now on."""
        self.numbers = dict(shared.numbers)
        self.mounts: list[str] = []
        self._boots = shared.boots
        self._clocks: Clocks | None = None
        if is_on:
            # A job on one host imports none of this.
            from ckpt.undo.planning.plan import Clocks
            from ckpt.undo.records import MARGIN_NS
            from ckpt.undo.shared import Shared

            here = Shared(shared.numbers, "")
            here.use()
            self.mounts = here.mounts
            self._clocks = Clocks(MARGIN_NS, None if shared.unknown_clocks else MARGIN_NS)

    def say(
        self, shared: SharedFiles, say: Callable[[str], None], log: Callable[[str, dict[str, Any]], None]
    ) -> None:
        """Say, and write down, on which file systems files go back."""
        fields = {"shared": self.mounts, "refused": shared.refused, "clocks": shared.unknown_clocks}
        log("files-shared", fields)
        for directory, reason in shared.refused.items():
            say(f"files in {directory} do not go back: {reason}")
        if shared.unknown_clocks:
            say(
                f"{shared.unknown_clocks}: of a file that ranks on several hosts change, it will not be known which change "
                "was first"
            )

    def of_restart(self) -> dict[str, Any]:
        """Arguments for :func:`ckpt.undo.restart.restoring.undo`."""
        return {"numbers": self.numbers, "clocks": self._clocks, "boots": self._boots}

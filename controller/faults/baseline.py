"""What counters of devices were when a job started: read once, for diagnoses to be compared with. (driver)

A topology with `counters = true` is given to a process of its own (`python -m ckpt.diagnosis.baseline`); the job does not
wait for it. What it has read is kept in the job directory, under a name with a digest of the topology's content, so it is
not read again when the job goes on elsewhere. This process has no credentials.

    counters-kept   asked, silent, path, seconds; `reason`: why there are none

Not here: what is read (`ckpt.diagnosis.baseline`), what has grown (`ckpt.diagnosis.growth`).
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.controller.faults.oneshot import AskedOnce
from ckpt.controller.faults.topology import digest_of_one_with
from ckpt.store.disk.replacing import replace_file

__all__ = ["JobBaseline"]

_LIMIT_NS = 600_000_000_000
"""Many machines are asked by and by, and nobody waits."""
_SHOWN = 40


class JobBaseline(AskedOnce):
    """`folder`: where it is kept. `log(event, fields)` writes the event log."""

    def __init__(
        self, folder: str, selector: selectors.BaseSelector, log: Callable[[str, dict[str, Any]], None]
    ) -> None:
        super().__init__(selector, asking="reads them", asked="read")
        self._folder, self._log = folder, log
        self._kept: str | None = None

    def begin(self, topology: str | None) -> None:
        """The topology of the job is known: read, if its file says so and it was not done before."""
        digest = None if topology is None else digest_of_one_with("counters", topology)
        if digest is None:
            return
        self._kept = os.path.join(self._folder, f"counters-{digest}.json")
        if os.path.isfile(self._kept):
            return
        self._ask("ckpt.diagnosis.baseline", {"counters": topology}, _LIMIT_NS)

    @property
    def path(self) -> str | None:
        """The file for a diagnosis that begins now; None: there is none."""
        return self._kept if self._kept is not None and os.path.isfile(self._kept) else None

    def _take(self, found: Mapping[str, Any]) -> None:
        reason = found.get("reason")
        if reason is None:
            assert self._kept is not None
            try:
                replace_file(self._kept, json.dumps(found["counters"]).encode())
            except OSError as error:  # a full disk: the job goes on without
                reason = f"{self._kept}: {error.strerror}"
        fields = {name: found.get(name) for name in ("asked", "seconds")}
        silent = list(found.get("silent", ()))[:_SHOWN]
        self._log("counters-kept", {**fields, "silent": silent, "path": self.path, "reason": reason})

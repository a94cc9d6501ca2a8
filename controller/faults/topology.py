"""The topology of a job: of `--topology`, completed by and compared with LLDP once, when the job starts. (driver)

A file with `lldp = true` is given to a process of its own (`python -m ckpt.diagnosis.lldp`), which asks switches and hosts
and ends within seconds; the job does not wait for it. What comes out is kept in the job directory, and is the topology of
all diagnoses of this job from then on: tables of neighbours forget what has failed, so they are worth nothing then. Its
name has a digest of the file's content, so that it is asked again if the file has changed, and not after a fault, when the
job goes on elsewhere. This process has no credentials.

    topology-kept   contradictions, missing, silent, path, seconds: what LLDP and the file say of each other; `reason`: why
                    there is no answer

Not here: what is compared (`ckpt.diagnosis.lldp`).
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.controller.faults.oneshot import AskedOnce
from ckpt.store.disk.replacing import replace_file

__all__ = ["JobTopology", "digest_of_one_with"]

_LIMIT_NS = 30_000_000_000
"""Fifteen seconds for the answers; a busy machine may take long to start processes, and nobody waits."""
_SHOWN = 40


class JobTopology(AskedOnce):
    """`given`: the file of the user, or None. `folder`: where what was learned is kept. `log(event, fields)` writes the
    event log, `say` tells the user, `known` is called once, with the path, when nothing is waited for any more."""

    def __init__(
        self,
        given: str | None,
        folder: str,
        *,
        selector: selectors.BaseSelector,
        log: Callable[[str, dict[str, Any]], None],
        say: Callable[[str], None],
        known: Callable[[str | None], None] = lambda path: None,
    ) -> None:
        super().__init__(selector, asking="asks", asked="asked")
        self._given = given
        self._log, self._say, self._known = log, say, known
        digest = None if given is None else digest_of_one_with("lldp", given)
        self._kept = os.path.join(folder, f"topology-{digest}.json")
        self._is_kept = digest is not None and os.path.isfile(self._kept)
        if given is not None and digest is not None and not self._is_kept:
            self._ask("ckpt.diagnosis.lldp", {"lldp": given}, _LIMIT_NS)
        else:
            known(self.path)

    @property
    def path(self) -> str | None:
        """The file for a diagnosis that begins now; None: the user's default."""
        return self._kept if self._is_kept else self._given

    def _take(self, found: Mapping[str, Any]) -> None:
        """Keep the answer and say what is wrong."""
        reason = found.get("reason")
        if reason is None:
            reason = self._keep(json.dumps(found["topology"]))
        fields = {
            name: list(found.get(name, ()))[:_SHOWN] for name in ("contradictions", "missing", "silent")
        }
        seconds, path = found.get("seconds"), self._kept if self._is_kept else None
        self._log("topology-kept", {**fields, "path": path, "seconds": seconds, "reason": reason})
        for text in fields["contradictions"]:
            self._say(f"topology: {text}")
        for text in fields["missing"]:
            self._say(f"topology: {text}")
        if reason is not None:
            self._say(f"topology: LLDP was not asked, or what it says is not kept: {reason}")
        self._known(self.path)

    def _keep(self, text: str) -> str | None:
        """Write it, all of it or nothing. Returns why not."""
        try:
            replace_file(self._kept, text.encode())
        except OSError as error:  # a full disk: the job goes on without
            return f"{self._kept}: {error.strerror}"
        self._is_kept = True
        return None


def digest_of_one_with(key: str, path: str) -> str | None:
    """Of a file that has `lldp = true`, for example; None: it has not. One that cannot be read is reported by the
    diagnosis."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        text = data.decode()
        content = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        wants = content.get(key) is True
    except (OSError, ValueError, AttributeError):
        return None
    return hashlib.sha256(data).hexdigest()[:16] if wants else None

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

import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from ckpt.store.disk.privacy import open_regular

__all__ = ["JobTopology"]

_LIMIT_NS = 30_000_000_000
"""Fifteen seconds for the answers; a busy machine may take long to start processes, and nobody waits."""
_SHOWN = 40


class JobTopology:
    """`given`: the file of the user, or None. `folder`: where what was learned is kept. `log(event, fields)` writes the
    event log, `say` tells the user."""

    def __init__(
        self,
        given: str | None,
        folder: str,
        *,
        selector: selectors.BaseSelector,
        log: Callable[[str, dict[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._given = given
        self._selector, self._log, self._say = selector, log, say
        self._child: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._until_ns: int | None = None
        digest = None if given is None else _digest_of_one_with_lldp(given)
        self._kept = os.path.join(folder, f"topology-{digest}.json")
        self._is_kept = digest is not None and os.path.isfile(self._kept)
        if given is not None and digest is not None and not self._is_kept:
            self._start(given)

    @property
    def path(self) -> str | None:
        """The file for a diagnosis that begins now; None: the user's default."""
        return self._kept if self._is_kept else self._given

    def deadline_ns(self) -> int | None:
        """When `tick` is due."""
        return self._until_ns

    def tick(self, now_ns: int) -> None:
        """Time has passed."""
        if self._until_ns is not None and now_ns >= self._until_ns:
            self.close()
            self._take({"reason": f"no answer within {_LIMIT_NS / 1e9:g} s"})

    def close(self) -> None:
        """End what is under way."""
        child, self._child, self._until_ns = self._child, None, None
        if child is None:
            return
        assert child.stdout is not None
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(child.stdout)
        with contextlib.suppress(ProcessLookupError):  # it may have started others, to ask
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()

    def _start(self, given: str) -> None:
        words = [sys.executable, "-P", "-m", "ckpt.diagnosis.lldp"]
        try:
            child = self._child = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:  # no more processes: the job goes on with what the file says
            self._take({"reason": f"cannot be asked: {error.strerror}"})
            return
        assert child.stdin is not None and child.stdout is not None
        with (
            contextlib.suppress(BrokenPipeError),
            child.stdin,
        ):  # broken: it has ended, and its answer is empty
            child.stdin.write(json.dumps({"lldp": given}).encode())
        os.set_blocking(child.stdout.fileno(), False)
        self._selector.register(child.stdout, selectors.EVENT_READ, self._on_answer)
        self._until_ns = time.monotonic_ns() + _LIMIT_NS

    def _on_answer(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        data = self._child.stdout.read(1 << 16)
        if data is None:
            return
        self._said += data
        if data:
            return
        self.close()
        try:
            found = json.loads(self._said)
        except ValueError:
            found = {"reason": "the process that asks has failed"}
        self._take(found)

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

    def _keep(self, text: str) -> str | None:
        """Write it, all of it or nothing. Returns why not."""
        new = f"{self._kept}.new"
        try:
            file = open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(text)
            os.replace(new, self._kept)
        except OSError as error:  # a full disk: the job goes on without
            return f"{self._kept}: {error.strerror}"
        self._is_kept = True
        return None


def _digest_of_one_with_lldp(path: str) -> str | None:
    """Of a file that asks for LLDP; None: it does not. One that cannot be read is reported by the diagnosis."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        wants = tomllib.loads(data.decode()).get("lldp") is True
    except (OSError, ValueError):
        return None
    return hashlib.sha256(data).hexdigest()[:16] if wants else None

"""Drains a node in Slurm, with what is at fault there as the reason: `python -m ckpt.controller.faults.drain`. (driver)

    in     {"node": NAME, "reason": TEXT} on standard input
    out    {"reason": null, or why Slurm has refused} on standard output

A process of its own, since slurmctld may take long to answer. A node that is drained finishes what runs on it and gets no
new jobs, until an operator resumes it. Slurm lets only its operators do that.

Source: the manual page scontrol(1) of Slurm 22.05.
"""

from __future__ import annotations

import json
import subprocess
import sys

__all__ = ["LIMIT_S", "drain"]

LIMIT_S = 60.0
_REASON_LIMIT = 1000


def drain(node: str, reason: str) -> str | None:
    """Returns why it is not drained; None: it is."""
    text = "ckpt: " + " ".join(reason.split())[:_REASON_LIMIT]
    words = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={text}")
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except OSError as error:
        return f"scontrol: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"scontrol: no answer within {LIMIT_S:g} s"
    if done.returncode:
        return done.stderr.strip() or f"scontrol: exit code {done.returncode}"
    return None


if __name__ == "__main__":
    request = json.load(sys.stdin)
    print(json.dumps({"reason": drain(request["node"], request["reason"])}))

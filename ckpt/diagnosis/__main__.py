"""`python -m ckpt.diagnosis`: one diagnosis for a job, in a process of its own. The controller starts it; ranks never do.

in      lines of JSON: what is known when the first loss is (a preparation; it may be left out), then all facts (`jobs`)
out     lines of JSON: the record of what hosts say alone, with `"more": true`, at once; then the record
"""

from __future__ import annotations

import json
import os
import sys

from ckpt.diagnosis.jobs import Preparation, locate, witnessed_only


def main() -> None:
    facts = json.loads(sys.stdin.readline() or "null")
    if facts is None:
        return  # it is not needed any more
    prepared = Preparation(facts)
    if "said" not in facts:
        facts = json.loads(sys.stdin.readline() or "null")
        if facts is None:
            prepared.ready.end()
            return
    _tell({**witnessed_only(facts), "more": True})
    _tell(locate(facts, prepared))
    # not later: the kernel keeps this open as long as a thread hangs in it, in a file system that does not answer
    os.close(sys.stdout.fileno())
    os._exit(0)


def _tell(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

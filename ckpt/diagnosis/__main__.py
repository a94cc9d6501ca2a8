"""`python -m ckpt.diagnosis`: one diagnosis for a job, in a process of its own: facts on standard input, the record on
standard output, as JSON (`jobs`). The controller starts it; ranks never do."""

from __future__ import annotations

import json
import sys

from ckpt.diagnosis.jobs import locate

if __name__ == "__main__":
    print(json.dumps(locate(json.load(sys.stdin))))

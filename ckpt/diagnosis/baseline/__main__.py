"""`python -m ckpt.diagnosis.baseline`: for a job, when it starts: {"counters": PATH of the topology} on standard input, what
`survey` finds on standard output, as JSON. The controller starts it; ranks never do."""

from __future__ import annotations

import json
import sys

from ckpt.diagnosis.baseline.survey import for_job

if __name__ == "__main__":
    print(json.dumps(for_job(json.load(sys.stdin))))

"""Fuzzing of frames guided by coverage: inputs that reach new branches of the transport are kept and varied.

    python -m tests.fuzz.guided --frames 1000000          (with a corpus of its own, kept in .ckpt/corpus)

Needs atheris (`make soak` fetches it; where there is none for this Python or machine, the test that uses it says so).
An input is a history of frames (`tests.fuzz.frames.throw`), and what is looked at is the same as of random ones: typed
outcomes only, and memory bounded. A finding is a traceback and a file `crash-…`, which is repeated by naming it:

    python -m tests.fuzz.guided .ckpt/corpus/crash-…
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / ".ckpt" / "corpus"
LONGEST = 2_000
"""Bytes of an input."""
LOADED = 200_000
"""Frames of one process: then another one goes on with the corpus."""


def seeds() -> list[bytes]:
    """Inputs to begin with: every genuine frame by itself, then all of them in order."""
    from tests.fuzz.frames import JOB, genuine

    made = [bytes((5 + 8 * (number % 32), 0)) for number in range(len(genuine(JOB)))]
    return [*made, b"".join(made)]


def guided(first: int, count: int, corpus: Path = CORPUS) -> tuple[int, dict[str, int]]:
    """Throw at least `count` frames, in processes of their own, going on with the corpus; how many, and how many
    branches and inputs the corpus holds. `first`: a seed. AssertionError with the traceback when one is not survived.
    """
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    thrown = 0
    branches = 0
    while thrown < count:
        command = [
            *(sys.executable, "-m", "tests.fuzz.guided", "--frames", str(min(count - thrown, LOADED))),
            *(
                str(corpus),
                f"-seed={(first + thrown) % (1 << 31) + 1}",
                f"-max_len={LONGEST}",
                "-timeout=120",
            ),
            f"-artifact_prefix={corpus.parent}/",
        ]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        output = done.stdout + done.stderr
        said = re.search(r"frames thrown: (\d+)", output)
        assert done.returncode == 0 and said, f"{' '.join(command)}\n{output[-6000:]}"
        thrown += int(said[1])
        branches = max([branches, *map(int, re.findall(r"cov: (\d+)", output))])
    return thrown, {"branches": branches, "inputs kept": len(list(corpus.iterdir()))}


def fuzz(frames_wanted: int, arguments: list[str]) -> None:
    """In this process; does not return."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=["transport"]):
        from tests.fuzz.frames import throw
    thrown = 0

    def one(data: bytes) -> None:
        nonlocal thrown
        thrown += throw(data)
        if thrown >= frames_wanted:
            print(f"frames thrown: {thrown}", flush=True)
            os._exit(0)

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=1 << 62)
    given, rest = parser.parse_known_args()
    fuzz(given.frames, rest or [str(CORPUS)])

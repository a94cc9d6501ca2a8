"""Runs test modules of mpi4py in one rank and appends what came out to a file, one JSON object a line.

Arguments: directory of mpi4py's sources, directory for the results ("-": a rank with replicas prints them), module names.
"""

from __future__ import annotations

import faulthandler
import fnmatch
import importlib
import json
import os
import sys
import traceback
import unittest
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TEST_LIMIT_S = 300
"""For each of the processes that compute a rank."""


class Recorder(unittest.TestResult):
    """One line when a test starts, one when it ends."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.problem: str | None = None
        self.skip: str | None = None

    def write(self, **entry: Any) -> None:
        if not self.path:
            print(json.dumps(entry), flush=True)
            return
        with open(self.path, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.problem = self.skip = None
        faulthandler.dump_traceback_later(TEST_LIMIT_S if self.path else 3 * TEST_LIMIT_S, exit=True)
        self.write(test=test.id(), state="started")

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        state = "failed" if self.problem else "skipped" if self.skip is not None else "passed"
        self.write(test=test.id(), state=state, why=self.problem or self.skip or "")
        super().stopTest(test)

    def note(self, error: Any) -> None:
        frames = traceback.extract_tb(error[2])
        place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        self.problem = self.problem or f"{error[0].__name__}: {error[1]} ({place})"[:300]

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.note(err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.note(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.note(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.skip = reason

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.problem = "unexpected success"


def flatten(suite: Any) -> list[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        return [suite]
    found = []
    for item in suite:
        found += flatten(item)
    return found


def main(sources: str, results: str, modules: list[str]) -> None:
    sys.dont_write_bytecode = True
    sys.path[:0] = [os.path.join(sources, "test"), HERE]
    sys.path.append(os.path.join(sources, "src"))
    for name in ("cupy", "numba"):
        sys.modules[name] = None  # type: ignore[assignment]
    plan = importlib.import_module("plan")
    rank = int(os.environ["RANK"])
    arrays = importlib.import_module("arrayimpl")
    for name in list(arrays.ArrayBackends):
        if name.__name__.startswith(plan.ARRAYS_LEFT_OUT):
            arrays.ArrayBackends.remove(name)
    left_out = plan.TESTS_LEFT_OUT
    if results == "-":
        left_out += plan.TESTS_LEFT_OUT_OF_REPLICAS
    recorder = Recorder("" if results == "-" else os.path.join(results, f"rank-{rank}.jsonl"))
    for module in modules:
        try:
            tests = flatten(unittest.defaultTestLoader.loadTestsFromName(module))
        except BaseException as error:
            recorder.write(test=module, state="failed", why=f"cannot be loaded: {error!r}")
            continue
        kept = []
        for test in tests:
            reason = next((why for pattern, why in left_out if fnmatch.fnmatch(test.id(), pattern)), None)
            if reason is None:
                kept.append(test)
            else:
                recorder.write(test=test.id(), state="left out", why=reason)
        for test in kept:
            recorder.write(test=test.id(), state="planned")
        unittest.TestSuite(kept).run(recorder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

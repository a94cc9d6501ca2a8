from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ckpt.image.process import limits


def test_only_what_has_been_changed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.note_baseline()
    assert limits.note_limits() == {}
    digits = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(10_000)
        assert limits.note_limits() == {"digits of an int": 10_000}
    finally:
        sys.set_int_max_str_digits(digits)


def test_a_hard_limit_that_may_not_be_raised_is_kept_and_said() -> None:
    code = """
import os, resource
from ckpt.image.process import limits

resource.setrlimit(resource.RLIMIT_NOFILE, (80, 100))
if os.getuid() == 0:
    os.setuid(65534)
limits.note_baseline()
limits.put_back_limits({"RLIMIT_NOFILE": (90, 1000), "RLIMIT_CORE": (0, 0)})
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE), limits.not_put_back())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.getcwd())
    assert (
        ran.stdout == "(90, 100) (0, 0) ['RLIMIT_NOFILE 90, 1000: not allowed to raise maximum limit']\n"
    ), ran.stderr

"""Decoders and encoders of ``json``, in a rank: there, this package's modules have copies of ``json`` of their own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from ckpt.transport.driver import originals
from ckpt.compat import accelerators
assert accelerators.json_parts.__name__ == "_json"  # found before the copies are made
originals.keep()
from ckpt.image.stdlib import rebuild_c_objects
scan = rebuild_c_objects.make_json_scanner(True, None, None, float, int, float)
assert scan("[1, 2]", 0) == ([1, 2], 6), scan
assert accelerators.json_parts.__name__ == "_json"
"""


def test_a_program_that_held_a_json_decoder_could_not_be_restarted() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)

"""`python -m ckpt run …`: the command, where it is not on the path."""

from __future__ import annotations

import sys

from ckpt.controller.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

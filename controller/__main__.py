"""`python -m controller`: the `ckpt` command."""

from __future__ import annotations

import sys

from controller.cli import main

if __name__ == "__main__":
    sys.exit(main())

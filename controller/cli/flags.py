"""The one definition of the options of `ckpt run` and `ckpt doctor` that take no value.

`main` has to find the words of the program before it imports argparse, because that import takes as long as the start of the
agent. To skip the options it needs the names of those without a value, and takes them from here; `arguments` gives the same
definitions to the parser.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing has, without importing it
if TYPE_CHECKING:
    from typing import Any

HELP = ("-h", "--help")

FLAGS: dict[str, dict[str, Any]] = {
    "--json": {"action": "store_true", "help": "print JSON"},
    "--no-mpi4py": {
        "dest": "mpi4py",
        "action": "store_false",
        "default": None,
        "help": "leave `import mpi4py` alone: the installed package, if any (default: it is answered here)",
    },
    "--checkpoint-on-signal": {
        "action": "store_true",
        "default": None,
        "help": "on Ctrl-C, SIGTERM, SIGHUP or SIGQUIT take a last checkpoint before stopping (exit code 75)",
    },
    "--explicit": {
        "action": "store_true",
        "default": None,
        "help": "save only what the program registers, between two steps of ckpt.loop; works on every interpreter",
    },
    "--prefix": {"action": "store_true", "help": "print the rank in front of every line of output"},
}

NAMES = frozenset((*HELP, *FLAGS))

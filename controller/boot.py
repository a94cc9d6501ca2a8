"""The script that an agent's process begins with: it finds this package, and calls the agent. (driver)

Not ``python -c``: there CPython 3.13.0 takes the working directory for the place of the main program, in
an agent and in all its ranks, and answers ``getattr(module, name, default)`` with a SystemError once that directory has been
removed.

Last word on the command line: the folder of this package, for an interpreter that does not find it by itself.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # this folder: its modules could shadow others
try:
    from ckpt.transport import finder
except ModuleNotFoundError:
    sys.path.append(sys.argv.pop())
    from ckpt.transport import finder
else:
    del sys.argv[-1]
finder.install()

if __name__ == "__main__":
    from ckpt.controller.launch.agent import main

    main()

"""The `ckpt` command: its first steps, its errors and its exit codes.

A module is imported only when it is needed. So ``--help`` is quick, and `ckpt run` starts its agent within its first
millisecond: the agent imports what ranks need while this process reads its options and makes the job (`_spawn_early`). An
error that this package or the store raises on purpose becomes one line on standard error, or one JSON object with
``--json``, and its exit code.

Not here: the options (`arguments`), the verbs (the other modules of this room).
"""

from __future__ import annotations

import os
import sys

from ckpt.compat.accelerators import run_exit_functions, signal
from ckpt.controller.cli import flags
from ckpt.controller.cli.command import names_python, split_program
from ckpt.controller.errors import EXIT_UNREAD, ControllerError, UsageError
from ckpt.controller.launch.spawning import Spawned, new_hash_seed, spawn_agent

TYPE_CHECKING = False  # what typing has, without importing it
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

_INTERRUPTED = 130  # as of a command that SIGINT has ended
_VERBS = {
    "run": ("run", "run"),
    "restart": ("run", "restart"),
    "submit": ("submit", "submit"),
    "checkpoint": ("job", "checkpoint"),
    "stop": ("job", "stop"),
    "status": ("job", "status"),
    "ls": ("store", "ls"),
    "verify": ("store", "verify"),
    "inspect": ("inspect", "inspect"),
    "doctor": ("doctor", "doctor"),
    "diagnose": ("diagnose", "diagnose"),
    "prune": ("store", "prune"),
    "agent": ("host_flags", "agent"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (argparse exits by itself with 2).

    Without `arguments` the process does nothing else: after `run` and `restart`, and when it is interrupted, it ends without
    finalizing the interpreter.
    """
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # a job that runs stops by itself (`service.signals`)
        if arguments is None:
            # Else an interrupt more, while the interpreter is finalized, would kill the process by the signal.
            signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
            _exit_process(_INTERRUPTED)
        return _INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    _fill_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    elif not words:
        from ckpt.controller.cli.arguments import make_parser

        make_parser().print_help(sys.stderr)
        return UsageError.exit_code
    if arguments is None and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # Some parents ignore SIGCHLD, and children inherit that: no child's exit code would be known.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program: list[str] = []
    early_agent: Spawned | None = None
    if words[:1] in (["run"], ["doctor"]):
        options, program = split_program(words[1:], flags.NAMES)
        if words[0] == "run":
            early_agent = _spawn_early(options, program)
        words = [words[0], *options]
    rest: dict[str, Any] = {}
    try:
        from ckpt.controller.cli.arguments import parse

        if words[:1] == ["submit"]:
            try:
                words, program, rest = _words_of_submit(words[1:])
            except ControllerError as error:
                return _report(error, error.exit_code, "--json" in words)
        parsed = parse(words)
        vars(parsed).update(rest)
        parsed.program, parsed.early_agent = program, early_agent
        code = _run_verb(parsed)
    finally:
        if early_agent is not None:
            early_agent.discard()
    if arguments is None and parsed.verb in ("run", "restart"):
        _exit_process(code)
    return code


def _words_of_submit(words: list[str]) -> tuple[list[str], list[str], dict[str, Any]]:
    """The words of the verb itself, those of the program, and the options for `ckpt run` and for sbatch."""
    from ckpt.controller.cli.arguments import names_of
    from ckpt.controller.cli.submit import divided
    from ckpt.controller.hosts.batch import FLAGS

    options, program = split_program(words, flags.NAMES | FLAGS | names_of("submit")[1])
    own, run, sbatch = divided(options)
    return ["submit", *own], program, {"run": run, "sbatch": sbatch}


def _fill_streams() -> None:
    """Open /dev/null in place of standard streams that this process was started without. Otherwise the next opened files,
    for example the event log, would get their descriptors and the printed text."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.dup(fd)
    os.close(fd)


def _spawn_early(options: Sequence[str], program: Sequence[str]) -> Spawned | None:
    """The agent of a new job, begun before the words are understood; None if they may want another one, or none."""
    if not program or names_python(program[0]):
        return None
    if program[0] not in ("-m", "-c") and not os.access(program[0], os.R_OK):
        return None
    if any(
        word in ("-h", "--help") or word.startswith(("--resume", "--entry", "--host")) for word in options
    ):
        return None
    try:
        return spawn_agent(hash_seed=new_hash_seed())
    except ControllerError:
        return None  # who needs it tries again, and says so


def _run_verb(parsed: argparse.Namespace) -> int:
    from importlib import import_module

    module_name, function = _VERBS[parsed.verb]
    try:
        code: int = getattr(import_module(f"ckpt.controller.cli.{module_name}"), function)(parsed)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return _output_closed()
    except ControllerError as error:
        return _report(error, error.exit_code, parsed.json)
    except Exception as error:
        from ckpt.compat.compiled import stale
        from ckpt.store.errors import StoreError

        if text := stale(error):
            return _report(ControllerError(text), ControllerError.exit_code, parsed.json)
        if not isinstance(error, StoreError):
            raise
        return _report(error, error.exit_code, parsed.json)
    return code


def _output_closed() -> int:
    """The reader of the output has closed it (`| head`): no message, and the exit code of a command that SIGPIPE ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return EXIT_UNREAD


def _exit_process(code: int) -> None:
    """End the process without finalizing the interpreter, which takes longer than the end of the job. All files of the
    job are closed already."""
    run_exit_functions()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return  # the interpreter's own end says so, with its exit code
    os._exit(code)


def _report(error: Exception, exit_code: int, as_json: bool) -> int:
    if as_json:
        from ckpt.controller.cli.common import show_error

        show_error(type(error).__name__, str(error), exit_code)
    print(f"ckpt: {error}", file=sys.stderr)
    return exit_code

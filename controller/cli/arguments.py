"""The verbs, options and help texts of the `ckpt` command.

Not here: the work of the verbs (the modules `run`, `job`, `store`, `inspect`, `doctor`), and the place in the command line
where the words of the program begin (`command`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ckpt.controller.cli import host_flags, redundancy, submit
from ckpt.controller.cli.command import USAGE
from ckpt.controller.cli.common import Files, at_least, nbytes, not_empty, seconds, show_error
from ckpt.controller.cli.flags import FLAGS, NAMES
from ckpt.controller.errors import UsageError

EXIT_CODES = """\
exit codes:
  0    done; for run and restart: the program's own exit code
  1    failed: the checkpoint was not committed, processes could not be started, files could not be put back
  2    usage: no such script, impossible options
  3    damaged but recoverable: an older checkpoint is whole, or only the record of changed files is damaged
  10   no such job or epoch, or no controller is running
  11   another controller holds the job
  12   no checkpoint of the job can be read
  13   incompatible: number of ranks, program, Python, format, owner, standard input or files; the reason is printed
  14   restarts used up
  15   --redundancy: the replicas of a rank differ, and it cannot be told which is right
  16   all hosts of the job are lost: start me again (`ckpt restart JOB`)
  75   checkpointed and stopped: start me again (`ckpt restart JOB`)
  120  the program ended with 0, but standard output could not be written
  124  the time limit was reached and the last checkpoint failed
  141  whoever read the output has gone (`| head`)
  128+N  stopped by signal N (`ckpt stop` counts as 15) without a last checkpoint
"""


def _add_flag(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(name, **FLAGS[name])


def _add_service_options(parser: argparse.ArgumentParser) -> None:
    """Options of whoever supervises ranks. All default to None: "as before" for restart, built-in for run."""
    add = parser.add_argument
    add(
        "--fenced",
        type=not_empty,
        metavar="HOST",
        help="HOST, where the job was last, is dead: go on with it here (your word for it: nothing else can know)",
    )
    add(
        "--chdir",
        type=not_empty,
        metavar="DIR",
        help="go on with the job in DIR: the directory in which it was started has moved there",
    )
    add("--every", type=seconds, metavar="S", help="take a checkpoint every so many seconds")
    add("--max-restarts", type=at_least(0), metavar="K", help="restart at most K times (default 10)")
    add(
        "--on-failure",
        choices=("restart", "continue"),
        help="a rank dies: restart: all go on from the last checkpoint (default); continue: the others go on and are "
        "told (MPI_ERR_PROC_FAILED); later checkpoints lack it",
    )
    add(
        "--timeout",
        type=seconds,
        metavar="S",
        help="give a checkpoint up after S seconds; the job goes on (default 120)",
    )
    add(
        "--time-limit",
        type=seconds,
        metavar="S",
        help="after S seconds take a last checkpoint and stop (exit code 75)",
    )
    add(
        "--keep",
        type=at_least(2),
        metavar="N",
        help="keep the N newest checkpoints only, at least 2 (default 3)",
    )
    _add_flag(parser, "--no-mpi4py")
    _add_flag(parser, "--checkpoint-on-signal")
    add(
        "--grace",
        type=seconds,
        metavar="S",
        help="when the job is stopped by a signal or `ckpt stop`: so long the handlers of the program may run (default 5)",
    )
    add(
        "--image-mode",
        choices=("auto", "fork", "sync"),
        help="fork: compute on while images are written; sync: wait; auto: fork unless memory is tight (default)",
    )
    _add_connection_options(parser)
    add(
        "--harmless-threads",
        action="append",
        type=not_empty,
        metavar="PATTERN",
        help="threads of the program with such names may run during a checkpoint, and are gone after a restart",
    )
    _add_file_options(parser)
    _add_flag(parser, "--explicit")
    _add_flag(parser, "--prefix")
    # For tests: module:function instead of ckpt.rank.boot:run_rank
    add("--entry", default=None, help=argparse.SUPPRESS)


def _add_connection_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--wire",
        choices=("ring", "socket"),
        help="between ranks: ring: rings of shared memory, and sockets where there is none (default); socket: sockets only",
    )
    add(
        "--wait",
        choices=("auto", "spin", "yield", "sleep"),
        help="how a rank waits for a message: spin: keep its core for up to 1 ms; yield: let others have it in between; "
        "sleep: at once; auto: spin where each rank has a core, else yield, for up to 0.15 ms (default)",
    )
    add(
        "--connections",
        choices=("refuse", "reset"),
        help="open connections to other processes: refuse: no checkpoint meanwhile (default); reset: after a restart the "
        "program finds that the peer has reset them",
    )


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files",
        action=Files,
        metavar="auto|off|PATTERN",
        help="auto: a restart puts back the files that the program has changed since the checkpoint (default); PATTERN: "
        "those that match, !PATTERN: but not those (may be given several times); off: it only cuts open files to their "
        "length",
    )
    parser.add_argument(
        "--files-limit",
        type=nbytes,
        metavar="BYTES",
        help="for all copies of files that the job keeps; a number with or without a unit: 500M, 2G (default 1 GiB)",
    )


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        import platform

        from ckpt.version import VERSION

        print(f"ckpt {VERSION} (Python {platform.python_version()})")
        parser.exit()


class _Verb(argparse.ArgumentParser):
    """The parser of one verb. It reports an unknown option itself, with its usage and the options of a similar name.

    `names`: of its options; True: the option takes no value."""

    def __init__(self, *words: Any, **options: Any) -> None:
        self.names: dict[str, bool] = {}
        self.as_json = False
        super().__init__(*words, **options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*names, **options)
        self.names.update(dict.fromkeys(action.option_strings, action.nargs == 0))
        if action.nargs == 0 and self.prog.endswith((" run", " doctor")):
            assert NAMES.issuperset(action.option_strings), (
                f"{names}: options without a value are in flags.py"
            )
        return action

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.as_json = "--json" in (args or ())
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(
                f"unknown: {' '.join(unknown)}{self._meant(unknown[0])}; {self.prog} --help lists the options"
            )
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        if self.as_json:  # whoever reads standard output finds JSON there, whatever was wrong
            show_error("UsageError", f"{self.prog}: {message}", UsageError.exit_code)
        super().error(message)

    def _meant(self, word: str) -> str:
        import difflib

        known = [
            name
            for name, action in self._option_string_actions.items()
            if name.startswith("--") and action.help != argparse.SUPPRESS
        ]
        near = difflib.get_close_matches(word.partition("=")[0], known, n=1)
        return f" (did you mean {near[0]}?)" if near else ""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a command line. Prints help and errors and raises SystemExit, as argparse does."""
    return make_parser().parse_args(words)


def names_of(verb: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names of a verb's options: all, and those without a value."""
    found = _make()[1][verb].names
    return frozenset(found), frozenset(name for name, is_flag in found.items() if is_flag)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    return _make()[0]


def _make() -> tuple[argparse.ArgumentParser, dict[str, _Verb]]:
    """The parser of the whole command, and those of its verbs."""
    made: dict[str, _Verb] = {}
    parser = argparse.ArgumentParser(
        prog="ckpt",
        description="Runs message-passing Python programs that survive kill -9.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version of ckpt and of Python")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Verb)

    def verb(name: str, help_text: str, usage: str | None = None) -> argparse.ArgumentParser:
        made[name] = sub = verbs.add_parser(
            name,
            help=help_text,
            description=help_text,
            usage=usage,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _add_flag(sub, "--json")
        return sub

    _add_running_verbs(verb)
    _add_verbs_for_jobs(verb)
    _add_diagnose(verb)
    host_flags.add_agent(verb("agent", "Serve a job on this host; engines start it (`ckpt run --hosts`)."))
    return parser, made


Verb = Callable[..., argparse.ArgumentParser]
"""Makes the parser of one verb, of its name, help and usage."""


def _add_running_verbs(verb: Verb) -> None:
    """Verbs that run a program."""
    run = verb("run", "Run a program on N ranks.", f"ckpt run [options] [--] {USAGE}")
    run.add_argument(
        "-n", "-np", "--ranks", type=at_least(1), metavar="N", help="number of ranks (default 1)"
    )
    run.add_argument(
        "--job", type=not_empty, metavar="DIR", help="job directory (default: a new one under ./.ckpt)"
    )
    run.add_argument(
        "--resume",
        choices=("auto", "never"),
        default="never",
        help="auto: go on with the job in DIR if there is one, else start it",
    )
    run.add_argument(
        "--spares",
        type=at_least(0),
        metavar="K",
        help="the program may start K more processes while it runs (MPI's Spawn); needs --on-failure continue (default 0)",
    )
    redundancy.add_option(run)
    _add_service_options(run)
    host_flags.add_options(run, seconds)

    submit.add_options(
        verb(
            "submit",
            "Write a batch script for Slurm, and submit it: it runs the program until it has ended, slot after slot.",
            f"ckpt submit [options, also of `ckpt run` and of sbatch] [--] {USAGE}",
        ),
        at_least,
        seconds,
    )

    restart = verb("restart", "Go on with a job from its newest checkpoint, or from EPOCH.")
    restart.add_argument("job", type=not_empty, metavar="JOB[@EPOCH]")
    restart.set_defaults(spares=None)  # an image fits a job with as many as before
    _add_service_options(restart)
    redundancy.add_option(restart)
    host_flags.add_options(restart, seconds)

    doctor = verb(
        "doctor",
        "Run a program a little, take images, bring them to life, and say what would not survive and why.",
        f"ckpt doctor [options] [--] {USAGE}, or --hosts HOST,… | --engine slurm [options]",
    )
    doctor.add_argument(
        "-n", "-np", "--ranks", type=at_least(1), metavar="N", help="number of ranks (default 1)"
    )
    doctor.add_argument(
        "--seconds", type=seconds, metavar="S", default=3.0, help="how long to run it (default 3)"
    )
    doctor.add_argument(
        "--images", type=at_least(1), metavar="K", default=3, help="how many images to take (default 3)"
    )
    _add_file_options(doctor)
    host_flags.add_engine_options(doctor)
    doctor.add_argument(
        "--directory",
        type=not_empty,
        metavar="DIR",
        help="with --hosts or --engine: a directory that all hosts see (default: the working directory)",
    )


def _add_verbs_for_jobs(verb: Verb) -> None:
    """Verbs for a job that is there."""
    checkpoint = verb("checkpoint", "Take a checkpoint of a running job, and wait until it is committed.")
    checkpoint.add_argument("job", type=not_empty, metavar="JOB", nargs="?")
    checkpoint.add_argument("--stop", action="store_true", help="then stop the job (its exit code is 75)")
    checkpoint.add_argument("--no-wait", action="store_true", help="do not wait for the commit")

    stop = verb("stop", "Stop a running job.")
    stop.add_argument("job", type=not_empty, metavar="JOB", nargs="?")
    stop.add_argument("--checkpoint", action="store_true", help="take a last checkpoint before")

    status = verb("status", "Show what a job does, or how it ended.")
    status.add_argument("job", type=not_empty, metavar="JOB", nargs="?")

    ls = verb("ls", "List the committed checkpoints of a job.")
    ls.add_argument("job", type=not_empty, metavar="JOB", nargs="?")

    verify = verb("verify", "Read everything a restart would read, and say whether it is whole.")
    verify.add_argument("job", type=not_empty, metavar="JOB[@EPOCH]")

    inspect = verb(
        "inspect", "Show what a checkpoint holds: stack, largest variables, messages, versions, blocks."
    )
    inspect.add_argument("job", type=not_empty, metavar="JOB[@EPOCH]", nargs="?")
    inspect.add_argument("-r", "--rank", type=at_least(0), metavar="RANK", help="of one rank only, in full")

    prune = verb("prune", "Remove old checkpoints.")
    prune.add_argument("job", type=not_empty, metavar="JOB")
    prune.add_argument(
        "--keep-last", type=at_least(2), metavar="N", required=True, help="how many to keep, at least 2"
    )


def _add_diagnose(verb: Verb) -> None:
    diagnose = verb(
        "diagnose",
        "Say which cable, port, fan, host or process is behind an error between two hosts.",
        "ckpt diagnose [options] HOST HOST | JOB | --check [HOST] | --lldp | --baseline | --list | --explain FAULT",
    )
    diagnose.add_argument(
        "hosts", metavar="HOST", nargs="*", help="who got the error, and its peer; or a job"
    )
    diagnose.add_argument(
        "--error", metavar="NAME", default="ETIMEDOUT", help="the error of the call (default ETIMEDOUT)"
    )
    diagnose.add_argument("--port", type=at_least(1, 65535), metavar="N", help="TCP port of the peer process")
    diagnose.add_argument(
        "--age", type=seconds, metavar="S", default=0.0, help="how long ago it was, at least (default 0)"
    )
    diagnose.add_argument("--check", action="store_true", help="ask everything once, and say who answers")
    diagnose.add_argument(
        "--lldp", action="store_true", help="compare the topology with what switches and hosts hear by LLDP"
    )
    diagnose.add_argument(
        "--baseline", action="store_true", help="read the counters of all devices, to be compared with later"
    )
    diagnose.add_argument(
        "--keep", metavar="FILE", help="where --lldp or --baseline write what they find (FILE.json)"
    )
    diagnose.add_argument(
        "--counters", metavar="FILE", help="compare counters with these: a file of --baseline, or a job's"
    )
    diagnose.add_argument("--list", action="store_true", help="list the faults that there are models for")
    diagnose.add_argument("--explain", metavar="FAULT", help="what causes it, what it causes and hides")
    diagnose.add_argument("--topology", metavar="FILE", help="default ~/.config/ckpt/topology.toml")
    diagnose.add_argument("--credentials", metavar="FILE", help="default ~/.config/ckpt/credentials.toml")
    diagnose.add_argument("--models", metavar="DIR", help="more models, beside ~/.config/ckpt/models")

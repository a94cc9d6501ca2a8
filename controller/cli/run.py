"""`ckpt run` and `ckpt restart`: make or open the job, become its controller, run the service.

Two rules on the order of the steps:
- The agent is started before this process imports its own modules, so that the program starts soon: the agent imports what
  ranks need at the same time. So modules are imported in functions here. `main` has already started a new job's agent.
- For safety, the job is locked first; then the processes that an earlier controller has left are ended; then ranks start.

This module is long because the start and the restart of a job are one sequence of steps, whose order matters.

Not here: the words of the program (`command`), the work of a controller (`ckpt.controller.service`).
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli import host_flags, redundancy, submit
from ckpt.controller.cli.command import Command
from ckpt.controller.cli.hosts import notes
from ckpt.controller.cli.hosts import options as host_options
from ckpt.controller.errors import EXIT_NOT_WRITTEN, EXIT_UNREAD, NoSuchJob, UsageError
from ckpt.controller.launch.spawning import DEFAULT_ENTRY, Interpreter, Spawned, new_hash_seed, spawn_agent

if TYPE_CHECKING:
    from ckpt.controller.adoption.roster import Adopted
    from ckpt.controller.hosts.launch.launcher import HostsLauncher
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.service.report import Reporter
    from ckpt.controller.service.service import Service, ServiceOptions
    from ckpt.controller.supervision.history import History
    from ckpt.controller.supervision.lines import Lines
    from ckpt.store import JobDirectory, LockHandle

_NOTHING = "{}: nothing was committed yet; `ckpt run --resume auto` starts from the beginning"
DEFAULTS: dict[str, Any] = {
    "every": None,
    "max_restarts": 10,
    "on_failure": "restart",
    "timeout": 120.0,
    "keep": 3,
    "checkpoint_on_signal": False,
    "grace": 5.0,
    "image_mode": "auto",
    "wire": "ring",
    "wait": "auto",
    "harmless_threads": (),
    "explicit": False,
    "mpi4py": True,
    "connections": "refuse",
    "files": "auto",
    "files_limit": 1 << 30,
    "redundancy": 1,
    "clones": 4,
    "compare_memory": "all",
    "compare": "late",
    "spares": 0,
    "engine": None,
    "hosts": None,
    "engine_command": None,
    "interface": None,
    "ports": None,
    "lease": 15.0,
    **host_flags.FAULT_DEFAULTS,
}
_NS = 1_000_000_000


def run(arguments: argparse.Namespace) -> int:
    """Start a job, or (``--resume auto``) go on with it."""
    redundancy.check(arguments)
    _check_spares(None, arguments)
    for name in ("fenced", "chdir"):
        if getattr(arguments, name) is not None and arguments.resume != "auto":
            raise UsageError(f"--{name} is for a job that is gone on with: `ckpt restart`, or --resume auto")
    command = Command.parse(arguments.program)
    if arguments.resume == "auto" and arguments.job is not None and _is_job(arguments.job) and command.words:
        from ckpt.store import JobDirectory

        job = JobDirectory.open(arguments.job)
        redundancy.check_restart(job, arguments)
        _check_spares(job, arguments)
        return _continue_or_start(job, command, arguments)
    return _start(command.complete(), arguments)


def _check_spares(job: JobDirectory | None, arguments: argparse.Namespace) -> None:
    """Raise UsageError for what does not go with ``--spares``. `job`: that is gone on with; None: a new one."""
    before = {} if job is None else job.options
    if job is not None and arguments.spares not in (None, before.get("spares", 0)):
        raise UsageError(
            f"--spares {arguments.spares}: the job was started with {before.get('spares', 0)}, and its images fit these"
        )
    count = arguments.spares or before.get("spares", 0)
    if not count:
        return

    def option(name: str) -> Any:
        return before.get(name) if getattr(arguments, name) is None else getattr(arguments, name)

    if option("on_failure") != "continue":
        raise UsageError(
            f"--spares {count} needs --on-failure continue: a checkpoint has the ranks alone, and a restart from it would "
            "end the processes that were started since"
        )
    refused = {
        "--redundancy": (option("redundancy") or 1) > 1,
        "--explicit": bool(option("explicit")),
        "--hosts": host_options.are_several(arguments, job),
    }
    reasons = {
        "--redundancy": "what is started while the job runs has no replicas",
        "--explicit": "a program that saves itself explicitly starts again from its beginning, and would start them again",
        "--hosts": "processes are started on the host of the ranks, and these are on several",
    }
    for name, given in refused.items():
        if given:
            raise UsageError(f"--spares {count} and {name}: {reasons[name]}")


def _continue_or_start(job: JobDirectory, command: Command, arguments: argparse.Namespace) -> int:
    interpreter = _matching_interpreter(job, size=arguments.ranks or 1, command=command)
    return _continue_job(job, None, arguments, interpreter, or_start=True)


def _is_job(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, "job.json"))


def _start(command: Command, arguments: argparse.Namespace) -> int:
    """A new job."""
    interpreter, version = None, None
    if host_options.are_several(arguments, None):
        host_options.read_options(arguments, None, DEFAULTS)
    else:
        host_options.check_unused(arguments)
    if command.interpreter is not None:
        from ckpt.controller.launch.interpreter import named

        interpreter, version = named(command.interpreter, command.options)
    spawned = arguments.early_agent or _spawn(arguments, None, new_hash_seed(), interpreter)
    from ckpt.controller.supervision.history import History
    from ckpt.controller.supervision.lines import Lines

    try:
        launcher = _launcher(spawned, os.getcwd(), arguments, None)
    except FileNotFoundError:
        raise UsageError("the working directory has been removed: change to one that is there") from None
    try:
        from ckpt.controller.cli import scripts
        from ckpt.controller.cli.common import new_directory
        from ckpt.controller.launch.whereabouts import new_location
        from ckpt.store import JobDirectory, JobExists
        from ckpt.store.job.lock import Life

        options = {
            name: getattr(arguments, name) for name in DEFAULTS if getattr(arguments, name) is not None
        }
        try:
            job, lock_fd = JobDirectory.create_locked(
                arguments.job or new_directory(command.name),
                command=command.words,
                size=arguments.ranks or 1,
                options={
                    "interpreter": spawned.interpreter.saved(),
                    "stdin": scripts.standard_input(),
                    "script": scripts.note(command.script),
                    "files": DEFAULTS["files"],  # jobs without it are older: their files were not recorded
                    **options,
                },
                hash_seed=spawned.hash_seed,
                python=version,
            )
        except JobExists:
            if arguments.resume != "auto" or arguments.job is None or not _is_job(arguments.job):
                raise
            # Another process has made the job in the meantime.
            return _continue_or_start(JobDirectory.open(arguments.job), command, arguments)
        with job.lock(lock_fd, location=new_location(job), life=Life(0, launcher.bring_up())) as lock:
            return _drive(job, lock, launcher, arguments, History(), Lines((), start_over=True), new=True)
    finally:
        launcher.close()


def restart(arguments: argparse.Namespace) -> int:
    """Go on with a job whose controller is gone."""
    from ckpt.controller.cli.common import split_epoch
    from ckpt.store import JobDirectory

    path, epoch = split_epoch(arguments.job)
    job = JobDirectory.open(path)
    redundancy.check_restart(job, arguments)
    _check_spares(job, arguments)
    interpreter = _matching_interpreter(job, size=None, command=None)
    return _continue_job(job, epoch, arguments, interpreter, or_start=False)


def _matching_interpreter(job: JobDirectory, *, size: int | None, command: Command | None) -> Interpreter:
    """The interpreter with which the job goes on: that of the command line, else the one that the job was started with.

    Raises NotCompatible if the job cannot go on so; see also `interpreter.named`.
    """
    from ckpt.controller.launch.interpreter import named, of_job
    from ckpt.controller.supervision import plan

    if command is not None and command.interpreter is not None:
        interpreter, version = named(command.interpreter, command.options)
    else:
        interpreter, version = of_job(job.options)
    plan.check_fit(
        size=job.size,
        command=plan.words_of(job.command, job.options),
        python=job.python,
        new_size=size,
        new_command=() if command is None else command.words,
        new_python=version,
    )
    return interpreter


def _make_again(job: JobDirectory) -> None:
    """Directories of the job that the user may have removed."""
    ranks = [job.rank_directory(rank) for rank in range(job.size)]
    for path in (os.path.dirname(job.agent_log_path()), os.path.dirname(ranks[0]), *ranks):
        os.makedirs(path, 0o700, exist_ok=True)


def _continue_job(
    job: JobDirectory,
    epoch: int | None,
    arguments: argparse.Namespace,
    interpreter: Interpreter,
    *,
    or_start: bool,
) -> int:
    from ckpt.controller.cli.common import usable_with_files, was_reported
    from ckpt.controller.cli.hosts import takeover
    from ckpt.controller.launch.whereabouts import claim, clear, end_late, is_away
    from ckpt.controller.supervision import past
    from ckpt.undo.selection.patterns import is_recorded

    host_options.prepare(arguments, job)
    with job.lock() as lock:
        history, trouble = past.known(job, lock.record)
        code = redundancy.finished_code(job, history)
        if code is not None and epoch is None and (code == 0 or not was_reported(history)):
            _reporter(job, arguments).say(f"the job has finished already, with exit code {code}")
            job.events.append("result-reported", exit_code=code)
            return code
        submit.check_starts(history, arguments.max_starts)
        _make_again(job)
        reporter = _reporter(job, arguments)
        replicas = redundancy.of(job, arguments)
        lines = _usable_lines(job, lock, epoch, reporter, replicas, or_start=or_start)
        is_new = not lines.epochs and not or_start
        if is_new:  # ranks that run can be gone on with
            if (
                epoch is not None
                or lock.found.location is None
                or not host_options.are_several(arguments, job)
            ):
                raise NoSuchJob(_NOTHING.format(job.path))
            lines = _usable_lines(job, lock, epoch, reporter, replicas, or_start=True)
        if replicas == 1 and is_recorded(_option(job, arguments, "files")):
            lines = usable_with_files(job, lines, reporter, required=epoch is not None)
        leased = trouble is None and takeover.end_by_themselves(lock, history)
        ended = clear(job, lock, history, arguments.fenced, leased=leased)
        if trouble is not None:
            reporter.say(past.begin_anew(job, history, trouble))
        if ended:
            job.events.append("fenced", reason=ended)
            if trouble is None:
                # They committed nothing meanwhile (only a controller commits), but the log grew.
                history, _ = past.known(job, lock.record)
        if host_options.are_several(arguments, job):
            host_options.read_options(arguments, job, DEFAULTS)  # what cannot be is refused before the wait
        directory = _directory_of(job, arguments)

        def launch() -> LocalLauncher | HostsLauncher:
            spawned = _spawn(arguments, directory, job.hash_seed, interpreter)
            return _launcher(spawned, directory, arguments, job)

        going_on = None
        if lock.found.location is not None:  # the controller before this one did not end in good order
            away = leased and arguments.fenced is None and is_away(job, lock)
            wait_s = takeover.leases_s(job, history, is_known=trouble is None, may_live=away)
            asks = trouble is None and epoch is None and arguments.fenced is None and not lines.needs_branch
            going_on = takeover.adopt_or_wait(
                job, lock, history, arguments, DEFAULTS, wait_s, launch if asks else None, reporter.say
            )
            if going_on is None:
                end_late(job, lock, history)
                if is_new:
                    raise NoSuchJob(_NOTHING.format(job.path))
        claim(job, lock)
        launcher, adopted = (launch(), None) if going_on is None else going_on
        return _drive(job, lock, launcher, arguments, history, lines, new=False, adopted=adopted)


def _directory_of(job: JobDirectory, arguments: argparse.Namespace) -> str:
    """The working directory in which the ranks are started again."""
    if arguments.chdir is None:
        return job.cwd
    if not os.path.isdir(arguments.chdir):
        raise UsageError(f"--chdir {arguments.chdir}: no such directory")
    return os.path.realpath(str(arguments.chdir))


def _spawn(
    arguments: argparse.Namespace, cwd: str | None, hash_seed: int, interpreter: Interpreter | None
) -> Spawned:
    """Start an agent, which begins to import at once."""
    entry = arguments.entry or DEFAULT_ENTRY
    return spawn_agent(hash_seed=hash_seed, entry=entry, cwd=cwd, interpreter=interpreter)


def _launcher(
    spawned: Spawned, cwd: str, arguments: argparse.Namespace, job: JobDirectory | None
) -> LocalLauncher | HostsLauncher:
    from ckpt.controller.launch.local import LocalLauncher

    if host_options.are_several(arguments, job):
        return host_options.launcher(arguments, job, DEFAULTS, spawned, cwd)
    ranks = (arguments.ranks or 1) if job is None else job.size
    _check_processes(ranks, (arguments.redundancy or 1) if job is None else redundancy.of(job, arguments))
    return LocalLauncher(cwd=cwd, spawned=spawned)


def _check_processes(ranks: int, replicas: int) -> None:
    """Raise UsageError for more ranks than this host can certainly run. To try would take the host from all others first."""
    from ckpt.controller.launch.procinfo import RANK_BYTES, most_processes

    needed = ranks * replicas
    most, what = most_processes()
    if needed > most:
        redundant = f" with --redundancy {replicas}" if replicas > 1 else ""
        raise UsageError(
            f"{ranks} ranks{redundant} are {needed} processes, and this host has room for {most} at most ({what}; each has "
            f"more than {RANK_BYTES >> 20} MiB for itself): fewer ranks (-n), or more hosts (--hosts)"
        )


def _usable_lines(
    job: JobDirectory,
    lock: LockHandle,
    epoch: int | None,
    reporter: Reporter,
    replicas: int,
    *,
    or_start: bool,
) -> Lines:
    """Lines a restart may use: the job's past, or the one asked for. Damaged control files are named and passed over, and so
    are those that are not verified.

    `or_start`: where none can be read the program starts over; else the error is raised.
    """
    from ckpt.controller.service.commit import past
    from ckpt.controller.supervision import plan
    from ckpt.controller.supervision.lines import Lines
    from ckpt.store import committed_epochs, list_lines, load_control
    from ckpt.store.errors import Incompatible

    committed = past(committed_epochs(job), lock.record.branch)
    newest = max(committed, default=None)
    if epoch is not None:
        plan.resumable(committed_epochs(job), epoch)
        control = load_control(job, epoch)
        if replicas > 1 or control.meta.get("verified") is False:
            redundancy.say_unverified(control, reporter, job)
        return Lines([epoch], needs_branch=epoch != newest, absent={epoch: control.absent})
    lines = [line for line in list_lines(job) if line.epoch in committed]
    good = [line.epoch for line in lines if line.control is not None]
    if lines and isinstance(lines[-1].error, Incompatible):
        raise lines[-1].error
    for line in reversed(lines):
        if line.control is None and (not good or line.epoch > good[-1]):
            assert line.error is not None
            job.events.append("line-unusable", epoch=line.epoch, rank=None, reason=str(line.error))
            reporter.say(f"epoch {line.epoch} cannot be used: {line.error}")
    if lines and not good:
        assert lines[-1].error is not None
        if not or_start:
            raise lines[-1].error
        job.events.append("starting-over", epoch=lines[-1].epoch, reason=str(lines[-1].error))
        reporter.say("there is no checkpoint that can be used: trying the start of the program")
    controls = {line.epoch: line.control for line in lines if line.control is not None}
    good = redundancy.usable(job, controls, reporter, replicas, or_start=or_start)
    usable = plan.resumable(good, None)
    absent = {epoch: control.absent for epoch, control in controls.items()}
    needs_branch = max(usable, default=None) != newest
    return Lines(usable, start_over=or_start, needs_branch=needs_branch, absent=absent)


def _reporter(job: JobDirectory, arguments: argparse.Namespace) -> Reporter:
    from ckpt.controller.service.report import Reporter

    return Reporter(size=job.size, json=arguments.json, prefix=arguments.prefix)


def _drive(
    job: JobDirectory,
    lock: LockHandle,
    launcher: LocalLauncher | HostsLauncher,
    arguments: argparse.Namespace,
    history: History,
    lines: Lines,
    *,
    new: bool,
    adopted: Adopted | None = None,
) -> int:
    """Supervise the job to its end, and make sure that none of its processes is left. `adopted`: the ranks that run."""
    location = lock.record.location
    assert location is not None, "claimed by the caller"
    reporter, code = _reporter(job, arguments), EXIT_NOT_WRITTEN
    service: Service | None = None
    try:
        from ckpt.controller.service.report import how_to_go_on
        from ckpt.controller.service.service import Service

        if adopted is None:
            launcher.serve(job_dir=job.path, runtime_dir=location.runtime, generation=lock.generation)
        if new:
            job.events.append(
                "job-started", command=job.command, size=job.size, job=job.job_id, python=job.python
            )
            if not arguments.json and arguments.job is None:
                reporter.say(f"job {os.path.relpath(job.path)}")
        job.events.append(
            "controller",
            pid=os.getpid(),
            host=location.host,
            boot=location.boot,
            generation=lock.generation,
            lines=lines.epochs,
            **({} if adopted is None else {"adopts": adopted.incarnation}),
            **redundancy.fields(job, arguments),
        )
        notes.announce(arguments, job, lock, launcher, history, reporter.say)
        options = _options(job, arguments, new=new)
        options = host_options.with_faults(options, job, launcher, lambda name: _option(job, arguments, name))
        if lines:
            from ckpt.controller.cli import scripts

            changed = scripts.changed(job.options.get("script"), _directory_of(job, arguments))
            if changed is not None:
                reporter.say(changed)
        service = Service(
            job, lock, launcher, reporter, options, history=history, lines=lines, adopted=adopted
        )
        code = service.run()
        if service.end is not None and service.end.kind == "stopped" and arguments.goes_on is None:
            reporter.say(how_to_go_on(job.path, service.supervisor.lines.newest))
    finally:
        launcher.close()
        lock.clear_location()
        if service is not None:
            service.close()
        problem = reporter.finish()  # which may wait for a reader, as long as nobody interrupts it
    if code:
        return code
    if problem is not None:
        return EXIT_NOT_WRITTEN
    return EXIT_UNREAD if reporter.is_unread else code


def _option(job: JobDirectory, arguments: argparse.Namespace, name: str) -> Any:
    given = getattr(arguments, name)
    return job.options.get(name, DEFAULTS[name]) if given is None else given


def _options(job: JobDirectory, arguments: argparse.Namespace, *, new: bool) -> ServiceOptions:
    """The options of this command line; for others, those that the job was started with, or the defaults."""
    from ckpt.controller.service.service import ServiceOptions
    from ckpt.controller.supervision.rounds import RoundOptions

    def option(name: str) -> Any:
        return _option(job, arguments, name)

    limit, mode, replicas = arguments.time_limit, option("image_mode"), option("redundancy")
    every_ns = None if option("every") is None else int(option("every") * _NS)
    timeout_ns = int(option("timeout") * _NS)
    return ServiceOptions(
        rounds=RoundOptions(
            every_ns=every_ns, timeout_ns=timeout_ns, mode=mode, goes_on=not option("explicit")
        ),
        max_restarts=option("max_restarts"),
        on_failure=option("on_failure"),
        grace_ns=int(option("grace") * _NS),
        keep=option("keep"),
        time_limit_ns=None if limit is None else int(limit * _NS),
        checkpoint_on_signal=option("checkpoint_on_signal"),
        replicas=replicas,
        clones=option("clones"),
        compare_memory=option("compare_memory"),
        compare=option("compare"),
        spares=option("spares"),
        rank_options={
            "image_mode": mode,
            "wire": option("wire"),
            "wait": option("wait"),
            "image_limit_ns": timeout_ns,
            "mpi4py": option("mpi4py"),
            "on_failure": option("on_failure"),
            "harmless_threads": list(option("harmless_threads")),
            "connections": option("connections"),
            "explicit": option("explicit"),
            "files": option("files") if replicas == 1 else "off",
            "files_directory": job.cwd if new else _directory_of(job, arguments),
            "files_limit": option("files_limit"),
            "stdin": job.options.get("stdin"),
            "moved": None if new or arguments.chdir is None else [job.cwd, _directory_of(job, arguments)],
        },
    )

"""Ranks on several hosts: the options of `ckpt run` and `restart` for that, what becomes of the ranks of a controller that
is lost, and the verb `agent`, which engines run.

Not here: the work (`ckpt.controller.hosts`).

This module is long because the options of jobs on several hosts are defined, read and checked in one place, and because the
ranks of a lost controller are gone on with only if these options are as they were.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli.common import at_least, not_empty
from ckpt.controller.errors import UsageError
from ckpt.transport.records import replace
from ckpt.undo.selection.patterns import is_recorded

if TYPE_CHECKING:
    from ckpt.controller.adoption.roster import Adopted
    from ckpt.controller.hosts.engine import Engine
    from ckpt.controller.hosts.launch.launcher import HostsLauncher
    from ckpt.controller.hosts.slurm import Allocation
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.launch.spawning import Spawned
    from ckpt.controller.service.service import ServiceOptions
    from ckpt.controller.supervision.history import History
    from ckpt.controller.supervision.plan import Node
    from ckpt.store import JobDirectory, LockHandle

__all__ = [
    "add_agent",
    "add_options",
    "adopt_or_wait",
    "agent",
    "announce",
    "are_several",
    "describe",
    "end_by_themselves",
    "launcher",
    "leases_s",
    "no_kill_note",
    "prepare",
    "requeue_note",
    "read_options",
    "wait_for_leases",
]

FAULT_DEFAULTS: dict[str, Any] = {
    "link_timeout": 2.0,
    "topology": None,
    "avoid_faulty": "on",
    "drain_faulty": "off",
    "fault_record": None,
}
_JOIN_LIMIT_S = 60.0
_SQUEUE_LIMIT_S = 20.0
_LEASE_BY_DEFAULT_S = 15.0


def agent(arguments: argparse.Namespace) -> int:
    """The verb `agent`."""
    from ckpt.controller.hosts.agent import agent as serve

    return serve(arguments)


def are_several(arguments: argparse.Namespace, job: JobDirectory | None) -> bool:
    """Does the command line, or else the job, or for a new job the allocation that this is run in, name hosts?"""
    if arguments.engine == "local":
        if arguments.hosts or arguments.hostfile:
            raise UsageError("--engine local is this host alone: leave --hosts out")
        return False
    if arguments.engine is not None:
        return True
    return bool(arguments.hosts or arguments.hostfile or _saved_hosts(job) or _is_slurms(arguments, job))


def _saved_hosts(job: JobDirectory | None) -> str | None:
    return None if job is None else job.options.get("hosts")


def _is_slurms(arguments: argparse.Namespace, job: JobDirectory | None) -> bool:
    """Is Slurm the engine? Without a word of the user it is that for a new job in an allocation of several nodes."""
    if arguments.engine is not None or arguments.hosts or arguments.hostfile:
        return bool(arguments.engine == "slurm")
    if job is not None:
        return bool(job.options.get("engine") == "slurm")
    if not os.environ.get("SLURM_JOB_ID") or (getattr(arguments, "redundancy", None) or 1) > 1:
        return False
    from ckpt.controller.hosts.slurm import node_count

    return node_count(os.environ) > 1


def read_options(
    arguments: argparse.Namespace, job: JobDirectory | None, defaults: Mapping[str, Any]
) -> tuple[list[Node], dict[str, Any]]:
    """The hosts, and all options: of the command line, or else of the job. What is read of the command line is put there as
    it is to be saved. Raises UsageError for what cannot be used."""
    from ckpt.controller.hosts import hostlist
    from ckpt.store.job.lines import ranks_left

    if _is_slurms(arguments, job):
        if arguments.hosts or arguments.hostfile or arguments.engine_command:
            raise UsageError(
                "--engine slurm has its hosts from the allocation: leave --hosts and --engine-command out"
            )
        arguments.engine = "slurm"
        nodes = _allocation().nodes
    else:
        nodes = _named_hosts(arguments, job)
    options = {**defaults, **({} if job is None else job.options)}
    options |= {name: given for name in defaults if (given := getattr(arguments, name, None)) is not None}
    hostlist.check_size((arguments.ranks or 1) if job is None else ranks_left(job), nodes)
    _check_values(arguments, options, nodes)
    _engine(options)
    return nodes, options


def check_unused(arguments: argparse.Namespace) -> None:
    """Ranks are on this host alone: what is said for several has no effect, and is to be right all the same. Raises
    UsageError."""
    names = ("lease", "topology", "fault_record", "interface", "ports")
    options = {name: getattr(arguments, name, None) for name in names}
    if any(given is not None for given in options.values()):
        _check_values(arguments, options, [])


def _check_values(arguments: argparse.Namespace, options: dict[str, Any], nodes: list[Node]) -> None:
    from ckpt.controller.hosts import hostlist
    from ckpt.controller.hosts.addresses import own_address
    from ckpt.controller.hosts.lease import LEAST_LEASE_NS

    if options["lease"] is not None and options["lease"] * 1e9 < LEAST_LEASE_NS:
        raise UsageError(f"--lease {options['lease']:g}: at least {LEAST_LEASE_NS / 1e9:g} s")
    if arguments.topology is not None:
        arguments.topology = options["topology"] = os.path.abspath(arguments.topology)
        if not os.path.isfile(arguments.topology):
            raise UsageError(f"--topology {arguments.topology}: no such file")
    if arguments.fault_record is not None:
        arguments.fault_record = options["fault_record"] = os.path.abspath(arguments.fault_record)
        if not os.path.isdir(os.path.dirname(arguments.fault_record)):
            raise UsageError(f"--fault-record {arguments.fault_record}: its directory is not there")
    if options["interface"] is not None:
        own_address(options["interface"])
    if options["ports"] is not None:
        hostlist.check_ports(options["ports"], nodes)


def _named_hosts(arguments: argparse.Namespace, job: JobDirectory | None) -> list[Node]:
    """The hosts of `--hosts` or `--hostfile`, which is put there as it is to be saved, or else of the job."""
    from ckpt.controller.hosts import hostlist

    if arguments.hosts is not None:
        if arguments.hostfile is not None:
            raise UsageError("--hosts and --hostfile: give one of them")
        arguments.hosts = hostlist.text_of(hostlist.of_text(arguments.hosts))
    elif arguments.hostfile is not None:
        try:
            with open(arguments.hostfile, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--hostfile {arguments.hostfile}: {error}") from None
        arguments.hosts = hostlist.text_of(hostlist.of_file(text, arguments.hostfile))
        arguments.hostfile = None
    hosts = arguments.hosts or _saved_hosts(job)
    if hosts is None:
        raise UsageError(f"--engine {arguments.engine}: on which hosts? --hosts or --hostfile")
    return hostlist.of_text(hosts)


def _allocation() -> Allocation:
    """The allocation of Slurm that this process is in, without nodes that it has lost. Raises UsageError."""
    from ckpt.controller.hosts import slurm
    from ckpt.controller.hosts.engine import CommandFailed, ask

    allocation = slurm.allocation_of(os.environ)
    words = ["squeue", "--noheader", f"--jobs={allocation.job}", "--format=%N"]
    try:
        present = slurm.hosts_of(ask(words, _SQUEUE_LIMIT_S).strip())
    except (CommandFailed, UsageError):
        return allocation  # `srun` says what is wrong
    return slurm.allocation_of(os.environ, present)


def _engine(options: Mapping[str, Any]) -> Engine:
    """The engine that these options name. Raises UsageError."""
    from ckpt.controller.hosts import slurm
    from ckpt.controller.hosts.engine import AGENT, Engine

    if options["engine"] != "slurm":
        return Engine.of_template(options["engine_command"])
    return Engine(slurm.step_words(_allocation(), AGENT), name="slurm", naming=slurm.NAMING)


def launcher(
    arguments: argparse.Namespace,
    job: JobDirectory | None,
    defaults: Mapping[str, Any],
    spawned: Spawned,
    cwd: str,
) -> HostsLauncher:
    """The launcher for several hosts. Raises UsageError."""
    from ckpt.controller.hosts.launch.launcher import HostsLauncher

    nodes, options = read_options(arguments, job, defaults)
    return HostsLauncher(
        nodes,
        engine=_engine(options),
        lease_ns=round(options["lease"] * 1e9),
        interface=options["interface"],
        ports=options["ports"],
        limit_s=_JOIN_LIMIT_S,
        cwd=cwd,
        spawned=spawned,
        tolerant=options["on_failure"] == "continue",
        puts_files_back=is_recorded(options["files"]),
    )


def with_faults(
    options: ServiceOptions,
    job: JobDirectory,
    launcher: LocalLauncher | HostsLauncher,
    option: Callable[[str], Any],
) -> ServiceOptions:
    """The options with what a job on several hosts needs to locate its faults."""
    from ckpt.controller.launch.local import LocalLauncher

    if isinstance(launcher, LocalLauncher):
        return options
    from ckpt.controller.faults.locator import FaultOptions

    log_path = os.path.join(job.path, "output", "diagnosis.log")
    is_avoided, patience_ns = option("avoid_faulty") == "on", int(option("lease") * 1e9)
    tolerant = option("on_failure") == "continue"
    faults = FaultOptions(
        launcher,
        option("topology"),
        is_avoided,
        log_path,
        patience_ns,
        drains=option("drain_faulty") == "slurm",
        record_path=option("fault_record"),
        tolerant=tolerant,
    )
    link = {"link_timeout_ns": int(option("link_timeout") * 1e9)}
    return replace(options, faults=faults, rank_options={**options.rank_options, **link})


def announce(
    arguments: argparse.Namespace,
    job: JobDirectory,
    lock: LockHandle,
    launcher: LocalLauncher | HostsLauncher,
    history: History,
    say: Callable[[str], None],
) -> None:
    """Let the launcher watch the journal. Say, and write down for `ckpt status`, on which hosts of which engine the job is,
    and how it goes on when it is stopped (`--goes-on`). `history`: up to this controller. Raises LockLost, StorageFailed."""
    fields: dict[str, Any] = {}
    if (fleet := getattr(launcher, "fleet", None)) is not None:
        from ckpt.controller.hosts import hostlist, tenure

        hosts = hostlist.text_of([host.node for host in fleet.hosts.values()])
        fields |= {"engine": launcher.engine.name, "hosts": hosts, "tolerant": fleet.tolerant}  # type: ignore[union-attr]
        fields["lease_s"] = fleet.lease_ns / 1e9
        kinds = launcher.processors()  # type: ignore[union-attr]
        fields["processors"] = sorted(kinds)
        before = (history.engine or {}).get("processors") or sorted(kinds)
        if len(kinds) > 1 or before != sorted(kinds):
            say(_processors_note(kinds, before))
        if launcher.engine.name == "slurm":  # type: ignore[union-attr]
            for note in no_kill_note():
                say(note)
        assert lock.record.location is not None
        lock.claim(replace(lock.record.location, contact=launcher.contact()))  # type: ignore[union-attr]
        if lock.journal is not None:
            launcher.keep_watch(lock.journal)  # type: ignore[union-attr]
            fields |= {"generation": lock.generation, "tenure_s": tenure.patience_ns(fleet.lease_ns) / 1e9}
    number = os.environ.get("SLURM_JOB_ID")
    if number is not None:
        fields |= {"slurm_job": number, "requeued": int(os.environ.get("SLURM_RESTART_COUNT") or 0)}
    if arguments.goes_on is not None:
        fields["goes_on"] = arguments.goes_on
    if fields:
        job.events.append("engine", **fields)
        if number is not None or arguments.goes_on is not None:
            say(describe(fields))


def _processors_note(kinds: Mapping[str, list[str]], before: list[str]) -> str:
    """`kinds`: models of processors and their hosts; `before`: the models that the job has had until now."""
    now = "; ".join(f"{model}: {', '.join(names)}" for model, names in sorted(kinds.items()))
    past = "" if before == sorted(kinds) else f" (until now: {', '.join(before)})"
    return f"processors of another kind, with which last digits of numbers may differ: {now}{past}"


def alone(lease_s: float) -> str:
    """What may be on the hosts of a job whose controller is lost."""
    from ckpt.controller.hosts.lease import alone_ns

    most_s = alone_ns(0, round(lease_s * 1e9)) / 1e9
    return f"its hosts go on with the ranks for {most_s:.0f} s at most, and `ckpt restart` with these"


def describe(fields: Mapping[str, Any]) -> str:
    """The event `engine` in words."""
    parts = []
    if "slurm_job" in fields:
        again = f", queued again {fields['requeued']} times" if fields.get("requeued") else ""
        parts.append(f"Slurm job {fields['slurm_job']}{again}")
    if "hosts" in fields:
        parts.append(f"{fields['hosts']} ({fields['engine']})")
    if "goes_on" in fields:
        parts.append(f"if stopped before its end: {fields['goes_on']}")
    return "; ".join(parts)


def requeue_note() -> list[str]:
    """In an allocation: may its job be queued again?"""
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        return []
    from ckpt.controller.hosts.engine import CommandFailed, ask

    try:
        shown = ask(["scontrol", "show", "job", number], _SQUEUE_LIMIT_S)
    except CommandFailed as error:
        return [f"whether Slurm job {number} may be queued again is not known: {error}"]
    may = "may" if "Requeue=1" in shown else "may not"
    return [f"Slurm job {number} {may} be queued again"]


def no_kill_note() -> list[str]:
    """In an allocation: does it live on when it loses a node?"""
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        return []
    from ckpt.controller.hosts import slurm
    from ckpt.controller.hosts.engine import CommandFailed, ask

    try:
        script = ask(["scontrol", "write", "batch_script", number, "-"], _SQUEUE_LIMIT_S)
    except CommandFailed:
        return []  # an allocation of salloc has no script, and it cannot be known
    if slurm.survives_a_node(script, os.environ):
        return []
    return [
        f"the script of Slurm job {number} does not say `#SBATCH --no-kill`: without it, Slurm ends the whole job when it "
        "loses a node, and no spare helps"
    ]


def end_by_themselves(lock: LockHandle, history: History) -> bool:
    """Do all ranks of the controller before this one end by themselves, wherever it is and whether or not it lives, because
    it renews leases only while it is the job's controller? `history`: of the whole log."""
    engine = history.engine or {}
    return engine.get("generation") == lock.found.generation and "tenure_s" in engine and history.lease_s > 0


def wait_for_leases(job: JobDirectory, lock: LockHandle, wait_s: float, say: Callable[[str], None]) -> None:
    """Wait until no host can have a lease from the controller before this one (`leases_s`). Call it before this host is
    recorded as the job's: if this process dies meanwhile, the next one has to wait for the same controller."""
    if wait_s:
        say(
            f"waiting {wait_s:.1f} s: by then the hosts of the controller before this one have ended their ranks"
        )
        job.events.append("waiting-for-leases", s=wait_s, generation=lock.generation)
        time.sleep(wait_s)


def leases_s(job: JobDirectory, history: History, *, is_known: bool, may_live: bool) -> float:
    """How long hosts may have a lease from the controller before this one, which did not end in good order, from now on;
    0: it had none.

    `is_known`: the event log could be read; else the lease is the one that the job was started with. `may_live`: that
    controller is on another host, and may still renew leases."""
    from ckpt.controller.hosts.tenure import wait_ns

    lease_s, tenure_s = history.lease_s, 0.0
    if not is_known and job.options.get("hosts"):
        lease_s = max(lease_s, float(job.options.get("lease", _LEASE_BY_DEFAULT_S)))
    if history.engine is not None and (may_live or history.engine.get("unclaimed")):
        tenure_s = float(history.engine.get("tenure_s", 0.0))
    return wait_ns(round(lease_s * 1e9), round(tenure_s * 1e9)) / 1e9 if lease_s else 0.0


def prepare(arguments: argparse.Namespace, job: JobDirectory) -> None:
    """Import what is needed to answer hosts, before the job is taken over: from then on they wait for that."""
    if are_several(arguments, job):
        import ckpt.controller.hosts.launch.launcher
        import ckpt.controller.service.service  # noqa: F401


def adopt_or_wait(
    job: JobDirectory,
    lock: LockHandle,
    history: History,
    arguments: argparse.Namespace,
    defaults: Mapping[str, Any],
    wait_s: float,
    launch: Callable[[], LocalLauncher | HostsLauncher] | None,
    say: Callable[[str], None],
) -> tuple[HostsLauncher, Adopted] | None:
    """The launcher with the ranks that run; None: none of the controller before this one runs any more.

    `wait_s`: so long its hosts may have leases; 0: it had none. `launch`: makes the launcher; None: the user has asked for a
    line, or the newest one cannot be read, so that the ranks are not gone on with."""
    if not wait_s:
        return None
    if launch is None or not _is_possible(job, lock, history, arguments, defaults):
        wait_for_leases(job, lock, wait_s, say)
        return None
    assert lock.journal is not None
    say(f"asking the hosts of the controller before this one for their ranks, for {wait_s:.1f} s at most")
    job.events.append("waiting-for-leases", s=wait_s, generation=lock.generation, adopts=True)
    from ckpt.controller.hosts.launch.launcher import HostsLauncher

    made = launch()
    assert isinstance(made, HostsLauncher)
    is_adopted = False
    try:
        found = made.adopt(
            job,
            lock.journal,
            generation=lock.generation,
            incarnation=history.incarnation,
            limit_s=wait_s,
            failed=history.failed if made.fleet.tolerant else None,
        )
        is_adopted = not isinstance(found, str)
    finally:
        if not is_adopted:
            made.close()
    if isinstance(found, str):
        job.events.append("not-adopted", reason=found)
        say(f"the ranks that ran are not gone on with: {found}")
        return None
    return made, found


def _is_possible(
    job: JobDirectory,
    lock: LockHandle,
    history: History,
    arguments: argparse.Namespace,
    defaults: Mapping[str, Any],
) -> bool:
    """Are hosts, lease and what ranks are told as they were for the controller before this one?"""
    if lock.journal is None or not are_several(arguments, job) or arguments.chdir is not None:
        return False
    from ckpt.controller.hosts import hostlist

    nodes, options = read_options(arguments, job, defaults)
    engine = history.engine or {}
    return (
        end_by_themselves(lock, history)
        and engine.get("hosts") == hostlist.text_of(nodes)
        and options["lease"] == history.lease_s
        and engine.get("tolerant") is (options["on_failure"] == "continue")
        and history.outcome is None
    )


def add_options(parser: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    """The options for several hosts. `seconds`: the type of a duration."""
    add_engine_options(parser)
    add = parser.add_argument
    add(
        "--max-starts",
        type=at_least(1),
        metavar="K",
        help="end with code 14 where the last K starts have brought no new checkpoint (for scripts that start a job again)",
    )
    add(
        "--goes-on",
        type=not_empty,
        metavar="TEXT",
        help="for batch scripts: how the job goes on when it is stopped before its end; `ckpt status` shows it",
    )
    add(
        "--lease",
        type=seconds,
        metavar="S",
        help="a host that is silent for so long is given up, and has ended its ranks by then (default 15)",
    )
    add(
        "--link-timeout",
        type=seconds,
        metavar="S",
        help="when nothing that was sent to another host is acknowledged for so long, it is asked why (default 2)",
    )
    add(
        "--topology",
        type=not_empty,
        metavar="FILE",
        help="where cables end, to say which one is at fault (default ~/.config/ckpt/topology.toml, if there is one)",
    )
    add(
        "--avoid-faulty",
        choices=("on", "off"),
        help="on: a host that is found at fault gets no ranks any more (default); off: it is only said",
    )
    add(
        "--drain-faulty",
        choices=("off", "slurm"),
        help="slurm: such a host is drained in Slurm, too, with the fault as the reason (default off)",
    )
    add(
        "--fault-record",
        type=not_empty,
        metavar="FILE",
        help="add a record of each fault to FILE, in the form of node-problem-detector (default off)",
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Those that say which hosts, and how they are reached."""
    add = parser.add_argument
    add(
        "--hosts",
        type=not_empty,
        metavar="HOST:N,…",
        help="run the ranks on these hosts, up to N on each (1 without a number); more hosts than needed are spares",
    )
    add(
        "--engine",
        choices=("local", "ssh", "slurm"),
        help="local: all ranks on this host; ssh: on --hosts; slurm: on the nodes of the allocation (default in one of "
        "several nodes)",
    )
    add(
        "--hostfile",
        type=not_empty,
        metavar="FILE",
        help="the same from a file: a host in each line (HOST, HOST:N or HOST slots=N)",
    )
    add(
        "--engine-command",
        type=not_empty,
        metavar="COMMAND",
        help="how {agent} is run on a {host}, or once on each of {hosts}: mpiexec -n {hosts} -ppn 1 {agent} (default: ssh)",
    )
    add(
        "--interface",
        type=not_empty,
        metavar="NAME|NETWORK",
        help="the interface of the hosts for the job's connections, or its network (10.1.0.0/16, fd00:1::/64)",
    )
    add(
        "--ports",
        type=not_empty,
        metavar="A-B",
        help="the job listens at these ports only: one for each rank, one for each host, one for `ckpt run` (default: any)",
    )


def add_agent(parser: argparse.ArgumentParser) -> None:
    """The options of the verb `agent`; only engines use them."""
    for name in ("--job", "--job-id", "--token", "--controller", "--cwd", "--entry"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS)
    for name in ("--host", "--among", "--naming"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--life", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--former", default="", help=argparse.SUPPRESS)
    for name in ("--hosts", "--generation", "--hash-seed"):
        parser.add_argument(name, required=True, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lease", required=True, type=float, help=argparse.SUPPRESS)
    for name in ("--interface", "--ports"):
        parser.add_argument(name, help=argparse.SUPPRESS)

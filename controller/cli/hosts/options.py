"""Options of jobs on several hosts, read and checked: those of the command line, or else of the job. And what is made of
them.

Not here: how they are spelt (:mod:`ckpt.controller.cli.host_flags`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import UsageError
from ckpt.transport.records import replace
from ckpt.undo.selection.patterns import is_recorded

if TYPE_CHECKING:
    from ckpt.controller.hosts.engine import Engine
    from ckpt.controller.hosts.launch.launcher import HostsLauncher
    from ckpt.controller.hosts.slurm import Allocation
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.launch.spawning import Spawned
    from ckpt.controller.service.service import ServiceOptions
    from ckpt.controller.supervision.plan import Node
    from ckpt.store import JobDirectory

__all__ = ["are_several", "check_unused", "launcher", "prepare", "read_options", "with_faults"]

_JOIN_LIMIT_S = 60.0
_SQUEUE_LIMIT_S = 20.0


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


def prepare(arguments: argparse.Namespace, job: JobDirectory) -> None:
    """Import what is needed to answer hosts, before the job is taken over: from then on they wait for that."""
    if are_several(arguments, job):
        import ckpt.controller.hosts.launch.launcher
        import ckpt.controller.service.service  # noqa: F401

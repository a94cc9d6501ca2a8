"""Ranks on several hosts: the options of `ckpt run` and `restart` for that, and the verb `agent`, which engines run.

Not here: the work (`ckpt.controller.hosts`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import UsageError
from ckpt.transport.records import replace

if TYPE_CHECKING:
    from ckpt.controller.hosts.launcher import HostsLauncher
    from ckpt.controller.launch.local import LocalLauncher
    from ckpt.controller.launch.spawning import Spawned
    from ckpt.controller.service.service import ServiceOptions
    from ckpt.controller.supervision.history import History
    from ckpt.controller.supervision.plan import Node
    from ckpt.store import JobDirectory

__all__ = ["agent", "add_agent", "add_options", "are_several", "launcher", "read_options", "wait_for_leases"]

FAULT_DEFAULTS: dict[str, Any] = {"link_timeout": 2.0, "topology": None, "avoid_faulty": "on"}
_JOIN_LIMIT_S = 60.0
_LEASE_BY_DEFAULT_S = 15.0


def agent(arguments: argparse.Namespace) -> int:
    """The verb `agent`."""
    from ckpt.controller.hosts.agent import agent as serve

    return serve(arguments)


def are_several(arguments: argparse.Namespace, job: JobDirectory | None) -> bool:
    """Does the command line, or else the job, name hosts?"""
    return bool(arguments.hosts or arguments.hostfile or (job is not None and job.options.get("hosts")))


def read_options(
    arguments: argparse.Namespace, job: JobDirectory | None, defaults: Mapping[str, Any]
) -> tuple[list[Node], dict[str, Any]]:
    """The hosts, and all options: of the command line, or else of the job. What is read of the command line is put there as
    it is to be saved. Raises UsageError for what cannot be used."""
    from ckpt.controller.hosts import hostlist
    from ckpt.controller.hosts.addresses import own_address
    from ckpt.controller.hosts.engine import Engine
    from ckpt.controller.hosts.lease import LEAST_LEASE_NS

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
    if arguments.files is None:
        arguments.files = "off"  # what ranks have changed on another host could not be put back from here
    options = {**defaults, **({} if job is None else job.options)}
    options |= {name: given for name in defaults if (given := getattr(arguments, name)) is not None}
    nodes = hostlist.of_text(options["hosts"])
    hostlist.check_size(job.size if job is not None else arguments.ranks or 1, nodes)
    Engine(options["engine_command"])
    if options["lease"] * 1e9 < LEAST_LEASE_NS:
        raise UsageError(f"--lease {options['lease']:g}: at least {LEAST_LEASE_NS / 1e9:g} s")
    if arguments.topology is not None:
        arguments.topology = options["topology"] = os.path.abspath(arguments.topology)
        if not os.path.isfile(arguments.topology):
            raise UsageError(f"--topology {arguments.topology}: no such file")
    if options["interface"] is not None:
        own_address(options["interface"])
    if options["files"] != "off":
        raise UsageError("--files is for ranks on one host; with --hosts leave it out, or say off")
    if options["on_failure"] == "continue":
        raise UsageError("--on-failure continue is for ranks on one host; with --hosts leave it out")
    return nodes, options


def launcher(
    arguments: argparse.Namespace,
    job: JobDirectory | None,
    defaults: Mapping[str, Any],
    spawned: Spawned,
    cwd: str,
) -> HostsLauncher:
    """The launcher for several hosts. Raises UsageError."""
    from ckpt.controller.hosts.engine import Engine
    from ckpt.controller.hosts.launcher import HostsLauncher

    nodes, options = read_options(arguments, job, defaults)
    return HostsLauncher(
        nodes,
        engine=Engine(options["engine_command"]),
        lease_ns=round(options["lease"] * 1e9),
        interface=options["interface"],
        limit_s=_JOIN_LIMIT_S,
        cwd=cwd,
        spawned=spawned,
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
    faults = FaultOptions(launcher, option("topology"), is_avoided, log_path, patience_ns)
    link = {"link_timeout_ns": int(option("link_timeout") * 1e9)}
    return replace(options, faults=faults, rank_options={**options.rank_options, **link})


def wait_for_leases(
    job: JobDirectory, history: History, say: Callable[[str], None], *, is_known: bool
) -> None:
    """Wait until no host can have a lease from the controller before this one, which was killed. `is_known`: the event log
    could be read; else the lease is the one that the job was started with."""
    from ckpt.controller.hosts.lease import margin_ns

    lease_s = history.lease_s
    if not is_known and job.options.get("hosts"):
        lease_s = max(lease_s, float(job.options.get("lease", _LEASE_BY_DEFAULT_S)))
    if lease_s:
        wait_s = lease_s + margin_ns(round(lease_s * 1e9)) / 1e9
        say(
            f"waiting {wait_s:.1f} s: by then the hosts of the controller before this one have ended their ranks"
        )
        job.events.append("waiting-for-leases", s=wait_s)
        time.sleep(wait_s)


def add_options(parser: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    """The options for several hosts. `seconds`: the type of a duration."""
    add = parser.add_argument
    add(
        "--hosts",
        metavar="HOST:N,…",
        help="run the ranks on these hosts, up to N on each (1 without a number); more hosts than needed are spares",
    )
    add(
        "--hostfile",
        metavar="FILE",
        help="the same from a file: a host in each line (HOST, HOST:N or HOST slots=N)",
    )
    add(
        "--engine-command",
        metavar="COMMAND",
        help="how a command is run on a host, with {host} and {agent} in it (default: ssh)",
    )
    add(
        "--interface",
        metavar="NAME|NETWORK",
        help="the interface of the hosts for the job's connections, or its network (10.1.0.0/16)",
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
        metavar="FILE",
        help="where cables end, to say which one is at fault (default ~/.config/ckpt/topology.toml, if there is one)",
    )
    add(
        "--avoid-faulty",
        choices=("on", "off"),
        help="on: a host that is found at fault gets no ranks any more (default); off: it is only said",
    )


def add_agent(parser: argparse.ArgumentParser) -> None:
    """The options of the verb `agent`; only engines use them."""
    texts = ("--job", "--job-id", "--host", "--controller", "--cwd", "--entry")
    for name in texts:
        parser.add_argument(name, required=True, help=argparse.SUPPRESS)
    for name in ("--index", "--hosts", "--generation", "--hash-seed"):
        parser.add_argument(name, required=True, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lease", required=True, type=float, help=argparse.SUPPRESS)
    parser.add_argument("--interface", help=argparse.SUPPRESS)

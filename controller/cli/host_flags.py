"""Ranks on several hosts: the options of `ckpt run`, `restart` and `doctor` for that, and the verb `agent`, which engines
run.

Not here: how the options are read (:mod:`ckpt.controller.cli.hosts`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ckpt.controller.cli.common import at_least, not_empty

__all__ = ["FAULT_DEFAULTS", "add_agent", "add_engine_options", "add_options", "agent"]

FAULT_DEFAULTS: dict[str, Any] = {
    "link_timeout": 2.0,
    "topology": None,
    "avoid_faulty": "on",
    "drain_faulty": "off",
    "fault_record": None,
}


def agent(arguments: argparse.Namespace) -> int:
    """The verb `agent`."""
    from ckpt.controller.hosts.agent import agent as serve

    return serve(arguments)


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

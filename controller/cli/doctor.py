"""`ckpt doctor`: what of a program would not survive a restart, and what to do about it; or what holds on some hosts.

The trial is in `ckpt.controller.doctor.trial`, what is made of it in `ckpt.controller.doctor.report`. For hosts, agents are
started on them as for a job (`ckpt.controller.hosts`: `examine`, `health`). Here are the verb and the text for people.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt.controller.cli.command import Command
from ckpt.controller.cli.common import show, size_text
from ckpt.controller.doctor.report import report
from ckpt.controller.errors import EXIT_FAILURE, EXIT_INCOMPATIBLE, EXIT_OK, LaunchFailed, UsageError

if TYPE_CHECKING:
    from ckpt.controller.sharing.proof import SharedFiles

_WIDTH = 110
_REFUSALS_SHOWN = 5
_WARNING = (
    "ckpt: doctor really runs the program: what it writes, sends or deletes is written, sent and deleted"
)


def doctor(arguments: argparse.Namespace) -> int:
    """Exit code 0: healthy; 1: problems; 2: no such program; 13: this interpreter cannot be imaged."""
    if arguments.hosts or arguments.hostfile or arguments.engine not in (None, "local"):
        return _doctor_of_hosts(arguments)
    from ckpt.controller.doctor.trial import Options, try_program
    from ckpt.undo.selection.patterns import AUTO, words_of

    command = Command.parse(arguments.program).complete()
    if not arguments.json:
        print(_WARNING, file=sys.stderr, flush=True)
    facts = try_program(
        Options(
            program=command.typed,
            seconds=arguments.seconds,
            images=arguments.images,
            ranks=arguments.ranks or 1,
            files=words_of(arguments.files) or [AUTO],
            files_limit=arguments.files_limit,
        )
    )
    found = report(facts)
    code = EXIT_OK if found["ok"] else EXIT_INCOMPATIBLE if facts.get("unsupported") else EXIT_FAILURE
    show({**found, "exit_code": code}, render(found), as_json=arguments.json)
    return code


def render(found: Mapping[str, Any]) -> str:
    """The report for people."""
    out: list[str] = []
    for number, problem in enumerate(found["problems"], start=1):
        ranks = f" (ranks {', '.join(map(str, problem['ranks']))})" if len(problem["ranks"]) > 1 else ""
        out.append(f"{number}. {problem['what']}{ranks}")
        for title, name in (("where", "where"), ("why", "why"), ("remedy", "remedy")):
            if problem[name]:
                out += _field(title, problem[name])
        out.append("")
    out += [line for note in found["notes"] for line in _wrapped("note: ", note)]
    if "images" in found:
        out += _render_run(found)
    count = len(found["problems"])
    what = "no problem found" if found["ok"] else "1 problem" if count == 1 else f"{count} problems"
    out.append(f"{' '.join(found['program'])}: {what}")
    return "\n".join(out)


def _field(title: str, text: str) -> list[str]:
    """One field of a problem; texts of several lines, tracebacks, stay as they are."""
    if "\n" in text:
        return [
            f"   {title + ':':<8} {line}" if not n else " " * 12 + line
            for n, line in enumerate(text.splitlines())
        ]
    return _wrapped(f"   {title + ':':<8} ", text)


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * len(head)
    return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=indent, break_long_words=False)


def _render_run(found: Mapping[str, Any]) -> list[str]:
    images, restarts, samples = found["images"], found["restarts"], found["samples"]
    good = [image for image in images if image["ok"]]
    ended = "" if found["exit_code"] is None else f", ended with exit code {found['exit_code']}"
    out = [f"ran        {found['ran_s']:.1f} s{ended}"]
    line = f"images     {len(good)} of {len(images)} taken"
    if good:
        restored = sum(1 for restart in restarts if restart["ok"])
        line += f" ({size_text(max(image['bytes'] for image in good))}, {max(image['ms'] for image in good):.0f} ms at most)"
        line += f"; {restored} of {len(restarts)} restored in fresh processes and ran on"
    out.append(line)
    if restarts:
        files = (
            "output and files"
            if found["exit_code"] == 0
            else "output; not files, which takes a run to the program's end"
        )
        out.append(f"compared   {files}")
    looked = max(1, samples["taken"])
    share = (samples["captured"] + samples["in_library"]) / looked
    out.append(f"places     {share:.1%} of {samples['taken']} moments looked at could be captured")
    out += [f"           {_refusal_text(row)}" for row in found["refusals"][:_REFUSALS_SHOWN]]
    if found["sizes"]["bytes"] is not None:
        out.append(
            f"size       {size_text(found['sizes']['bytes'])} before compression; the largest variables:"
        )
        for row in found["sizes"]["largest"]:
            kind = f" ({row['type']})" if row["type"] else ""
            out.append(f"           {size_text(row['bytes']):>9}  {row['where']}{kind}")
    return out


def _refusal_text(row: Mapping[str, Any]) -> str:
    where = f" at {row['where']}" if row["where"] else ""
    return f"{row['share']:.1%} not, for {row['longest_s']:.2f} s at most: {row['reason']}{where}"


_EXAMINE_LIMIT_S = 120.0
_LOST = {
    "ssh": "a host that is lost costs nothing but its ranks",
    "command": "what a lost host costs is the engine's: `mpiexec` of MPICH ends all, a command for each host nothing else",
    "slurm": "with --no-kill (`ckpt submit` gives it) a lost node costs nothing but its ranks; else Slurm ends the job",
}


def _doctor_of_hosts(arguments: argparse.Namespace) -> int:
    """Start an agent on each host, and say what holds there. Exit code 0: all hosts can be used; 1: problems."""
    import shutil
    import tempfile

    if arguments.program:
        raise UsageError("a program is tried on this host: leave the program out, or --hosts and --engine")
    directory = tempfile.mkdtemp(prefix="ckpt-doctor-", dir=arguments.directory or ".")
    try:
        found = _examine_hosts(arguments, os.path.realpath(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = [*found["hosts"].values(), *(f"problem: {each}" for each in found["problems"])]
    text += [f"note: {each}" for each in found["notes"]]
    code = EXIT_FAILURE if found["problems"] else EXIT_OK
    count = len(found["problems"])
    ok = "all hosts can be used" if not count else "1 problem" if count == 1 else f"{count} problems"
    show(
        {**found, "ok": not found["problems"], "exit_code": code},
        "\n".join([*text, ok]),
        as_json=arguments.json,
    )
    return code


def _examine_hosts(arguments: argparse.Namespace, directory: str) -> dict[str, Any]:
    import fcntl

    from ckpt.controller.cli.arguments import parse
    from ckpt.controller.cli.hosts.notes import no_kill_note, requeue_note
    from ckpt.controller.cli.hosts.options import launcher as launcher_for
    from ckpt.controller.cli.run import DEFAULTS
    from ckpt.controller.hosts import health
    from ckpt.controller.hosts.examine import LOCK, MARKER, SEEN, facts_of_host
    from ckpt.controller.launch.spawning import new_hash_seed, spawn_agent
    from ckpt.store import JobDirectory

    names = ("hosts", "hostfile", "engine", "engine_command", "interface", "ports")
    given = [
        word
        for name in names
        if getattr(arguments, name) is not None
        for word in ("--" + name.replace("_", "-"), getattr(arguments, name))
    ]
    launcher = launcher_for(
        parse(["run", *given]), None, DEFAULTS, spawn_agent(hash_seed=new_hash_seed()), os.getcwd()
    )
    marker, problems = os.urandom(8).hex(), []
    job = JobDirectory.create(os.path.join(directory, "job"), command=["doctor"], size=1)
    with open(os.path.join(directory, LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            try:
                launcher.serve(job_dir=job.path, runtime_dir=directory, generation=1)
            except LaunchFailed as failure:
                problems.append(str(failure))
            with open(os.path.join(directory, MARKER), "w", encoding="utf-8") as file:
                file.write(marker)
            launcher.examine(directory, _EXAMINE_LIMIT_S)
        finally:
            launcher.close()
    here = facts_of_host(directory, ".here", "")
    known = {index: host.node.name for index, host in launcher.fleet.hosts.items()}
    facts = {
        known[index]: {**each, "offset_s": each["time"] - came_s, "offset_error_s": 0.5}
        for index, (each, came_s) in launcher.examined.items()
    }
    seen = {name: os.path.exists(os.path.join(directory, SEEN + name)) for name in facts}
    judged = health.judge(facts, marker=marker, seen=seen, here=here)
    shared = launcher.shared
    files_notes = [] if shared is None else _files_notes(shared)
    silent = [host for index, host in launcher.fleet.hosts.items() if index not in launcher.examined]
    if not problems:
        problems += [f"host {host.node.name}: {host.reason or 'it has not answered'}" for host in silent]
    return {
        "engine": launcher.engine.name,
        "hosts": {name: _host_line(name, each) for name, each in facts.items()},
        "facts": facts,
        "problems": [*problems, *judged.problems],
        "shared": list(shared.numbers) if shared is not None else [],
        "notes": [
            *files_notes,
            *judged.notes,
            _LOST[launcher.engine.name],
            *requeue_note(),
            *no_kill_note(),
        ],
    }


def _files_notes(shared: SharedFiles) -> list[str]:
    """Which files go back with the program."""
    where = ", ".join(shared.numbers) or "none"
    notes = [f"file systems that all hosts share, so that files there go back with the program: {where}"]
    notes += [f"files in {path} do not: {reason}" for path, reason in shared.refused.items()]
    return [*notes, *([shared.unknown_clocks] if shared.unknown_clocks else [])]


def _host_line(name: str, facts: Mapping[str, Any]) -> str:
    files = "/".join("unlimited" if limit < 0 else str(limit) for limit in facts["open_files"])
    return (
        f"host {name}: reached (it calls itself {facts['node']}) at {facts['address']}; Python {facts['python']}, ckpt "
        f"{facts['ckpt']}; clock {facts['offset_s']:+.2f} s; open files {files}; /dev/shm {size_text(facts['shm_bytes'])}"
    )

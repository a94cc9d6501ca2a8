"""`ckpt doctor`: what of a program would not survive a restart, and what to do about it.

The trial is in `ckpt.controller.doctor.trial`, what is made of it in `ckpt.controller.doctor.report`. Here are the verb and
the text for people.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from ckpt.controller.cli.command import Command
from ckpt.controller.cli.common import show, size_text
from ckpt.controller.doctor.report import report
from ckpt.controller.errors import EXIT_FAILURE, EXIT_INCOMPATIBLE, EXIT_OK

_WIDTH = 110
_REFUSALS_SHOWN = 5
_WARNING = (
    "ckpt: doctor really runs the program: what it writes, sends or deletes is written, sent and deleted"
)


def doctor(arguments: argparse.Namespace) -> int:
    """Exit code 0: healthy; 1: problems; 2: no such program; 13: this interpreter cannot be imaged."""
    from ckpt.controller.doctor.trial import Options, try_program

    command = Command.parse(arguments.program).complete()
    if not arguments.json:
        print(_WARNING, file=sys.stderr, flush=True)
    facts = try_program(
        Options(
            program=command.typed,
            seconds=arguments.seconds,
            images=arguments.images,
            ranks=arguments.ranks or 1,
            files=arguments.files,
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

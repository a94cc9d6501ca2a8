"""The answer of any command: exit code, a number or a text in what it prints, and whether it came to its end in time.

run          list of words; nothing is given to a shell; of more than a megabyte that it prints, nothing is kept
pattern      a regular expression; its first group, or the whole match, is `text`, and `number` if it is one; of all
             places at which it matches, `highest` and `lowest` number
within_s     after so many seconds the command is ended and `late` is "yes"; default 2

values       exit (number), late ("yes" or "no"), text, number, highest, lowest
"""

from __future__ import annotations

import re
import select
import subprocess
import time
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask"]

_WITHIN_S = 2.0
_MOST_BYTES = 1 << 20


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Run the command. Raises NoAnswer if it cannot be started, or prints nothing that matches, or too much."""
    words = [str(word) for word in arguments["run"]]
    limit_s = min(float(arguments.get("within_s", _WITHIN_S)), within_s)
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
    except OSError as error:
        raise NoAnswer(f"{words[0]}: {error.strerror}") from None
    try:
        printed = _printed(child, time.monotonic() + limit_s)
    except subprocess.TimeoutExpired:
        return {"late": "yes"}
    finally:
        child.kill()  # one that hangs in the kernel is left; what it has started is ended with this process's group
        if child.stdout is not None:
            child.stdout.close()
    values: dict[str, float | str] = {"exit": float(child.returncode), "late": "no"}
    if pattern := arguments.get("pattern"):
        found = [(each[1] or "") if each.re.groups else each[0] for each in re.finditer(pattern, printed)]
        if not found:
            raise NoAnswer(f"{words[0]} printed nothing that matches (exit code {child.returncode})")
        values |= _numbers(found)
    return values


def _printed(child: subprocess.Popen[bytes], until_s: float) -> str:
    """What the command prints until its end. Raises TimeoutExpired: it has not ended by then; NoAnswer: it prints more than
    is read, which would take the memory of all that ask on this machine."""
    assert child.stdout is not None
    printed = bytearray()
    while True:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([child.stdout], [], [], left_s)[0]:
            raise subprocess.TimeoutExpired(child.args, 0)
        data = child.stdout.read(1 << 16)
        if not data:
            break
        printed += data
        if len(printed) > _MOST_BYTES:
            raise NoAnswer(f"it prints more than {_MOST_BYTES >> 20} MB")
    child.wait(max(until_s - time.monotonic(), 0))
    return printed.decode(errors="replace")


def _numbers(found: list[str]) -> dict[str, float | str]:
    """The first text, and it as a number, if it is one; the highest and lowest of all that are numbers."""
    numbers: list[float] = []
    values: dict[str, float | str] = {"text": found[0]}
    for at, text in enumerate(found):
        try:
            numbers.append(float(text))
        except ValueError:
            continue
        if at == 0:
            values["number"] = numbers[0]
    return values | ({"highest": max(numbers), "lowest": min(numbers)} if numbers else {})

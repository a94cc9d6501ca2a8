"""The answer of any command: exit code, a number or a text in what it prints, and whether it came to its end in time.

run          list of words; nothing is given to a shell
pattern      a regular expression; its first group, or the whole match, is `text`, and `number` if it is one; of all
             places at which it matches, `highest` and `lowest` number
within_s     after so many seconds the command is ended and `late` is "yes"; default 2

values       exit (number), late ("yes" or "no"), text, number, highest, lowest
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

from ckpt.diagnosis.errors import NoAnswer

__all__ = ["ask"]

_WITHIN_S = 2.0


def ask(arguments: dict[str, Any], secret: dict[str, str] | None, within_s: float) -> dict[str, float | str]:
    """Run the command. Raises NoAnswer if it cannot be started, or prints nothing that matches."""
    words = [str(word) for word in arguments["run"]]
    limit_s = min(float(arguments.get("within_s", _WITHIN_S)), within_s)
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NoAnswer(f"{words[0]}: {error.strerror}") from None
    try:
        printed, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.kill()  # one that hangs in the kernel is left; what it has started is ended with this process's group
        return {"late": "yes"}
    values: dict[str, float | str] = {"exit": float(child.returncode), "late": "no"}
    if pattern := arguments.get("pattern"):
        found = [(each[1] or "") if each.re.groups else each[0] for each in re.finditer(pattern, printed)]
        if not found:
            raise NoAnswer(f"{words[0]} printed nothing that matches (exit code {child.returncode})")
        values |= _numbers(found)
    return values


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

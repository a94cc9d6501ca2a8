"""Puts a random program together: python -m tests.sweep.random_programs.generator SEED

All choices follow from the seed. Every variable of a function has a value from its beginning on, so that any statement may
use any of them; what loops and calls there are ends after a while, by `ordinary.burn`.
"""

from __future__ import annotations

import random
import re
import sys
from dataclasses import dataclass, field, replace

from tests.sweep.random_programs import templates

DEPTH = 3  # of expressions, and of blocks in each other
FUNCTIONS = range(3, 7)
KNOWN = ("num", "tick", "Thing.plain")


@dataclass
class Scope:
    """Of a function: its variables, and what its statements may be. `outside`: it is one that no other function calls."""

    variables: list[str] = field(default_factory=list)
    extra: tuple[str, ...] = ()
    in_loop: bool = False
    outside: bool = False


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.functions: list[str] = []

    def program(self) -> str:
        parts = [templates.MODULES]
        for _ in range(self.random.choice(FUNCTIONS)):
            name = self.new("f")
            text = self.random.choice(list(templates.FUNCTIONS.values())).replace("$w", name)
            parts.append("\n".join(self.lines(text.strip(), Scope())))
            self.functions.append(name)
        calls = "\n    ".join(f"refuel()\n    note({name}({n}))" for n, name in enumerate(self.functions))
        main = templates.MAIN.strip().replace("$B", "$M", 1).replace("$B", calls)
        parts.append("\n".join(self.lines(main, Scope())))
        return "\n\n".join(parts) + "\n"

    def new(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    # ------------------------------------------------------------------ expressions

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        choose = self.random.choice
        if kind == "f":
            return choose([*KNOWN, *self.functions[-4:], *self.functions[-2:]])
        if kind == "e":
            return choose(["Trouble", "Worse"])
        if kind in "ck":
            return self.filled(choose(templates.CONTEXTS if kind == "c" else templates.KEPT), scope, depth)
        if depth <= 0 or self.random.random() < 0.15:
            number = choose([str(self.random.randrange(50)), *scope.variables[-6:]])
            return number if kind == "i" else choose(["[]", "[1, 2, 3]", f"[{number}]", f"[4, {number}, 1]"])
        return self.filled(choose(templates.NUMBERS if kind == "i" else templates.LISTS), scope, depth - 1)

    def filled(self, template: str, scope: Scope, depth: int) -> str:
        return re.sub(r"\$([ilfeck])\b", lambda found: self.expression(found[1], scope, depth), template)

    # ------------------------------------------------------------------ statements

    def lines(self, template: str, scope: Scope, depth: int = DEPTH) -> list[str]:
        """The lines of a template, with blocks in place of those that stand for one."""
        variable = self.new("v") if "$v" in template else ""
        if variable:
            scope.variables.append(variable)
        template = template.replace("$v", variable).replace("$w", self.new("w"))
        found: list[str] = []
        for line in template.split("\n"):
            inner = line.lstrip()
            if re.fullmatch(r"\$[bopBGAFHM]", inner):
                indent = line[: -len(inner)]
                found += [indent + each for each in self.block(inner[1], scope, depth)]
            else:
                found.append(self.filled(line, scope, 2))
        return found

    def block(self, kind: str, scope: Scope, depth: int) -> list[str]:
        if kind in "bop":
            inner = replace(scope, in_loop=kind == "o" or (kind == "b" and scope.in_loop))
            if kind == "p":
                inner.extra = ()
            return self.statements(inner, depth - 1)
        extra = {"A": templates.IN_COROUTINES, "G": templates.IN_GENERATORS, "H": templates.IN_GENERATORS}
        parameters = {"F": ["p"], "H": ["p"], "M": []}.get(kind, ["a", "key"])
        own, given = Scope(parameters, extra.get(kind, ()), outside=kind == "M"), len(parameters)
        body = self.statements(own, depth - 2 if kind in "FH" else depth, at_least=3)
        made = own.variables[given:]
        return [*([" = ".join(made) + " = 0"] if made else []), *body]

    def statements(self, scope: Scope, depth: int, at_least: int = 1) -> list[str]:
        found: list[str] = []
        for _ in range(self.random.randrange(at_least, at_least + 3)):
            found += self.statement(scope, depth)
        return found

    def statement(self, scope: Scope, depth: int) -> list[str]:
        choose = self.random.choice
        if scope.extra and self.random.random() < 0.3:
            return self.lines(choose(scope.extra), scope, depth) if depth > 0 else ["tick(1)"]
        if depth <= 0 or self.random.random() < 0.4:
            return self.lines(
                choose([*templates.SIMPLE, *(templates.IN_LOOPS if scope.in_loop else ())]), scope
            )
        if self.random.random() < 0.35:
            return self.lines(choose(templates.LOOPS) + "\n    if burn(): break\n    $o", scope, depth)
        outside = templates.AT_THE_OUTSIDE if scope.outside else ()
        return self.lines(choose([*templates.COMPOUND, *templates.WITH_FUNCTIONS, *outside]), scope, depth)


if __name__ == "__main__":
    sys.stdout.write(Generator(int(sys.argv[1])).program())

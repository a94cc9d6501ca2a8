"""What the catalogue says of one package.

A program is two pieces, cut at the line ``---``: what is made before the image, and what is printed with it in the process
that was restored. What it prints must equal what the original prints. It begins with its imports.
"""

from __future__ import annotations

from dataclasses import dataclass

CUT = "\n---\n"


@dataclass(frozen=True)
class Library:
    """``name``: as pip knows it; ``module``: as it is imported; ``what``: the state the program keeps, for the table."""

    name: str
    module: str
    what: str
    program: str
    hook: str = ""  # a statement, after the imports, with which an image can be taken; the page shows it

    @property
    def pieces(self) -> tuple[str, str, str]:
        """The program's imports, what is made before the image, and the rest."""
        before, _, after = self.program.strip("\n").partition(CUT)
        lines = before.splitlines()
        imports = [line.startswith(("import ", "from ")) for line in lines]
        first = imports.index(False) if False in imports else len(lines)
        return "\n".join(lines[:first]), "\n".join(lines[first:]), after

    @property
    def hooked_pieces(self) -> tuple[str, str, str]:
        """Likewise, with the hook."""
        imports, before, after = self.pieces
        return f"{imports}\nimport ckpt\n{self.hook}", before, after

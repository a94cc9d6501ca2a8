"""Every check of small programs, and images of resumed programs, and of those again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweep.catalogue import PROGRAMS, Program
from tests.sweep.driver import Bench
from tests.sweep.fetch import Place

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.turns(7)]

_AROUND = 8  # at most: checks just before the program and just after it

SMALL = {
    "generators": """
        def leaves(tree):
            if isinstance(tree, int):
                yield tree
            else:
                for part in tree:
                    yield from leaves(part)
        print([n * n for n in leaves([1, [2, [3]], 4])], sum(n for n in [1, 2, 3] if n % 2))
        """,
    "exceptions": """
        def risky(n):
            try:
                return 10 // n
            except ZeroDivisionError as error:
                raise ValueError(n) from error
            finally:
                print("leaving", n)
        for n in (2, 0):
            try:
                print(risky(n))
            except ValueError as error:
                print(repr(error), repr(error.__cause__))
        """,
    "objects": """
        import functools
        class Node:
            def __init__(self, value, *children):
                self.value, self.children = value, children
            def __add__(self, other):
                return Node(self.value + other.value)
            def __repr__(self):
                return f"<{self.value} {list(self.children)}>"
        with open(__import__("sys").argv[1] + "/notes", "w") as notes:
            for n in range(3):
                print(functools.reduce(lambda a, b: a + b, map(Node, range(n + 1))), file=notes)
        print(Node(1, Node(2)), open(notes.name).read())
        """,
}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_check_of_a_small_program(name: str, place: Place, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("\n".join(line[8:] for line in SMALL[name].splitlines()) + "\n")
    program = Program(name, (str(script), "{work}"), foreign=False)
    with Bench(program, place, tmp_path / "bench") as bench:
        expected = bench.undisturbed()
        checks = bench.images(places=[1 << 62])["checks"]
        taken = bench.images(places=list(range(1, checks + 1)))
        assert not bench.difference(taken, expected)
        assert not taken["failed"]
        # taking an image makes some checks coincide, up to every second one: fewer than the run before it had
        assert taken["checks"] >= checks // 2 - _AROUND
        assert len(taken["images"]) + sum(taken["refused"].values()) >= taken["checks"] - _AROUND
        # below print, our own layer of standard output runs: the product never looks for a place there
        in_output = sum(count for reason, count in taken["refused"].items() if "Output.write" in reason)
        # `objects` is mostly inside of reduce and print
        assert len(taken["images"]) > (taken["checks"] - in_output) // 3, taken["refused"]
        for image in taken["images"]:
            check = taken["places"].get(str(image["epoch"]), "?")
            differs = bench.difference(bench.resume(image["epoch"]), expected)
            assert not differs, f"image of check {check}: {differs}"


@pytest.mark.parametrize("name", ["hexiom", "lark_grammar", "simpy_queue", "stdlib_objects"])
def test_three_generations(name: str, place: Place, tmp_path: Path) -> None:
    """Image, resume, image of the resumed program, resume, and once more."""
    with Bench(PROGRAMS[name], place, tmp_path / "bench") as bench:
        expected = bench.undisturbed()
        checks = bench.images(places=[1 << 62])["checks"]
        taken = bench.images(places=[checks // 3])
        assert len(taken["images"]) == 1, taken
        for generation in (2, 3, 4):
            again = {"places": [checks // 6]} if generation < 4 else {}
            taken = bench.resume(taken["images"][0]["epoch"], **again)
            assert not bench.difference(taken, expected), generation
            assert len(taken["images"]) == (generation < 4), taken

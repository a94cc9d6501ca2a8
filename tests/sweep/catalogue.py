"""The programs of the sweep, and how each is run so that its output is always the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).parent
FEATURES = HERE.parent / "system" / "programs"


@dataclass(frozen=True)
class Program:
    """`command`: script and arguments; "{suite}" and "{work}" are filled in. `code`: its exit status.

    foreign: nobody here wrote it (else: a feature program of the tests). slow: takes seconds; only in `make soak`.
    holds: types of which it holds objects now and then that no image can hold; a round that meets one is burnt, with
    their name. limit: why it cannot come back right in every image (docs/user-guide.md); not part of the tests.
    """

    name: str
    command: tuple[str, ...]
    foreign: bool = True
    slow: bool = False
    code: int = 0
    holds: tuple[str, ...] = ()
    limit: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def _suite(
    name: str, *arguments: str, called: str = "", slow: bool = False, holds: tuple[str, ...] = ()
) -> Program:
    """A program of pyperformance, the file as it is."""
    command = ("{suite}/bm_" + name + "/run_benchmark.py", *arguments)
    return Program(called or name, command, slow=slow, holds=holds)


# Left out, for they are not one thread of Python that computes: asyncio_tcp, asyncio_websockets, dask, fastapi,
# tornado_http, concurrent_imap (servers, threads), hg_startup, python_startup, 2to3 (other processes), coverage (traces),
# sphinx, sqlalchemy_* and sqlite_synth (a database connection); pathlib, whose results depend on addresses; pickle, which
# wants to be the first to import pickle; mako, which does not run with the Mako of today.
SUITE = (
    _suite("argparse", "many_optionals", called="argparse_optionals"),
    _suite("argparse", "subparsers", called="argparse_subparsers"),
    _suite("barnes_hut", "--iterations", "20"),
    _suite("bpe_tokeniser", slow=True),
    _suite("chameleon"),
    _suite("chaos"),
    _suite("comprehensions", "--loops", "30"),
    _suite("coroutines", "--loops", "4"),
    _suite("crypto_pyaes"),
    _suite("decimal_factorial"),
    _suite("decimal_pi"),
    _suite("deepcopy", "--loops", "20"),
    _suite("deltablue", "--loops", "20"),
    _suite("django_template"),
    _suite("docutils", slow=True, holds=("ScandirIterator",)),
    _suite("dulwich_log", holds=("mmap.mmap",)),
    _suite("fannkuch"),
    _suite("float"),
    _suite("gc_collect"),
    _suite("gc_traversal"),
    _suite("generators"),
    _suite("genshi"),
    _suite("go"),
    _suite("hexiom", "--loops", "10"),
    _suite("html5lib"),
    _suite("json_dumps", "--loops", "4"),
    _suite("json_loads", "--loops", "400"),
    _suite("logging", "--loops", "40"),
    _suite("mdp", slow=True),
    _suite("meteor_contest"),
    _suite("nbody"),
    _suite("networkx", "shortest_path", called="networkx_paths", slow=True),
    _suite("nqueens"),
    _suite("pidigits"),
    _suite("pprint", slow=True),
    _suite("pyflate"),
    _suite("raytrace"),
    _suite("regex_compile"),
    _suite("regex_dna"),
    _suite("regex_effbot"),
    _suite("regex_v8"),
    _suite("richards", "--loops", "2"),
    _suite("richards_super", "--loops", "2"),
    _suite("scimark"),
    _suite("spectral_norm"),
    _suite("sqlglot_v2", "optimize", called="sqlglot"),
    _suite("sympy", slow=True),
    _suite("telco", "--loops", "20"),
    _suite("tomli_loads"),
    _suite("typing_runtime_protocols", "--loops", "100"),
    _suite("unpack_sequence", "--loops", "200"),
    _suite("xdsl"),
    _suite("xml_etree", holds=("TreeBuilder", "XMLParser")),
    _suite("yaml", "--loops", "4"),
)

_HOLDS = {
    "persistent_structures": ("pvector_evolver",),
    "stdlib_tools": ("zlib.", "_lzma.", "_bz2."),
}
_IS_FIRST_TO_IMPORT = (
    "its data are the patterns of modules that nobody has imported before it (tokenize, by a warning)"
)
_LIMITS = {
    **({"regex_compile": _IS_FIRST_TO_IMPORT} if sys.version_info >= (3, 13) else {}),
}

SCENARIOS = tuple(
    Program(path.stem, (str(path), "{work}"), holds=_HOLDS.get(path.stem, ()))
    for path in sorted((HERE / "scenarios").glob("*.py"))
)

FEATURE = tuple(
    Program(f"feature_{path.stem}", (str(path), "{work}"), foreign=False)
    for path in sorted(FEATURES.glob("*.py"))
)

PROGRAMS = {
    program.name: replace(program, limit=_LIMITS.get(program.name, ""))
    for program in (*SUITE, *SCENARIOS, *FEATURE)
}

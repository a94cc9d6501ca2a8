"""The standard library's modules in C that have a private name (PEP 399 calls them accelerators).

They are used for two reasons. Some can be imported in a hundredth of the time of the public module: ``signal`` needs
``enum``, ``hashlib`` loads OpenSSL. Others have a type that the public module does not offer, such as
the type of an object that the program holds.

Each is imported when it is first asked for (PEP 562), so importing this module costs nothing. For a new minor version:
do the modules of ``_PLACES`` still have these names, and must a new module in C be added to one of the lists below
(``Modules/Setup.stdlib.in``)?
"""

from __future__ import annotations

import atexit
import sys

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    import _socket as socket
    from collections.abc import Callable
    from hashlib import blake2b
    from hmac import compare_digest
    from queue import SimpleQueue
    from types import ModuleType
    from typing import Any

    Socket = socket.socket

    count_elements: Any
    csv: Any
    io_base: type
    json_parts: Any
    random: Any
    signal: Any

__all__ = [
    "BLAKE2",
    "BZ2",
    "COLLECTIONS_ABC",
    "COMPRESSION",
    "CTYPES",
    "DECIMAL",
    "DIGESTS",
    "ELEMENT_TREE",
    "PARSE_WHOLE",
    "SET_EVENTS",
    "EXPAT",
    "HASHLIB",
    "IO",
    "LZMA",
    "MULTIBYTE",
    "PROFILER",
    "QUEUE",
    "RANDOM",
    "IO_IN_PYTHON",
    "SELECT",
    "PLAIN_SOCKETS",
    "SOCKET_WAITS",
    "SQLITE_IN_C",
    "TLS",
    "TLS_STATE",
    "TLS_TRANSPORT",
    "TOKENIZER",
    "UNNAMED_TYPES",
    "blake2b",
    "clear_exit_functions",
    "replace_shm_open",
    "replace_uuid_of_time",
    "compare_digest",
    "count_elements",
    "csv",
    "io_base",
    "json_parts",
    "loaded",
    "random",
    "replace_exit_functions",
    "run_exit_functions",
    "signal",
    "skips_characters",
    "SimpleQueue",
    "socket",
]

_PLACES: dict[str, tuple[tuple[str, str], ...]] = {
    "blake2b": (("_blake2", "blake2b"), ("hashlib", "blake2b")),
    "compare_digest": (("_operator", "_compare_digest"), ("hmac", "compare_digest")),
    "count_elements": (("_collections", "_count_elements"),),  # by which collections.Counter counts
    "csv": (("_csv", ""),),  # Reader, Writer: csv offers only the functions that make such objects
    # The base in C of all file objects: io.IOBase is an abstract class above
    "io_base": (("_io", "_IOBase"),),
    "json_parts": (
        ("_json", ""),
    ),  # make_scanner, make_encoder: types of attributes of JSONDecoder, JSONEncoder
    "random": (("_random", ""),),  # Random: the generator without the methods of random.Random
    "signal": (("_signal", ""),),  # the functions that signal wraps: they give numbers and handlers, no enums
    "SimpleQueue": (("_queue", "SimpleQueue"),),  # the original type, also if queue.SimpleQueue was replaced
    "socket": (("_socket", ""),),
}
"""Name in this module → places where it is looked for: (module, attribute; "": the module itself), the best place first."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    *others, last = _PLACES[name]
    for place in others:
        try:
            return _found(name, *place)
        except ImportError:
            continue
    return _found(name, *last)


def _found(name: str, module: str, attribute: str) -> Any:
    value: Any = __import__(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


# ---------------------------------------------------------------------- names of modules

DIGESTS = ("_hashlib", "_blake2", "_sha3", "_md5", "_sha1", "_sha256", "_sha512", "_sha2", "_hmac")
"""The modules that ``hashlib`` and ``hmac`` use; ``_sha256`` and ``_sha512`` until 3.11, ``_sha2`` since 3.12, ``_hmac``
since 3.14."""
HASHLIB, BLAKE2 = DIGESTS[:2]
COMPRESSION = ("zlib", "_bz2", "_lzma")
BZ2, LZMA = COMPRESSION[1:]
SQLITE_IN_C = "_sqlite3"
"""The module from which ``sqlite3.dbapi2`` takes its functions."""
PLAIN_SOCKETS = ("_socket", "socket")
TLS = ("ssl", "_ssl")
TLS_STATE = "_SSLSocket"
"""The type, in ``_ssl``, of what serves a connection. All versions."""
TLS_TRANSPORT = "_SSLProtocolTransport"
"""The class of transports over TLS, in ``asyncio.sslproto``. All versions."""
SOCKET_WAITS = ("_accept", "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into")
"""The methods of ``_socket.socket`` that wait for what others send. All versions."""
IO_IN_PYTHON = "_pyio"
"""The module that does in Python what ``io`` does in C. All versions."""
SELECT = "select"
UNNAMED_TYPES = ((SELECT, "poll"),)
"""Types that have the name of a function, which makes their instances without arguments. All versions."""
ELEMENT_TREE = "_elementtree"
PARSE_WHOLE, SET_EVENTS = "_parse_whole", "_setevents"
"""Methods of its ``XMLParser``: by which ``ElementTree.parse`` and ``XMLPullParser`` use it. All versions."""
EXPAT = ("pyexpat", "xml.parsers.expat")
"""The module in C, and the one that takes its names from it."""
MULTIBYTE = "_multibytecodec"
"""The module that has the bases of the codecs of East Asia."""
PROFILER = "_lsprof"
TOKENIZER = "_tokenize"
"""The module that has ``TokenizerIter``."""
QUEUE = "_queue"
"""The module that has ``SimpleQueue``."""
RANDOM = "_random"
IO = ("_io", "io")
"""The values of ``__module__`` of ``open`` and of the methods in C of file objects."""
CTYPES = "_ctypes"
"""``__module__`` of the metaclasses of ``ctypes.Structure`` and its like."""
DECIMAL = ("decimal", "_decimal")
"""``__module__`` of the type of ``decimal.localcontext()``."""
COLLECTIONS_ABC = "_collections_abc"
"""The module whose variables are types of iterators in C (``dict_keyiterator``) that no public module names."""


_SKIPPED_SHIFT = 128
"""From this bit on, the position of a text layer says how many characters follow what has been read (``cookie_type`` of
``Modules/_io/textio.c``; all versions)."""


def skips_characters(position: int) -> bool:
    """Is this position of a text layer, in the order of ``tell``, one to which the decoder can come only by decoding
    characters that lie before it?"""
    return bool(position >> _SKIPPED_SHIFT & 0xFFFFFFFF)


def loaded(module: str) -> ModuleType | None:
    """One of these modules; ``None`` if it has not been imported."""
    return sys.modules.get(module)


# ---------------------------------------------------------------------- atexit


def run_exit_functions() -> None:
    """``atexit._run_exitfuncs``: call the registered functions, the last registered first, and empty the table. All
    versions."""
    atexit._run_exitfuncs()


clear_exit_functions = atexit._clear
"""``atexit._clear``: empty the table without a call; ``multiprocessing`` does so in its children. All versions."""


def replace_exit_functions(
    register: Callable[..., Any], unregister: Callable[..., Any], clear: Callable[[], None]
) -> None:
    """Replace the functions of ``atexit`` by these. The functions in C do not let anybody read their table."""
    atexit.register, atexit.unregister, atexit._clear = register, unregister, clear


def replace_uuid_of_time(function: Callable[[], Any]) -> Callable[[], Any] | None:
    """``uuid.uuid1`` and ``getnode`` call `function` in the place of the C library's, which is returned; None: there is
    none, and they ask the clock. All versions."""
    try:
        import _uuid  # type: ignore[import-not-found]
    except ImportError:
        return None
    system: Any = _uuid
    genuine: Callable[[], Any] | None = getattr(system, "generate_time_safe", None)
    if genuine is not None:
        system.generate_time_safe = function
        if "uuid" in sys.modules:
            sys.modules["uuid"]._generate_time_safe = function  # type: ignore[attr-defined]
    return genuine


def replace_shm_open(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """``multiprocessing.shared_memory`` calls `function` in the place of the C library's, which is returned; None: there is
    none. All versions."""
    try:
        import _posixshmem  # type: ignore[import-not-found]
    except ImportError:
        return None
    system: Any = _posixshmem
    genuine: Callable[..., Any] = system.shm_open
    system.shm_open = function
    return genuine

"""Remedies: advice for state that would not survive a restart, by type and reason. Pure.

The module has tables of (pattern, remedy). The first pattern that is found in the name of a type, in the name of a base type
or in the reason counts. A remedy names a means of this package: hooks, `register_type`, harmless threads, the explicit loop.
`ckpt doctor` and the messages about failed rounds (`uncommitted`) use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = [
    "APPENDED",
    "CHILD",
    "DESCRIPTORS",
    "INTERPRETER",
    "LOST",
    "NOT_KEPT",
    "NOT_UNDONE",
    "OF_MEMORY",
    "TROUBLE",
    "for_object",
    "for_refusal",
    "for_thread",
]

_Table = tuple[tuple[str, str], ...]

_REGISTER = "say how it is saved and made again: {register}"

PACKAGE_NOT_KEPT = (
    "ask for it with ckpt.keep_package, if nothing else depends on it; or set it again in ckpt.on_restart(f)"
)
PACKAGE = "set it up again in ckpt.on_restart(f), or say how its types are saved: ckpt.register_type(type, save, load)"
ADDRESSES = (
    "keep the object in the table, too: {id(obj): (obj, value)}; then the key becomes its new address. "
    "Or let the object itself be the key (weakref.WeakKeyDictionary)"
)
LOST = (
    "look for state that no Python object holds (variables in C of a compiled module), or that has changed since the image "
    "(files written in place, renamed, or read again): keep it in variables, and make it anew in ckpt.on_restart(f)"
)
CHILD = "let it end before a checkpoint, or start it anew in ckpt.on_restart(f)"
APPENDED = "open it once and keep it open: a restart cuts open files back to their length at the checkpoint"
NOT_KEPT = "make room for it, or allow more copies (--files-limit)"
OF_MEMORY = "write it to a directory of a disk, or see that the program can meet it changed"
NOT_UNDONE = "let a rank write it, through Python or a library; or see that the program can meet it changed"
INTERPRETER = (
    "use CPython 3.11 to 3.13; or explicit checkpoints, which work everywhere: `for step in ckpt.loop(…)` with "
    "ckpt.register, under `ckpt run --explicit`"
)

TROUBLE = {True: "see the reason", False: "please report this"}
"""By whether an image was refused, by name."""

DESCRIPTORS = {
    "file": "open it with open(), whose files come back by themselves; or open it again in ckpt.on_restart(f)",
    "device": "open it again in ckpt.on_restart(f)",
    "pipe": "close it before a checkpoint, or make it again in ckpt.on_restart(f); of a child process: let it end before "
    "(subprocess.run), or ckpt.register_child(process, start), where start() starts it anew",
    "socket": "close it before a checkpoint, or connect again in ckpt.on_restart(f)",
}

# As multiprocessing.pool, concurrent.futures and joblib call the threads that serve their pools of processes.
_POOL_THREADS = r"Thread-\d+ \(_handle_\w+\)|QueueFeederThread|ExecutorManagerThread|QueueManagerThread"

_OBJECTS: _Table = (
    (r"^_?ssl\..*Context", f"make it where it is used, not for the whole run; or {_REGISTER}"),
    (
        r"^(_?socket\.|ssl\.|_ssl\.)",
        f"{_REGISTER}, where load connects again; or close it before a checkpoint",
    ),
    (
        r"^(_?hashlib\.|_(sha|md5|blake)\w*\.|_?hmac\b)",
        f"keep what has been hashed instead of the hash object, and hash again; or {_REGISTER}",
    ),
    (
        r"^(zlib\.|_?bz2\.|_?lzma\.)",
        "use a file, which comes back by itself, over io.BytesIO too: gzip.open, bz2.open, lzma.open; or keep what it was "
        f"given, and {_REGISTER}",
    ),
    (r"^_?sqlite3\.", f"use a database file, and {_REGISTER}, where load connects to it again"),
    (
        r"subprocess\.Popen|an open pipe|an open socket",
        "let the other process end before a checkpoint (subprocess.run); or "
        "ckpt.register_child(process, start), where start() starts it anew",
    ),
    (
        r"^_?asyncio\.",
        "close the connection, server or child process before a checkpoint, and open it again in an on_restart hook",
    ),
    (
        r"^(_thread|threading|concurrent|_?queue)\.",
        f"end the thread or pool before a checkpoint; or {_REGISTER}",
    ),
    (
        r"^_?multiprocessing\.|only be shared between processes through inheritance",
        "use a pool (multiprocessing.Pool, ProcessPoolExecutor), which images hold, or ranks (`ckpt run -n N`); or end the "
        "processes before a checkpoint",
    ),
    (
        r"^_?ctypes\.|^_?cffi|CDLL|PyCapsule",
        f"{_REGISTER}, where load opens the library again; or keep it in no variable that lives long",
    ),
    (r"^frame$|FrameType", "keep no frame objects (inspect.currentframe, tracebacks) in variables"),
    (r"deleted file", "give the file a name, or keep less in it"),
    (
        r"an open |^mmap\.|^select\.|^_io\.|DirEntry|ScandirIterator",
        f"close it before a checkpoint; or {_REGISTER}, where load opens it again",
    ),
    (r"is not found as", "define the class or function at the top of a module of the program"),
)

_REFUSALS: _Table = (
    (
        r"an object of type .* is in use, of which an image could not be written",
        "hold no such object while a checkpoint is due, or say how it is saved: ckpt.register_type",
    ),
    (
        r"whose stack lives in C",
        "use threads or asyncio; or have the program save itself (`for step in ckpt.loop(…)`)",
    ),
    (
        r"cursor of sqlite3 is in the middle",
        "take all rows before the loop (`for row in cursor.fetchall()`), or page by page (`WHERE id > ? LIMIT 1000`)",
    ),
    (
        r"pytest runs tests",
        "run them without ckpt; a program that a test has found slow can be run by itself",
    ),
    (
        _POOL_THREADS,
        "keep the functions short that the pool calls in this process, or shut it down before a checkpoint",
    ),
    (
        r"thread .* inside of a call of ckpt",
        "wait there by `iprobe`, or by `irecv` and `test`, with a short time.sleep in between",
    ),
    (
        r"SocketIO\b.*is running|is running SocketIO\b",
        "have the sender send at once what is read at once; or read it by lines, by read1 or by recv, in which checkpoints "
        "are taken (text of a connection: makefile('rb'), and decode the lines)",
    ),
    (
        r"\bsocket\.send\w*\(\) is running|a connection within the program, between",
        "have the sender wait for the receiver's answer before it sends more; or hand over by a queue (queue.Queue)",
    ),
    (
        r"child processes are at work.* mapped for shared writing",
        'map the file for reading, if it is only read (numpy.memmap(…, mode="r"), mmap.ACCESS_READ); or give the pool less '
        "work at once, so that now and then all results have come",
    ),
    (
        r"child processes are at work",
        "give the pool less work at once, so that now and then all results have come; or let tasks return what they find, "
        "instead of memory that they share",
    ),
    (
        r"child process( \d+)? is |end of a child process",
        "checkpoints come when it has ended: do some work between two children; of one that stays, say how it is started "
        "again: ckpt.register_child(process, start)",
    ),
    (
        r"\b(TextIOWrapper|Buffered\w+|FileIO|SocketIO)\.\w+\(\) is running",
        "read a pipe or socket of the program by os.read or recv, in which checkpoints are taken; let a child process end "
        "before (subprocess.run), or say how it is started again: ckpt.register_child(process, start)",
    ),
    (
        r"numba is compiling|Dispatcher is running|_compile_for_args",
        "call the function once at the beginning, or keep what was compiled (cache=True): a checkpoint comes when it is "
        "compiled",
    ),
    (
        r"a thread .* (begins, ends|begun or ended)",
        "give the work to threads that stay (a ThreadPoolExecutor that is kept), instead of a new thread for each piece",
    ),
    (
        r"\bthread\b",
        "let it come out of C code now and then, end it, or declare it: ckpt.enable(harmless_threads=[NAME])",
    ),
    (r"\buvloop\.", "run the program with asyncio's own loop: asyncio.run(main()) without uvloop"),
    (
        r"outside of its own context|a generator thrown into",
        "let the coroutine await soon after an error or cancellation that it handles",
    ),
    (r"traced or profiled", "use cProfile, trace or coverage, or run without this tool"),
    (r"\bimport", "import at the beginning of the program; checkpoints come when that is done"),
    (r"class is being created", "keep long work out of class bodies"),
    (r"destructor|weak reference callback|finali[sz]er", "keep destructors and callbacks short"),
    (
        r"\b(pause|sigwait\w*|sigtimedwait|flock|lockf)\(\) is running",
        "ask again and again, with time.sleep in between, in which checkpoints are taken",
    ),
    (
        r"is running|from inside of C",
        "write the loop out: `for x in …: total += x` instead of sum(…), sorted(key=…) and the like around long work",
    ),
)


def for_object(type_name: str, reason: str, bases: Iterable[str] = ()) -> str:
    """The remedy for an object of this type that cannot be saved for this reason. `bases`: names of its base types."""
    names = [type_name, *bases]
    for pattern, remedy in _OBJECTS:
        if any(re.search(pattern, name) for name in (*names, reason)):
            return remedy.format(register=_register(type_name))
    return f"{_REGISTER.format(register=_register(type_name))}; or give its class __reduce__"


def _register(type_name: str) -> str:
    """The call of `register_type` for a type.

    ``_hashlib.HASH``, ``zlib.Decompress`` and classes defined in functions have no name that a program could write.
    """
    module = type_name.rpartition(".")[0]
    if module and not module.startswith("_") and module != "zlib" and "<locals>" not in type_name:
        return f"ckpt.register_type({type_name}, save, load)"
    return "ckpt.register_type(cls, save, load), with cls = type(x) of one such object x"


def for_refusal(reason: str) -> str:
    """The remedy for a place where the program cannot be captured for this reason."""
    for pattern, remedy in _REFUSALS:
        if re.search(pattern, reason):
            return remedy
    return "make it short, or write it as a plain loop in Python"


def for_thread(name: str) -> str:
    """The remedy for a thread of the application."""
    if re.search(_POOL_THREADS, name):
        return (
            "it belongs to a pool of processes, whose work would be lost with it: shut the pool down before a checkpoint, "
            "use threads (`ThreadPoolExecutor`), or ranks (`ckpt run -n N`)"
        )
    return (
        "join it before a checkpoint; or, when the result does not depend on it, declare it with "
        f"ckpt.enable(harmless_threads=[{name!r}]) and start it again in ckpt.on_restart(f)"
    )

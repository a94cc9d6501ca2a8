"""Private names of the standard library's modules that are written in Python, and of their classes; by module.

Modules that a rank does not import before the program begins are looked up in :data:`sys.modules` and never imported here: a
file of the program may have their name. For a new minor version: have the names been kept (``Lib/``)?
"""

from __future__ import annotations

import abc
import itertools
import runpy
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import _bootstrap_external
from typing import TYPE_CHECKING, Any

from ckpt.compat import accelerators, interpreter

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

# ---------------------------------------------------------------------- abc

ABC_STATE = "_abc_impl"
"""The attribute of an abstract class in which ABCMeta keeps its registry (in C, ``Modules/_abc.c``)."""


def xml_prefixes(etree: Any) -> dict[str, str]:
    """URI → prefix, of all that ``xml.etree.ElementTree`` knows (``_namespace_map``; all versions)."""
    return dict(etree._namespace_map)


def virtual_subclasses(cls: type) -> list[type]:
    """The classes registered with an abstract base class (``abc._get_dump``; all versions)."""
    found = [reference() for reference in abc._get_dump(cls)[0]]  # type: ignore[attr-defined]
    return [subclass for subclass in found if subclass is not None]


def make_abstract(cls: type) -> None:
    """Give a class its registry and set of abstract methods, as ``ABCMeta.__new__`` does (``abc._abc_init``)."""
    abc._abc_init(cls)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- import system

IMPORT_SYSTEM_FILES = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
"""``co_filename`` of its functions, which tracebacks and warnings leave out; of the finders and loaders the last one."""


def wrap_exec_module(wrap: Callable[[Callable[..., None]], Callable[..., None]], loader: Any = None) -> None:
    """Replace the method ``exec_module`` of a class of loaders by ``wrap(exec_module)``. By default: the method that all
    loaders of Python files inherit.

    The default class is ``_LoaderBasics`` of ``importlib._bootstrap_external``, in all versions. No loader or module
    specification is replaced.
    """
    basics: Any = loader or _bootstrap_external._LoaderBasics  # type: ignore[attr-defined]
    basics.exec_module = wrap(basics.exec_module)


def is_initializing(spec: object) -> bool:
    """Is the code of the module with this ``__spec__`` running? All versions."""
    return bool(getattr(spec, "_initializing", False))


def module_code(name: str) -> tuple[types.CodeType, ModuleSpec]:
    """The code that ``python -m name`` runs, and the module's specification (``runpy._get_module_details``; all versions).
    Raises ImportError with Python's text."""
    found: tuple[str, ModuleSpec, types.CodeType]
    found = runpy._get_module_details(name, ImportError)  # type: ignore[attr-defined]
    return found[2], found[1]


# ---------------------------------------------------------------------- sys, warnings


def set_last_exception(failure: BaseException) -> None:
    """Set ``sys.last_…`` as the interpreter does for an exception that it prints; ``last_exc`` exists since 3.12."""
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, failure.__traceback__
    if interpreter.HAS_LAST_EXC:
        sys.last_exc = failure  # type: ignore[attr-defined]


_WARNING_HOOKS = ("showwarning", "_showwarnmsg_impl", "formatwarning")
_ORIGINAL_HOOKS = {"showwarning": "_showwarning_orig", "formatwarning": "_formatwarning_orig"}


def replaced_warning_hooks(warnings: types.ModuleType) -> dict[str, Any]:
    """Name → function, of the hooks that are not the module's own: ``catch_warnings(record=True)`` replaces private ones."""
    present = {name: getattr(warnings, name, None) for name in _WARNING_HOOKS}
    originals = {name: getattr(warnings, original, None) for name, original in _ORIGINAL_HOOKS.items()}
    return {
        name: value
        for name, value in present.items()
        if value is not None
        and value is not originals.get(name)
        and (name in originals or getattr(value, "__name__", "") != name)
    }


class _ThreadsPattern:
    """Stands for the pattern of a filter. It matches the warning that ``os.fork`` and ``os.forkpty`` give in a process with
    several threads, and then removes its filter."""

    def match(self, text: str) -> bool:
        """``warnings`` calls this for the filter; the list of filters may change meanwhile (``get_filter``,
        ``Python/_warnings.c``)."""
        found = " is multi-threaded, use of fork" in text
        if found:
            stop_ignoring_threads()
        return found


_THREADS_FILTER = ("ignore", _ThreadsPattern(), DeprecationWarning, None, 0)


def ignore_threads_once() -> None:
    """Have the next fork give no warning of threads. The version of the filters is not changed, so that no other warning is
    shown a second time."""
    stop_ignoring_threads()
    warnings.filters.insert(0, _THREADS_FILTER)  # type: ignore[attr-defined]


def stop_ignoring_threads() -> None:
    """Undo :func:`ignore_threads_once`, if there was no warning."""
    warnings.filters[:] = program_filters(warnings)  # type: ignore[index]


def program_filters(warnings: Any) -> list[Any]:
    """The filters of the program."""
    return [entry for entry in warnings.filters if entry is not _THREADS_FILTER]


def warning_filters_changed(warnings: Any) -> None:
    """Tell the part of ``warnings`` in C that the filters have changed (``warnings._filters_mutated``, until 3.13)."""
    warnings._filters_mutated()


# ---------------------------------------------------------------------- threading


def threads_by_ident() -> dict[int, threading.Thread]:
    """The threads that run, by identifier, without a lock (``threading._active``; all versions)."""
    found: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
    return found


join_threads: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
"""Join all threads that are no daemons, as the interpreter does first at its end."""


def _enumerate() -> list[threading.Thread]:
    # The names are those of threading. A program may ask often: nothing is imported for the class of ckpt's threads.
    with _active_limbo_lock:  # type: ignore[name-defined]  # noqa: F821
        running = [*_active.values(), *_limbo.values()]  # type: ignore[name-defined]  # noqa: F821
    return [thread for thread in running if type(thread).__module__ != "ckpt.compat.stdlib"]


def _active_count() -> int:
    return len(enumerate())  # type: ignore[call-arg, arg-type]


class OwnThread(threading.Thread):
    """A thread of ckpt. It is in the table of all threads, so that ``threading.current_thread`` knows it, but
    ``threading.enumerate`` and ``active_count`` leave it out: programs join all that there are, or wait until one is left.

    Its end prints no traceback in a program where gevent has given the threads other identifiers."""

    def _delete(self) -> None:
        """``Thread`` calls this last, and would raise KeyError; all versions."""
        threads_by_ident().pop(self.ident, None)  # type: ignore[arg-type]


# The code, not the functions: a program may have imported these by name. All versions.
threading.enumerate.__code__ = _enumerate.__code__
threading.active_count.__code__ = _active_count.__code__


def target_of(thread: threading.Thread) -> Any:
    """The function that the thread runs; None: the thread has ended, or has no function."""
    return thread.__dict__.get("_target")


_THREAD_STATE = ("_handle", "_tstate_lock", "_os_thread_handle")
"""Attributes of a thread that belong to the interpreter: a lock until 3.12, a handle in 3.13 and later."""


def thread_attributes(thread: threading.Thread) -> dict[str, Any]:
    """A copy of the thread's attributes, without those that belong to the interpreter."""
    return {name: value for name, value in thread.__dict__.items() if name not in _THREAD_STATE}


def fill_thread(thread: Any, attributes: Mapping[str, Any], *, has_ended: bool) -> None:
    """Complete a thread without attributes: one that was not started yet, or one that has ended."""
    fresh = threading.Thread(name="ckpt").__dict__
    thread.__dict__.update({name: fresh[name] for name in _THREAD_STATE if name in fresh})
    thread.__dict__.update(attributes)
    if not has_ended:
        return
    thread._started.set()
    if "_handle" in thread.__dict__:
        # A handle of a thread that was never started cannot be set to done. So a handle for the thread with this ident is
        # made, as threading does for dummy threads.
        thread._handle = threading._make_thread_handle(thread._ident)  # type: ignore[attr-defined]
        thread._handle._set_done()
    else:
        thread._tstate_lock = None
        thread._is_stopped = True


def is_owned(lock: Any) -> bool:
    """Does this thread hold the reentrant lock? ``_is_owned``, by which ``threading.Condition`` asks any such lock."""
    return bool(lock._is_owned())


def times_owned(lock: Any) -> int:
    """How many times this thread has acquired a ``threading.RLock``. The lock is released for a moment to find that, as
    ``Condition.wait`` does."""
    if not lock._is_owned():
        return 0
    count, owner = lock._release_save()
    lock._acquire_restore((count, owner))
    return int(count)


def acquire_times(lock: Any, times: int) -> None:
    """Acquire a free ``threading.RLock`` this many times in one call (``_acquire_restore``; all versions)."""
    lock._acquire_restore((times, threading.get_ident()))


# ---------------------------------------------------------------------- logging

LOGGER_CACHE = "_cache"
"""The attribute of a logger that caches the results of ``isEnabledFor``."""


def level_names(logging: Any) -> tuple[dict[int, str], dict[str, int]]:
    """The two dictionaries that ``logging.addLevelName`` changes (not copies); all versions."""
    return logging._levelToName, logging._nameToLevel


LOGGING_BEGAN = "_startTime"
"""The variable of ``logging`` from which ``relativeCreated`` counts: seconds, from 3.13 on nanoseconds."""


def register_handler(logging: Any, handler: Any) -> None:
    """Enter a handler that was made without its ``__init__`` in two tables of ``logging``: handlers by name, and handlers
    that are flushed at the program's end; all versions."""
    if handler.name:
        logging._handlers[handler.name] = handler
    logging._addHandlerRef(handler)


def forget_enabled_levels(logging: Any) -> None:
    """Levels have changed: empty the caches of all loggers."""
    logging.root.manager._clear_cache()


# ---------------------------------------------------------------------- weakref, pickle


def finalizers() -> dict[Any, Any]:
    """``weakref.finalize`` → what it holds (``weakref``, ``func``, ``args``, ``kwargs``, ``atexit``, ``index``); all
    versions."""
    return getattr(weakref.finalize, "_registry", {})


Finalizer = tuple[Any, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any], bool, int]
"""The ``weakref.finalize`` itself, its object, function, arguments, keywords, ``atexit``, number."""


def register_finalizers(entries: Iterable[Finalizer]) -> None:
    """Register finalizers that were made without their ``__init__``, as that method does (``weakref.finalize``)."""
    import atexit

    cls: Any = weakref.finalize
    highest = -1
    for finalizer, target, func, args, kwargs, at_exit, index in entries:
        info = cls._Info()
        info.weakref = weakref.ref(target, finalizer)
        info.func, info.args, info.kwargs = func, args, kwargs or None
        info.atexit, info.index = at_exit, index
        cls._registry[finalizer] = info
        highest = max(highest, index)
    if highest < 0:
        return
    cls._dirty = True
    cls._index_iter = itertools.count(max(next(cls._index_iter), 1 + highest))
    if not cls._registered_with_atexit:
        atexit.register(cls._exitfunc)
        cls._registered_with_atexit = True


def python_pickler() -> Any:
    """The pickler that is written in Python, with the table ``dispatch`` that dill extends (``pickle._Pickler``)."""
    import pickle

    return pickle._Pickler


PICKLER_SAVE = ("pickle", "_Pickler.save")
"""Module and qualified name of its method that keeps objects by their addresses."""

COMPARE_INODES = (
    *(("shutil", name) for name in ("rmtree", "_rmtree_safe_fd", "_samefile")),
    *(("os", "fwalk"), ("os", "_fwalk"), ("genericpath", "samefile"), ("pathlib", "Path.samefile")),
)
"""Functions that ask twice for the number of a file or directory, and take another one for another file."""

# ---------------------------------------------------------------------- tempfile, gzip, bz2, lzma


def temporary_file_types() -> tuple[type, ...]:
    """The type of the objects that ``tempfile.NamedTemporaryFile`` returns; all versions. None: the program cannot have
    such an object, because nothing has imported the module."""
    found = getattr(sys.modules.get("tempfile"), "_TemporaryFileWrapper", None)
    return () if found is None else (found,)


def is_deleted_when_closed(file: Any) -> bool:
    """Is this file, of :func:`temporary_file_types`, deleted when it is closed (``_closer``; all versions)?"""
    return bool(file._closer.delete)


def decompressing_readers() -> list[type]:
    """The raw readers below ``GzipFile``, ``BZ2File`` and ``LZMAFile``, of the modules that are loaded.

    ``_compression.DecompressReader`` until 3.13; ``compression._common._streams`` since 3.14.
    """
    places = (
        ("gzip", "_GzipReader"),
        ("_compression", "DecompressReader"),
        ("compression._common._streams", "DecompressReader"),
    )
    found = (getattr(sys.modules.get(module), name, None) for module, name in places)
    return [cls for cls in found if isinstance(cls, type)]


def reader_attributes(reader: Any) -> tuple[dict[str, Any], bool]:
    """``(attributes, is_complete)`` of such a reader. The attributes are without the decompressor, which is in C.
    ``is_complete``: the reader has a decompressor, so its ``__init__`` has ended."""
    attributes = {key: value for key, value in reader.__dict__.items() if key != "_decompressor"}
    return attributes, len(attributes) < len(reader.__dict__)


def rewind(reader: Any) -> None:
    """Move the reader to the beginning of the compressed file, with a new decompressor; all versions."""
    reader._rewind()


def compressor_of(attributes: Mapping[str, Any]) -> Any:
    """The compressor among the attributes of a ``BZ2File`` or ``LZMAFile``; None: the file is not open for writing."""
    return attributes.get("_compressor")


# ---------------------------------------------------------------------- cProfile


def profiler_type() -> type | None:
    """The base in C of ``cProfile.Profile``, if the program has it (``_lsprof.Profiler``)."""
    module = accelerators.loaded(accelerators.PROFILER)
    found: type | None = getattr(module, "Profiler", None)
    return found


def begin_call(profile: Any, code: types.CodeType) -> bool:
    """Tell an enabled profile that this function begins, by the profile's callback for ``sys.monitoring``
    (``_pystart_callback``, since 3.13). False: the profile has no such callback; it is the profile function of its thread.
    """
    if not hasattr(profile, "_pystart_callback"):
        return False
    profile._pystart_callback(code, 0)
    return True


def name_temporary_files(names: Iterator[str]) -> None:
    """Have ``tempfile`` take the names of new files and directories from ``names``: all versions."""
    sys.modules["tempfile"]._name_sequence = names  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- shutil


def use_paths_in(shutil: Any) -> None:
    """Have ``shutil`` work with paths and not with descriptors (``rmtree``), and copy by reading and writing (``copyfile``):
    all versions."""
    shutil._use_fd_functions = shutil._USE_CP_SENDFILE = False

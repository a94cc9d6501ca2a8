"""The state of a program that is in none of its variables: streams, directory, environment, random numbers, signals, …

::

    note_early()          in the child: plain values that must be set before anything is loaded ("early state")
    note_late()           in the child: values that may be objects of the program ("late state")
    leave_out()           in the child: removes values of libraries that no image can hold
    apply_early/late()    in the new process: set the values
    open_streams()        between them: open redirected streams

A forked child has its own copy of all of this state except timers and the offsets of open files
(:mod:`ckpt.image.process.moment`), so the parent looks at nothing else. :func:`note_late` runs in the thread that runs the
program, because context variables belong to a thread.

The state: ``sys.path``, ``sys.argv``, directory, ``os.environ``, recursion limit, umask, monotonic clocks; lengths of the
files of standard output and error (what was printed after the image is cut off); files that the program has put under the
numbers of standard streams; signals (:mod:`ckpt.image.process.signals`); context variables; replaced standard streams and
their settings; ``sys`` hooks, finders of modules, garbage collector settings; functions registered with ``atexit``; settings
of libraries, random numbers and warning filters among them (:mod:`ckpt.image.process.settings`); values that the program has
put into modules of others (monkey patches).

Not here: the modules' variables and the stack (:mod:`ckpt.image.pairs`).
"""

from __future__ import annotations

import contextvars
import functools
import gc
import io
import os
import sys
import time
import types
from collections.abc import Callable, Mapping
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Unpicklable
from ckpt.image.files import cuts, descriptors, numbers, reopen, standard_input, standard_output
from ckpt.image.files.file_notes import completed
from ckpt.image.files.file_positions import HARMLESS_DEVICES
from ckpt.image.interface.moved import moved
from ckpt.image.interface.registry import libraries
from ckpt.image.lowlevel.inspect_raw import package_of
from ckpt.image.modules import held_locks, search_path, standard_streams
from ckpt.image.modules.origins import OWN_PACKAGES
from ckpt.image.process import clocks, directory, exits, finders, interpreter_settings, limits, signals
from ckpt.image.process.settings import apply_library_settings, note_library_settings
from ckpt.image.reducers.logs import note_logging, put_back
from ckpt.image.stdlib.temporary import are_there, note_directories, restore_directories
from ckpt.image.threads.captured import set_switch_interval

if TYPE_CHECKING:
    from ckpt.image.files.file_notes import FileNote
    from ckpt.image.files.saved_files import SavedFiles
    from ckpt.image.modules.references import References

__all__ = [
    "Collector",
    "apply_early",
    "apply_late",
    "leave_out",
    "note_early",
    "note_late",
    "open_streams",
    "put_streams",
]

Collector = tuple[bool, tuple[int, int, int]]
"""Is the garbage collector enabled, and its thresholds."""

_STREAMS = ("stdin", "stdout", "stderr")
_HOOKS = ("excepthook", "displayhook", "unraisablehook", "breakpointhook")


# ---------------------------------------------------------------------- early


def note_early(
    notes: dict[int, FileNote],
    own_lengths: dict[int, int],
    survey: descriptors.Survey,
    saved_files: SavedFiles,
    *,
    is_disposable: bool,
) -> dict[str, Any]:
    """The early state: plain values only, because they are loaded before any module exists. ``own_lengths``: see
    :func:`ckpt.image.files.descriptors.own_lengths`. ``is_disposable``: this process is a forked child. Raises Unpicklable:
    a standard stream has been redirected to a file that cannot be saved."""
    umask = os.umask(0o077)
    os.umask(umask)
    redirected = descriptors.redirected(notes)
    return {
        "path": [str(entry) for entry in sys.path],
        "roots": search_path.roots(),
        "argv": [str(entry) for entry in sys.argv],
        **directory.note_directory(notes.values()),
        "environment": dict(os.environ),
        "recursion_limit": sys.getrecursionlimit(),
        "umask": umask,
        "limits": limits.note_limits(),
        "clocks": clocks.note(),
        "temporary": note_directories(),
        "unwritten": standard_output.note_unwritten(is_disposable=is_disposable),
        "input": standard_input.note_position(notes, is_disposable=is_disposable),
        "lengths": {
            fd: notes[fd].length
            for fd in (1, 2)
            if fd in notes and notes[fd].kind == "file" and fd not in redirected
        }
        | own_lengths,
        "redirected": [_note_redirected(fd, notes[fd], saved_files) for fd in redirected],
        "numbers": survey.numbers,
        "lost": survey.lost,
    }


def _note_redirected(fd: int, note: FileNote, saved_files: SavedFiles) -> reopen.SavedFile:
    note = completed(fd, note)
    try:
        if note.kind not in ("file", "deleted") and note.path not in HARMLESS_DEVICES:
            raise PicklingError(f"it is an open {note.kind} ({note.path}), which cannot be saved")
        return saved_files.saved(fd, note, fd)
    except PicklingError as failure:
        raise Unpicklable(f"descriptor {fd} ({descriptors.name_of(fd)})", str(failure)) from failure


def apply_early(saved: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Set the early state. ``environment``: environment variables that have other values now; a variable that the program
    has deleted stays deleted. Raises :class:`~ckpt.image.errors.RestoreError`: the working directory is gone.
    """
    clocks.go_on(saved.get("clocks"))
    numbers.reserve(saved["numbers"])
    if not are_there(saved["temporary"]) or not (saved["directory"] is None or directory.is_there(saved)):
        reopen.wait_for_files()
    restore_directories(saved["temporary"])
    if not reopen.waits_for_files() or directory.is_there(saved):
        directory.go_back(saved)
    # Another directory may have that name until then.
    reopen.when_files_are_back(functools.partial(directory.go_back, saved))
    entries = search_path.translated(saved["path"], saved["roots"], search_path.roots())
    sys.path[:] = map(moved, entries)
    sys.argv[:] = saved["argv"]
    for name in set(os.environ) - set(saved["environment"]):
        del os.environ[name]
    for name, text in saved["environment"].items():
        text = environment.get(name, text)
        if os.environ.get(name) != text:  # most are the same, and putenv(3) copies pages of memory
            os.environ[name] = text
    if "TZ" in saved["environment"]:
        time.tzset()
    os.umask(saved["umask"])
    if "random" in sys.modules:  # Python 3.13: a first seed that is a str sets a variable of the module
        sys.modules["random"].Random("")
    for fd, length in saved["lengths"].items():
        cuts.cut_output(fd, length)


def open_streams(saved: dict[str, Any]) -> None:
    """Open files that the program has put under the numbers of standard streams. ``saved``: early state. Raises as
    :func:`apply_early`."""
    for stream in saved["redirected"]:
        reopen.put_stream(stream)


# ---------------------------------------------------------------------- late


def note_late(references: References, timing: signals.Timing, collector: Collector) -> dict[str, Any]:
    """The late state: name → value; each value is pickled as a pair of its own. Called in the thread that runs the
    program.
    """

    def is_own(obj: object) -> bool:
        return _is_of_program(obj, references)

    return {
        "signals": signals.note(timing),
        "context": [item for item in contextvars.copy_context().items() if item[0].name != "decimal_context"],
        "streams": _note_stream_objects(),
        "hooks": _note_hooks(references),
        "finders": finders.note(is_own),
        "interpreter": interpreter_settings.note(is_own),
        "collector": collector,
        "exit_functions": exits.recorded(references.by_value),
        "patches": _note_patches(references),
        "switch_interval": sys.getswitchinterval(),
        "logging": note_logging(),
        "libraries": note_library_settings(),
        "random": libraries.note_random(),
    }


def leave_out(
    late: dict[str, Any], references: References, attempt: Callable[[object], Exception | None]
) -> None:
    """Take out of ``late`` what installed packages and the standard library have registered with ``atexit``, and values of
    their context variables, where that cannot be saved. The report names each. What is the program's own is not tried."""

    def can_be_saved(value: object, module: str, name: str) -> bool:
        failure = None if module in references.by_value else attempt(value)
        if failure is not None:
            references.changed.leave_out("unsaved", package_of(module), [name], str(failure))
        return failure is None

    def is_kept(entry: exits.Entry) -> bool:
        name = getattr(entry.func, "__qualname__", type(entry.func).__qualname__)
        return can_be_saved(entry, entry.caller, f"{entry.caller}: atexit {name}")

    def has_saved_value(item: tuple[object, object]) -> bool:
        pid = references.name_of(item[0])  # only variables of by-reference modules have one
        return pid is None or pid[0] != "attr" or can_be_saved(item, pid[1], f"{pid[1]}.{pid[2]}")

    late["exit_functions"] = [entry for entry in late["exit_functions"] if is_kept(entry)]
    late["context"] = [item for item in late["context"] if has_saved_value(item)]


def apply_late(saved: dict[str, Any]) -> None:
    """Set the late state, but for :func:`put_streams`. It may fail, so no file has been changed yet."""
    for name, value in saved.items():
        _APPLY[name](value)


def put_streams(saved: dict[str, Any]) -> None:
    """Put the program's standard streams into ``sys``, and close or detach the original ones as the program has done.

    ``saved``: late state. Called when the files have their content: until then the original streams are in use.
    """
    streams = saved["streams"]
    for name, state in streams["gone"].items():
        stream = getattr(sys, f"__{name}__")
        if state == "closed":
            stream.close()
        elif state == "detached":
            stream.detach()
    for name, stream in streams["current"].items():
        setattr(sys, name, stream)


def _apply_collector(saved: tuple[bool, tuple[int, int, int]]) -> None:
    gc.set_threshold(*saved[1])
    if saved[0]:
        gc.enable()
    else:
        gc.disable()


def _apply_context(items: list[tuple[contextvars.ContextVar[Any], Any]]) -> None:
    for var, value in items:
        var.set(value)


# -- streams


def _note_stream_objects() -> dict[str, Any]:
    """``current``: the objects that are ``sys.stdin``, ``sys.stdout``, ``sys.stderr`` now; ``settings``: encoding, errors
    and buffering of the original streams (``sys.__stdout__`` …); ``gone``: those of them that are closed or detached.
    """
    settings, gone = {}, {}
    for name in _STREAMS:
        stream = getattr(sys, f"__{name}__")
        state = standard_streams.state(stream)
        if state == "open":
            settings[name] = (stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
        else:
            gone[name] = state
    current = {name: getattr(sys, name) for name in _STREAMS}
    return {"current": current, "settings": settings, "gone": gone}


def _apply_streams(saved: dict[str, Any]) -> None:
    for name, (encoding, errors, line_buffering, write_through) in saved["settings"].items():
        stream = getattr(sys, f"__{name}__")
        if type(stream) is not io.TextIOWrapper:
            continue
        if (stream.encoding, stream.errors) != (encoding, errors):
            stream.reconfigure(encoding=encoding, errors=errors)
        stream.reconfigure(line_buffering=line_buffering, write_through=write_through)


# -- hooks, exit functions, patches


def _note_hooks(references: References) -> dict[str, Any]:
    found = {}
    for name in _HOOKS:
        hook = getattr(sys, name)
        if _is_of_program(hook, references):
            found[name] = hook
    return found


def _apply_hooks(hooks: dict[str, Any]) -> None:
    for name, hook in hooks.items():
        setattr(sys, name, hook)


def _is_of_program(obj: Any, references: References) -> bool:
    """Is the object a function, method, class or instance of a by-value module?"""
    if isinstance(obj, types.MethodType):
        obj = obj.__self__ if not isinstance(obj.__self__, type) else obj.__func__
    if isinstance(obj, (types.FunctionType, type)):
        return getattr(obj, "__module__", None) in references.by_value
    return references.is_user_type(type(obj))


def _note_patches(references: References) -> list[tuple[str, str, Any]]:
    """``(module, name, value)`` of what the program has put into modules of others: functions, classes, instances, new plain
    values.
    """
    return [
        (module, name, value)
        for module, name, value in references.patches()
        if module.partition(".")[0] not in OWN_PACKAGES
        and not (module == "sys" and name in (*_STREAMS, *_HOOKS))
    ]


def _apply_patches(patches: list[tuple[str, str, Any]]) -> None:
    for name, key, value in patches:
        setattr(sys.modules[name], key, value)


_APPLY: dict[str, Callable[[Any], None]] = {
    "signals": signals.set_handlers,
    "context": _apply_context,
    "streams": _apply_streams,
    "hooks": _apply_hooks,
    "finders": finders.put_back,
    "interpreter": interpreter_settings.put_back,
    "collector": _apply_collector,
    "exit_functions": exits.register_again,
    "patches": _apply_patches,
    "switch_interval": set_switch_interval,
    "logging": put_back,
    "locks": held_locks.acquire_again,
    "libraries": apply_library_settings,
    "random": libraries.apply_random,
}

"""Functions of `os` that change directories and names of files, for a program with replicas: each call is a change
(changes.py). (driver)

They are found by their names in this module, so an image refers to them, and a process without replicas can load it: there
they do what the genuine ones do. pathlib and shutil call them.

Not here: what is in files (objects.py).
"""

from __future__ import annotations

import builtins
import errno
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from ckpt.errors import NotReplicable
from ckpt.layer import unbound, use_paths_in
from ckpt.redundancy.files.calls import os_fchmod
from ckpt.redundancy.files.changes import STATE, Meet, change, is_of_ckpt
from ckpt.redundancy.files.descriptors import GIVEN, TABLE, is_descriptor
from ckpt.redundancy.files.notes import Notes
from ckpt.redundancy.files.objects import numbers, replica_open
from ckpt.redundancy.files.opening import os_open

__all__ = ["adjust_libraries", "install"]

_genuine_fsync = os.fsync


def _named(name: str, genuine: Any, before: Callable[..., Any] | None, is_done: Callable[..., bool]) -> Any:
    """A function of `os` that is a change. `is_done(seen, failure, paths)`: does this failure say that it was made
    already?"""

    def changed(*arguments: Any, **named: Any) -> Any:
        if STATE.meet is None or is_of_ckpt():
            return genuine(*arguments, **named)
        if any(value is not None for key, value in named.items() if key.endswith("dir_fd")):
            raise NotReplicable(
                f"under --redundancy: os.{name} with a descriptor of a directory; give a whole path"
            )
        count = 2 if name in ("rename", "replace", "link", "symlink") else 1
        paths = [
            os.fsdecode(each) if isinstance(each, (str, bytes, os.PathLike)) else each
            for each in arguments[:count]
        ]
        if name == "chmod" and is_descriptor(paths[0]):
            return os_fchmod(*arguments, **named)
        if any(is_descriptor(each) for each in paths):
            raise NotReplicable(
                f"under --redundancy: os.{name} of a descriptor that was opened for writing; give its path"
            )
        if any(isinstance(each, int) for each in paths):
            return genuine(*arguments, **named)
        rest = (*arguments[count:], *sorted(named.items()))

        def act(seen: Any, again: bool) -> None:
            _note(name, paths, rest)
            try:
                genuine(*arguments, **named)
            except OSError as failure:
                if not (
                    (again and is_done(seen, failure, paths)) or _was_made_before(name, paths[0], failure)
                ):
                    raise

        change(
            f"{name} {[os.path.abspath(each) if isinstance(each, str) else each for each in paths]} {rest}",
            act,
            None if before is None else lambda: before(*paths),
        )
        return None

    changed.__name__, changed.__qualname__ = name, f"os_{name}"
    changed.__doc__ = genuine.__doc__
    globals()[changed.__qualname__] = changed
    return changed


def _note(name: str, paths: list[str], rest: tuple[Any, ...]) -> None:
    """What is there now, for going back."""
    notes = STATE.notes
    if name in ("rename", "replace"):
        if os.path.isdir(paths[0]) and not os.path.islink(paths[0]):
            notes.moved(*paths)
            return
        notes.name(paths[0])
        notes.name(paths[1])
    elif name == "link":
        notes.name(paths[0])
        notes.name(paths[1])
    elif name == "truncate":
        notes.content(paths[0], next((each for each in rest if isinstance(each, int)), 0))
    elif name in _ATTRIBUTES:
        notes.attributes(paths[0])
    elif name == "makedirs":
        path = os.path.abspath(paths[0])
        while not os.path.lexists(path):
            notes.name(path)
            path = os.path.dirname(path)
    else:
        notes.name(paths[-1])


def _was_made_before(name: str, path: str, failure: OSError) -> bool:
    """Has the program made this directory already, and gone back behind that since?"""
    made = STATE.notes.may_exist
    is_old = name in _MAKES and isinstance(failure, FileExistsError) and os.path.abspath(path) in made
    if is_old:
        made.discard(os.path.abspath(path))
    return is_old


def _was_there(path: str, *more: str) -> bool:
    return os.path.lexists(path)


def _second_was_there(path: str, second: str) -> bool:
    return os.path.lexists(second)


def _is_made(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return not seen and isinstance(failure, FileExistsError)


def _is_gone(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return seen and isinstance(failure, FileNotFoundError)


def _is_renamed(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return seen and isinstance(failure, FileNotFoundError) and os.path.lexists(paths[1])


def _has_no_attribute(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return failure.errno == errno.ENODATA


def _never(seen: bool, failure: OSError, paths: list[str]) -> bool:
    return False


def os_fsync(fd: Any) -> None:
    """As `os.fsync`."""
    number = fd if isinstance(fd, int) else fd.fileno()
    file = numbers.get(number) or TABLE.files.get(number)
    if file is None:
        _genuine_fsync(fd)
    else:
        file.sync()


_MAKES = ("mkdir", "makedirs")
_ATTRIBUTES = ("chmod", "chown", "lchown", "utime", "setxattr", "removexattr")
_CHANGES: dict[str, Any] = {
    # one change: whether its parents are there is for the leader to see, since other ranks may make them at this moment
    "makedirs": _named("makedirs", os.makedirs, _was_there, _is_made),
    "mkdir": _named("mkdir", os.mkdir, _was_there, _is_made),
    "rmdir": _named("rmdir", os.rmdir, _was_there, _is_gone),
    "remove": _named("remove", os.remove, _was_there, _is_gone),
    "unlink": _named("unlink", os.unlink, _was_there, _is_gone),
    "rename": _named("rename", os.rename, _was_there, _is_renamed),
    "replace": _named("replace", os.replace, _was_there, _is_renamed),
    "link": _named("link", os.link, _second_was_there, _is_made),
    "symlink": _named("symlink", os.symlink, _second_was_there, _is_made),
    "mkfifo": _named("mkfifo", os.mkfifo, _was_there, _is_made),
    "mknod": _named("mknod", os.mknod, _was_there, _is_made),
    # once more is the same as once
    **{
        name: _named(name, getattr(os, name), None, _never)
        for name in ("truncate", "chmod", "chown", "lchown", "utime", "setxattr")
    },
    "removexattr": _named("removexattr", os.removexattr, _was_there, _has_no_attribute),
}


def install(meet: Meet, flipped: Callable[[bytes], bytes], notes: str) -> None:
    """From now on the program of this process changes files together with the other replicas of its rank. `flipped`: what
    this replica writes instead (`CKPT_FLIPS`); `notes`: path of the file for `Notes`."""
    STATE.meet, STATE.flipped, STATE.notes = meet, flipped, Notes(notes)
    system: Any = sys.modules["os"]
    given = {getattr(system, name): function for name, function in _CHANGES.items()}
    given = _as_in_c({**given, **_of_descriptors(), system.open: os_open})
    for able in (system.supports_follow_symlinks, system.supports_effective_ids):
        able |= {function for genuine, function in given.items() if genuine in able}
    _replace(given)
    _replace_defaults(sys.modules["tempfile"], given)
    adjust_libraries()


def install_without_replicas() -> None:
    """The program of this process goes on without replicas, and has descriptors of files that replicas have written."""
    _replace(_as_in_c(_of_descriptors()))


def _of_descriptors() -> dict[Any, Any]:
    system: Any = sys.modules["os"]
    return {**GIVEN, builtins.open: replica_open, system.fsync: os_fsync, system.fdatasync: os_fsync}


def _as_in_c(given: dict[Any, Any]) -> dict[Any, Any]:
    """Of functions that are in C, what is given for them is no method where a class has it, either."""
    return {
        genuine: function if hasattr(genuine, "__get__") else unbound(function, genuine.__name__)
        for genuine, function in given.items()
    }


def _replace(given: dict[Any, Any]) -> None:
    """In all modules that are loaded already: `bz2` has a name of its own for `open`."""
    for module in list(sys.modules.values()):
        space = vars(module) if type(module) is types.ModuleType else {}
        if module is sys.modules["posix"] or space.get("__name__", "").startswith("ckpt."):
            continue
        for name, value in list(space.items()):
            if type(value) in _FUNCTIONS and value in given:
                space[name] = given[value]


def _replace_defaults(module: types.ModuleType, given: dict[Any, Any]) -> None:
    """Methods of the module's classes that have a function as a default (``unlink=os.unlink``) get the one that is given for
    it."""
    for cls in [each for each in vars(module).values() if isinstance(each, type)]:
        for method in [each for each in vars(cls).values() if isinstance(each, types.FunctionType)]:
            if method.__defaults__:
                method.__defaults__ = tuple(
                    given[each] if type(each) in _FUNCTIONS and each in given else each
                    for each in method.__defaults__
                )


_FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType)


def adjust_libraries() -> None:
    """What `shutil` does with descriptors it does with paths."""
    shutil: Any = sys.modules.get("shutil")
    if shutil is not None:
        use_paths_in(shutil)

"""The path to the object that could not be saved: searched for after a failure.

The C pickler reports the object that it could not pickle, not the path that has led to it. So the failing variable is taken
apart: each part is pickled alone, without output, and the search goes on in the first part that fails, until no part fails
any more. The search is slow; ``limit_s`` limits it, and it happens only when the checkpoint round has failed anyway.

The path reads like Python: ``.attribute``, ``[index]``, ``['key']``, ``<closure 'name'>``.
"""

from __future__ import annotations

import functools
import gc
import re
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ckpt.compat.accelerators import CTYPES
from ckpt.compat.memory import referent_of
from ckpt.image.errors import ObjectRefused
from ckpt.image.frames.generators import code_of, gen_info
from ckpt.image.reducers.raw_instances import attributes_of

__all__ = ["find", "path_to"]

_REPR_CHARS = 40
_INSTALLED = {"site-packages", "dist-packages"}


def find(
    value: object, attempt: Callable[[object], Exception | None], failure: Exception, *, limit_s: float = 5.0
) -> tuple[str, str]:
    """``(path, reason)`` of the innermost object inside ``value`` that fails.

    ``attempt(obj)`` pickles one object and returns its failure, None if there is none. ``failure``: the failure of ``value``
    itself. The search ends after ``limit_s`` seconds, with the innermost object found so far, and at an object that its
    reducer refuses as a whole (:class:`ObjectRefused`). Where that object fails only since it leads back to one on the path,
    it is the one whose type the failure names.
    """
    deadline = time.monotonic() + limit_s
    path, seen = "", {id(value)}
    passed = [(path, value)]
    while not (isinstance(failure, ObjectRefused) and failure.obj is value):
        for step, part in _parts(value):
            if id(part) in seen or time.monotonic() > deadline:
                continue
            found = attempt(part)
            if found is not None:
                path, value, failure = path + step, part, found
                seen.add(id(part))
                passed.append((path, value))
                break
        else:
            if any(id(part) in seen for _, part in _parts(value)):
                named = (each for each in reversed(passed) if _names(failure, type(each[1])))
                path, value = next(named, (path, value))
            break
    holders = [type(each) for _, each in passed if each is not value and _is_of_a_package(type(each))]
    return path, _reason(value, failure, holders[-1] if holders else None)


def _is_of_a_package(cls: type) -> bool:
    """Is it a class of an installed package? What such an object holds is the package's own matter."""
    package = cls.__module__.partition(".")[0]
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return package not in (*sys.stdlib_module_names, "ckpt") and bool(_INSTALLED & set(file.split("/")))


def _names(failure: Exception, cls: type) -> bool:
    """Does its text name the class, in quotation marks?"""
    return re.search(rf"'([\w.]+\.)?{re.escape(cls.__name__)}'", _failure_text(failure)) is not None


def path_to(
    target: object,
    roots: Iterable[tuple[str, object]],
    *,
    is_boundary: Callable[[object], bool],
    deadline: float,
) -> str:
    """The shortest path from one of ``roots`` (``(name, object)``) to the object ``target``; ``""`` if none is found.

    The first search goes through the parts that this module can name, a second one also through all that the garbage
    collector knows (steps written ``<…>``). Objects for which ``is_boundary`` returns True are not entered. ``deadline``: in
    seconds of ``time.monotonic``.
    """
    starts = list(roots)
    for neighbours in (_parts, _all_parts):
        seen = {id(value) for _, value in starts}
        queue = deque(starts)
        while queue:
            path, value = queue.popleft()
            if value is target:
                return path
            if time.monotonic() > deadline:
                break
            for step, part in neighbours(value):
                if part is target:
                    return path + step
                if id(part) not in seen and type(part) not in _LEAVES and not is_boundary(part):
                    seen.add(id(part))
                    queue.append((path + step, part))
    return ""


_LEAVES = frozenset(
    {int, float, str, bytes, bool, complex, type(None), types.CodeType, types.BuiltinFunctionType}
)


def _all_parts(value: object) -> Iterator[tuple[str, object]]:
    named = list(_parts(value))
    yield from named
    known = {id(part) for _, part in named}
    for part in gc.get_referents(value):
        if id(part) not in known and not isinstance(part, (types.ModuleType, type)):
            yield f"<{type(part).__name__}>" if not isinstance(part, dict) else "", part


def _reason(value: object, failure: Exception, holder: type | None) -> str:
    type_name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    text = _failure_text(failure)
    if isinstance(failure, RecursionError):
        text = "nested too deeply"
    if type(value).__name__ not in text:
        text = f"{text} (in an object of type {type_name})"
    if holder is not None:
        text = f"{text}, which belongs to a {holder.__module__}.{holder.__qualname__}"
    return text if ";" in text else f"{text}; {_remedy(text, type(value), type_name, holder)}"


def _failure_text(failure: Exception) -> str:
    """The text of a failure. Torch raises ``NotImplementedError("{} cannot be pickled", name)``: its parts are joined."""
    if isinstance(failure, ObjectRefused):
        return failure.reason
    if len(failure.args) > 1 and isinstance(failure.args[0], str) and "{}" in failure.args[0]:
        try:
            return failure.args[0].format(*failure.args[1:])
        except (IndexError, KeyError, ValueError):
            pass  # the text was no format
    return str(failure) or type(failure).__name__


def _remedy(text: str, cls: type, type_name: str, holder: type | None) -> str:
    """Advice for the user, for a reason that contains none; ``ckpt doctor`` gives more."""
    if type_name.startswith(f"{CTYPES}."):
        return (
            "keep it in no variable that lives through a checkpoint, or make it again in ckpt.on_restart(f)"
        )
    if "an open pipe" in text:
        return (
            "close it before a checkpoint, or make it again in ckpt.on_restart(f); of a child process: let it end before "
            "(subprocess.run), or say how it is started again: ckpt.register_child(process, start)"
        )
    if "an open " in text:
        return "close it before a checkpoint, or make it again in ckpt.on_restart(f)"
    name = _name_of(cls, type_name)
    if holder is not None:
        package = holder.__module__.partition(".")[0]
        where = "" if name != _UNNAMED else ", where cls is its type"
        return (
            f"say how it is saved: ckpt.register_type({name}, save, load){where}; or, if {package} makes it again when it "
            f"finds None there: ckpt.register_type({name}, lambda x: None, lambda x: None)"
        )
    advice = f"close it before a checkpoint, or say how it is saved: ckpt.register_type({name}, save, load)"
    return advice if name != _UNNAMED else f"{advice}, where cls is type(x) of one such object x"


_UNNAMED = "cls"


def _name_of(cls: type, type_name: str) -> str:
    """What a program can write for the class: a class in C may say that it is of ``builtins``, and be in a package under its
    name."""
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is cls:
        return type_name
    modules = [(name, each) for name, each in list(sys.modules.items()) if isinstance(each, types.ModuleType)]
    names = [name for name, each in modules if vars(each).get(cls.__name__) is cls]
    return f"{min(names, key=len)}.{cls.__name__}" if names else _UNNAMED


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    if type(value) in weakref.ProxyTypes:  # which says it is of the class of what it refers to
        yield from (("", each) for each in referent_of(value))
    elif isinstance(value, dict):
        for key, item in list(dict.items(value)):
            yield f"[{_short_repr(key)}]", item
            yield f"<key {_short_repr(key)}>", key
    elif isinstance(value, (list, tuple, deque)):
        iterate: Any = type(value).__iter__
        for index, item in enumerate(list(iterate(value))):
            yield f"[{index}]", item
    elif isinstance(value, (set, frozenset)):
        for item in list(value):
            yield f"<member {_short_repr(item)}>", item
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield f"<closure {name!r}>", cell.cell_contents
            except ValueError:
                continue
        yield ".__defaults__", value.__defaults__
        yield ".__kwdefaults__", value.__kwdefaults__
    elif isinstance(value, types.CellType):
        yield ".cell_contents", value.cell_contents
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
        yield from _generator_parts(value)
    elif isinstance(value, BaseException):
        yield from (
            (".args", value.args),
            (".__cause__", value.__cause__),
            (".__context__", value.__context__),
        )
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, types.ModuleType):
        return
    attributes = dict(value.__dict__) if isinstance(value, type) else attributes_of(value)
    for name, item in list((attributes or {}).items()):
        yield f".{name}", item
    for cls in type(value).__mro__:
        for name, slot in cls.__dict__.items():
            if type(slot) is types.MemberDescriptorType:
                try:
                    yield f".{name}", slot.__get__(value, type(value))
                except (AttributeError, TypeError):
                    continue


def _generator_parts(value: Any) -> Iterator[tuple[str, object]]:
    try:
        info = gen_info(value)
    except Exception:  # the same failure will be reported for the generator itself
        return
    code = code_of(value)
    names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    for index, item in enumerate(info.record.locals):
        yield f"<local {names[index]!r}>" if index < len(names) else f"<local {index}>", item
    for index, item in enumerate(info.record.stack):
        yield f"<stack {index}>", item


def _short_repr(key: object) -> str:
    text = repr(key) if type(key) in (str, int, float, bytes, bool, type(None)) else type(key).__name__
    return text if len(text) <= _REPR_CHARS else text[: _REPR_CHARS - 1] + "…"

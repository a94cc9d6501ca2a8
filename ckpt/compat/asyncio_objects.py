"""Futures and tasks of ``asyncio`` in C: their structs, and what tells a task to take its next step.

For a new minor version: have ``FutureObj``, ``TaskObj``, ``TaskStepMethWrapper`` and ``futureiterobject``
(``Modules/_asynciomodule.c``) kept their fields? A struct that is not as it was known is found by :func:`misfit`, which
looks at objects of known content. The names of asyncio's modules in Python: :mod:`ckpt.compat.asyncio_names`.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import gc
import sys
import types
from typing import Any

from ckpt.compat import interpreter
from ckpt.compat.memory import put_reference
from ckpt.compat.typeobjects import HEADER_BYTES

__all__ = [
    "Catcher",
    "NOT_WHILE_A_STEP_BEGINS",
    "asyncio_types",
    "attributes_of",
    "await_it",
    "coroutine_of",
    "fields_of",
    "fill_iterator",
    "fill_step",
    "future_of",
    "is_wakeup",
    "make_iterator",
    "make_step",
    "make_wakeup",
    "misfit",
    "owner_of_step",
    "put_fields",
    "task_of",
]

# ---------------------------------------------------------------------- structs

_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_api = ctypes.PyDLL(None)

_OBJECTS = (
    *("loop", "callback0", "context0", "callbacks", "exception", "exception_tb"),
    *("result", "source_tb", "cancel_msg"),
)
_TASK_OBJECTS = ("fut_waiter", "coro", "name", "context")
_FLAGS = ("log_tb", "blocking")
_TASK_FLAGS = ("must_cancel", "log_destroy_pending")
_STATE, _CANCELLED = "state", "cancelled_exc"
_COUNT = "num_cancels_requested"


_Layout = dict[str, tuple[int, Any, int]]  # name -> (offset in bytes, type of the field, bit in it or -1)


def _fields(is_task: bool) -> _Layout:
    """All fields of ``FutureObj`` or ``TaskObj`` but the dictionary of attributes and the list of weak references."""
    at = HEADER_BYTES + len(_OBJECTS) * _POINTER_BYTES
    found: _Layout = {
        name: (HEADER_BYTES + i * _POINTER_BYTES, ctypes.c_void_p, -1) for i, name in enumerate(_OBJECTS)
    }
    if interpreter.FUTURES_HAVE_BITS:
        found[_CANCELLED] = at, ctypes.c_void_p, -1
        found[_STATE] = at + _POINTER_BYTES, ctypes.c_int, -1
        flags = (*_FLAGS, *_TASK_FLAGS) if is_task else _FLAGS
        found.update({name: (at + _POINTER_BYTES + 4, ctypes.c_int, bit) for bit, name in enumerate(flags)})
        if is_task:
            found[_COUNT] = at + 2 * _POINTER_BYTES, ctypes.c_int, -1
        at += 3 * _POINTER_BYTES
    else:
        numbers: tuple[str, ...] = (_STATE, *_FLAGS)
        found.update({name: (at + 4 * i, ctypes.c_int, -1) for i, name in enumerate(numbers)})
        at += 4 * _POINTER_BYTES  # state, flags, padding, dictionary, weak references
        found[_CANCELLED] = at, ctypes.c_void_p, -1
        at += _POINTER_BYTES
        numbers = (*_TASK_FLAGS, _COUNT) if is_task else ()
        after = at + len(_TASK_OBJECTS) * _POINTER_BYTES
        found.update({name: (after + 4 * i, ctypes.c_int, -1) for i, name in enumerate(numbers)})
    for i, name in enumerate(_TASK_OBJECTS if is_task else ()):
        found[name] = at + i * _POINTER_BYTES, ctypes.c_void_p, -1
    return found


NOT_WHILE_A_STEP_BEGINS = ("must_cancel",)
"""Fields that a step of the task looks at when it begins."""

_FUTURE_FIELDS, _WHOLE_TASK_FIELDS = _fields(False), _fields(True)


def _layout(obj: Any) -> _Layout:
    return _WHOLE_TASK_FIELDS if issubclass(type(obj), asyncio_types()["Task"]) else _FUTURE_FIELDS


def _numbers_of(obj: Any) -> dict[str, int]:
    """Name of each field that is not 0 → its number, or the address of the object that it refers to."""
    found: dict[str, int] = {}
    for name, (offset, kind, bit) in _layout(obj).items():
        value = kind.from_address(id(obj) + offset).value or 0
        value = value if bit < 0 else value >> bit & 1
        if value:
            found[name] = value
    return found


def fields_of(obj: Any) -> dict[str, Any]:
    """The content of a future or task in C: name of each field that is not 0 → its value."""
    layout = _layout(obj)
    return {
        name: ctypes.cast(value, ctypes.py_object).value if layout[name][1] is ctypes.c_void_p else value
        for name, value in _numbers_of(obj).items()
    }


def put_fields(obj: Any, values: dict[str, Any]) -> None:
    """Put the content of :func:`fields_of` into a future or task that ``__new__`` has made. Nothing is scheduled."""
    layout = _layout(obj)
    for name, value in values.items():
        offset, kind, bit = layout[name]
        if kind is ctypes.c_void_p:
            put_reference(id(obj) + offset, value)
        else:
            field = kind.from_address(id(obj) + offset)
            field.value = value if bit < 0 else field.value | 1 << bit


def attributes_of(obj: Any) -> dict[str, Any]:
    """The dictionary of attributes of a future or task, which those of the types themselves do not show."""
    get = _api.PyObject_GenericGetDict
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_void_p), ctypes.py_object
    found: dict[str, Any] = get(obj, None)
    return found


# ---------------------------------------------------------------------- what C calls


class Catcher:
    """Stands for an event loop, and for a future: keeps the callback that it is given."""

    _asyncio_future_blocking = True

    def __init__(self) -> None:
        self.caught: Any = None

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
        self.caught = callback

    def add_done_callback(self, callback: Any, *, context: Any = None) -> None:
        self.caught = callback

    def get_loop(self) -> Catcher:
        return self

    def __await__(self) -> Any:
        yield self


async def await_it(obj: Any) -> None:
    """For tasks that are nobody's."""
    await obj


def asyncio_types() -> dict[str, type]:
    """Name → type: ``Future``, ``Task``, ``FutureIter``, ``Step`` (what tells a task to take a step), all made in C. Empty:
    the program has not imported ``asyncio``, or this interpreter has none."""
    return _types() if "_asyncio" in sys.modules else {}


@functools.cache
def _types() -> dict[str, type]:
    module = sys.modules["_asyncio"]
    loop = Catcher()
    future = module.Future(loop=loop)
    step, _, _ = _example()
    return {
        "Future": module.Future,
        "Task": module.Task,
        "FutureIter": type(iter(future)),
        "Step": type(step),
    }


def _example() -> tuple[Any, Any, Any]:
    """A step, a wake-up (what a future calls when it is done), and the task of both, which is of no loop."""
    module = sys.modules["_asyncio"]
    loop = Catcher()
    coroutine = await_it(loop)
    task = module.Task(coroutine, loop=loop, name="")
    step = loop.caught
    step()
    wakeup = loop.caught
    coroutine.close()
    module._unregister_task(task)
    task._log_destroy_pending = False
    loop.caught = None
    return step, wakeup, task


def future_of(iterator: Any) -> list[Any]:
    """The future over which a ``FutureIter`` goes; nothing once it has ended."""
    return [item for item in gc.get_referents(iterator) if item is not type(iterator)]


def make_iterator() -> Any:
    """A ``FutureIter``, for :func:`fill_iterator`."""
    kind: Any = asyncio_types()["Future"]
    return kind.__iter__(kind(loop=Catcher()))


def fill_iterator(iterator: Any, *future: Any) -> None:
    """Make it go over that future; no future: it has ended. ``futureiterobject``: the future."""
    put_reference(id(iterator) + HEADER_BYTES, *future)


def owner_of_step(step: Any) -> tuple[Any, Any]:
    """The task of a step, and the exception that the step will throw, or None."""
    task, *arg = (item for item in gc.get_referents(step) if item is not type(step))
    return task, arg[0] if arg else None


def make_step() -> Any:
    """A step, for :func:`fill_step`."""
    return _example()[0]


def fill_step(step: Any, task: Any, exception: Any) -> None:
    """Make it a step of that task: ``TaskStepMethWrapper``: task, exception."""
    put_reference(id(step) + HEADER_BYTES, task)
    if exception is not None:
        put_reference(id(step) + HEADER_BYTES + _POINTER_BYTES, exception)


_WAKEUP = "task_wakeup"


def is_wakeup(obj: Any) -> bool:
    """Is this what a future calls to wake the task that waits for it (``TaskWakeupDef``)?"""
    return (
        type(obj) is types.BuiltinFunctionType
        and obj.__name__ == _WAKEUP
        and issubclass(type(obj.__self__), asyncio_types().get("Task", ()))
    )


def make_wakeup(task: Any) -> Any:
    """The callback by which a future wakes that task."""
    make = _api.PyCMethod_New
    make.argtypes, make.restype = (
        (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p),
        ctypes.py_object,
    )
    other = _example()[1]
    definition = ctypes.c_void_p.from_address(id(other) + HEADER_BYTES).value  # PyCFunctionObject: m_ml
    return make(definition, task, None, None)


def task_of(callback: Any) -> Any:
    """The task of which this callback takes the next step in C; None: it is no such callback."""
    if type(callback) is asyncio_types().get("Step"):
        return owner_of_step(callback)[0]
    return callback.__self__ if is_wakeup(callback) else None


def coroutine_of(task: Any) -> Any:
    """The coroutine of a task in C, past what a subclass says."""
    return asyncio_types()["Task"].get_coro(task)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- self-test


@functools.cache
def misfit() -> str:
    """What of the structs is not as it is known here; "": all is."""
    module = sys.modules["_asyncio"]
    for name, layout in (("Future", _FUTURE_FIELDS), ("Task", _WHOLE_TASK_FIELDS)):
        last = max(offset + ctypes.sizeof(kind) for offset, kind, _ in layout.values())
        size = getattr(module, name).__basicsize__
        if -(-last // _POINTER_BYTES) * _POINTER_BYTES != size:
            return f"the size of a {name} ({size} bytes)"
    step, wakeup, task = _example()
    if not is_wakeup(wakeup) or owner_of_step(step)[0] is not task:
        return "what takes the next step of a task"
    iterator, future = make_iterator(), module.Future(loop=Catcher())
    fill_iterator(iterator, future)
    if future_of(iterator) != [future] or next(iterator) is not future:
        return "an iterator over a Future"
    return _misfit_of_future(module) or _misfit_of_task(module)


def _has(obj: Any, **expected: Any) -> bool:
    """Has a future or task these fields, numbers or objects, and no others? ``...``: any object. No address is followed."""
    numbers = {name: value if type(value) is int else id(value) for name, value in expected.items()}
    found = _numbers_of(obj)
    return found.keys() == numbers.keys() and all(
        expected[name] is ... or found[name] == number for name, number in numbers.items()
    )


def _misfit_of_future(module: Any) -> str:
    loop, context, error, message = Catcher(), contextvars.Context(), KeyError("known"), "known"
    future = module.Future(loop=loop)
    future.add_done_callback(len, context=context)
    future.add_done_callback(repr, context=context)
    future._asyncio_future_blocking = True
    if not _has(future, loop=loop, callback0=len, context0=context, callbacks=..., blocking=1):
        return "a Future that is pending"
    future.cancel(msg=message)
    if not _has(future, loop=loop, cancel_msg=message, state=1, blocking=1):
        return "a Future that is cancelled"
    failed, finished = module.Future(loop=loop), module.Future(loop=loop)
    try:
        raise error
    except KeyError:
        failed.set_exception(error)
    traceback = error.__traceback__
    is_known = _has(failed, loop=loop, exception=error, exception_tb=traceback, state=2, log_tb=1)
    failed._log_traceback = False
    if not is_known:
        return "a Future with an exception"
    finished.set_result(context)
    return "" if _has(finished, loop=loop, result=context, state=2) else "a Future with a result"


def _misfit_of_task(module: Any) -> str:
    loop, context, name = Catcher(), contextvars.Context(), "known"
    known = {"loop": loop, "name": name, "context": context}
    coroutines = await_it(loop), await_it(loop)
    waits, waits_not = (module.Task(each, **known) for each in coroutines)
    step = loop.caught
    for task in (waits, waits_not):
        module._unregister_task(task)
    is_known = _has(waits, **known, coro=coroutines[0], log_destroy_pending=1)
    waits_not.cancel(name)
    waits_not.cancel(name)
    count = {_COUNT: 2}
    is_known = is_known and _has(
        waits_not, **known, coro=coroutines[1], cancel_msg=name, log_destroy_pending=1, must_cancel=1, **count
    )
    step()  # throws CancelledError into the coroutine of the second one
    is_known = is_known and _CANCELLED in _numbers_of(waits_not)
    for task, coroutine in zip((waits, waits_not), coroutines, strict=True):
        task._log_destroy_pending = False
        coroutine.close()
    waiting = _example()[2]
    is_known = is_known and _numbers_of(waiting).get("fut_waiter") == id(waiting.get_loop())
    return "" if is_known else "a Task"

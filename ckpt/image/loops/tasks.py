"""Futures and tasks of asyncio that are made in C, and what C code gives to the loop: steps and wake-ups.

A future or task is made without ``__init__`` and gets its fields one by one, so nothing is scheduled, and no step of a task
is taken twice: a step that is to come is a handle in the loop, or a callback of the future for which the task waits.

A task that takes a step while the image is taken is on the captured stack: ``Handle._run`` calls ``Context.run``, this
calls the step in C, and this sends into the coroutine. A new process makes this call again. The step then
finds the task as it was when the step began: it is nobody's current task, and it is not to be cancelled, though it may have
cancelled itself meanwhile; that comes back when all frames are there. What the step has thrown into the coroutine has been
delivered.

Not here: the loop (:mod:`ckpt.image.loops.event_loops`). Private fields and names: :mod:`ckpt.compat.asyncio_objects`.
"""

from __future__ import annotations

from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ckpt.compat import asyncio_names, asyncio_objects
from ckpt.image.errors import RestoreError
from ckpt.image.reducers import rebuild
from ckpt.image.reducers.builtin_types import reduce_builtin_method
from ckpt.image.reducers.raw_instances import slots_of
from ckpt.image.threads.restart import call_at_last

if TYPE_CHECKING:
    from ckpt.image.reducers.saver import Saver

__all__ = [
    "TaskTables",
    "reduce_future",
    "reduce_future_iterator",
    "reduce_step",
    "reduce_tables",
    "reduce_wakeup",
]

# ---------------------------------------------------------------------- futures, tasks


def reduce_future(saver: Saver, obj: Any) -> Any:
    """The reducer for futures and tasks in C, also of derived classes."""
    misfit = asyncio_objects.misfit()
    if misfit:
        raise PicklingError(f"this interpreter's asyncio is not as it is known: {misfit}")
    fields = asyncio_objects.fields_of(obj)
    late = {}
    if any(obj is task for task in saver.stepping_tasks):
        late = {name: fields.pop(name) for name in asyncio_objects.NOT_WHILE_A_STEP_BEGINS if name in fields}
    state = (fields, late, asyncio_objects.attributes_of(obj), slots_of(saver, obj))
    return make_future, (type(obj),), state, None, None, fill_future


def make_future(cls: Any) -> Any:
    return cls.__new__(cls)


def fill_future(obj: Any, state: tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]) -> None:
    fields, late, attributes, slots = state
    misfit = asyncio_objects.misfit()
    if misfit:
        raise RestoreError(f"this interpreter's asyncio is not as it is known: {misfit}")
    asyncio_objects.put_fields(obj, fields)
    if attributes:
        asyncio_objects.attributes_of(obj).update(attributes)
    if slots:
        rebuild.fill_slots(obj, (None, slots))
    if late:
        call_at_last(asyncio_objects.put_fields, obj, late)


def reduce_future_iterator(saver: Saver, obj: Any) -> Any:
    """``await future`` holds such an iterator: the future, or nothing once it has ended."""
    future = tuple(asyncio_objects.future_of(obj))
    return asyncio_objects.make_iterator, (), (future,), None, None, fill_future_iterator


def fill_future_iterator(iterator: Any, state: tuple[tuple[Any, ...]]) -> None:
    asyncio_objects.fill_iterator(iterator, *state[0])


# ---------------------------------------------------------------------- steps


def reduce_step(saver: Saver, obj: Any) -> Any:
    return asyncio_objects.make_step, (), asyncio_objects.owner_of_step(obj), None, None, fill_step


def fill_step(step: Any, state: tuple[Any, Any]) -> None:
    asyncio_objects.fill_step(step, *state)


def reduce_wakeup(saver: Saver, obj: Any) -> Any:
    """The reducer for functions in C: the callback by which a future wakes a task is one."""
    if asyncio_objects.is_wakeup(obj):
        return asyncio_objects.make_wakeup, (obj.__self__,)
    return reduce_builtin_method(saver, obj)


# ---------------------------------------------------------------------- tables


class TaskTables:
    """A placeholder in the pickle stream: its reducer saves the tables of asyncio in which a task is.

    Of tasks that only these tables hold, by weak references, none is saved. ``numbers``: see
    :func:`ckpt.compat.asyncio_names.next_numbers`.
    """

    def __init__(self, numbers: tuple[int, Any]) -> None:
        self.numbers = numbers


def reduce_tables(saver: Saver, obj: TaskTables) -> Any:
    memo = saver.copy_of_memo()
    tables = {
        name: [task for task in list(table) if id(task) in memo]
        for name, table in asyncio_names.task_tables().items()
    }
    stepping = [id(task) for task in saver.stepping_tasks]
    current = [
        (loop, task)
        for loop, task in asyncio_names.current_tasks().items()
        if id(loop) in memo and id(task) not in stepping
    ]
    return list, ([tables, current, obj.numbers],)


def put_tables(saved: tuple[dict[str, list[Any]], list[tuple[Any, Any]], tuple[int, Any]]) -> None:
    """Called when everything is loaded."""
    tables, current, numbers = saved
    asyncio_names.set_next_numbers(*numbers)
    known = asyncio_names.task_tables()
    for name, tasks in tables.items():
        for task in tasks:
            known[name].add(task)
    asyncio_names.current_tasks().update(current)

"""Generators, coroutines and asynchronous generators as picklable content. The pickler's reducer for them uses this module.

    save   info = gen_info(gen); reduce to (gen_make, info.make, info.record, None, None, gen_fill)
    load   gen = gen_make(*make); gen_fill(gen, record)

A generator is made again by a call of its function with dummy arguments, which runs none of its code; then the content of
its frame is overwritten.

The content of a generator that is *running* when the image is taken is in the Stack. At load such a generator is made as if
it were suspended, and gets its content when the frame that runs it enters it again. That is possible only for the generators
of `Stack.generators()`, so `gen_info` is given these. It refuses every other running generator: one that another thread
runs, or one into whose delegate an exception is being thrown.

Not here: frames of functions (`stack`), which objects the pickler meets (`ckpt.image.reducers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import AsyncGeneratorType, CellType, CodeType, CoroutineType, FunctionType, GeneratorType
from typing import Any

from ckpt.image.errors import Refused, RestoreError
from ckpt.image.frames import _frames
from ckpt.image.frames.suspended import entered, location
from ckpt.transport.records import dataclass

__all__ = ["GenInfo", "GenRecord", "code_of", "gen_fill", "gen_info", "gen_make"]

_STATES = {"created": -2, "suspended": -1, "running": 0, "finished": 1}
_CODE = {GeneratorType: "gi_code", CoroutineType: "cr_code", AsyncGeneratorType: "ag_code"}
_NAMES = {number: name for name, number in _STATES.items()}


@dataclass(slots=True)
class GenRecord:
    """Content of a generator's own frame. state: "created", "suspended", "running" (its frame is in the
    Stack) or "finished"; lists may hold `_frames.NULL`; lasti in code units; exc: the exception it is
    handling. marks: of an asynchronous generator (`_frames.async_generator_marks`)."""

    state: str
    locals: list[Any]
    stack: list[Any]
    lasti: int
    exc: BaseException | None
    marks: tuple[Any, ...] = ()


@dataclass(slots=True)
class GenInfo:
    """What the pickler's reducer needs of one generator. `make`: arguments for gen_make; `record`: state for gen_fill."""

    make: tuple[Any, ...]
    record: GenRecord


def gen_info(gen: Any, running: Iterable[Any] | None = None) -> GenInfo:
    """Content of a generator, coroutine or asynchronous generator.

    running: the generators whose frames are in the image (`Stack.generators()`); None: not checked. Raises
    Refused for a running one that is not among them, and for what is none.
    """
    if type(gen) not in _CODE:
        raise Refused(f"a {type(gen).__name__} cannot be saved")
    if not _frames.SUPPORTED:
        raise Refused("a generator cannot be saved: the frames of this version of Python are not known")
    number, maker, lasti, locals_, stack, exc = _frames.generator_read(gen)
    state = _NAMES[number]
    if state == "running" and running is not None and not any(gen is other for other in running):
        raise Refused("a generator is running outside of the captured stack", location(maker.__code__, 0))
    make = (maker, gen.__name__, gen.__qualname__, code_of(gen))
    marks = _frames.async_generator_marks(gen) if type(gen) is AsyncGeneratorType else ()
    return GenInfo(make, GenRecord(state, locals_, stack, lasti, exc, marks))


def code_of(gen: Any) -> CodeType:
    """The code of a generator, coroutine or asynchronous generator."""
    found: CodeType = getattr(gen, _CODE[type(gen)])
    return found


def gen_make(func: Any, name: str, qualname: str, code: CodeType) -> Any:
    """A fresh generator of that function and code, to be filled; a CodeType in place of it: for a finished one."""
    if isinstance(func, CodeType):
        func = FunctionType(func, {}, closure=tuple(CellType() for _ in func.co_freevars))
    func = entered(func, code, [None] * len(code.co_freevars))
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    gen = func(*[None] * code.co_argcount, **dict.fromkeys(keywords))
    if type(gen) not in _CODE:
        raise RestoreError(f"{code.co_qualname} is no generator function")
    gen.__name__ = name
    gen.__qualname__ = qualname
    return gen


def gen_fill(gen: Any, record: GenRecord) -> None:
    """Put saved content into a generator made by gen_make."""
    if record.state == "finished":
        _finish(gen)
    else:
        _frames.generator_fill(
            gen, _STATES[record.state], record.locals, record.stack, record.lasti, record.exc
        )
    if record.marks:
        _frames.set_async_generator_marks(gen, *record.marks)


def _finish(gen: Any) -> None:
    """Close a generator that has not begun: its function does not run."""
    if type(gen) is not AsyncGeneratorType:
        gen.close()
        return
    _frames.set_async_generator_marks(gen, True, False, False, None)  # no hook gets it
    try:
        gen.aclose().send(None)
    except StopIteration:
        pass

"""What all ranks of a file do together: each says what it wants, rank 0 does it, and all have its result, or its error.

So nobody goes on before it is done, and nothing of it is done before all have come: what a rank had written before is before
it, what it writes afterwards is after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckpt.mpi.base.errors import ERR_NOT_SAME, MpiException
from ckpt.mpi.io.state import WRITER, FileState


def together(
    private: Any, wanted: Any, act: Callable[..., Any], *args: Any, what: str = "", error: Any = None
) -> Any:
    """`act(what all ranks want, *args)` at rank 0; its result at all ranks. Collective.

    what: all have to want the same, and this is it. error: this rank's, which it has found before.
    MpiException: `error`, at the other ranks with the rank that has it; what `act` has raised, at all alike;
    ERR_NOT_SAME."""
    problem = None if error is None else (error.error_code, error.detail)
    said = private.gather((wanted, problem), WRITER)
    reply: tuple[int, str, Any] = (0, "", None)
    if said is not None:
        try:
            reply = 0, "", _act(said, act, args, what)
        except MpiException as failure:
            reply = failure.error_code, failure.detail, None
    code, text, result = private.bcast(reply, WRITER)
    if error is not None:
        raise error
    if code:
        raise MpiException(code, text)
    return result


def _act(said: list[Any], act: Callable[..., Any], args: tuple[Any, ...], what: str) -> Any:
    for rank, (_, problem) in enumerate(said):
        if problem is not None:
            raise MpiException(problem[0], f"rank {rank}: {problem[1]}")
    values = [wanted for wanted, _ in said]
    if what:
        for rank, value in enumerate(values):
            if value != values[0]:
                raise MpiException(
                    ERR_NOT_SAME, f"{what}: {value} at rank {rank}, {values[0]} at rank {WRITER}"
                )
        return act(values[0], *args)
    return act(values, *args)


def at_writer(state: FileState, wanted: Any, act: str, what: str, error: Any = None) -> Any:
    """The method `act` of the writer with what all want, which has to be the same; its result at all ranks. Collective."""
    return together(state.private, wanted, _do, state.writer, act, what=what, error=error)


def _do(wanted: Any, writer: Any, act: str) -> Any:
    return getattr(writer, act)(wanted)

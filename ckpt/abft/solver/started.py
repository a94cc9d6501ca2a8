"""Processes that are started while an operation goes on, to form new checksums: how they are taken in, at both sides.

A member calls `take_in` in its meeting. A process that was started has met the members before (link.py), and calls `serve`:

    started ──merge──▶ told what the operation is, and how far all are ──▶ as any idle rank ──has ended──▶ ends

It ends without a word when the operation ends with an error, which all ranks that have begun it raise. It has none of the
program's functions, and needs none (joining.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ckpt import MPI
from ckpt.abft.decisions.joining import Meeting, Said, joined
from ckpt.abft.errors import AbftError
from ckpt.abft.numbers.local import Array
from ckpt.abft.solver.link import Interrupted, Link

__all__ = ["Brief", "serve", "take_in", "without_fill"]

S = TypeVar("S", bound=Said)


class Brief(Protocol):
    """What a process is told that is started. `course`: that of the operation before this process joined it; `seals`: as in
    `Link`."""

    @property
    def course(self) -> Any: ...
    @property
    def seals(self) -> bool: ...
    def serve(self, link: Link, comm: Any, course: Any, states: Mapping[int, Any]) -> None:
        """Take part to the end."""
        ...


def take_in(link: Link, meeting: Meeting[Any, S, Any], said: S, brief: Callable[[Any], Brief]) -> None:
    """Carry the meeting out. `said`: by this rank; `brief`: of a course."""
    while meeting.action != "follow":
        if meeting.action == "merge":
            found = link.merge((said, brief(meeting.course)))
            meeting.merged([each if isinstance(each, int) else each[0] for each in found])
            link.adopt(meeting.states)
            continue
        try:
            meeting.asked(link.ask(meeting.counts))
        except Interrupted:
            meeting.met(link.meet(said))


def serve(comm: Any, found: Sequence[int | tuple[Any, Brief]]) -> None:
    """Take part to the end. `comm`, `found`: what the merge has given, the places of new processes and what members say."""
    brief = next((each[1] for each in found if not isinstance(each, int)), None)
    if brief is None:
        return  # all that have asked for this process are dead
    said = [each if isinstance(each, int) else each[0] for each in found]
    course, states = joined(brief.course, said, MPI.COMM_WORLD.size)
    link = Link(comm, rank=list(states)[comm.rank], seals=brief.seals)
    link.adopt(states)
    try:
        brief.serve(link, comm, course, states)
    except AbftError:
        pass  # of all alike
    finally:
        link.close()


def without_fill(rows: slice, columns: slice) -> Array:
    """The `fill` of a matrix in such a process."""
    raise AssertionError("a process that was started meanwhile is asked for numbers of the matrix")

"""`solve`: A·x = b by LU factorisation with partial pivoting on a P × Q grid and its columns of checksums.

A rank of the grid goes through

    meet → follow the decision → steps → back substitution → its share of the residual → meet → done

and from anywhere back to the first, when a call is interrupted: a rank that met a failure has ended the communication. Idle
ranks take the same way without steps. An exception of any rank, the program's `fill` among them, is told at a meeting
too, so that all ranks raise. A meeting may take new processes in (joining.py); these begin behind it (started.py).

While nothing fails, there are two meetings, at the start and at the end, and no other collective call.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ckpt.abft.decisions.course import Course, Decision, State, is_protected, replaced
from ckpt.abft.decisions.joining import Meeting, Reserve
from ckpt.abft.decisions.plan import decide, ends_early, first_course
from ckpt.abft.errors import Inaccurate, InputError, RankFailed
from ckpt.abft.numbers.local import Array
from ckpt.abft.numbers.verify import Corrupt
from ckpt.abft.solver.backward import residual, residual_share, substitute
from ckpt.abft.solver.link import Interrupted, Link
from ckpt.abft.solver.matrix import Grid, Matrix, right_hand_sides
from ckpt.abft.solver.member import Member
from ckpt.abft.solver.method import Method
from ckpt.abft.solver.protected import log_corrected, log_loss, put_right, raise_problems, told
from ckpt.abft.solver.report import Loss, Report, Solution
from ckpt.abft.solver.started import take_in, without_fill

__all__ = ["RESIDUAL_BOUND", "Brief", "Options", "Solving", "Task", "factorised", "solve"]

RESIDUAL_BOUND = 16.0
"""Linpack's bound: a solution with a larger residual is wrong."""

_ON_LOSS = ("hot", "recover", "stop")


def solve(
    A: Matrix,
    b: Any,
    *,
    on_loss: str = "hot",
    restore: bool = True,
    check: bool = True,
    verify: int = 0,
    look_ahead: int = 0,
) -> Solution:
    """The solution x of A·x = b, at every living rank of the grid; `x.report` tells what happened.

    `b`: n numbers, or n × r for r right-hand sides, the same at all ranks. Collective over the ranks of the grid, spares
    included: every living one calls it with equal arguments.

    `on_loss`: "hot": a column that has lost a process is replaced by the checksums, which costs no data movement. "recover":
    what it held is computed back at once. "stop": TooManyLost. `restore`: with spares, turn replaced columns back in the
    background, before the next failure. `check`: compute the residual and raise Inaccurate if it is larger than 16.
    `verify`: look for wrong numbers in memory every so many steps, and before they are used (0: never). One in a process
    is put right, and the column of a process with more of them is replaced by the checksums. `look_ahead`: 1: a panel is
    factorised as soon as its block column is ready, before the rest of the matrix of that column is (0: after that).

    Raises at all living ranks alike: InputError, GridError, Singular, TooManyLost, Inaccurate, RankFailed. Ranks die only
    under ``ckpt run --on-failure continue``; otherwise a death sets the whole job back to its last checkpoint.
    """
    if not isinstance(A, Matrix):
        raise InputError(f"A must be made by grid.matrix(), not {type(A).__name__}")
    if on_loss not in _ON_LOSS:
        raise InputError(f"on_loss must be one of {', '.join(_ON_LOSS)}, not {on_loss!r}")
    _see_numbers(verify, look_ahead)
    return _Solve(A, b, Options(on_loss, restore, check, int(verify), int(look_ahead)), Task()).run()


def _see_numbers(verify: Any, look_ahead: Any) -> None:
    if not isinstance(verify, (int, np.integer)) or verify < 0:
        raise InputError(f"verify must be a number of steps, not {verify!r}")
    if not isinstance(look_ahead, (int, np.integer)) or look_ahead not in (0, 1):
        raise InputError(f"look_ahead must be 0 or 1, not {look_ahead!r}")


def factorised(A: Matrix, task: Task, check: bool, verify: int, look_ahead: int = 0) -> Solution:
    """The factors of A, as `task` makes them of what the steps leave behind. Lost columns are computed back at once."""
    if not isinstance(A, Matrix):
        raise InputError(f"A must be made by grid.matrix(), not {type(A).__name__}")
    _see_numbers(verify, look_ahead)
    options = Options("recover", True, check, int(verify), int(look_ahead))
    return _Solve(A, np.zeros((A.n, 0)), options, task).run()


class Task:
    """What the steps are for. This one: the solution of a system."""

    name = "solve"

    @property
    def method(self) -> Method:
        return Method()

    def finish(self, member: Member) -> Array:
        """The result, of what the steps leave behind. May be interrupted, and begun again."""
        return substitute(member)

    def probe(self, member: Member) -> tuple[Array, Array]:
        """x and b (n × r): A·x should be b."""
        assert member.solution is not None
        return member.solution, member.right


class Options(NamedTuple):
    """As in `solve`."""

    on_loss: str
    restore: bool
    check: bool
    verify: int
    look_ahead: int


class Brief(NamedTuple):
    """What a process is told that is started while a solve goes on. `course`: that of the solve before this process joined
    it; `right`: how many right-hand sides."""

    course: Course
    grid: tuple[int, int]
    n: int
    nb: int
    dtype: Any
    right: int
    task: Task
    options: Options
    signature: str
    losses: tuple[Loss, ...]

    @property
    def seals(self) -> bool:
        """Do arrays travel with digests?"""
        return self.options.verify > 0

    def serve(self, link: Link, comm: Any, course: Course, states: Mapping[int, State]) -> None:
        """Take part to the end."""
        grid = Grid(*self.grid, redundant=0, comm=comm)
        matrix = Matrix(grid, self.n, without_fill, self.nb, self.dtype)
        right = np.zeros((0, self.right), dtype=self.dtype)
        solving = Solving(link, matrix, right, self.options, self.task, self.signature)
        solving.losses = list(self.losses)
        try:
            solving.goes_to_the_end((course, states))
        except Exception:
            if solving.problem is None:  # else the others know it, and raise it
                raise


class Solving:
    """One rank on its way through a solve: see the header. `right`: the right-hand sides, n × r."""

    def __init__(
        self, link: Link, matrix: Matrix, right: Array, options: Options, task: Task, signature: str
    ) -> None:
        self.link, self.matrix, self.task = link, matrix, task
        self.options, self.signature = options, signature
        self.began = time.perf_counter()
        self.problem: str | None = None
        self.member = Member(link, matrix, right, options.verify, task.method)
        self.reserve = Reserve(matrix.grid.has_reserve)
        self.losses: list[Loss] = []
        self.states: Mapping[int, State] = {}
        self.checked = 0
        self.shares: tuple[float, ...] = ()
        self.seen_ns = 0

    def goes_to_the_end(self, begins: tuple[Course, Mapping[int, State]] | None = None) -> None:
        """Until all have the solution, or all raise. `begins`: what this rank begins with, if it was started meanwhile."""
        decision = self._meet() if begins is None else self._decided(self._said(), *begins)
        while decision.what != "solved":
            original: Exception | None = None
            try:
                self._go(decision)
            except Interrupted:
                self.seen_ns = self.seen_ns or time.perf_counter_ns()
            except Corrupt:
                self.seen_ns = self.seen_ns or time.perf_counter_ns()
                self.member.give_up_data()
            except Exception as error:
                original, self.problem = error, told(error)
            if self.problem is not None or self.seen_ns:
                self.link.end()
            try:
                decision = self._meet()
            except RankFailed as failed:
                raise (original if original is not None else failed) from None

    def _go(self, decision: Decision) -> None:
        member = self.member
        before = member.step
        member.follow(decision)
        self._note(decision, before)
        if decision.what != "finish" and member.solution is None and self.matrix.n > 0:
            member.run_steps(early=ends_early(self.reserve, decision))
            member.solution = np.ascontiguousarray(self.task.finish(member))
        elif self.matrix.n == 0:
            member.solution = np.zeros(member.method.shape(0, member.right.shape[1]), dtype=self.matrix.dtype)
        looks = self.options.check and self.matrix.n > 0 and self.link.rank < decision.course.began
        self.shares = residual_share(member, *self.task.probe(member)) if looks else ()
        self.checked = decision.course.meetings

    def _said(self) -> State:
        return self.member.state(
            checked=self.checked, problem=self.problem, signature=self.signature, remarks=self.shares
        )

    def _meet(self) -> Decision:
        member, grid, said = self.member, self.matrix.grid, self._said()
        states = self.link.meet(said)
        if member.course is not None:
            return self._decided(said, member.course, states)
        self._see(states)
        course = first_course(
            *(member.shape, tuple(sorted(states)), grid.redundant, self.options.on_loss),
            keep=member.method.keep,
            ahead=self.options.look_ahead,
            began=grid.comm.size,
        )
        return Decision("start", course)

    def _decided(self, said: State, course: Course, states: Mapping[int, State]) -> Decision:
        """What all decide, with new processes if there are to be some (joining.py)."""
        self._see(states)
        meeting = Meeting(course, states, self.reserve, partial(decide, restore=self.options.restore))
        take_in(self.link, meeting, said, self._brief)
        self.states, self.reserve = meeting.states, meeting.reserve
        return meeting.decision

    def _see(self, states: Mapping[int, State]) -> None:
        self.states = states
        raise_problems(states, self.task.name)

    def _brief(self, course: Course) -> Brief:
        matrix = self.matrix
        size = matrix.n, matrix.nb, matrix.dtype, self.member.right.shape[1]
        grid = matrix.grid.P, matrix.grid.Q
        return Brief(course, grid, *size, self.task, self.options, self.signature, tuple(self.losses))

    def _note(self, decision: Decision, before: int) -> None:
        course = decision.course
        noted = sum(len(loss.ranks) for loss in self.losses)
        died = course.lost[noted:]
        corrupt = tuple(rank for rank, state in sorted(self.states.items()) if state.corrupt)
        if died or corrupt:
            now = time.perf_counter_ns()
            took_ms = (now - (self.seen_ns or now)) / 1e6
            behind = max(0, course.base - before) if self.member.place is not None and before >= 0 else 0
            step = course.shape.blocks if decision.what == "finish" else course.base
            loss = Loss(died, corrupt, step, course.shape.blocks, decision.happened, took_ms, behind)
            self.losses.append(loss)
            # Of those that nobody waits for, if any
            if self.link.rank == min(course.roles.idle or self.states):
                log_loss(self.task.name, loss, recovered=self.options.on_loss == "recover")
        self.seen_ns = 0


class _Solve(Solving):
    """A rank that has begun it."""

    def __init__(self, matrix: Matrix, b: Any, options: Options, task: Task) -> None:
        problem = None
        self.flat = np.ndim(b) < 2
        try:
            right = right_hand_sides(matrix, b)
        except InputError as error:
            right, problem = np.zeros((matrix.n, 1), dtype=matrix.dtype), told(error)
        given = f"{task.name} b={zlib.crc32(right.tobytes()):08x}{right.shape} {' '.join(map(str, options))}"
        link = Link(matrix.grid.comm, matrix.grid.hook, seals=options.verify > 0)
        super().__init__(link, matrix, right, options, task, f"{matrix.signature()} {given}")
        self.problem = problem

    def run(self) -> Solution:
        try:
            self.goes_to_the_end()
            return self._result()
        finally:
            self.link.close()

    def _result(self) -> Solution:
        member, matrix = self.member, self.matrix
        assert member.course is not None and member.solution is not None
        shares = [self.states[rank].remarks for rank in member.course.having(self.states)]
        check = self.options.check and matrix.n > 0
        value = residual(member, shares) if check else math.nan
        if check and not value <= RESIDUAL_BOUND:
            raise Inaccurate(
                f"the residual is {value:.3g}, and no more than {RESIDUAL_BOUND:.0f} can be rounding: the solution must not "
                f"be used. Either fill gives other numbers each time, or sums overflow or underflow (divide A and b by "
                f"their largest numbers), or a number was wrong in memory, or errors grow in this matrix as in any LU with "
                f"partial pivoting (not in abft.qr)"
            )
        course = member.course
        corrected, redone = put_right(self.states)
        if self.link.rank == min(self.states):
            log_corrected(self.task.name, corrected, redone)
        x = member.solution[:, 0] if self.flat else member.solution
        report = Report(
            order=matrix.n,
            grid=(matrix.grid.P, matrix.grid.Q),
            losses=tuple(self.losses),
            living=tuple(sorted(self.states)),
            residual=value,
            protected=is_protected(course),
            replaced=replaced(course),
            corrected=corrected,
            redone=redone,
            started=course.started,
            seconds=time.perf_counter() - self.began,
            remarks=_remarks(shares, matrix, course.condition),
        )
        return Solution.of(x, report)


def _remarks(shares: list[tuple[float, ...]], matrix: Matrix, condition: float) -> tuple[str, ...]:
    weights = (f"condition number of the weights: {condition:.3g}",) if condition > 1 else ()
    return (*_of_entries(shares, matrix), *weights)


def _of_entries(shares: list[tuple[float, ...]], matrix: Matrix) -> tuple[str, ...]:
    if not all(shares):
        return ()
    largest, smallest = max(share[2] for share in shares), min(share[3] for share in shares)
    bound = 1 / float(np.finfo(matrix.dtype).eps)
    with contextlib.suppress(OverflowError, ZeroDivisionError):
        if largest / smallest > bound:
            return (
                f"the entries of A are between {smallest:.3g} and {largest:.3g}: sums of checksums lose the small ones",
            )
    return ()

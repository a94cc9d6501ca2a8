"""A solve without numbers: the shipped `operations` and `decide`, carried out on symbols, with every death there can be.

A process is its step, its panels, and for every block what it is: the row of weights of the true blocks in it.
A panel is (k, what it was made of). Every message says of which step and width it is, and is compared with what is
awaited.

All receives name their sender, so what a process has done after i calls does not depend on the order in which processes run
(a Kahn network). One run gives all snapshots, and every combination of them in which no message is received before it
was sent is a state in which a death can find the processes (exploration.py). A process is interrupted in a call, so local
operations belong to the call before them.

With `solution` a run goes on to the solution: whoever has the unknowns of all columns of data has it ("unknown"; the
back substitution itself changes nothing that is held, and is left out).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ckpt.abft.decisions import copies, course, steps
from ckpt.abft.decisions.course import Decision, Transfer
from ckpt.abft.decisions.encoding import row_of, unit
from ckpt.abft.decisions.grid import Shape
from ckpt.abft.decisions.steps import Op, Share
from tests.unit.ckpt.abft.decisions.process import Process, close, expect

LOCAL = ("ahead", "factorise", "solve", "apply", "combine", "done")


class Run:
    """From a decision to the end, all processes; `history[rank][i]`: the process after i calls; `needs[rank][i]`: the
    (rank, calls) without which call i cannot end. `left`: so many processes may be started."""

    def __init__(
        self,
        shape: Shape,
        processes: dict[int, Process],
        decision: Decision,
        solution: bool = False,
        left: int = 0,
    ) -> None:
        self.left = left
        self.shape, self.course, self.processes = shape, decision.course, processes
        self.decision, self.solution = decision, solution
        self.programs = {rank: deque(self._follow(process, decision)) for rank, process in processes.items()}
        self.messages: dict[Any, deque[Any]] = {}
        self.history = {rank: [process.copy()] for rank, process in processes.items()}
        self.needs: dict[int, list[tuple[int, int] | None]] = {rank: [] for rank in processes}

    # -- following a decision, as member.py does

    def _follow(self, process: Process, decision: Decision) -> Iterator[Any]:
        course = self.course
        if decision.what == "finish":
            return iter([t for t in decision.transfers if process.rank in (t.source, t.target)])
        if decision.what == "start":
            self._start(process)
        for group, block, upper in reversed(process.backups):
            if process.place is not None and (process.place.v, group) not in course.settled:
                process.blocks[group], process.upper = block, (process.upper - {group}) | upper
        process.backups.clear()
        process.panels = {k: panel for k, panel in process.panels.items() if k < course.base}
        process.kept = {k: panel for k, panel in process.kept.items() if k < course.base}
        process.place = course.roles.place(process.rank)
        joins = any(t.kind == "right" and t.target == process.rank for t in decision.transfers)
        if process.place is None or joins:
            process.step, process.update, process.panels, process.applied = -1, None, {}, ()
            process.blocks, process.right, process.kept = {}, False, {}
        for k in process.panels:
            self._keep(process, k)
        program: list[Any] = [t for t in decision.transfers if process.rank in (t.source, t.target)]
        if process.place is not None:
            first = course.base if joins else process.step
            for transfer in decision.transfers:
                if transfer.kind == "update" and transfer.target == process.rank:
                    first = transfer.k + 1
            place = process.place
            columns = course.roles.numbers()
            for k in range(first, self.shape.blocks):
                program += steps.operations(
                    *(self.shape, columns, course.base, k, place.p, place.v, course.shares, course.ahead)
                )
            last = course.shares.get(self.shape.blocks, ())
            program += steps.share_operations(self.shape, self.shape.blocks, place.p, place.v, last)
        return iter([*program, *(self._end(process.rank) if self.solution else ())])

    def _end(self, rank: int) -> Iterator[Any]:
        """The first row of every column of data gives its unknowns to all."""
        heads, k = [column.ranks[0] for column in self.course.roles.data], self.shape.blocks
        if rank in heads:
            others = (other for other in self.course.roles.ranks() if other != rank)
            yield from (Transfer("unknown", rank, other, k) for other in others)
        yield from (Transfer("unknown", head, rank, k) for head in heads if head != rank)
        yield Op("done", k)

    def _start(self, process: Process) -> None:
        place = self.course.roles.place(process.rank)
        if place is None:
            return
        expect(process.rank < self.course.began, "a place to be filled by", process.rank)
        Q = self.shape.Q
        rows = self.course.roles.column(place.v).rows or (unit(place.v, Q),) * self.shape.groups
        process.blocks = dict(enumerate(rows))
        process.step, process.right, process.applied, process.panels = 0, True, (), {}
        process.update, process.backups, process.updated = None, [], dict.fromkeys(process.blocks, 0)
        process.upper = set()

    # -- running

    def run(self) -> None:
        """Run to the end. Raises Wrong: blocked for ever, or another mistake."""
        moved = True
        while moved:
            moved = False
            for rank, program in self.programs.items():
                while program and self._call(self.processes[rank], program):
                    moved = True
        left = {rank: program[0] for rank, program in self.programs.items() if program}
        expect(not left, "blocked for ever:", left)
        expect(not any(self.messages.values()), "never received:", [k for k, v in self.messages.items() if v])

    def _call(self, process: Process, program: deque[Any]) -> bool:
        """One call, and the local operations behind it."""
        item = program[0]
        need: tuple[int, int] | None = None
        if isinstance(item, Transfer):
            if item.source == item.target:
                self._apply(process, item.k)
            elif item.source == process.rank:
                self._put(process, item.target, item.kind, item.k, self._transferred(process, item))
            else:
                message = self._take(item.source, process.rank, item.kind, item.k)
                if message is None:
                    return False
                need = message[0]
                self._receive_transfer(process, item, message[1])
        elif item.kind not in LOCAL:
            other = self.course.roles.rank(*item.peer)
            verb, what = item.kind.split(" ")
            if verb == "give":
                self._put(process, other, what, (item.k, item.detail), self._content(process, what, item))
            else:
                message = self._take(other, process.rank, what, (item.k, item.detail))
                if message is None:
                    return False
                need = message[0]
                self._receive(process, what, item, message[1])
        else:
            self._local(process, item)
        program.popleft()
        while program and isinstance(program[0], Op) and program[0].kind in LOCAL:
            self._local(process, program.popleft())
        self.needs[process.rank].append(need)
        self.history[process.rank].append(process.copy())
        return True

    def _put(self, process: Process, target: int, kind: str, k: Any, content: Any) -> None:
        done = len(self.needs[process.rank]) + 1
        queue = self.messages.setdefault((process.rank, target, kind, k), deque())
        queue.append(((process.rank, done), content))

    def _take(self, source: int, target: int, kind: str, k: Any) -> Any:
        queue = self.messages.get((source, target, kind, k))
        return queue.popleft() if queue else None

    def _keep(self, process: Process, k: int) -> None:
        assert process.place is not None or not process.panels
        if (
            self.course.keep
            and process.place is not None
            and process.place.v in copies.holders(self.shape.Q, k, self.course.redundant)
        ):
            process.kept[k] = process.panels[k]

    # -- operations of a step

    def _width(self, process: Process, k: int) -> int:
        assert process.place is not None
        open_groups = self.course.open_at(k, process.place.v)
        return steps.trailing_group(self.shape, k, process.place.v, open_groups)

    def _content(self, process: Process, what: str, op: Op) -> Any:
        expect(
            process.step == op.k
            or what == "token"
            or op.k == self.shape.blocks
            or self._is_ahead(process, op),
            "a message of another step",
            op,
        )
        if what == "part":
            return self._part(process, op)
        if what in ("piece", "panel"):
            return process.panels[op.k]
        if what == "rows":
            return self._width(process, op.k), process.panels[op.k], process.blocks, process.applied
        if what == "update":
            expect(process.update == (op.k, self._width(process, op.k)), "another update", process.update, op)
            return process.update
        if what == "block":
            return process.blocks[self._share(op).group], process.applied
        return None

    def _is_ahead(self, process: Process, op: Op) -> bool:
        return (
            self.course.ahead == 1
            and op.kind
            in (
                *("ahead", "factorise", "give part", "get part", "give piece", "get piece"),
                *("give panel",) * (process.place is not None and process.place.v == self.shape.owner(op.k)),
            )
            and process.step == op.k - 1 >= self.course.base
        )

    def _part(self, process: Process, op: Op) -> Any:
        """What a panel is made of: the block, and the panels that have changed it."""
        if self._is_ahead(process, op):
            return process.ahead
        return process.blocks[op.k // self.shape.Q], process.applied

    def _share(self, op: Op) -> Share:
        return self.course.shares[op.k][op.detail]

    def _receive(self, process: Process, what: str, op: Op, content: Any) -> None:
        if what == "part":
            mine = self._part(process, op)
            expect(content == mine, "a panel of parts that differ", op, content, mine)
        elif what in ("piece", "panel"):
            process.panels[op.k] = content
            self._keep(process, op.k)
        elif what == "rows":
            mine = self._width(process, op.k), process.panels[op.k], process.blocks, process.applied
            expect(content == mine, "rows of another width or state", op)
        elif what == "update":
            expect(content == (op.k, self._width(process, op.k)), "an update of another width", op)
            process.update = content
        elif what == "block":
            process.given[op.k, op.detail, op.peer[1]] = content  # type: ignore[index]

    def _local(self, process: Process, op: Op) -> None:
        k = op.k
        if op.kind == "ahead":
            expect(self._is_ahead(process, op), "ahead of another step", process.place, k)
            expect(
                process.update == (k - 1, self._width(process, k - 1)), "another update", process.update, k
            )
            expect(self._width(process, k - 1) <= k // self.shape.Q, "a block that is not updated", k)
            process.ahead = process.blocks[k // self.shape.Q], (*process.applied, process.panels[k - 1])
        elif op.kind == "factorise":
            made = k - self._is_ahead(process, op)
            expect(
                process.updated[k // self.shape.Q] == made, "a block that missed an update", process.place, k
            )
            expect(k // self.shape.Q not in process.upper, "factorised twice", process.place, k)
            process.panels[k] = (k, *self._part(process, op))
            self._keep(process, k)
        elif op.kind == "solve":
            process.update = k, self._width(process, k)
            assert process.place is not None
            told = self.course.rows_at(k, process.place.v)
            for group in range(self._width(process, k), self.shape.groups):
                held = process.blocks.get(group, told[group])
                expect(
                    close(told[group], held), "it holds other rows than is said", process.place, group, held
                )
        elif op.kind == "apply":
            self._apply(process, k)
        elif op.kind == "done":
            process.solved = True
        else:
            self._combine(process, self._share(op), op)

    def _apply(self, process: Process, k: int) -> None:
        expect(process.step == k, "applied out of turn", process.rank, process.step, k)
        expect(process.update is not None and process.update[0] == k, "another update", process.update, k)
        expect(k in process.panels, "a panel that is not there", k)
        process.applied = (*process.applied, process.panels[k])
        for group in range(self._width(process, k), self.shape.groups):
            if process.updated[group] == k:
                process.updated[group] = k + 1
        process.step = k + 1
        process.backups.clear()
        assert process.place is not None
        column = self.course.roles.column(process.place.v)
        if process.place.v == self.shape.owner(k) and k >= column.since:
            process.upper.add(k // self.shape.Q)
        if process.place.p != self.shape.root(k):
            process.update = None
        for old in [old for old in process.panels if old < process.step - steps.WINDOW * self.shape.Q]:
            del process.panels[old]

    def _combine(self, process: Process, share: Share, op: Op) -> None:
        found = []
        for q in range(self.shape.Q):
            if q == share.column:
                found.append(process.blocks[share.group])
                continue
            content, applied = process.given[op.k, op.detail, q]
            expect(applied == process.applied, "blocks of different steps are combined", share)
            found.append(content)
        expect(close(row_of(share.much, found), share.row), "not what it should be", share, found)
        needed = min(op.k, (share.group + 1) * self.shape.Q)
        if share.kind == "encode":
            process.updated[share.group] = needed
            process.blocks[share.group] = share.row
            return
        expect(process.updated[share.group] == needed, "checksums that missed an update", share, op.k)
        process.backups.append((share.group, process.blocks[share.group], process.upper & {share.group}))
        if share.group * self.shape.Q + share.column < process.step:
            process.upper.add(share.group)
        process.blocks[share.group] = share.row

    # -- transfers

    def _transferred(self, process: Process, item: Transfer) -> Any:
        if item.kind in ("panel", "kept"):
            return process.panels[item.k] if item.k in process.panels else process.kept[item.k]
        if item.kind == "update":
            expect(
                process.update is not None and process.update[0] == item.k, "no update", item, process.update
            )
            return process.update
        if item.kind == "solution":
            expect(process.solved, "no solution to give", item)
            return None
        if item.kind == "unknown":
            expect(process.step == item.k, "unknowns before the end", item)
            return process.applied
        expect(item.kind == "right" and process.step == item.k and process.right, "not its step", item)
        return process.applied

    def _receive_transfer(self, process: Process, item: Transfer, content: Any) -> None:
        if item.kind == "panel":
            process.panels[item.k] = content
            self._keep(process, item.k)
        elif item.kind == "kept":
            process.kept[item.k] = content
        elif item.kind == "update":
            expect(content[1] == self._width(process, item.k), "an update of another width", item)
            process.update = content
            self._apply(process, item.k)
        elif item.kind == "solution":
            process.solved = True
        elif item.kind == "unknown":
            if process.place is not None and process.place.v < self.shape.Q:
                expect(content == process.applied, "unknowns of other panels", item)
        else:
            process.step, process.right, process.applied = item.k, True, content
            process.blocks = dict.fromkeys(range(self.shape.groups), (0.0,) * self.shape.Q)
            process.updated, process.upper = dict.fromkeys(process.blocks, 0), set()

    # -- what must be true at the end

    def check(self) -> None:
        shape = self.shape
        if self.solution:
            expect(all(process.solved for process in self.processes.values()), "not all have the solution")
        if self.decision.what == "finish":
            return
        final = course.final_rows(self.course)
        for group in range(shape.groups):
            wanted = final.get(group, tuple(unit(q, shape.Q) for q in range(shape.Q)))
            for v, column in self.course.roles.columns():
                for rank in column.ranks:
                    process = self.processes[rank]
                    expect(process.step == shape.blocks, "not at the end", rank, process.step)
                    found = process.blocks[group]
                    right = wanted[v] if v < shape.Q else column.rows[group]
                    expect(found == right, f"group {group} of column {v} is", found, "not", right)
                    expect(
                        v >= shape.Q or group in process.upper, f"group {group} of column {v} is not upper"
                    )
                    for panel in process.applied:
                        if v < shape.Q and panel[0] == group * shape.Q + v:
                            expect(
                                found == panel[1], f"panel {panel[0]} was made of", panel[1], "not of", found
                            )
        applied = {
            self.processes[rank].applied for _, column in self.course.roles.columns() for rank in column.ranks
        }
        expect(len(applied) == 1, "columns have applied different panels")
        self._check_copies(next(iter(applied)))

    def _check_copies(self, applied: tuple[Any, ...]) -> None:
        for v, column in self.course.roles.columns() if self.course.keep else ():
            for k in range(self.shape.blocks):
                if v in copies.holders(self.shape.Q, k, self.course.redundant):
                    for rank in column.ranks:
                        found = self.processes[rank].kept.get(k)
                        expect(found == applied[k], f"the copy of panel {k} at rank {rank} is", found)

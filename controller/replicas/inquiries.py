"""Planes differ: who is asked what, and what follows from the answers. Pure.

Two questions, one after the other (`events.Inquiry`), each with a time limit. A process whose program has failed cannot be
asked: what it has told before it ended (`last_words`) is its answer to both. What has been seen is certain in most cases;
the questions only locate it: rank, replica and message where it began (:mod:`ckpt.redundancy.origin`).

    conclude     planes are wrong ──▶ they are lost      nobody knows which ──▶ all go back      nothing differs ──▶ nothing

Not here: what it means to be lost (`supervisor`), or to go back (`lines`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ckpt.controller.replicas.events import Inquiry, Reported
from ckpt.controller.replicas.lines import ReplicaLines
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import Action, Log, Send
from ckpt.redundancy.origin import Details, Origin, agree, origin
from ckpt.redundancy.vote import ANSWERS, WRITES, Verdict, Vote

INQUIRY_NS: Final = 5_000_000_000
SECOND_NS: Final = 5_000_000_000
ASK_AGAIN_NS: Final = 100_000_000

Outcome = tuple[Any, ...]
"""("finished",), or ("failed", rank, exit code)."""


class Inquiries(ReplicaLines):
    """The part of the supervisor that finds out where planes began to differ."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.questions = 0
        super().__init__(*arguments, **options)

    def _begin(self) -> None:
        super()._begin()
        self.inquiry: Inquiry | None = None
        self.last_words: dict[int, tuple[Details, Mapping[str, int]]] = {}
        """Of processes whose programs have failed: their last messages one by one, and how many there were."""
        self.outcomes: dict[int, Outcome] = {}
        self.votes = [Vote(self.replicas, self.lineage) for _ in range(self.numbers.ranks)]

    @property
    def voices(self) -> set[int]:
        """Planes that compute, or have an outcome, and are neither lost nor wrong."""
        return self.planes | self.outcomes.keys()

    def processes(self, planes: Collection[int]) -> tuple[int, ...]:
        return tuple(sorted(process for plane in planes for process in self.numbers.of_plane(plane)))

    def _lose(self, planes: Collection[int], why: str, cause: str, now_ns: int) -> list[Action]:
        raise NotImplementedError

    def _check_outcomes(self, now_ns: int) -> list[Action]:
        raise NotImplementedError

    def _look_at_inquiry(self, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None:
            return []
        if now_ns >= inquiry.until_ns:
            return self._conclude(inquiry, now_ns)
        if inquiry.again_ns is not None and now_ns >= inquiry.again_ns:
            return self._ask_again(inquiry, now_ns)
        return []

    def _come_too_late(self, event: Reported, replica: int, now_ns: int) -> list[Action]:
        """A replica has waited at a change of files, or with a message, for others, for very long: these have gone another
        way, or hardly move."""
        rank = self._maker(event)
        late = [plane for plane in event.late if plane in self.planes]
        there = self.voices.difference(late)
        if not late or self.inquiry is not None or replica not in there:
            return []
        names = " and ".join(map(str, late))
        what = f"the {event.at}" if event.at else "the change of files"
        why = f"replica {names} of rank {rank} has not come to {what} at which the others wait"
        # One of three says nothing against two, which may go on (`_leave_stalled`)
        if len(there) < self.needed:
            return self._run_again(why, now_ns) if len(self.voices) == 2 else []
        return self._leave_late(late, rank, why, now_ns)

    def _leave_stalled(self, stalled: Collection[int], alike: Collection[int], now_ns: int) -> list[Action]:
        """These planes do not come on, and others have. `alike`: those of them that are at the same place."""
        if not stalled or self.inquiry is not None or self.phase != "running":
            return []
        further = sorted(self.voices.difference(alike))
        if len(alike) >= self.needed and self.lineage.decides(alike, further):
            why = (
                f"replica {' and '.join(map(str, further))} of the ranks has gone on where most others do not"
            )
            return self._leave_late(further, None, why, now_ns)
        late = sorted(stalled)
        why = f"replica {' and '.join(map(str, late))} of the ranks does not come on, and another one has come further"
        if len(self.voices.difference(late)) < self.needed:
            return self._run_again(why, now_ns)  # nobody knows which of them has gone a wrong way
        return self._leave_late(late, None, why, now_ns)

    def _leave_late(self, late: Collection[int], rank: int | None, why: str, now_ns: int) -> list[Action]:
        log = Log("replica-lost", {"rank": rank, "replica": min(late), "reason": why})
        return [log, *self._lose(late, why, "lost", now_ns)]

    def _maker(self, event: Reported) -> int:
        """The rank that has made the message of which a process has told something."""
        of = event.of
        return of if of is not None and 0 <= of < self.numbers.ranks else self.numbers.parts(event.rank)[0]

    def _inquire(
        self,
        odd: Collection[int],
        rank: int | None,
        where: dict[str, Any],
        now_ns: int,
        *,
        is_certain: bool = True,
    ) -> list[Action]:
        """Ask for messages one by one, to learn where it began: see `Inquiry`."""
        if self.inquiry is not None:
            return []  # one after the other: what differs, differs again
        plane = min(odd) if odd else min(self.voices)
        right = tuple(sorted(each for each in self.voices if each not in odd and each != plane))
        agreed = [vote.agreed(plane) for vote in self.votes]
        inquiry = self.inquiry = Inquiry(odd, (plane, right), (rank, where), agreed, is_certain=is_certain)
        inquiry.until_ns = now_ns + INQUIRY_NS
        self.questions += 1
        inquiry.question = self.questions
        # What a process has told counts, whether or not it has gone since
        asked = [process for process in self.processes([plane]) if not self._has_told(process)]
        asked = [process for process in asked if process not in self.gone]
        inquiry.open = set(asked)
        question: list[Action] = [
            Send(
                messages.layer(question=self.questions, after=agreed[self.numbers.parts(process)[0]]),
                (process,),
            )
            for process in asked
        ]
        return question + self._check_inquiry(now_ns)

    def _has_told(self, process: int) -> bool:
        """Is the answer of this process to the first question known already?"""
        inquiry, (details, counts) = self.inquiry, self.last_words.get(process, (None, {}))
        if inquiry is None or details is None:
            return False
        agreed = inquiry.agreed[self.numbers.parts(process)[0]]
        later = {
            name: [row for row in rows if row[0] > agreed.get(name, 0)] for name, rows in details.items()
        }
        inquiry.first[process], inquiry.counts[process] = later, counts
        return True

    def _told_last(self, event: Reported, details: Details, now_ns: int) -> list[Action]:
        """A program has failed, and its process tells its last messages."""
        process, inquiry = event.rank, self.inquiry
        self.last_words[process] = details, event.counts or {}
        if inquiry is None or process not in inquiry.open:
            return []
        if inquiry.is_second:
            inquiry.second[process] = details
        else:
            self._has_told(process)
        inquiry.open.discard(process)
        return self._check_inquiry(now_ns)

    def _answered(self, event: Reported, details: Details, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None or event.question != inquiry.question or event.rank not in inquiry.open:
            return []
        if not inquiry.is_second:
            inquiry.first[event.rank] = details
            inquiry.counts[event.rank] = event.counts or {}
            inquiry.open.discard(event.rank)
            return self._check_inquiry(now_ns)
        inquiry.second[event.rank] = details
        counts = event.counts or {}
        wanted = inquiry.ranges(event.rank, self.numbers)
        has_ended = event.rank in self.finished or self.numbers.parts(event.rank)[1] not in self.planes
        if has_ended or all(counts.get(name, 0) >= last for name, (_, last) in wanted.items()):
            inquiry.open.discard(event.rank)
        return self._check_inquiry(now_ns)

    def _check_inquiry(self, now_ns: int) -> list[Action]:
        inquiry = self.inquiry
        if inquiry is None or not inquiry.open <= self.gone:
            return []
        if inquiry.is_second or not inquiry.right:
            return self._conclude(inquiry, now_ns)
        inquiry.open = {p for p in self.processes(inquiry.right) if inquiry.ranges(p, self.numbers)}
        for process in inquiry.open & self.last_words.keys():
            inquiry.second[process] = self.last_words[process][0]
        inquiry.open -= self.last_words.keys()
        inquiry.until_ns = now_ns + SECOND_NS
        return self._ask_again(inquiry, now_ns)

    def _ask_again(self, inquiry: Inquiry, now_ns: int) -> list[Action]:
        """The second question, to those that have not come so far yet."""
        inquiry.again_ns = now_ns + ASK_AGAIN_NS
        asked = sorted(inquiry.open - self.gone)
        question: list[Action] = [
            Send(
                messages.layer(question=inquiry.question, ranges=inquiry.ranges(process, self.numbers)),
                (process,),
            )
            for process in asked
        ]
        return question if asked else self._conclude(inquiry, now_ns)

    def _conclude(self, inquiry: Inquiry, now_ns: int) -> list[Action]:
        """Name the replicas that are wrong, as far as it is known where it began, and take their planes out."""
        self.inquiry = None
        odd = [plane for plane in inquiry.odd if plane in self.voices]
        if self.phase not in ("starting", "running") or (inquiry.odd and not odd):
            return []
        began = self._began(inquiry)
        if began is None and not inquiry.is_certain:
            return self._check_outcomes(now_ns)
        rank, fields = None, inquiry.fields
        if began is not None:
            rank, fields = (
                began.rank,
                {"what": what_of(began.stream), "first": began.number, "last": began.number},
            )
        elif self._all_messages_agree(inquiry):
            rank = inquiry.rank
        seen = {} if rank is not None else {"seen_in": inquiry.rank}
        where = f" of rank {rank if rank is not None else inquiry.rank}"
        if not odd:
            why = f"the replicas{where} differ in {text_of(fields)}, and it cannot be told which of them is right"
            log = Log("replica-differs", {"rank": rank, "replica": None, **seen, **fields, "reason": why})
            return [log, *self._run_again(why, now_ns)]
        logs: list[Action] = []
        for plane in odd:
            process = None if rank is None else self.numbers.process(rank, plane)
            logs.append(
                Log("replica-differs", {"rank": rank, "replica": plane, "process": process, **seen, **fields})
            )
        names = " and ".join(map(str, odd))
        why = f"replica {names}{where} differs from the others in {text_of(fields)}"
        if rank is None:
            why += " (where it began is not known)"
        return [*logs, *self._lose(odd, why, "wrong", now_ns)]

    def _all_messages_agree(self, inquiry: Inquiry) -> bool:
        """Is it known of every message that the wrong plane has sent that it is right? Then it began where it was seen."""
        odd, counts = self._told_by(inquiry)
        return any(agree(odd, right, inquiry.agreed, counts) for right in self._right(inquiry))

    def _began(self, inquiry: Inquiry) -> Origin | None:
        """Where the plane began to differ from all others of which that is known. None: that is not known, or they differ
        among themselves, or they are too few to call one wrong of which nothing else is known."""
        odd, counts = self._told_by(inquiry)
        found = []
        for right in self._right(inquiry):
            began = origin(odd, right, inquiry.agreed, counts)
            if began is not None:
                found.append(began)
        if not found or any(each != found[0] for each in found):
            return None
        return found[0] if inquiry.is_certain or len(found) >= self.needed else None

    def _told_by(self, inquiry: Inquiry) -> tuple[list[Details | None], list[Mapping[str, int] | None]]:
        """By rank, what the wrong plane has told, and how many messages there were."""
        processes = self.processes([inquiry.plane])
        told = [inquiry.first.get(process) for process in processes]
        return told, [inquiry.counts.get(process) for process in processes]

    def _right(self, inquiry: Inquiry) -> list[list[Details | None]]:
        """By other plane and rank, what it has told."""
        return [[inquiry.second.get(p) for p in self.processes([plane])] for plane in inquiry.right]


def what_of(stream: str) -> str:
    if stream == WRITES:
        return "writes to parallel files"
    if stream.endswith(ANSWERS):
        return f"answers of a window ({stream})"
    return {"point": "messages", "result": "results", "files": "changes of files"}.get(
        stream, f"messages of collectives ({stream})"
    )


def where_of(verdict: Verdict) -> dict[str, Any]:
    return {"what": what_of(verdict.stream), "first": verdict.first, "last": verdict.last}


def text_of(where: Mapping[str, Any]) -> str:
    if "first" not in where and "byte" not in where:
        return f"{where['what']}: {where['reason']}"
    if "byte" in where:
        return f"{where['what']}, at byte {where['byte']}"
    numbers = (
        f"{where['first']}" if where["first"] == where["last"] else f"{where['first']} to {where['last']}"
    )
    return f"{where['what']} (number {numbers})"

"""Is the line of one epoch what most replicas compute? What a replica is asked, and the vote. Pure.

The images of a line are those of one plane, the *donor*. For each rank the donor tells, for every stream, how many messages
it had sent when its image was taken, with the digest over them. The other replicas of the rank are asked for their digests
at these very counts, which they tell as soon as they have come so far (:mod:`ckpt.redundancy.layer`).

    same        the replica has sent the same messages up to the image
    differs     it has sent others
    unknown     it has run so far ahead that it does not remember that digest

    verified    in each rank as many replicas as are needed, the donor's included, have sent the same
    failed      in some rank that cannot be had any more
    unverified  fewer planes are left than are needed: nobody can tell
    open        else

Needed are more than half of the replicas that a rank began with, and that they have not got their errors from one of which
they are copies (:mod:`ckpt.redundancy.membership`).

Not here: text that the program has printed, images, what follows from the outcome (:mod:`ckpt.controller.replicas`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ckpt.redundancy.membership import Lineage
from ckpt.redundancy.vote import Mark

__all__ = ["LineQuestion", "LineVote"]


class LineQuestion:
    """At which places of its streams this process is asked for digests, for the line of `epoch`. Comes in parts."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.counts: dict[str, int] = {}
        self.is_open = False
        self._parts = 0

    def add(self, packet: Mapping[str, Any]) -> None:
        self.counts |= {stream: int(count) for stream, count in packet["counts"].items()}
        self._parts += 1
        self.is_open = self._parts == packet["parts"]


class LineVote:
    """The vote of `ranks` ranks on one line. `others`: the planes beside the donor."""

    def __init__(
        self, ranks: int, donor: int, others: Collection[int], needed: int, lineage: Lineage | None = None
    ) -> None:
        self.lineage = Lineage() if lineage is None else lineage
        self.donor, self.others, self.needed = donor, set(others), needed
        self.marks: list[dict[str, Mark]] = [{} for _ in range(ranks)]
        self.answers: list[dict[int, str]] = [{} for _ in range(ranks)]

    def begin(self, rank: int, marks: Mapping[str, Mark]) -> dict[str, int]:
        """The donor of this rank has told its marks. Returns the counts that the others are asked for."""
        self.marks[rank] = dict(marks)
        return {stream: count for stream, (count, _) in marks.items()}

    def answer(self, rank: int, plane: int, marks: Mapping[str, Mark]) -> None:
        """Another replica has told its marks at these counts."""
        if plane not in self.others:
            return
        mine = self.marks[rank]
        if any(marks.get(stream, (0, ""))[1] not in ("", digest) for stream, (_, digest) in mine.items()):
            self.answers[rank][plane] = "differs"
        elif any(marks.get(stream, (0, ""))[1] == "" for stream in mine):
            self.answers[rank][plane] = "unknown"
        else:
            self.answers[rank][plane] = "same"

    def drop(self, planes: Collection[int]) -> None:
        """These planes have no voice any more."""
        self.others -= set(planes)
        for answers in self.answers:
            for plane in planes:
                answers.pop(plane, None)

    @property
    def is_too_small(self) -> bool:
        """Are there fewer planes than are needed?"""
        return len(self.others) + 1 < self.needed

    def state(self) -> str:
        """`verified`, `unverified`, `failed` or `open`: see above."""
        if self.is_too_small:
            return "unverified"
        found = "verified"
        for answers in self.answers:
            same = {self.donor, *(plane for plane, answer in answers.items() if answer == "same")}
            if not self._suffice(same | (self.others - answers.keys())):
                return "failed"
            if not self._suffice(same):
                found = "open"
        return found

    def _suffice(self, same: Collection[int]) -> bool:
        others = (self.others | {self.donor}) - set(same)
        return len(same) >= self.needed and self.lineage.decides(same, others)

    def trouble(self) -> str:
        """Why it has failed, or what it waits for."""
        for rank, answers in enumerate(self.answers):
            for plane, answer in sorted(answers.items()):
                if answer == "differs":
                    return f"replicas {self.donor} and {plane} of rank {rank} have sent different messages before it"
        for rank, answers in enumerate(self.answers):
            for plane, answer in sorted(answers.items()):
                if answer == "unknown":
                    return f"replica {plane} of rank {rank} is too far ahead of replica {self.donor} to tell its digest"
        if all(answers.keys() >= self.others for answers in self.answers):
            return "the replicas that agree are copies of one another"
        slow = sorted({plane for answers in self.answers for plane in self.others - answers.keys()})
        return f"replica {' and '.join(map(str, slow))} of the ranks has not come so far yet"

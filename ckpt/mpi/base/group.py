"""Groups: ordered sets of processes (MPI standard, "Group management").

A process is identified by its rank in COMM_WORLD, its *world rank*. The position of a process in the group is its
rank in the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ckpt.mpi.base.constants import IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from ckpt.mpi.base.errors import ERR_GROUP, ERR_RANK, MpiException
from ckpt.mpi.base.handle import Handle, expect
from ckpt.mpi.base.integers import argument, elements


class Group(Handle):
    """A group of processes. It never changes, but Free makes the handle null. `bool(group)` is False for the null group.

    `_ranks`: the world ranks of the members; None for the null group. `_me`: the world rank of this process."""

    __slots__ = ("__weakref__", "_me", "_ranks")
    _constants: ClassVar[tuple[str, ...]] = ("GROUP_NULL", "GROUP_EMPTY")

    _ranks: tuple[int, ...] | None
    _me: int

    def __new__(cls, group: Group | None = None) -> Self:
        expect(cls, group, Group)
        self = super().__new__(cls)
        self._ranks = None if group is None else group._ranks
        self._me = -1 if group is None else group._me
        return self

    @classmethod
    def _make(cls, ranks: Sequence[int], me: int) -> Group:
        """The group of the world ranks `ranks`, for the process with world rank `me`."""
        group = cls()
        group._ranks = tuple(ranks)
        group._me = me
        return group

    @property
    def _members(self) -> tuple[int, ...]:
        if self._ranks is None:
            raise MpiException(ERR_GROUP, "the group is null or freed")
        return self._ranks

    def __bool__(self) -> bool:
        return self._ranks is not None

    def __eq__(self, other: object) -> bool:
        return self._ranks == other._ranks if isinstance(other, Group) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return f"<Group {self._ranks}>"

    def __image_reduce__(self) -> Any:
        return self._named() or (_rebuild, (type(self), self._ranks, self._me))

    def Get_size(self) -> int:
        return len(self._members)

    def Get_rank(self) -> int:
        """This process's rank in the group; UNDEFINED if the process is not a member."""
        return self._members.index(self._me) if self._me in self._members else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Dup(self) -> Group:
        return Group._make(self._members, self._me)

    def Free(self) -> None:
        self._members  # noqa: B018  raises for the null group
        if self is GROUP_EMPTY:
            raise MpiException(ERR_GROUP, "the empty group cannot be freed")
        self._ranks = None

    def _discard(self) -> None:
        self.Free()

    def Compare(self, group: Group) -> int:
        """IDENT, SIMILAR (other order) or UNEQUAL."""
        if self._members == group._members:
            return IDENT
        return SIMILAR if set(self._members) == set(group._members) else UNEQUAL

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """For each of `ranks` in this group, the rank of the same process in `group`.

        The result is UNDEFINED for a process that is not a member of `group`, and PROC_NULL for PROC_NULL. `ranks` None:
        all ranks of this group. `group` None: the result has world ranks."""
        members = self._members
        others = {} if group is None else {world: rank for rank, world in enumerate(group._members)}
        if group is None:
            others = {world: world for world in members}
        wanted = range(len(members)) if ranks is None else elements(ranks)
        return [
            PROC_NULL if rank == PROC_NULL else others.get(members[self._checked(rank)], UNDEFINED)
            for rank in wanted
        ]

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < len(self._members):
            raise MpiException(ERR_RANK, f"rank {rank} in a group of {len(self._members)}")
        return rank

    def Incl(self, ranks: Sequence[int]) -> Group:
        """The group of the members `ranks`, in the order of `ranks`. MpiException (ERR_RANK): no member, or given twice."""
        chosen = [self._members[self._checked(rank)] for rank in elements(ranks)]
        if len(set(chosen)) != len(chosen):
            raise MpiException(ERR_RANK, "a rank is given twice")
        return Group._make(chosen, self._me)

    def Excl(self, ranks: Sequence[int]) -> Group:
        """The group of all members except `ranks`. MpiException (ERR_RANK): a rank is no member, or is given twice."""
        given = elements(ranks)
        out = {self._checked(rank) for rank in given}
        if len(out) != len(given):
            raise MpiException(ERR_RANK, "a rank is given twice")
        return Group._make([world for rank, world in enumerate(self._members) if rank not in out], self._me)

    def _expand(self, ranges: Sequence[tuple[int, int, int]]) -> list[int]:
        out: list[int] = []
        for triple in ranges:
            first, last, stride = (argument(number) for number in triple)
            if stride == 0:
                raise MpiException(ERR_RANK, "a stride of 0")
            part = range(first, last + (1 if stride > 0 else -1), stride)
            if part:  # all of a range is in bounds when its first and last element are
                self._checked(part[0]), self._checked(part[-1])
            out.extend(part)
        return out

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Like Incl, for ranges (first, last, stride)."""
        return self.Incl(self._expand(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Like Excl, for ranges (first, last, stride)."""
        return self.Excl(self._expand(ranks))

    @classmethod
    def Create_from_session_pset(cls, session: Any, pset_name: str) -> Group:
        """The group of the process set `pset_name` of a session."""
        group: Group = session.Create_group(pset_name)
        return group

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Group:
        extra = [world for world in group2._members if world not in group1._members]
        return cls._make([*group1._members, *extra], group1._me)

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Group:
        return cls._make([world for world in group1._members if world in group2._members], group1._me)

    @classmethod
    def Intersect(cls, group1: Group, group2: Group) -> Group:
        return cls.Intersection(group1, group2)

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Group:
        return cls._make([world for world in group1._members if world not in group2._members], group1._me)


def _rebuild(cls: type[Group], ranks: tuple[int, ...] | None, me: int) -> Group:
    group: Group = cls()
    group._ranks = ranks
    group._me = me
    return group


GROUP_NULL = Group()
GROUP_EMPTY = Group._make((), -1)

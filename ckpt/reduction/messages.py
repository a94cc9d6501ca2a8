"""The messages that ranks send each other about one reduction. (pure)

A *path* is the set of ranks whose originals are in an item, as a bit mask: bit k stands for rank k. An item is named by its
path: a rank may hold several items, and an item may lie at several ranks. A *term* is (master, how often it has asked all
others what they hold): what belongs to an older term is dropped. *Where* an item lies in its holder's memory, so that others
can read it there, is the driver's to know: here it is passed on; None: the holder has to be asked.

Not here: what happens when one arrives (member.py), how it gets there (service.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

Path: TypeAlias = int
Term: TypeAlias = tuple[int, int]
Key: TypeAlias = tuple[str, int]
"""Names a reduction of one communicator: its name (empty: by the order of calls), and how many of that name came before."""


def ranks_of(path: Path) -> Iterator[int]:
    """The ranks in a path, in ascending order."""
    while path:
        low = path & -path
        yield low.bit_length() - 1
        path ^= low


def path_of(ranks: Iterable[int]) -> Path:
    """The path that has these ranks."""
    path = 0
    for rank in ranks:
        path |= 1 << rank
    return path


class Contract(NamedTuple):
    """What all ranks have to ask for alike. `root`: -1 where all get the result. `content`: shape, type and operation."""

    root: int = -1
    content: str = ""
    order: str = "tree"
    commutative: bool = True
    copies: int = 1
    on_loss: str = "raise"
    on_root_loss: str = "raise"
    quorum: int = 0
    deadline_ns: int = 0


class Outcome(NamedTuple):
    """How a reduction ended, the same at every rank.

    `error`: the name of a class of errors.py, "" if there is a result. `contributors`, `missing`: paths. `holder`: a rank
    that has the result, and `where`. `weight`: the sum of the contributors' weights. `ranks`: those an error is about.
    """

    error: str
    contributors: Path
    missing: Path
    root: int
    holder: int
    weight: float
    text: str = ""
    ranks: Path = 0
    where: Any = None


class HeldItem(NamedTuple):
    """An item: its data, the sum of the weights of those whose originals are in it, and where others can read it."""

    value: Any
    weight: float
    where: Any = None


# -- to the master


class Call(NamedTuple):
    """A rank takes part. `problem`: what it gave cannot be reduced, and why. `held`: its original, of which the master is to
    keep a copy."""

    contract: Contract
    weight: float
    problem: str = ""
    where: Any = None
    held: HeldItem | None = None


class Copied(NamedTuple):
    """The master's own rank has a copy of `owner`'s original."""

    owner: int
    weight: float
    where: Any = None


class Done(NamedTuple):
    """A task is done. `elapsed_ns`: since it came, for each of its combinations. `where`: of the new item."""

    term: Term
    number: int
    elapsed_ns: int
    where: Any = None


class Failed(NamedTuple):
    """A task cannot be done: `holder` is dead, or does not have the item `path`."""

    term: Term
    number: int
    path: Path
    holder: int


class Trouble(NamedTuple):
    """The operation failed, with an error of errors.py."""

    error: str
    text: str


class Expired(NamedTuple):
    """The deadline has passed at the sender."""


class Have(NamedTuple):
    """The sender's part is over: it has the result, if it is to have it."""


class NoResult(NamedTuple):
    """The sender could not get the result from `holder`, which is dead, or has answered that it does not have it."""

    holder: int
    is_dead: bool


class Waiting(NamedTuple):
    """The sender knows of this reduction, and that the receiver is its master now."""


class Kept(NamedTuple):
    """What a report says of an item."""

    weight: float
    where: Any = None


class Report(NamedTuple):
    """The answer to `Query`: all that the sender has.

    `call`: None if it has not called. `contract`: its own, or that of a rank of which it holds a copy. `items`: what it
    holds, by paths. `complete`: its program has the outcome, or may have it at any time. `over`: `Over` was here.
    """

    term: Term
    call: Call | None
    contract: Contract | None
    items: dict[Path, Kept]
    outcome: Outcome | None
    complete: bool
    over: bool
    expired: bool


# -- from the master


class Place(NamedTuple):
    """An item, a rank that holds it, and where."""

    path: Path
    holder: int
    where: Any = None


class Task(NamedTuple):
    """Combine two items; `left` comes before `right`. Then what comes of it with each of `more`, in this order; what has the
    lower ranks on the left. `weight`: of the last new item."""

    term: Term
    number: int
    left: Place
    right: Place
    weight: float
    more: tuple[Place, ...] = ()


class End(NamedTuple):
    """The outcome; ranks that are to have the result fetch it from `outcome.holder`."""

    outcome: Outcome


class Deliver(NamedTuple):
    """To the root alone: the result is ready. The others are told when the root has it."""

    outcome: Outcome


class Over(NamedTuple):
    """All that live have what they are to have: everything may be let go."""


class Query(NamedTuple):
    """What do you hold? To be answered by who knows that all of `dead` are dead: nothing of theirs is under way then."""

    term: Term
    dead: Path


# -- between members


AS_COPY = -1


class Fetch(NamedTuple):
    """Asks the holder for an item. `number`: of the task it is for; 0: it is the result; AS_COPY: an original that cannot be
    read where it lies, which is answered by `Original`."""

    path: Path
    number: int


class Data(NamedTuple):
    """The answer to `Fetch`: the item."""

    path: Path
    number: int
    held: HeldItem


class Gone(NamedTuple):
    """The other answer to `Fetch`: the item is not here."""

    path: Path
    number: int


class Used(NamedTuple):
    """The item is part of another one now, and may be let go."""

    path: Path


class Vanished(NamedTuple):
    """To a rank that holds a copy: its file is not there."""

    path: Path


class Original(NamedTuple):
    """A copy of `owner`'s original, which the receiver keeps in case the owner dies."""

    owner: int
    contract: Contract
    held: HeldItem


Message: TypeAlias = (
    Call
    | Copied
    | Done
    | Failed
    | Trouble
    | Expired
    | Have
    | NoResult
    | Waiting
    | Report
    | Task
    | End
    | Deliver
    | Over
    | Query
    | Fetch
    | Data
    | Gone
    | Used
    | Vanished
    | Original
)


TO_MASTER = (Call, Copied, Done, Failed, Trouble, Expired, Have, NoResult, Waiting, Report)
"""Messages of these classes are the master's."""


def over_report(query: Query) -> Report:
    """The answer of a rank that has let go of all."""
    return Report(query.term, None, None, {}, None, True, True, False)


class Work:
    """A task here: what is left of it, and the items that have come, or are read where they lie (`direct`).

    `places`: of all its items, as it came. `computing`: the first two of what is left are being combined, and what comes of
    it with the next `also`. `made`: what was combined on the way, and is only in `found`."""

    __slots__ = ("also", "computing", "direct", "elapsed_ns", "found", "made", "places", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.places = (task.left, task.right, *task.more)
        self.found: dict[Path, HeldItem] = {}
        self.direct: set[Path] = set()
        self.made: set[Path] = set()
        self.computing = False
        self.also = self.elapsed_ns = 0

    @property
    def path(self) -> Path:
        """Of what the first two become."""
        return self.task.left.path | self.task.right.path

    @property
    def left_over(self) -> tuple[Place, ...]:
        """The places of what is left."""
        return (self.task.left, self.task.right, *self.task.more)

    @property
    def each_ns(self) -> int:
        """The time of one combination."""
        return self.elapsed_ns // (len(self.places) - 1)

    def compute(self, number: int) -> Compute | None:
        """Combine the first two of what is left, and all that follows as far as it is here. None: one of the two is not."""
        left, right, *more = (self.found.get(place.path) for place in self.left_over)
        if left is None or right is None:
            return None
        self.computing, rest, path = True, list[tuple[Any, bool]](), self.path
        for place, held in zip(self.task.more, more, strict=True):
            if held is None:
                break
            rest.append((held.value, place.path & -place.path < path & -path))
            path |= place.path
        self.also = len(rest)
        return Compute(number, left.value, right.value, tuple(rest))

    def advance(self, held: HeldItem, elapsed_ns: int) -> bool:
        """The first two are combined; False: that was the last combination."""
        self.computing = False
        self.elapsed_ns += elapsed_ns
        if not self.task.more:
            return False
        for path in (self.task.left.path, self.task.right.path):
            if path in self.made:
                del self.found[path]
        made, (after, *more) = Place(self.path, -1), self.task.more
        self.made.add(made.path)
        self.found[made.path] = held
        left, right = (made, after) if made.path & -made.path < after.path & -after.path else (after, made)
        self.task = self.task._replace(left=left, right=right, more=tuple(more))
        return True


# -- what a rank's part has its driver do


class Send(NamedTuple):
    """To be sent to the member of rank `dest`."""

    dest: int
    message: Message


class Compute(NamedTuple):
    """Combine two values, out of place, then what comes of it with each of `more`, which is the left one where it says so;
    `computed` or `trouble` is to be called with the number, once."""

    number: int
    left: Any
    right: Any
    more: tuple[tuple[Any, bool], ...] = ()


class Read(NamedTuple):
    """Read the result where it lies; `read` or `unread` is to be called with the same."""

    path: Path
    where: Any


class Complete(NamedTuple):
    """The program may have the outcome. `value`: the result, where this rank is to have it. It must not be changed."""

    outcome: Outcome
    value: Any


class Forget(NamedTuple):
    """Nothing of this reduction is needed any more."""


Sends: TypeAlias = list[Send]
Effects: TypeAlias = list[Send | Compute | Read | Complete | Forget]

"""A plane that was lost is replaced by a copy of the one that leads, while the others go on. Pure.

A replica takes its plane with it when it is lost, since messages stay in a plane; so what is copied is a plane, too: the
processes of one replica of every rank, from images that fit together. These are the images of an ordinary line.

    idle ──a place is empty──▶ holding ──all processes hold their choices──▶ imaging ──a line is committed──▶ starting
      ▲                                                                                                           │
      │                                                                            all processes of the copy are there
      │                                                                                                           ▼
      └── it has sent as much as the others had when it joined: `replica-cloned` ────────────────────────── catching up

    holding      every process of the others keeps the choices that it has not forgotten yet (`order`), and says so
    imaging      a line is asked for. Its images are those of the leading plane, the *donor*: they have what the donor has
                 done, and messages that were under way in its plane
    starting     one process for each rank is forked, under the reserved numbers of a new plane, and loads the donor's image.
                 Its program goes on at once, with the messages of its own plane; nobody else waits for it
    joined       the others are told its addresses, the leader sends it all choices that are held; from now on it votes
    catching up  what it sends is compared with what the others have sent at the same places. They wait for it as for any
                 slow replica: only where they are too far ahead (`ahead`)

Rules
- Nobody waits for a copy: it computes what the others have computed meanwhile. Nothing is handed on to it but choices, since
  all messages of its plane are in the images, or are sent in its plane.
- A donor that is lost before its copy has joined takes the copy with it: the images have what the donor has chosen last, and
  that may be known to nobody else, so the next leader may choose otherwise. From the join on the copy tells the next leader
  what it knows, as every replica does.
- A donor that is found wrong after the join: the vote tells whether the copy has the error, too (`Lineage.decides`).
- One copy at a time; none once a program has ended, or the job is being stopped. A copy that is not there START_NS after its
  start, or of which a process ends before, is given up, and another one is made a little later.
- Numbers of processes are used once. The budget is so many copies for each place of a rank within an hour; a program that
  needs more does not compute the same each time, or its host is bad: this is said.

Not here: what the supervisor knows of planes (`supervisor`), votes, files and processes (`driver`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from ckpt.controller.replicas.events import StartCopy
from ckpt.controller.supervision import messages
from ckpt.controller.supervision.events import Action, Log, Say, Send, Terminate
from ckpt.redundancy.membership import Budget, Numbering
from ckpt.transport.records import dataclass, field

START_NS: Final = 60_000_000_000
HOLD_NS: Final = 60_000_000_000
AGAIN_NS: Final = 250_000_000
AGAIN_LONGEST_NS: Final = 60_000_000_000
KILL: Final = 9

State = Literal["holding", "imaging", "starting", "catching up"]


@dataclass(slots=True)
class Copy:
    """The copy that is being made. `place`: of the replica that it replaces; `after`: only newer lines will do."""

    plane: int
    place: int
    began_ns: int
    open: set[int]
    state: State = "holding"
    after: int = 0
    epoch: int = 0
    donor: int = -1
    until_ns: int | None = None
    targets: dict[int, int] = field(default_factory=dict)


class Clones:
    """The copies of one job. `reserved`: so many planes can be started in one incarnation; `most`: copies for each place and
    hour, 0: none are made."""

    def __init__(self, numbers: Numbering, *, most: int, reserved: int) -> None:
        self.numbers, self.reserved = numbers, reserved
        self.budget = Budget(most)
        self.begin()

    def begin(self) -> None:
        """All planes are started."""
        self.copy: Copy | None = None
        self.places = {plane: plane for plane in range(self.numbers.replicas)}
        self.empty: list[int] = []
        self.emptied: dict[int, int] = {}
        """By place, the replica that was lost there last: of this one is spoken."""
        self.next_plane = self.numbers.replicas
        self.not_before_ns = 0
        self.failures = 0
        self.is_hopeless = self.budget.most <= 0
        self._said: set[str] = set()

    @property
    def voiceless(self) -> tuple[int, ...]:
        """The processes of a copy that is started and has not joined yet."""
        copy = self.copy
        return self.numbers.of_plane(copy.plane) if copy is not None and copy.state == "starting" else ()

    def is_starting(self, plane: int) -> bool:
        """Have the processes of this plane been started, and not joined yet?"""
        return self.copy is not None and self.copy.plane == plane and self.copy.state == "starting"

    def deadline_ns(self) -> int | None:
        """When `look` is due; None: not before another event."""
        if self.copy is not None:
            return self.copy.until_ns
        return self.not_before_ns if self.empty and not self.is_hopeless else None

    # ---- what happens ------------------------------------------------------------------------------------

    def lost(self, planes: Collection[int], why: str, *, now_ns: int) -> list[Action]:
        """These planes have no voice any more."""
        for plane in planes:
            place = self.places.pop(plane, None)
            if place is not None:
                self.empty.append(place)
                self.emptied[place] = plane
        copy = self.copy
        if copy is None or copy.plane not in planes:
            return []
        self.copy = None
        return [self._failed(copy, why, now_ns)]

    def left(self, planes: Collection[int], why: str, now_ns: int) -> list[Action]:
        """These planes go on no more: they are lost, or their programs have ended with an error."""
        if self.copy is not None and self.copy.state == "starting" and self.copy.donor in planes:
            return self.give_up(f"its donor is lost: {why}", now_ns)
        return []

    def begin_copy(self, living: Collection[int], now_ns: int) -> list[Action]:
        """Make a copy if a place is empty and one may be made; `living`: the planes that compute."""
        if self.copy is not None or not self.empty or self.is_hopeless or now_ns < self.not_before_ns:
            return []
        place = self.empty[0]
        if self.next_plane >= self.numbers.replicas + self.reserved:
            self.is_hopeless = True
            return self._say_once(place, "all numbers that were reserved for copies are used up")
        free_ns = self.budget.free_ns(place, now_ns)
        if free_ns is None or free_ns > now_ns:
            self.not_before_ns = free_ns or 0
            return self._say_once(
                place,
                f"it has been replaced {self.budget.most} times within an hour. The program does not compute the same each "
                "time (docs/redundancy.md names usual reasons), or this host is bad",
            )
        processes = tuple(process for plane in sorted(living) for process in self.numbers.of_plane(plane))
        copy = Copy(self.next_plane, place, now_ns, set(processes), until_ns=now_ns + HOLD_NS)
        self.copy = copy
        return [Send(messages.layer(copy=copy.plane, step="hold"), processes)]

    def held(self, process: int, plane: int) -> None:
        """A process holds its choices."""
        if self.copy is not None and self.copy.plane == plane:
            self.copy.open.discard(process)

    def is_held(self, living: Collection[int], gone: Collection[int], highest: int) -> bool:
        """Do all hold since this call, so that a line with a number above `highest` will do?"""
        copy = self.copy
        if copy is None or copy.state != "holding":
            return False
        copy.open &= {process for plane in living for process in self.numbers.of_plane(plane)} - set(gone)
        if copy.open:
            return False
        copy.state, copy.after, copy.until_ns = "imaging", highest, None
        return True

    def committed(
        self, epoch: int, donor: int, living: Collection[int], resumed: int | None, now_ns: int
    ) -> list[Action]:
        """The line of `epoch` has the images of plane `donor`."""
        copy = self.copy
        if copy is None or copy.state != "imaging" or epoch <= copy.after or donor not in living:
            return []
        copy.state, copy.epoch, copy.donor, copy.until_ns = "starting", epoch, donor, now_ns + START_NS
        copy.open = set(self.numbers.of_plane(copy.plane))
        self.next_plane += 1
        self.budget.spend(copy.place, now_ns)
        fields = {"replica": copy.plane, "donor": donor, "epoch": epoch, "place": copy.place}
        start: Action = StartCopy(copy.plane, epoch, donor, tuple(sorted(living)), resumed)  # type: ignore[assignment]
        return [Log("clone-started", fields), start]

    def there(self, process: int) -> bool:
        """A process of the copy has its port; returns whether all have now."""
        copy = self.copy
        if copy is None or copy.state != "starting":
            return False
        copy.open.discard(process)
        return not copy.open

    def joined(self, targets: dict[int, int]) -> Copy:
        """The copy votes from now on. `targets`: by rank, how many messages another replica has sent until now."""
        copy = self.copy
        assert copy is not None and copy.state == "starting" and not copy.open
        copy.state, copy.until_ns, copy.targets = "catching up", None, dict(targets)
        self.places[copy.plane] = copy.place
        self.empty.remove(copy.place)
        return copy

    def sent(self, rank: int, plane: int, count: int | None, now_ns: int) -> list[Action]:
        """A replica has sent so many messages, and they have been compared; None: its program has finished."""
        copy = self.copy
        if copy is None or copy.state != "catching up" or copy.plane != plane:
            return []
        if count is None or count >= copy.targets.get(rank, 0):
            copy.targets.pop(rank, None)
        if copy.targets:
            return []
        self.copy, self.failures = None, 0
        took_ms = round((now_ns - copy.began_ns) / 1e6, 3)
        fields = {
            "replica": plane,
            "place": copy.place,
            "donor": copy.donor,
            "epoch": copy.epoch,
            "ms": took_ms,
        }
        text = (
            f"replica {plane} of all ranks has taken the place of replica {self.emptied[copy.place]}: a copy of replica "
            f"{copy.donor}, from checkpoint {copy.epoch}"
        )
        return [Log("replica-cloned", {"rank": None, **fields, "reason": text}), Say(text)]

    def give_up(self, why: str, now_ns: int, *, hopeless: bool = False) -> list[Action]:
        """There will be no such copy. `hopeless`: nor another one in this incarnation."""
        copy, self.copy = self.copy, None
        assert copy is not None and copy.state != "catching up"
        self.is_hopeless = self.is_hopeless or hopeless
        let_go = Send(messages.layer(copy=copy.plane, step="let go"))
        kill = [Terminate(KILL, self.numbers.of_plane(copy.plane))] if copy.state == "starting" else []
        return [let_go, *kill, self._failed(copy, why, now_ns), *self._say_once(copy.place, why)]

    def abandon(self) -> list[Action]:
        """The job is ending: processes that are being started are not needed any more."""
        processes, self.copy = self.voiceless, None
        return [Terminate(KILL, processes)] if processes else []

    # ---- inside ------------------------------------------------------------------------------------------

    def _failed(self, copy: Copy, why: str, now_ns: int) -> Log:
        self.not_before_ns = now_ns + min(AGAIN_NS << min(self.failures, 10), AGAIN_LONGEST_NS)
        self.failures += 1
        fields = {"replica": copy.plane, "place": copy.place, "donor": copy.donor if copy.epoch else None}
        return Log("clone-failed", {**fields, "state": copy.state, "reason": why})

    def _say_once(self, place: int, why: str) -> list[Action]:
        if why in self._said:
            return []
        self._said.add(why)
        text = f"replica {self.emptied[place]} of the ranks is not replaced now: {why}"
        return [Log("not-replaced", {"place": place, "reason": why}), Say(text)]

"""Mutants: the production code without one rule of the protocol, each with bounds in which the error is found.

A rule that another one also enforces (defence in depth) is removed together with the other; the name says so.
`BOUNDS[mutant]`: the bounds in which exploration finds a counterexample.
"""

from __future__ import annotations

from dataclasses import replace

from tests.model.explore import Bounds, Send
from tests.model.world import Mutant, mutant

ENDPOINT, LINK, LEDGER = (
    "ckpt.transport.protocol.endpoint",
    "ckpt.transport.protocol.link",
    "ckpt.transport.protocol.ledger",
)
COORDINATOR, SUPERVISOR, VECTORS = (
    "ckpt.controller.supervision.coordinator",
    "ckpt.controller.supervision.supervisor",
    "ckpt.controller.supervision.cuts.vectors",
)
HISTORY, IMAGING, TAKING, PACKETS, RUNTIME = (
    "ckpt.controller.supervision.history",
    "ckpt.capture.imager",
    "ckpt.capture.taker",
    "ckpt.rank.packets",
    "ckpt.rank.runtime",
)

A: Send = (1, b"a", None)
B: Send = (1, b"b", None)
X: Send = (0, b"x", None)
ONE = ((A,), ())
TWO = ((A, B), ())
BOTH = ((A,), (X,))
ANSWERED = ((A,), ((0, b"x", (0, 1)),))
LONG = (((1, b"lo", None),), ())
SELF = (((0, b"s", None), A), ())

HOLD = """        if epoch > common.epoch:
            self._image_due(epoch, source)
            self._hold(epoch, parts)
            return
"""
BURN_AT_DEATH = """        if self.round is None or self.round.writing:
            return []
        return self._burn(reason, keep_requests=True)
"""
NO_CHECK = (
    VECTORS,
    "            if not base <= rx <= tx:\n",
    "            if False:\n",
)
"""The vectors are not checked before a commit."""

MESSAGE_BEFORE_IMAGE = (
    ENDPOINT,
    HOLD,
    HOLD.replace("epoch > common.epoch:", "epoch > common.epoch and kind not in (1, 2):"),
)

BOUNDS: dict[Mutant, Bounds] = {}


def _add(bounds: Bounds, found: Mutant) -> Mutant:
    BOUNDS[found] = bounds
    return found


_add(
    Bounds(ONE),
    mutant(
        "a message of a higher epoch is processed before the image", "epoch of messages", MESSAGE_BEFORE_IMAGE
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "an ack of a higher epoch is processed before the image",
        "epoch of acks",
        (
            ENDPOINT,
            HOLD,
            HOLD.replace(
                "            self._hold",
                "            link.on_control(epoch, ack, room, flags, now_ns)\n            self._hold",
            ),
        ),
    ),
)
_add(
    Bounds(LONG, large=True),
    mutant(
        "a fragment of a higher epoch is taken before the image",
        "large messages",
        (
            ENDPOINT,
            HOLD,
            HOLD.replace("epoch > common.epoch:", "epoch > common.epoch and kind != frames.FRAGMENT:"),
        ),
    ),
)
_add(
    Bounds(LONG, remote=True),
    mutant(
        "a payload that could not be read into the program's memory counts as received",
        "large messages",
        (
            LEDGER,
            "if spot is not None and memory is not None and payload.fill(memory):",
            "if spot is not None and memory is not None and (payload.fill(memory) or True):",
        ),
    ),
)
_add(
    Bounds(LONG, remote=True),
    mutant(
        "a payload that could not be read counts as received",
        "large messages",
        (
            LEDGER,
            "            if not payload.fill(into):\n",
            "            if not payload.fill(into) and False:\n",
        ),
    ),
)
_add(
    Bounds(TWO, timeouts=False),
    mutant(
        "the epoch stamp comes from a header prepared earlier than the ack value",
        "ack value and stamp together",
        (
            LINK,
            "        return common.epoch, ledger.rx, window\n",
            """        # a counter that stays 0 keeps it
        old = self.counts.invalid_acks - 1 if self.counts.invalid_acks else common.epoch
        self.counts.invalid_acks = common.epoch + 1
        return old, ledger.rx, window
""",
        ),
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "an ack covers messages that are not delivered",
        "when to ack",
        (LINK, "return common.epoch, ledger.rx, window", "return common.epoch, ledger.arrived, window"),
    ),
)
_add(
    Bounds(TWO, timeouts=False),
    mutant(
        "hints of what arrived free the messages",
        "when to ack",
        (
            LINK,
            "        window = self.window\n        marked, sample = window.hint(ranges, pieces, now_ns)\n",
            "        window = self.window\n        if ranges:\n            self._on_ack(ranges[-1][1], now_ns)\n"
            "        marked, sample = window.hint(ranges, pieces, now_ns)\n",
        ),
    ),
)
_add(
    Bounds(TWO, timeouts=False),
    mutant(
        "the image says that it has what only arrived",
        "state, queues and vectors are one step",
        (
            ENDPOINT,
            "LinkState(window.base, window.tx, ledger.rx, ",
            "LinkState(window.base, window.tx, ledger.arrived, ",
        ),
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "what is sent and not acked is not in the image",
        "state, queues and vectors are one step",
        (
            ENDPOINT,
            "links[peer] = LinkState(window.base, window.tx, ledger.rx, ledger.unconsumed, messages)",
            "links[peer] = LinkState(window.tx, window.tx, ledger.rx, ledger.unconsumed, [])",
        ),
    ),
)
_add(
    Bounds(ONE, kills=1),
    mutant(
        "incarnations are not compared",
        "incarnation",
        (
            ENDPOINT,
            "usual = dst_inc == config.incarnation and src_inc == link.incarnation",
            "usual = True",
        ),
    ),
)
_add(
    Bounds(ONE, kills=1, zombies=True),
    mutant(
        "a replaced process goes on",
        "incarnation",
        (ENDPOINT, "        if dst_inc > self.config.incarnation:\n", "        if False:\n"),
    ),
)
_add(
    Bounds(TWO),
    mutant(
        "a duplicate is delivered again",
        "sequence numbers",
        (
            LEDGER,
            "            if first + len(messages) <= arrived:\n                return DUPLICATE\n"
            "            messages = messages[arrived - first :]",
            "            messages = messages[max(arrived - first - 1, 0) :]",
        ),
    ),
)
_add(
    Bounds(ANSWERED),
    mutant(
        "a duplicate is not acked again",
        "sequence numbers",
        (
            LINK,
            "            self.counts.duplicates += 1\n",
            "            self.counts.duplicates += 1\n            return\n",
        ),
        (LINK, "        if flags & ANSWER:\n            self.answer()\n", ""),
    ),
)
_add(
    Bounds(TWO),
    mutant(
        "messages beyond a gap are delivered at once",
        "sequence numbers",
        (
            LEDGER,
            "        if first > arrived:\n            return self._accept_early",
            "        if first > arrived + 1:\n            return self._accept_early",
        ),
    ),
)
_add(
    Bounds(TWO, timeouts=False),
    mutant(
        "numbering starts anew with each connection",
        "sequence numbers",
        (ENDPOINT, "link.window.base = link.window.tx = saved.base", "link.window.base = link.window.tx = 0"),
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "nothing is sent again",
        "sequence numbers",
        (
            LINK,
            "        if now_ns >= self._rto_at:\n",
            "        if now_ns >= self._rto_at:\n            self._rto_at = NEVER\n        if False:\n",
        ),
    ),
)
_add(
    Bounds(ONE, rounds=2),
    mutant(
        "the number of a burnt round is used again",
        "epoch numbers",
        (
            COORDINATOR,
            '        fields = {"epoch": burnt.epoch, "reason": reason}\n',
            '        fields = {"epoch": burnt.epoch, "reason": reason}\n        self.highest -= 1\n',
        ),
    ),
)
_add(
    Bounds(ONE, rounds=2, controller_deaths=1),
    mutant(
        "the next controller counts from the last committed number",
        "controller dies",
        (HISTORY, '_EPOCH_EVENTS = ("round-started", "round-aborted", ', "_EPOCH_EVENTS = ("),
    ),
)
_add(
    Bounds(ONE, rounds=2, controller_deaths=1, adopts=True),
    mutant(
        "a controller that goes on with ranks counts from the last committed number",
        "controller dies",
        (HISTORY, '_EPOCH_EVENTS = ("round-started", "round-aborted", ', "_EPOCH_EVENTS = (*(), "),
    ),
)
_add(
    Bounds(ONE, controller_deaths=1, adopts=True),
    mutant(
        "a controller that goes on with ranks takes them for those of the next incarnation",
        "controller dies",
        (
            SUPERVISOR,
            "        self.incarnation, self.resumed = event.incarnation, self.lines.newest\n",
            "        self.resumed = self.lines.newest\n",
        ),
    ),
)
_add(
    Bounds(ONE, rounds=2),
    mutant(
        "a late vote counts for the round that is open (and vectors are not checked)",
        "jumping, labels",
        (COORDINATOR, "            and event.epoch == self.round.epoch\n", ""),
        (COORDINATOR, "        if not previous < self.round.epoch <= epoch:\n", "        if False:\n"),
        NO_CHECK,
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "a second command takes a second image under the same number (and vectors are not checked)",
        "a rank's image fails; commands are idempotent",
        (
            IMAGING,
            "        if epoch <= self.wanted:\n            return\n        self.taker",
            "        if epoch < self.wanted:\n            return\n"
            "        self.epoch = min(self.epoch, epoch - 1)\n        self.taker",
        ),
        (
            TAKING,
            "            port.thaw(job.epoch)\n",
            "            port.thaw(job.epoch if job.epoch > port.endpoint.epoch else None)\n",
        ),
        (
            IMAGING,
            "        port.advance(self.epoch)\n",
            "        if self.epoch > port.endpoint.epoch:\n            port.advance(self.epoch)\n",
        ),
        NO_CHECK,
    ),
)
_add(
    Bounds(TWO),
    mutant(
        "a line commits without the vote of every rank",
        "every rank's vote",
        (
            COORDINATOR,
            "        if len(self.round.votes) < len(self.members):\n",
            "        if len(self.round.votes) < len(self.members) - 1:\n",
        ),
        (
            COORDINATOR,
            "[self.round.votes[process] for process in self.members]",
            "[self.round.votes[process] for process in sorted(self.round.votes)]",
        ),
    ),
)
_add(
    Bounds(ONE, kills=1, timeouts=False),
    mutant(
        "a round survives the death of a rank (and vectors are not checked)",
        "rank dies during a round",
        (
            COORDINATOR,
            BURN_AT_DEATH,
            "        return []\n",
        ),
        (
            COORDINATOR,
            "        self._schedule(now_ns)\n        return self._maybe_start(now_ns)\n",
            "        if self.round is not None:\n"
            '            return [Send(messages.checkpoint(self.round.epoch, "sync"))]\n'
            "        return self._maybe_start(now_ns)\n",
        ),
        NO_CHECK,
    ),
)
_add(
    Bounds(ONE, kills=1),
    mutant(
        "a death burns the line whose control file is being written",
        "commit",
        (
            COORDINATOR,
            BURN_AT_DEATH,
            BURN_AT_DEATH.replace(" or self.round.writing", ""),
        ),
    ),
)
_add(
    Bounds(ONE, could_commit=False),
    mutant(
        "vectors are not checked, and a message comes before the image",
        "commit: vectors",
        MESSAGE_BEFORE_IMAGE,
        NO_CHECK,
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "a line is announced before its control file is durable",
        "commit: announced last",
        (
            COORDINATOR,
            "        return [WriteControl(self.round.epoch,",
            "        told = Send(messages.committed(self.round.epoch))\n"
            "        return [told, WriteControl(self.round.epoch,",
        ),
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "images of the open round are removed",
        "garbage collection",
        (
            COORDINATOR,
            "        self.round.votes[vote.rank] = vote\n        if len(self.round.votes) < len(self.members):\n"
            "            return []\n",
            "        self.round.votes[vote.rank] = vote\n        if len(self.round.votes) < len(self.members):\n"
            "            return [Discard(self.round.epoch)]\n",
        ),
    ),
)
_add(
    Bounds(ONE),
    mutant(
        "a rank that has finished leaves at once",
        "rank finishes early",
        (RUNTIME, "            while not self.released:\n", "            while False:\n"),
    ),
)
_add(
    Bounds(ANSWERED),
    mutant(
        "the end is declared when the first rank has finished",
        "rank finishes early",
        (
            SUPERVISOR,
            "not self.wanted <= self.finished.keys() | self.failed",
            "not self.finished",
        ),
    ),
)
_add(
    Bounds(TWO, frozen=True),
    mutant(
        "no probe timer: a lost thaw notice stops a link",
        "frozen port",
        (
            LINK,
            "        if now_ns >= self._probe_at:\n",
            "        if now_ns >= self._probe_at:\n            self._probe_at = NEVER\n        if False:\n",
        ),
    ),
)
_add(
    Bounds(ONE, announcements=True),
    mutant(
        "the port thaws when the line is committed, not when the image is captured",
        "frozen port",
        (
            TAKING,
            "            port.thaw(job.epoch)\n",
            "            port.advance(job.epoch)\n",
        ),
        (
            PACKETS,
            '        case "committed":\n',
            '        case "committed":\n            runtime.port.thaw()\n',
        ),
    ),
)
_add(
    Bounds(SELF),
    mutant(
        "messages to oneself are not in the image",
        "self-sends",
        (
            ENDPOINT,
            "            if window.tx or ledger.rx:\n",
            "            if (window.tx or ledger.rx) and peer != config.rank:\n",
        ),
    ),
)
_add(
    Bounds(ANSWERED),
    mutant(
        "a rank that waits for a message cannot be captured",
        "blocked in recv or send",
        (
            RUNTIME,
            '        if imager.is_looking and imager.look("call"):\n            return\n',
            "",
        ),
    ),
)

GOES_ON = Bounds(ONE, kills=1, controller_deaths=1, continues=True, could_commit=False)
_add(
    GOES_ON,
    mutant(
        "who starts from a line without a rank is not told that the rank has failed",
        "lines without dead ranks",
        (
            SUPERVISOR,
            "messages.failed(sorted(self.failed), self.diagnoses))] if self.absent",
            "{})] if False",
        ),
    ),
)
_add(
    replace(GOES_ON, controller_deaths=0),
    mutant(
        "a line that is being written is burnt by a death",
        "lines without dead ranks",
        (
            COORDINATOR,
            "self.incarnation is not None and self.round is not None and not self.round.writing",
            "self.incarnation is not None and self.round is not None",
        ),
    ),
)
_add(
    replace(GOES_ON, controller_deaths=0),
    mutant(
        "a control file does not say whom it lacks",
        "lines without dead ranks",
        (COORDINATOR, "tokens=self.waiting, absent=self.absent)", "tokens=self.waiting)"),
    ),
)
_add(
    replace(GOES_ON, controller_deaths=0, rounds=2),
    mutant(
        "a program that wants a dead rank again goes back to a line without it",
        "lines without dead ranks",
        (SUPERVISOR, "            self.lines.go_back(self.absent)\n", "            pass\n"),
    ),
)

MUTANTS = tuple(BOUNDS)

"""Broken endpoints: the production source with one rule taken out, for tests of the tests.

A mutant is made by replacing a piece of source text, which must occur exactly once: when the code moves,
the mutant has to be looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transport.endpoint import Endpoint

PACKAGE = Path(__file__).resolve().parent.parent.parent / "transport"


@dataclass(frozen=True)
class Mutant:
    """One rule removed: in `module`, `old` becomes `new`; `also` for a rule that is kept twice."""

    name: str
    module: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()

    def endpoint(self) -> type[Endpoint]:
        """The Endpoint class that breaks this rule."""
        modules = {name: (PACKAGE / f"{name}.py").read_text() for name in CLASSES}
        for module, old, new in ((self.module, self.old, self.new), *self.also):
            source = modules[module]
            assert source.count(old) == 1, f"{self.name}: found {source.count(old)} times"
            modules[module] = source.replace(old, new)
        made: dict[str, object] = {}
        for name, text in modules.items():
            space: dict[str, object] = {"__name__": f"transport.{name}"}
            exec(compile(text, f"<{self.name}: {name}>", "exec"), space)
            # the classes of the mutated modules below take the place of the imported ones
            space.update({key: value for key, value in made.items() if key in space})
            made.update({key: space[key] for key in CLASSES[name]})
        endpoint = made["Endpoint"]
        assert isinstance(endpoint, type)
        return endpoint

    def __str__(self) -> str:
        return self.name


CLASSES = {
    "window": ("SendWindow", "Batch", "Fragment", "Large"),
    "ledger": ("Ledger",),
    "link": ("Link", "Common"),
    "endpoint": ("Endpoint",),
}

HOLD = """        if epoch > common.epoch:
            self._image_due(epoch, source)
            self._hold(epoch, parts)
            return
"""

EPOCH_RULE_MESSAGES = Mutant(
    "a message of a higher epoch is processed before the image",
    "endpoint",
    HOLD,
    HOLD.replace("epoch > common.epoch:", "epoch > common.epoch and kind not in (1, 2):"),
)
EPOCH_RULE_ACKS = Mutant(
    "an ack of a higher epoch is processed before the image",
    "endpoint",
    HOLD,
    HOLD.replace(
        "            self._hold",
        "            link.on_control(epoch, ack, room, flags, now_ns)\n            self._hold",
    ),
)
OLD_STAMP = Mutant(
    "the epoch stamp comes from a header prepared earlier than the ack value",
    "link",
    "        return common.epoch, ledger.rx, window\n",
    """        old = self.counts.get("stamp", common.epoch)
        self.counts["stamp"] = common.epoch
        return old, ledger.rx, window
""",
)
ACK_UNDELIVERED = Mutant(
    "an ack covers messages that are not delivered",
    "link",
    "return common.epoch, ledger.rx, window",
    "return common.epoch, ledger.arrived, window",
)
NO_INCARNATION = Mutant(
    "incarnations are not compared",
    "endpoint",
    "usual = dst_inc == config.incarnation and src_inc == link.incarnation",
    "usual = True",
)
DUPLICATE_TAKEN = Mutant(
    "a duplicate is delivered again",
    "ledger",
    "            if first + len(messages) <= arrived:\n                return DUPLICATE\n"
    "            messages = messages[arrived - first :]",
    "            messages = messages[max(arrived - first - 1, 0) :]",
)
DUPLICATE_SILENT = Mutant(
    "a duplicate is not acked again",
    "link",
    '            self.counts["duplicates"] += 1\n',
    '            self.counts["duplicates"] += 1\n            return\n',
    also=(("link", "        if flags & ANSWER:\n            self.answer()\n", ""),),
)
RX_ARRIVED = Mutant(
    "the image says rx = what arrived",
    "endpoint",
    "LinkState(window.base, window.tx, ledger.rx, ",
    "LinkState(window.base, window.tx, ledger.arrived, ",
)
UNACKED_UNSAVED = Mutant(
    "what is sent and not acked is not in the image",
    "endpoint",
    "links[peer] = LinkState(window.base, window.tx, ledger.rx, ledger.unconsumed, messages)",
    "links[peer] = LinkState(window.tx, window.tx, ledger.rx, ledger.unconsumed, [])",
)
NO_RETRANSMISSION = Mutant(
    "nothing is sent again",
    "link",
    "        if now_ns >= self._rto_at:\n",
    "        if now_ns >= self._rto_at:\n            self._rto_at = NEVER\n        if False:\n",
)
NO_PROBE = Mutant(
    "no probe timer: a lost thaw notice stops a link",
    "link",
    "        if now_ns >= self._probe_at:\n",
    "        if now_ns >= self._probe_at:\n            self._probe_at = NEVER\n        if False:\n",
)
ORDER_IGNORED = Mutant(
    "messages beyond a gap are delivered at once",
    "ledger",
    "        if first > arrived:\n            return self._accept_early",
    "        if first > arrived + 1:\n            return self._accept_early",
)

MUTANTS = [value for value in list(globals().values()) if isinstance(value, Mutant)]

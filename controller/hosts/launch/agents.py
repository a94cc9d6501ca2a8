"""The agents of the hosts as the controller starts them: the engine's commands, and the numbers of the agents. (driver)

    ──begin──▶ started ──its command has ended──▶ gone ──the host may begin anew──▶ the next one is started (its life + 1)

Rules
- One agent of each host is *heard*: the first one, until a later one has dialled in. What an earlier one says is dropped,
  and what was said to an earlier one is unknown to a later one.
- Another agent is started on a host whose agent is gone, since what it finds there may prove the end of the ranks before the
  lease does. Not on a host that is left out or was never heard of, not long after the loss, and no more than `LIVES` in all.
  After one that has not dialled in, a lease passes first.
- The end of a command is a hint, never a proof that the ranks have ended (:mod:`ckpt.controller.hosts.engine`).

Not here: what follows from the end of a command (`Fleet`), and what agents say (:mod:`ckpt.controller.hosts.launch.driver`).
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Collection, Iterator, Sequence

from ckpt.controller.errors import LaunchFailed
from ckpt.controller.hosts.addresses import own_towards
from ckpt.controller.hosts.clock import now_ns
from ckpt.controller.hosts.engine import Engine, Started
from ckpt.controller.hosts.fleet import Fleet
from ckpt.controller.hosts.lease import JOIN_LIMIT_LEASES
from ckpt.controller.hosts.link import LIVES, rank_of
from ckpt.controller.launch.spawning import Interpreter
from ckpt.transport.wires.addresses import joined

__all__ = ["Agents"]


class Agents:
    """The agents of all hosts of `fleet`. `poller`: readable when a command has ended."""

    def __init__(
        self,
        fleet: Fleet,
        engine: Engine,
        poller: select.epoll,
        *,
        interface: str | None,
        interpreter: Interpreter,
    ) -> None:
        self.engine = engine
        self.started: dict[int, Started] = {}
        """By host: the command that was started last."""
        self.identities: dict[int, str] = {}
        """By host: the identity of the agent that has dialled in last, as JSON (`_identity` there)."""
        self._fleet = fleet
        self._poller = poller
        self._interface, self._interpreter = interface, interpreter
        self._heard: dict[int, int] = {}  # by host: the life of the agent that is heard; 0 if it is not there
        self._begun: dict[int, int] = {}  # ... of the one that was started last
        self._anew_ns: dict[int, int] = {}  # ... when another one may be started
        self._pidfds: dict[int, int] = {}
        self._common: list[str] = []
        self._port = self._output = self._key = ""

    def begin(self, common: Sequence[str], port: str, output: str, key: str) -> None:
        """Let the engine start an agent on each host. `common`: the words that all of them get; `port`: where they dial in;
        `output`: the directory for what they print; `key`: see `Engine.start`. Raises LaunchFailed, UsageError."""
        self._common, self._port, self._output, self._key = list(common), port, output, key
        self._start()

    def _start(self, index: int | None = None, former: str = "") -> None:
        """Let the engine start all agents; or another one on host `index`, which is to know that of the one before."""
        all_names = {i: host.node.name for i, host in self._fleet.hosts.items()}
        names = {i: name for i, name in all_names.items() if index in (None, i)}
        # A name that does not resolve here is no obstacle: an engine may know it.
        addresses = dict(zip(all_names, own_towards(self._interface, list(all_names.values())), strict=True))

        def words(index: int | None) -> list[str]:
            address = addresses[min(names) if index is None else index]
            begin = [self._interpreter.executable, "-P", *self._interpreter.options, "-m", "ckpt", "agent"]
            if index is None:
                place = ["--among", ",".join(names.values())]
                place += ["--naming", self.engine.naming] if self.engine.naming else []
            else:
                place = ["--host", names[index], "--index", str(index)]
                place += ["--life", str(self._begun[index]), "--former", former] if former else []
            return [*begin, *self._common, *place, "--controller", joined(address, self._port)]

        begun = self.engine.start(names, words, self._output, key=self._key, appends=index is not None)
        for each, started in begun.items():
            self.started[each] = started
            self._pidfds[each] = os.pidfd_open(started.process.pid)
            self._poller.register(self._pidfds[each], select.EPOLLIN)

    # ---- numbers -----------------------------------------------------------------------------------------

    def number_of(self, index: int) -> int:
        """The number on the connection (`rank_of`) of this host's agent that is heard."""
        return rank_of(index, self._heard.get(index, 0), len(self._fleet.hosts))

    def is_heard(self, index: int, life: int) -> bool:
        return life == self._heard.get(index, 0)

    def hear(self, index: int, life: int) -> None:
        """From now on the agent with this life is heard."""
        self._heard[index] = life

    # ---- ends --------------------------------------------------------------------------------------------

    def ended(self) -> Iterator[tuple[int, Started, str]]:
        """The hosts whose commands have ended since the last call, and how."""
        for index, started in self.started.items():
            if index in self._pidfds and (how := started.end()) is not None:
                self._close_pidfd(index)
                yield index, started, how

    def plan_another(self, index: int) -> None:
        """The command of this host has ended: another one is to be started."""
        was_in_vain = self._begun.get(index, 0) > self._heard.get(index, 0)
        self._anew_ns[index] = now_ns() + (self._fleet.lease_ns if was_in_vain else 0)

    def plan_none(self) -> None:
        self._anew_ns.clear()

    def begin_anew(self, expect: Callable[[int], None]) -> None:
        """Start the agents that were planned and are due. `expect`: called with the number of each before."""
        now = now_ns()
        for index in [i for i, due_ns in self._anew_ns.items() if now >= due_ns]:
            del self._anew_ns[index]
            life = self._begun.get(index, 0) + 1
            late = now > self._fleet.hosts[index].lost_ns + JOIN_LIMIT_LEASES * self._fleet.lease_ns
            is_known = index in self.identities
            if not self._fleet.may_begin_anew(index) or not is_known or late or life >= LIVES:
                continue
            self._begun[index] = life
            expect(rank_of(index, life, len(self._fleet.hosts)))
            self.started[index].stop(0)
            with contextlib.suppress(LaunchFailed):  # the lease will be over
                self._start(index, self.identities[index])

    def close(self, ended: Collection[int], *, are_left: bool) -> None:
        """Wait for the ends of the commands. `ended`: the hosts whose agents have said that they end; the commands of others
        are killed at once. `are_left`: the agents go on without this controller."""
        for started in () if are_left else dict.fromkeys(self.started.values()):
            is_ending = any(each is started and index in ended for index, each in self.started.items())
            started.stop(2.0 if is_ending else 0.0)
        for index in self.started:
            self._close_pidfd(index)
        self.started.clear()

    def _close_pidfd(self, index: int) -> None:
        fd = self._pidfds.pop(index, None)
        if fd is not None:
            with contextlib.suppress(OSError, ValueError):
                self._poller.unregister(fd)
            os.close(fd)

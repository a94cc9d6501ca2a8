"""The named points of a job's life at which a process may die. (driver of the tests)

Each stands for the moment before or after one step of one kind of process. A point that names a function which is no
longer there fails its test: the catalogue moves with the code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Process = Literal["controller", "agent", "rank", "child"]
Stage = Literal["start", "run", "recovery", "restart"]
"""start: armed from the beginning. run: once a line is committed. recovery: the same, and then a rank is killed.
restart: in `ckpt restart` of a job of which nothing is alive."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point. `packet`: only when an argument is a packet of that kind; `argument`: only when one contains that."""

    name: str
    process: Process
    function: str
    """`module:qualified.name`"""
    when: Literal["before", "after"]
    stage: Stage = "run"
    packet: str | None = None
    argument: str | None = None
    nth: int = 1

    def environment(self, armed: Path, action: Literal["kill", "stop"] = "kill") -> dict[str, str]:
        """For the processes of the job; `armed` is the file that arms the point."""
        module, _, function = self.function.partition(":")
        fields: dict[str, object] = {
            "module": module,
            "function": function,
            "when": self.when,
            "process": self.process,
            "nth": self.nth,
            "action": action,
        }
        if self.packet is not None:
            fields["packet"] = self.packet
        if self.argument is not None:
            fields["argument"] = self.argument
        return {
            "CKPT_TEST_POINT": json.dumps(fields),
            "CKPT_TEST_ARMED": str(armed),
            "PYTHONPATH": str(Path(__file__).parent),
        }


def _around(
    name: str,
    process: Process,
    function: str,
    stage: Stage = "run",
    *,
    packet: str | None = None,
    argument: str | None = None,
    nth: int = 1,
) -> tuple[Point, Point]:
    def point(when: Literal["before", "after"]) -> Point:
        return Point(f"{process}-{when}-{name}", process, function, when, stage, packet, argument, nth)

    return point("before"), point("after")


def _before(
    name: str,
    process: Process,
    function: str,
    stage: Stage = "run",
    *,
    packet: str | None = None,
    argument: str | None = None,
    nth: int = 1,
) -> tuple[Point]:
    return (Point(f"{process}-at-{name}", process, function, "before", stage, packet, argument, nth),)


POINTS: tuple[Point, ...] = (
    # A rank comes to life.
    *_before("birth", "rank", "ckpt.rank.boot:run_rank", "start"),
    *_around("streams-opened", "rank", "ckpt.rank.boot:_open_streams", "start"),
    *_around("port-opened", "rank", "ckpt.rank.network:open_port", "start"),
    *_around("hello", "rank", "ckpt.rank.channel.control:ControlChannel.send", "start", packet="hello"),
    *_around("peer-connected", "rank", "ckpt.transport.driver.port:Port.set_peer", "start"),
    *_around("helper-started", "rank", "ckpt.transport.driver.port:Port.start_helper", "start"),
    *_before("program-starts", "rank", "ckpt.rank.ending:Ending.run", "start"),
    # A rank takes an image.
    *_around("image-wanted", "rank", "ckpt.capture.imager:Imager.want"),
    *_around("mode-chosen", "rank", "ckpt.capture.taker:Taker.choose"),
    *_around("frozen", "rank", "ckpt.transport.driver.port:Port.freeze"),
    *_around("port-saved", "rank", "ckpt.transport.driver.port:Port.snapshot"),
    *_around("prepared", "rank", "ckpt.image.dumping:prepare"),
    *_around("forked", "rank", "ckpt.capture.taker:_fork"),
    *_around("epoch-advanced", "rank", "ckpt.transport.protocol.endpoint:Endpoint.advance"),
    *_around("thawed", "rank", "ckpt.transport.driver.port:Port.thaw"),
    *_around("captured-said", "rank", "ckpt.rank.channel.control:ControlChannel.send", packet="captured"),
    *_around("finished-said", "rank", "ckpt.rank.channel.control:ControlChannel.send", packet="finished"),
    # The image child writes.
    *_before("birth", "child", "ckpt.capture.writing:write_in_child"),
    *_around("written", "child", "ckpt.capture.writing:write"),
    *_around("writer-opened", "child", "ckpt.store.images.writer:ImageWriter.__init__"),
    *_around("pickled", "child", "ckpt.image.dumping:dump"),
    *_around("image-finished", "child", "ckpt.store.images.writer:ImageWriter.finish"),
    *_around("file-created", "child", "ckpt.store.disk.fsio:PendingFile.__init__"),
    *_around("file-written", "child", "ckpt.store.disk.fsio:PendingFile.write"),
    *_around("first-file-synced", "child", "ckpt.store.disk.fsio:PendingFile.seal"),
    *_around("second-file-synced", "child", "ckpt.store.disk.fsio:PendingFile.seal", nth=2),
    *_around("first-file-renamed", "child", "ckpt.store.disk.fsio:PendingFile.publish"),
    *_around("second-file-renamed", "child", "ckpt.store.disk.fsio:PendingFile.publish", nth=2),
    *_around("directory-synced", "child", "ckpt.store.disk.fsio:sync_directory"),
    *_around("vote-said", "child", "ckpt.rank.channel.control:ControlChannel.send", packet="voted"),
    # The agent.
    *_around("serving", "agent", "ckpt.controller.launch.agent:Agent._serve", "start"),
    *_around("attached", "agent", "ckpt.controller.launch.agent:Agent._attach", "start"),
    *_around("ranks-forked", "agent", "ckpt.controller.launch.agent:Agent._start", "start"),
    *_around("one-rank-forked", "agent", "ckpt.controller.launch.forked:fork_rank", "start", nth=2),
    *_around(
        "hello-forwarded", "agent", "ckpt.controller.launch.agent:Agent._send_event", "start", packet="packet"
    ),
    *_around("command-obeyed", "agent", "ckpt.controller.launch.agent:Agent._obey"),
    *_around(
        "packet-forwarded", "agent", "ckpt.controller.launch.agent:Agent._send_event", packet="packet", nth=3
    ),
    *_around("rank-buried", "agent", "ckpt.controller.launch.agent:Agent._record_death", "recovery"),
    *_around("fenced", "agent", "ckpt.controller.launch.fencing:Fencing.begin", "recovery"),
    *_around("ranks-forked-again", "agent", "ckpt.controller.launch.agent:Agent._start", "recovery"),
    # The controller: a round and its commit.
    *_around("launched", "controller", "ckpt.controller.service.service:Service._launch", "start"),
    *_around(
        "checkpoint-commanded",
        "controller",
        "ckpt.controller.launch.local:LocalLauncher.send",
        packet="checkpoint",
    ),
    *_around("vote-taken", "controller", "ckpt.controller.service.service:Service._packet", packet="voted"),
    *_around(
        "last-vote-taken",
        "controller",
        "ckpt.controller.service.service:Service._packet",
        packet="voted",
        nth=3,
    ),
    *_around("committed", "controller", "ckpt.controller.service.commit:commit_line"),
    *_around("control-file-created", "controller", "ckpt.store.disk.fsio:PendingFile.__init__"),
    *_around("control-file-written", "controller", "ckpt.store.disk.fsio:PendingFile.write"),
    *_around("control-file-synced", "controller", "ckpt.store.disk.fsio:PendingFile.seal"),
    *_around("control-file-renamed", "controller", "ckpt.store.disk.fsio:PendingFile.publish"),
    *_around("control-directory-synced", "controller", "ckpt.store.disk.fsio:sync_directory"),
    *_around("commit-logged", "controller", "ckpt.store.job.eventlog:EventLog.append", argument="committed"),
    *_around(
        "commit-announced",
        "controller",
        "ckpt.controller.launch.local:LocalLauncher.send",
        packet="committed",
    ),
    *_around("old-lines-removed", "controller", "ckpt.controller.service.commit:remove_old_lines"),
    *_around("old-file-removed", "controller", "ckpt.store.upkeep.pruning:_remove"),
    # The controller: a rank has died.
    *_around(
        "death-noticed",
        "controller",
        "ckpt.controller.service.service:Service._agent_event",
        "recovery",
        packet="died",
    ),
    *_around("fence-commanded", "controller", "ckpt.controller.launch.local:LocalLauncher.fence", "recovery"),
    *_around(
        "fenced-heard",
        "controller",
        "ckpt.controller.service.service:Service._agent_event",
        "recovery",
        packet="fenced",
    ),
    *_around("burnt-removed", "controller", "ckpt.controller.service.commit:remove_burnt", "recovery"),
    *_around("relaunched", "controller", "ckpt.controller.service.service:Service._launch", "recovery"),
    *_around("life-recorded", "controller", "ckpt.controller.supervision.past:record", "recovery"),
    *_before(
        "table-sent-again",
        "controller",
        "ckpt.controller.launch.local:LocalLauncher.send",
        "recovery",
        packet="table",
    ),
    # A rank comes back.
    *_before("rebirth", "rank", "ckpt.rank.boot:run_rank", "recovery"),
    *_around("image-opened", "rank", "ckpt.store.images.reader:ImageReader.__init__", "recovery"),
    *_around("image-loaded", "rank", "ckpt.image.loading:load", "recovery"),
    *_around("files-waited-for", "rank", "ckpt.rank.putting_back:_take_options", "recovery"),
    *_around("port-reopened", "rank", "ckpt.rank.network:open_port", "recovery"),
    *_before("stack-resumed", "rank", "ckpt.image.frames.running:resume", "recovery"),
    *_around("first-frames-taken", "rank", "ckpt.transport.driver.port:Port.set_peer", "recovery"),
    *_around(
        "files-put-back", "controller", "ckpt.controller.service.files:JobFiles.put_back_now", "recovery"
    ),
    *_around(
        "files-put-back-told",
        "controller",
        "ckpt.controller.launch.local:LocalLauncher.send",
        "recovery",
        packet="files",
    ),
    # ckpt restart of a job of which nothing is alive.
    *_around("lock-taken", "controller", "ckpt.store.job.lock:take_lock", "restart"),
    *_around("survivors-fenced", "controller", "ckpt.controller.launch.local:fence_survivor", "restart"),
    *_around("lines-listed", "controller", "ckpt.controller.cli.run:_usable_lines", "restart"),
    *_around("agent-spawned", "controller", "ckpt.controller.cli.run:_spawn", "restart"),
    *_around("life-recorded-by-restart", "controller", "ckpt.controller.supervision.past:record", "restart"),
    *_around("ranks-launched", "controller", "ckpt.controller.service.service:Service._launch", "restart"),
    *_around("serving-again", "agent", "ckpt.controller.launch.agent:Agent._serve", "restart"),
    *_around("ranks-forked-by-restart", "agent", "ckpt.controller.launch.agent:Agent._start", "restart"),
    *_around("image-reloaded", "rank", "ckpt.image.loading:load", "restart"),
)

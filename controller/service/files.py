"""The program's files at a restart: put back when all ranks have loaded, by the undo log that the ranks have kept. (driver)

A restart looks at all that it needs when every process of the old incarnation has ended. Files are put back when all ranks
have loaded their images, as far as that needs no file (`put_back_now`), and stay so when all have loaded the rest, too
(`keep`); if one cannot, that is taken back. Where ranks load no image, files are put back for good before ranks are forked.
Code, which ranks import, is that of the checkpoint while they load; that is taken back before anything else is done. With
``--files off``, and with replicas, nothing is recorded, so what had been recorded before is given up; what ranks do to files
by themselves waits until all have loaded all the same.

Not here: what is put back, and how (:mod:`ckpt.undo.restart.restoring`); changes that ranks have not recorded
(:mod:`.unrecorded`); to which checkpoints files can be put back (:mod:`.file_lines`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckpt.controller.errors import ControllerError
from ckpt.controller.service.file_lines import (
    forget_files,
    from_start,
    has_chain,
    notes_of_lines,
    refusal_of,
    sweep,
)
from ckpt.controller.service.unrecorded import UnrecordedChanges
from ckpt.controller.supervision.events import FilesDamaged, FilesRefused, Launch
from ckpt.store import JobDirectory, list_epochs
from ckpt.transport.records import dataclass, field
from ckpt.undo import restart
from ckpt.undo.errors import CopyDamaged, NotKept, NotUndone, UndoError
from ckpt.undo.selection.covering import covering
from ckpt.undo.selection.patterns import OFF, Chosen, is_recorded, text_of, words_of

if TYPE_CHECKING:
    from ckpt.controller.service.host_files import HostFiles
    from ckpt.controller.sharing.proof import SharedFiles

__all__ = ["JobFiles"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LIMIT_BYTES = 1 << 30
_SHOWN = 5
_SHOWN_OF_AN_INTERVAL = 3


class JobFiles:
    """The files of one job under one controller. ``say``: prints a message; ``log``: writes a line of the event log.
    ``shared``: where ranks are on several hosts, which file systems all of these share.
    """

    def __init__(
        self,
        job: JobDirectory,
        options: dict[str, Any],
        say: Callable[[str], None],
        log: Callable[[str, dict[str, Any]], None],
        shared: SharedFiles | None = None,
    ) -> None:
        self._job = job
        self._is_on = is_recorded(options.get("files") or OFF)
        self._first = Chosen(words_of(job.options.get("files") or OFF), job.cwd)
        self._now = Chosen(words_of(options.get("files") or OFF), options.get("files_directory") or job.cwd)
        old, new = options.get("moved") or ("", "")
        self._moved = (old, os.path.realpath(new)) if old != new else None
        self._say = say
        self._log = log
        self._unrecorded: UnrecordedChanges | None = None
        if self._is_on:
            covers = covering(list(self._now.words), self._now.directory)
            self._unrecorded = UnrecordedChanges(job, new or job.cwd, covers, say, log)
        self._local: set[str] = set()  # file systems of one host alone, by host; told already
        self._hosts: HostFiles | None = None
        if shared is not None:
            from ckpt.controller.service.host_files import HostFiles  # a job on one host needs none of this

            self._hosts = HostFiles(shared, is_on=self._is_on)
            if self._is_on:
                self._hosts.say(shared, say, log)
        self._limit_bytes = int(options.get("files_limit") or _LIMIT_BYTES)
        self._prepared: _Waiting | None = None  # files that are put back when all ranks have loaded
        self._not_covered: dict[int, list[restart.restoring.Problem]] = {}  # epoch -> what was told

    def poll(self) -> None:
        """To be called a few times a second."""
        if self._unrecorded is not None:
            self._unrecorded.read()

    def ranks_ended(self, exit_code: int) -> None:
        """All ranks have ended, and the agent is about to end. After a job that has come to its end there is no restart, so
        its directories need not be watched any more, and the kernel has time to end that."""
        if self._unrecorded is not None and exit_code == 0:
            self._unrecorded.ended(is_well=True)

    def ended(self, exit_code: int) -> None:
        """The job has ended. No process of it is left."""
        if self._is_on and exit_code != 0:
            try:
                if self._prepared is not None:
                    self._take_back()
            except UndoError as failure:
                self._say(f"files may be those of the checkpoint until the next restart: {failure}")
        if self._unrecorded is not None:
            self._unrecorded.ended(is_well=exit_code == 0)
        if self._is_on and exit_code != 0:
            try:
                # If nothing was put back, what is noted of the last end is right still.
                restart.restoring.ended(self._job.path, self._job.key, again=self._prepared is None)
            except UndoError as failure:
                self._say(f"what others change from now on may be overwritten by a restart: {failure}")

    def put_back(
        self, launch: Launch, highest: int, *, has_older: bool = False
    ) -> dict[str, Any] | FilesDamaged:
        """No process of the job is alive, and one is about to be. ``highest``: the highest epoch in use. ``has_older``: is
        there an older line? Returns options for the ranks, which wait for `put_back_now` if these say ``files_wait``; or
        that this line needs a copy or an image that is damaged, and nothing was changed. Raises FilesNotPutBack.
        """
        if launch.incarnation == 0 and not has_chain(self._job):
            return self._for_ranks()
        try:
            self._take_back(must=self._is_on)
            self._prepared = None
            if not self._is_on:
                self._moved = None
                self._give_up()
                # Ranks cut open files, and replicas undo what they have changed: not before all have loaded.
                return {"files_wait": True} if launch.epoch else {}
            if self._unrecorded is not None and launch.incarnation > 0:
                self._unrecorded.before_putting_back(launch.epoch or 0)
            waiting = self._prepare(launch, highest)
            if not launch.epoch:
                waiting.apply()
                told = self._for_these(waiting)
                self._have_put_back(waiting)
                return {**told, **self._for_ranks()}
            self._prepared = waiting
            is_given = waiting.prepared.give_code()
            # Also if nothing comes back: a rank that has loaded before the others would go on, and change files.
            return {"files_wait": True, "code_changes": is_given, **self._for_ranks()}
        except UndoError as failure:
            refused = refusal_of(self._job, failure, starts=not launch.epoch)
            if isinstance(failure, CopyDamaged) and has_older and launch.epoch:
                return FilesDamaged(str(failure))
            raise refused from failure

    def put_back_now(self, *, stays: bool) -> dict[str, Any] | FilesRefused:
        """All ranks have loaded what needs no file, and wait. ``stays``: no rank can fail to load any more; else
        :meth:`keep` follows. Returns options for them; or why files are not put back."""
        waiting = self._prepared
        if waiting is None:
            return {"files_wait": False}
        try:
            self._take_back()
            if stays:
                self._prepared = None
                waiting.apply()
            else:
                self._give(waiting)
        except UndoError as failure:
            refused = refusal_of(self._job, failure)
            return FilesRefused(refused.exit_code, str(refused))
        told = self._for_these(waiting)
        if stays:
            self._have_put_back(waiting)
        self._begin(waiting.line)
        return {**told, "files_wait": not stays}

    def _give(self, waiting: _Waiting) -> None:
        """Put files back, so that it can be taken back; for good, if there is no room for what that needs."""
        try:
            waiting.give(self._limit_bytes)
        except NotUndone as failure:
            is_full = isinstance(failure.__cause__, OSError) and failure.__cause__.errno in _FULL
            if restart.restoring.is_given(self._job.path) or not (is_full or isinstance(failure, NotKept)):
                raise
            self._say(f"files are put back for good before it is known that all ranks can go on: {failure}")
            waiting.prepared = waiting.again()
            waiting.apply()

    def keep(self) -> FilesRefused | None:
        """All ranks have loaded their images, and wait: what was put back stays."""
        waiting = self._prepared
        if waiting is None:
            return None
        try:
            if waiting.is_given:
                waiting.prepared.keep()
        except UndoError as failure:
            refused = refusal_of(self._job, failure)
            return FilesRefused(refused.exit_code, str(refused))
        self._prepared = None
        self._have_put_back(waiting)
        return None

    def begin(self, launch: Launch) -> None:
        """The ranks of this launch are started now."""
        self._begin(launch.epoch or 0)

    def _begin(self, line: int) -> None:
        if self._unrecorded is not None:
            self._unrecorded.begin(line)

    def _take_back(self, *, must: bool = True) -> None:
        """What ranks were given for loading is what the program had left again. ``must``: raise UndoError if that cannot be
        done; else it is said, and files stay as they are."""
        waiting = self._prepared
        # What this controller has given is where it is now.
        moved = self._renamed(0) if waiting is None else None
        try:
            is_taken_back = restart.restoring.take_back(self._job.path, self._job.key, moved)
        except UndoError as failure:
            if must:
                raise
            restart.restoring.leave(self._job.path)
            self._say(f"files of the program may be those of the checkpoint: {failure}")
            return
        if not is_taken_back:
            return
        if self._unrecorded is not None:
            self._unrecorded.forget_changes()
        if waiting is not None and waiting.is_given:
            self._log("files-taken-back", {"from_epoch": waiting.line})
            self._say(
                "files are again what the program had left, since a rank could not go on from the checkpoint"
            )

    def _renamed(self, incarnation: int) -> restart.restoring.Moved | None:
        """The directory that the user has renamed, before this incarnation."""
        return None if self._moved is None else restart.restoring.Moved(incarnation, *self._moved)

    def _for_ranks(self) -> dict[str, Any]:
        """Options for ranks on several hosts. Raises NotUndone."""
        if self._hosts is None or not self._is_on:
            return {}
        restart.restoring.note_shared(self._job.path, self._job.key, self._hosts.numbers)
        return {"files_shared": self._hosts.numbers}

    def _give_up(self) -> None:
        if not from_start(self._job) and not has_chain(self._job):
            return
        if restart.restoring.give_up(self._job.path, self._job.key):
            self._log("files-given-up", {})
            self._say("files are not put back (--files off, or --redundancy)")

    def _prepare(self, launch: Launch, highest: int) -> _Waiting:
        began_ns = time.monotonic_ns()
        line = launch.epoch or 0
        moved = self._renamed(launch.incarnation)
        told = [each for epoch, problems in self._not_covered.items() if epoch >= line for each in problems]
        on_hosts = {} if self._hosts is None else self._hosts.of_restart()
        prepared = restart.restoring.prepare(
            *(self._job.path, self._job.key, line),
            highest=highest,
            from_start=from_start(self._job),
            directory=moved.target if moved is not None else self._job.cwd,
            moved=moved,
            told=told,
            lines=notes_of_lines(self._job, line),
            first=self._first,
            now=self._now,
            **on_hosts,
        )
        took_ns = time.monotonic_ns() - began_ns
        return _Waiting(prepared, line, took_ns, lambda: self._prepare(launch, highest).prepared)

    def _for_these(self, waiting: _Waiting) -> dict[str, Any]:
        """Files have been put back. Returns options for the ranks."""
        if self._unrecorded is not None:
            self._unrecorded.have_put_back()
        restored = waiting.restored
        if not restored.is_recorded:
            return {}
        paths = sorted({problem.path for problem in restored.problems if not problem.is_final})
        # Without a path the log itself was lost: then nothing is known of any file.
        return {
            "files_put_back": "" not in paths,
            "files_problems": paths,
            "files_recorded": [list(chosen) for chosen in restored.chosen],
        }

    def _have_put_back(self, waiting: _Waiting) -> None:
        """Files have been put back, for good: tell it."""
        line, restored = waiting.line, waiting.restored
        self._moved = None  # what this controller's ranks change is there
        self._not_covered = {epoch: each for epoch, each in self._not_covered.items() if epoch < line}
        if restored.chosen and restored.chosen[-1].words != self._now.words:
            self._log("files-chosen", {"epoch": line, "files": self._now.words})
            before, now = text_of(restored.chosen[-1].words), text_of(self._now.words)
            self._say(f"files: from here on {now}; what was recorded until now ({before}) stays recorded")
        if not restored.is_recorded:
            self._say("files have not been recorded until now: what was changed before is not put back")
            return
        if restored.intervals:
            fields = {
                "from_epoch": line,
                "intervals": restored.intervals,
                "names": restored.names,
                "files": restored.files,
                "problems": len(restored.problems),
                "ms": round(waiting.took_ns / 1e6, 3),
            }
            self._log("files-put-back", fields)
            sweep(self._job)
        self._tell(restored)

    def _tell(self, restored: restart.restoring.Restored) -> None:
        for problem in restored.problems:
            self._log("files-not-put-back", {"path": problem.path, "reason": problem.reason})
        for problem in restored.problems[:_SHOWN]:
            self._say(f"not put back: {problem.path or 'files'}: {problem.reason}")
        more = len(restored.problems) - _SHOWN
        if more > 0:
            self._say(f"not put back: {more} more (files-not-put-back in the event log)")

    def committed(self) -> None:
        """A line has been committed. It will be told next."""
        if self._unrecorded is not None:
            self._unrecorded.committed(max(list_epochs(self._job), default=0))

    def remove_left(self) -> None:
        """A line has been committed, and old ones may have been removed: remove what was left for these."""
        try:
            restart.restoring.empty_undone(self._job.path)
            forget_files(self._job)
            sweep(self._job)
        except (UndoError, ControllerError) as failure:
            self._say(str(failure))

    def _is_local(self, reason: str) -> bool:
        """Is a file not covered since one host alone has its file system?"""
        if self._hosts is None:
            return False
        from ckpt.undo.shared import LOCAL

        return reason.startswith(LOCAL)

    def note(self, rank: int, packet: dict[str, Any]) -> None:
        """A packet of a rank, of whatever kind: it may say what a restart could not put back."""
        if self._unrecorded is not None:
            self._unrecorded.note(rank, packet)
        if packet["m"] == "captured":
            # The commit will need this module. While ranks write their images, this process has time to import it.
            assert restart.restoring
        if packet.get("event") != "files-not-covered":
            return
        path, reason = str(packet.get("path") or ""), str(packet.get("reason"))
        if self._is_local(reason):
            if reason not in self._local:
                self._local.add(reason)
                self._say(f"files not covered: {path}: {reason}")
            return
        of_epoch = self._not_covered.setdefault(int(packet.get("epoch") or 0), [])
        of_epoch.append(restart.restoring.Problem(path, reason))
        count = len(of_epoch)
        if count <= _SHOWN_OF_AN_INTERVAL:
            self._say(
                f"rank {rank}: not covered, a restart will not put it back: {path or 'files'}: {reason}"
            )
        elif count == _SHOWN_OF_AN_INTERVAL + 1:
            self._say("more files are not covered (files-not-covered in the event log)")


@dataclass(slots=True)
class _Waiting:
    """Files that are to be put back to this line. ``took_ns``: to look at what that needs, and to do it; ``again``: looks
    once more. ``is_given``: they have been put back, and it can be taken back."""

    prepared: restart.restoring.Prepared
    line: int
    took_ns: int
    again: Callable[[], restart.restoring.Prepared]
    is_given: bool = False
    restored: restart.restoring.Restored = field(default_factory=lambda: restart.restoring.Restored())

    def give(self, limit_bytes: int) -> None:
        self._do(lambda: self.prepared.give(limit_bytes))
        self.is_given = True

    def apply(self) -> None:
        self._do(self.prepared.apply)

    def _do(self, put_back: Callable[[], restart.restoring.Restored]) -> None:
        began_ns = time.monotonic_ns()
        self.restored = put_back()
        self.took_ns += time.monotonic_ns() - began_ns

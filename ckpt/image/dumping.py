"""Writes an image: what is recorded before the fork, and the function that writes all of it.

Life of an image
    ``prepare`` in the parent (fast: record timers and offsets, look at new modules) → fork → ``dump`` in the child, on a
    large C stack. Without fork, ``dump`` runs in the parent, and the program stands still meanwhile.
    ``load`` (:mod:`ckpt.image.loading`) in a fresh process: early state, empty modules, the pairs, deferred calls, late
    state.

Not here: what an image consists of, and in which order (:mod:`ckpt.image.pairs`).
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt.image.errors import Refused
from ckpt.image.files.descriptors import (
    Descriptors,
    Survey,
    baseline,
    known,
    our_files,
    restore_descriptors,
    survey,
)
from ckpt.image.files.descriptors import own_lengths as own_lengths_now
from ckpt.image.files.file_notes import FileNote, give_up_descriptors
from ckpt.image.files.open_files import FileSaver
from ckpt.image.files.saved_files import SavedFiles
from ckpt.image.frames import _frames
from ckpt.image.frames.stack import Stack
from ckpt.image.interface.registry import libraries, look_for_extensions
from ckpt.image.modules import held_locks, package_baseline, package_changes, search_path, standard_changes
from ckpt.image.modules.plain_values import leave_out_not_plain, leave_out_unsavable
from ckpt.image.modules.references import References, process_references
from ckpt.image.pairs import Dump, ImageReport, Prepared
from ckpt.image.pickling.pickler import (
    DiscardingSink,
    ImagePickler,
    Sink,
    Stream,
    collector_off,
    failure_of,
    on_deep_stack,
)
from ckpt.image.process import moment, resources, unsupported
from ckpt.image.process.settings import warnings_ignored
from ckpt.image.stdlib.registered import VirtualSubclasses
from ckpt.image.threads.captured import keeping_the_lock
from ckpt.image.threads.contexts import outside_of
from ckpt.transport.records import NamedTuple

if TYPE_CHECKING:
    from ckpt.image.ipc.socket_options import SocketState
    from ckpt.image.ipc.survey import Channels
    from ckpt.image.threads.captured import StoppedThreads

__all__ = [
    "check",
    "dump",
    "fork",
    "refresh_modules",
    "prepare",
    "preload",
]

_REHEARSED_BYTES = 4 << 20
_FORK_TRIES = 20


def preload() -> None:
    """Search all imported modules, so that the first image is faster; and find the classes for libraries that distributions
    offer (:func:`look_for_extensions`). Must be called before the program starts, because names that modules get later count
    as bound by the program. May be called before ranks are forked.
    """
    look_for_extensions()
    libraries.loaded()
    search_path.roots()
    package_baseline.note_standard()
    process_references.note_names()
    VirtualSubclasses.refresh(is_search_needed=False)


def refresh_modules() -> None:
    """Search the modules that the program has imported since :func:`preload`, so that the pause for the first image is
    shorter. Takes 1 ms for 100 modules.
    """
    process_references.refresh()
    VirtualSubclasses.refresh()


def note_standard_again() -> None:
    """What is in the modules of the standard library now is not the program's. Called before the program begins."""
    package_baseline.watch().standard.note_again()


def prepare(stack: Stack | None, extras: Mapping[str, object], noted: bytes | None = None) -> Prepared:
    """Record what a forked child cannot read later; called just before the fork, in the process that runs the program.

    ``stack``: None if the program has ended. ``extras``: name → object, saved with the image. ``noted``: the record of
    :mod:`ckpt.image.process.moment`, if it has just been made. Raises OSError: no free descriptor;
    Refused: bytes are on their way within the program, or a connection has not been accepted.
    """
    started_ns = time.perf_counter_ns()
    noted = moment.note() if noted is None else noted
    if unfinished := _frames.unfinished(noted):
        from ckpt.image.ipc.tcp_ends import refuse_unfinished

        refuse_unfinished(unfinished)
    own_lengths = own_lengths_now()
    collector = gc.isenabled(), gc.get_threshold()  # recorded here, because dump() turns the collector off
    if process_references.is_outdated():  # changes of known modules are looked at in the child
        process_references.refresh()
    forked = unsupported.forked_child()
    sockets = _read_sockets(noted)
    elapsed_ns = time.perf_counter_ns() - started_ns
    return Prepared(
        stack,
        extras,
        noted,
        own_lengths,
        collector,
        process_references,
        os.getpid(),
        forked,
        sockets,
        elapsed_ns,
    )


def _read_sockets(noted: bytes) -> Mapping[int, SocketState]:
    """A forked copy of the program has the same sockets, not copies: what the program does with them is seen there."""
    ours = known()
    files = moment.read(noted).files.items()
    found = [fd for fd, note in files if note.kind == "socket" and ours.get(fd) != note.identity[:2]]
    if not found:
        return {}
    from ckpt.image.ipc.socket_options import read_all  # many programs have no socket

    return read_all(found)


# ---------------------------------------------------------------------- dump


def fork(noted: bytes | None = None, others: StoppedThreads | None = None) -> int:
    """Fork this process; returns what fork(2) returns. The child has open files of its own in place of the program's.
    ``noted``: the record of :mod:`ckpt.image.process.moment`; None: it is made now. ``others``: the program's other threads;
    their stacks are captured at the moment of the fork. Raises OSError; Refused: one of them cannot be captured."""
    noted = moment.note() if noted is None else noted
    if not libraries.has_to_read():
        return _fork(noted, others)
    from ckpt.image.interface.turn import Turn

    turn = Turn()
    pid = _fork(noted, others)
    if pid == 0:
        libraries.read_in_child(turn.is_in_time)
        turn.end()
    elif pid > 0:
        turn.wait(pid)
    return pid


def _fork(noted: bytes, others: StoppedThreads | None) -> int:
    if others is None or not others.are_there:
        return _frames.fork(noted, our_files())
    with keeping_the_lock():
        for _ in range(_FORK_TRIES):
            ours = our_files()
            pid = _frames.fork(noted, ours, others.capture())
            if pid >= 0:
                return pid
    raise Refused("the program's threads take no rest: another one had the interpreter at each try to fork")


def check(prepared: Prepared) -> None:
    """Must be the first call in a forked child, before the child opens a file. Raises
    :class:`~ckpt.image.errors.Unpicklable`: another thread of the program has opened a file just before the fork.
    """
    moment.check(prepared.noted)


def dump(prepared: Prepared, *, live: Mapping[str, object], sink: Sink) -> ImageReport:
    """Write the image. Called in a forked child or, with a longer pause of the program, in the process that has prepared.

    ``live``: name → object; these objects are saved by name only, and ``load`` must get objects of the same names. Raises
    :class:`~ckpt.image.errors.Unpicklable`, and whatever ``sink`` raises.
    """
    return run_dump(prepared, live=live, sink=sink)


def _take_local_keys(stack: Stack) -> dict[int, tuple[threading.Thread, Any]]:
    """Of each other thread: see :attr:`ckpt.image.reducers.saver.Saver.threads`. The keys themselves cannot be saved."""
    found = {}
    for captured in stack.threads:
        found[captured.stack.ident] = (captured.thread, captured.local_key)
        captured.local_key = None
    return found


def _tell_of_stack(pickler: ImagePickler, stack: Stack) -> None:
    pickler.running = {id(obj) for obj in (*stack.receivers(), *stack.entered_receivers())}
    pickler.running_generators = stack.generators()
    pickler.cached_calls = stack.cached_calls()
    pickler.stepping_tasks = stack.stepping_tasks()
    for record in stack.all_frames():
        pickler.definitions.note_closure(record.func)


class _Files(NamedTuple):
    """What the descriptors of the program are. ``channels``: ``None``: the program has no pipe and no socket."""

    survey: Survey
    saved: SavedFiles
    channels: Channels | None

    def saver(self, notes: dict[int, FileNote], *, is_disposable: bool) -> FileSaver:
        return FileSaver(
            notes,
            is_disposable=is_disposable,
            saved_files=self.saved,
            channels=self.channels.remade() if self.channels else (),
        )

    def give_to(self, pickler: ImagePickler) -> None:
        if self.channels:
            self.channels.give_to(pickler)


class _Picklers:
    """Makes the picklers of one image, which all know the same of the program."""

    def __init__(
        self,
        prepared: Prepared,
        references: References,
        live: Mapping[str, object],
        files: _Files,
        notes: dict[int, FileNote],
        stack: Stack,
        others: dict[int, tuple[threading.Thread, Any]],
        kind: type[ImagePickler],
        is_disposable: bool,
    ) -> None:
        self._references, self._live = references, live
        self._files, self._stack, self._others = files, stack, others
        self._saver = files.saver(notes, is_disposable=is_disposable)
        self._kind, self._is_disposable = kind, is_disposable
        self._has_restart_hooks = bool(getattr(prepared.extras.get("ckpt.hooks"), "after", ()))
        self._made: list[ImagePickler] = []

    def make(self, stream: Stream) -> ImagePickler:
        return self._make(stream, self._kind, self._is_disposable)

    def rehearsal(self, most_bytes: int | None = None) -> ImagePickler:
        """A pickler that keeps nothing. ``most_bytes``: see :class:`DiscardingSink`."""
        return self._make(Stream(DiscardingSink(most_bytes)), ImagePickler, False)

    def short_rehearsal(self) -> ImagePickler:
        return self.rehearsal(_REHEARSED_BYTES)

    def _make(self, stream: Stream, kind: type[ImagePickler], is_disposable: bool) -> ImagePickler:
        pickler = kind(
            stream,
            self._references,
            live=self._live,
            is_disposable=is_disposable,
            extra_reducers=self._saver.reducers(),
            rehearsal=self.short_rehearsal,
        )
        self._made.append(pickler)
        self._files.give_to(pickler)
        pickler.defer(restore_descriptors, Descriptors(self._saver))
        pickler.threads = self._others
        pickler.has_restart_hooks = self._has_restart_hooks
        _tell_of_stack(pickler, self._stack)
        return pickler

    def forget(self) -> None:
        """Let go of all objects of the program: picklers and this object refer to each other."""
        for pickler in self._made:
            pickler.forget()
        self.__dict__.clear()


def _look_at_files(notes: dict[int, FileNote], prepared: Prepared, *, is_disposable: bool) -> _Files:
    """Without a pipe or socket of the program the modules for them are not imported."""
    surveyed, channels = survey(notes), None
    if any(notes[fd].kind in ("pipe", "socket", "special file") for fd in surveyed.lost):
        from ckpt.image.ipc.survey import survey as survey_channels

        channels = survey_channels(notes, surveyed.lost, baseline(), prepared.sockets)
    if is_disposable:
        give_up_descriptors(notes, baseline())
    return _Files(surveyed, SavedFiles(prepared.pid), channels)


def _find_changes(
    baseline_notes: package_baseline.PackageBaseline,
    references: References,
    others: dict[int, tuple[threading.Thread, Any]],
    late: Mapping[str, Any],
) -> package_changes.Changed:
    changed = references.changed = package_changes.find_changes(baseline_notes, references, others)
    patched = {(module, variable) for module, variable, _ in late["patches"]}
    standard_changes.find_changes(baseline_notes.standard, references.by_value, patched, changed)
    return changed


def run_dump(
    prepared: Prepared,
    *,
    live: Mapping[str, object],
    sink: Sink,
    pickler_class: type[ImagePickler] = ImagePickler,
    dump_class: type[Dump] | None = None,
) -> ImageReport:
    """:func:`dump`, where a trial (:mod:`ckpt.image.trial`) can give other classes for the pickler and for the dump."""
    with outside_of(prepared.stack.context_runs() if prepared.stack is not None else ()):
        return _run_dump(prepared, live, sink, pickler_class, dump_class)


def _run_dump(
    prepared: Prepared,
    live: Mapping[str, object],
    sink: Sink,
    pickler_class: type[ImagePickler],
    dump_class: type[Dump] | None,
) -> ImageReport:
    # The fork server has frozen what it imported (gc.freeze), perhaps the program, too: no search for referrers finds that.
    gc.unfreeze()
    references = prepared.references
    is_disposable = os.getpid() != prepared.pid
    stack = prepared.stack or Stack()
    libraries.before_saving(stack.threads, is_disposable=is_disposable)
    unsupported.check()
    timing, descriptors = moment.read(prepared.noted)
    noted = _look_at_files(descriptors, prepared, is_disposable=is_disposable)
    references.refresh()
    early = resources.note_early(
        descriptors, prepared.own_lengths, noted.survey, noted.saved, is_disposable=is_disposable
    )
    early["channels"] = noted.channels.made_first() if noted.channels else None
    frames, others = stack.all_frames(), _take_local_keys(stack)
    receivers = [*stack.receivers(), *stack.entered()]
    late = resources.note_late(references, timing, prepared.collector)
    baseline_notes = package_baseline.watch()
    changed = _find_changes(baseline_notes, references, others, late)
    picklers = _Picklers(
        prepared, references, live, noted, descriptors, stack, others, pickler_class, is_disposable
    )

    def work() -> ImageReport:
        leave_out_unsavable(
            changed,
            lambda changes: failure_of(picklers.rehearsal(), [tuple(change) for change in changes]),
            frames,
        )
        leave_out_not_plain(changed, baseline_notes, references, frames)
        references.held_locks = held_locks.find_held_locks(references, baseline_notes, receivers, others)
        late["locks"] = [held_lock[1:] for held_lock in references.held_locks]
        resources.leave_out(late, references, lambda part: failure_of(picklers.short_rehearsal(), part))
        report = (dump_class or Dump)(prepared, sink, picklers.make).run(early, late)
        if prepared.forked is not None:
            raise prepared.forked  # last: a pipe or a connection to that child has a better name, if it is refused
        return report

    try:
        with collector_off(), warnings_ignored():
            return on_deep_stack(work)
    finally:
        references.forget()  # must not keep objects of the program alive
        if not is_disposable:
            picklers.forget()

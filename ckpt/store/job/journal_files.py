"""The journal's files: does what `journal.py` decides, through the system calls of the store. (driver)

    JOB/journal/%08d   records, written once and never changed
    JOB/journal/hint   number of the newest record, or of one shortly before it; not trusted, only a place to begin to look

A record is made durable under a temporary name and then gets its own by `link(2)`, which fails if the name is taken. Over
a network the answer to a successful link may be lost, and the client asks again and is told that the name is taken: so
whatever link answers, the file's number of links decides.

A file system without links (FAT, some FUSE ones) can have no journal: `open_journal` returns None, and the lock alone keeps
controllers apart, as it did before there was a journal. That is enough for processes of one host.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Final, Protocol

from ckpt.store.disk.fsio import (
    TEMPORARY_PREFIX,
    FileSystem,
    PendingFile,
    close_quietly,
    commit_file,
    sync_directory,
    write_all,
)
from ckpt.store.errors import LockLost, RecordDamaged, StorageFailed
from ckpt.store.job.directory import JOURNAL, read_journal
from ckpt.store.job.journal import (
    Absent,
    Action,
    Append,
    Broken,
    Done,
    Event,
    Found,
    HintIs,
    HintSet,
    Kind,
    Look,
    Position,
    Read,
    ReadHint,
    Seen,
    SetHint,
    Superseded,
    Taken,
    Touch,
    Touched,
    Write,
    Written,
)
from ckpt.store.records.authenticated import digest
from ckpt.store.records.journal import JournalRecord, journal_name, number_of_name
from ckpt.transport.records import dataclass

__all__ = ["Beside", "Journal", "look_behind", "open_journal"]

_HINT: Final = "hint"
_STEPS_MAX: Final = 1_000_000
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What file systems without links answer to link(2)."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Beside(Protocol):
    """A file that becomes durable together with a record, and gets its name before the record does."""

    def seal(self, record: PendingFile) -> None:
        """Sync both contents, and give the file its name. Raises whatever makes the record void."""

    def sync(self, directory: str) -> None:
        """Sync the directory of the file, and that of the record."""


@dataclass
class Journal:
    """The journal of a job in the hands of the controller that wrote the takeover at `position`, or has written behind it.

    `path`: of the job directory.
    """

    path: str
    key: bytes
    job_id: str
    fs: FileSystem
    position: Position

    @property
    def next_number(self) -> int:
        """The number of the record that `commit` writes, if nothing fails."""
        return self.position.number + 1

    def commit(self, epoch: int, control_digest: str, beside: Beside | None = None) -> None:
        """Append that the control file with this digest is the line of `epoch`, as record `next_number`. `beside`: makes the
        control file durable at the same time.

        Raises LockLost: another controller has taken over. StorageFailed: it may or may not have been written.
        RecordDamaged: the journal was changed by hand.
        """
        self._append(epoch=epoch, digest=control_digest, beside=beside)

    def record_contact(self, contact: str) -> None:
        """Append where agents reach this controller. Raises what `commit` raises."""
        self._append(what="contact", contact=contact)

    def record_restart(self, incarnation: int, hosts: Iterable[str]) -> None:
        """Append that ranks of this incarnation may not go on on these hosts. Raises what `commit` raises."""
        self._append(what="restart", incarnation=incarnation, hosts=tuple(hosts))

    def _append(
        self,
        *,
        epoch: int = 0,
        digest: str = "",
        what: Kind = "commit",
        contact: str = "",
        incarnation: int = 0,
        hosts: tuple[str, ...] = (),
        beside: Beside | None = None,
    ) -> None:
        number = self.next_number
        append = Append(
            self.position,
            epoch=epoch,
            digest=digest,
            what=what,
            contact=contact,
            incarnation=incarnation,
            hosts=hosts,
        )
        self.position = _run(self, append, beside)
        if self.position.number != number:
            raise StorageFailed(
                "link",
                os.path.join(self.path, JOURNAL, journal_name(number)),
                FileExistsError(errno.EEXIST, "a record that had failed is there"),
            )

    def check(self) -> None:
        """Look whether another controller has taken over. It would have written the record behind this one's last.

        A network file system remembers that a name was absent until it sees that the directory has changed: so a file is
        created first, or on a full disk the directory's times are set. Raises LockLost: it has; StorageFailed and
        RecordDamaged: it cannot be known.
        """
        _touch(self)
        found = read_journal(self.path, self.key, self.job_id, self.fs, self.next_number)
        if found is not None and found[0].generation > self.position.generation:
            raise _superseded(self, found[0])

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove these records of commits, of lines that are gone. Raises StorageFailed.

        First the hint is made durable: if after a crash it named a record before a removed one, the next controller would
        take the gap for the end."""
        below = self.position.number
        commit_file(self.fs, os.path.join(self.path, JOURNAL), _HINT, _hint_text(below), replaces=True)
        for number in numbers:
            if 0 < number < below:
                path = os.path.join(self.path, JOURNAL, journal_name(number))
                try:
                    self.fs.unlink(path)
                except FileNotFoundError:
                    pass  # a removal that was killed half-way had done this one
                except OSError as error:
                    raise StorageFailed("unlink", path, error) from error


def open_journal(
    path: str, key: bytes, job_id: str, fs: FileSystem, *, floor: int, contact: str
) -> Journal | None:
    """Take the job over in its journal; make the journal if there is none. None: the file system has no links.

    `floor`: the generation is above this one. `contact`: of this controller, for people. Raises StorageFailed and
    RecordDamaged.
    """
    journal = Journal(path, key, job_id, fs, Position())
    directory = os.path.join(path, JOURNAL)
    try:
        fs.make_directory(directory)
        sync_directory(fs, path)
    except FileExistsError:
        fs.check_private(directory)
    except OSError as error:
        raise StorageFailed("mkdir", directory, error) from error
    try:
        journal.position = _run(journal, Append(None, floor=floor, contact=contact))
    except _NoLinks:
        return None
    return journal


def look_behind(path: str, key: bytes, job_id: str, fs: FileSystem, number: int) -> Seen:
    """Read what was written behind record `number`, but commits. Raises RecordDamaged, Incompatible and StorageFailed."""
    journal = Journal(path, key, job_id, fs, Position())
    look = Look(number)
    step: Action | Seen = look.begin()
    for _ in range(_STEPS_MAX):
        if isinstance(step, Seen):
            return step
        if isinstance(step, Touch):
            _touch(journal)
            step = look.handle(Touched())
        else:
            step = look.handle(_answer(journal, step))
    raise RecordDamaged("the journal has no end", path=os.path.join(path, JOURNAL))


def _touch(journal: Journal) -> None:
    """Change the directory, so that a network file system asks the server for names again."""
    directory = os.path.join(journal.path, JOURNAL)
    try:
        PendingFile(journal.fs, directory, "touch").drop()
    except StorageFailed as failure:
        if not isinstance(failure.__cause__, OSError) or failure.__cause__.errno not in _FULL:
            raise
        try:
            journal.fs.touch_directory(directory)
        except OSError as error:
            raise StorageFailed("utime", directory, error) from error


class _NoLinks(Exception):
    """The file system has no links."""


def _run(journal: Journal, append: Append, beside: Beside | None = None) -> Position:
    step: Action | Done | Superseded | Broken = append.begin()
    for _ in range(_STEPS_MAX):
        match step:
            case Done(position=position):
                return position
            case Superseded(by=by):
                raise _superseded(journal, by)
            case Broken(number=number):
                raise RecordDamaged(
                    "the journal does not continue here",
                    path=os.path.join(journal.path, JOURNAL, journal_name(number)),
                    hint="Records were removed or exchanged by hand: restore the directory `journal` from a backup.",
                )
            case Write(record=record) if beside is not None:
                once, beside = beside, None
                step = append.handle(_write(journal, record, once))
            case _:
                step = append.handle(_answer(journal, step))
    raise RecordDamaged("the journal has no end", path=os.path.join(journal.path, JOURNAL))


def _superseded(journal: Journal, by: JournalRecord) -> LockLost:
    return LockLost(
        f"generation {by.generation} has taken the job ({by.contact or 'unknown'})",
        path=os.path.join(journal.path, JOURNAL, journal_name(by.number)),
        hint="Another controller serves the job: this one must stop.",
    )


def _answer(journal: Journal, action: Action) -> Event:
    match action:
        case ReadHint():
            return HintIs(_hint(journal))
        case Read(number=number):
            found = read_journal(journal.path, journal.key, journal.job_id, journal.fs, number)
            return Absent() if found is None else Found(*found)
        case Touch():
            PendingFile(journal.fs, os.path.join(journal.path, JOURNAL), "touch").drop()
            return Touched()
        case Write(record=record):
            return _write(journal, record)
        case SetHint(number=number):
            _set_hint(journal, number)
            return HintSet()


def _hint(journal: Journal) -> int:
    """The number in the hint, if that record exists; else the highest number that is listed: a place to begin, no more."""
    fs, directory = journal.fs, os.path.join(journal.path, JOURNAL)
    try:
        text = fs.read_file(os.path.join(directory, _HINT), 64)
        number = number_of_name(text[:-1].decode()) if text[-1:] == b"\n" else None
        if number:
            fs.file_size(os.path.join(directory, journal_name(number)))
            return number
    except (OSError, ValueError, RecordDamaged):
        pass  # missing, half written or wrong
    try:
        names = fs.list_directory(directory)
    except OSError as error:
        raise StorageFailed("list", directory, error) from error
    return max((number_of_name(name) or 0 for name in names), default=0)


def _hint_text(number: int) -> bytes:
    """As the record's name: half of it, which a crash may leave, is no number."""
    return f"{journal_name(number)}\n".encode()


def _set_hint(journal: Journal, number: int) -> None:
    """Replace the hint. A refusal of the disk is no failure: an older hint is as good, only slower."""
    fs, path = journal.fs, os.path.join(journal.path, JOURNAL, _HINT)
    temporary = os.path.join(journal.path, JOURNAL, f"{TEMPORARY_PREFIX}{_HINT}.{os.urandom(4).hex()}")
    try:
        fd = fs.create(temporary)
        try:
            write_all(fs, fd, _hint_text(number), 0)
        finally:
            close_quietly(fs, fd)
        fs.replace(temporary, path)
    except OSError:
        pass


def _write(journal: Journal, record: JournalRecord, beside: Beside | None = None) -> Written | Taken:
    fs, directory = journal.fs, os.path.join(journal.path, JOURNAL)
    data = record.encode(journal.key, journal.job_id)
    file = PendingFile(fs, directory, journal_name(record.number))
    file.write(data, 0)
    if beside is None:
        file.seal()
    else:
        try:
            beside.seal(file)
        except BaseException:
            file.drop()
            raise
    try:
        is_written = file.link()
    except StorageFailed as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_LINKS:
            raise _NoLinks from error
        raise
    if not is_written:
        return Taken()
    if beside is None:
        sync_directory(fs, directory)
    else:
        beside.sync(directory)
    return Written(digest(data))

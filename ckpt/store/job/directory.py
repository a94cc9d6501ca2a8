"""The job directory: all files of a job, in one directory that only its owner can change.

    JOB/                 0700, owned by this user; refused otherwise
      job.json           identity and options; written last at creation: without it there is no job
      key                32 random bytes as hex, 0600: the MAC key of every record (see `records/authenticated.py`)
      lock               flock of the controller; generation.json: its record (see `lock.py`)
      events.jsonl       the event log (see `eventlog.py`)
      journal/           %08d, one for each takeover and each commit (see `journal_files.py`)
      control/           epoch-%08d.json, one per committed line (see `records/control.py`, `lines.py`)
      images/rank-%05d/  epoch-%08d.i%04d.<random>.json (manifest) and .pack (blocks) of one rank's images
      output/            rank-%d.out, rank-%d.err, agent.log

Manifest and pack share one directory so that one directory sync makes both durable. All directories are
made, and synced, at creation (`creation.py`), so the durability of an image never depends on the entry of its own
directory.

`open` checks, in this order: does the directory exist, is it private, does it hold a job, is its format known, does
`job.json` verify. An open JobDirectory holds only values (and the descriptor of the event log), so it may be used on both
sides of a fork. What makes a job and what holds its lock is imported when it is called: ranks do neither.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ckpt.store.disk.fsio import TEMPORARY_PREFIX, FileSystem, close_quietly
from ckpt.store.disk.privacy import check_private_directory, check_private_file, open_regular
from ckpt.store.errors import Incompatible, JobMissing, KeyUnreadable, RecordDamaged, StorageFailed
from ckpt.store.job.eventlog import EventLog, iso_time
from ckpt.store.records import authenticated, formats
from ckpt.store.records.control import epoch_of_name
from ckpt.store.records.journal import JournalRecord, journal_name
from ckpt.transport.records import dataclass, field

if TYPE_CHECKING:
    from ckpt.store.job.location import Location
    from ckpt.store.job.lock import Life, LockHandle, LockRecord

__all__ = ["AGENT_LOG", "JOURNAL", "JobDirectory", "image_directory", "image_stem", "read_journal"]

JOB_NAME: Final = "job.json"
KEY_NAME: Final = "key"
EVENTS_NAME: Final = "events.jsonl"
CONTROL: Final = "control"
JOURNAL: Final = "journal"
IMAGES: Final = "images"
OUTPUT: Final = "output"
AGENT_LOG: Final = "output/agent.log"
_HASH_SEED_LIMIT: Final = 4294967295


def image_directory(rank: int) -> str:
    """Return the directory of one rank's images, relative to the job directory."""
    return f"{IMAGES}/rank-{rank:05d}"


def image_stem(epoch: int, incarnation: int) -> str:
    """Return the first part of the file names of one image; a random part follows."""
    return f"epoch-{epoch:08d}.i{incarnation:04d}"


def incarnation_of_image(name: str) -> int:
    """Return the incarnation in an image file's name; -1 if the name is not that of an image file."""
    digits = name.removeprefix(TEMPORARY_PREFIX).split(".")[1:2]
    found = digits[0].removeprefix("i") if digits and epoch_of_image(name) is not None else ""
    return int(found) if found.isdecimal() and found.isascii() else -1


def epoch_of_image(name: str) -> int | None:
    """Return the epoch in an image file's name (temporary names included); None if it is not that of an image file."""
    head = name.removeprefix(TEMPORARY_PREFIX).partition(".")[0]
    digits = head.removeprefix("epoch-")
    return int(digits) if head != digits and digits.isdecimal() and digits.isascii() else None


@dataclass
class JobDirectory:
    """An open job; `create` and `open` return one.

    Attributes:
        path: absolute path of the directory.
        job_id: 16 hex digits.
        key: 32 bytes; never printed. It is sent through an encrypted channel to hosts that cannot read it, and to nobody
            else (`ckpt.controller.hosts.engine`).
        command: the command line that the ranks run.
        size: number of ranks.
        hash_seed: PYTHONHASHSEED of all ranks, part of every image.
        python: version of the interpreter that started the job, "3.11.7".
        created: time of the creation, ISO 8601, UTC.
        cwd: the working directory in which it was started.
        options: JSON of the controller, which the store does not interpret.
        fs: the system calls.
    """

    path: str
    job_id: str
    key: bytes = field(repr=False)
    command: list[str]
    size: int
    hash_seed: int
    python: str
    created: str
    cwd: str
    options: dict[str, Any]
    fs: FileSystem = field(default_factory=FileSystem, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.events = EventLog(os.path.join(self.path, EVENTS_NAME))

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        command: Sequence[str],
        size: int,
        options: Mapping[str, Any] | None = None,
        hash_seed: int | None = None,
        python: str | None = None,
        fs: FileSystem | None = None,
    ) -> JobDirectory:
        """Create a new job in `path`: a path that does not exist, an empty directory, or one that a killed `create` left.

        Raises:
            JobExists: the directory holds a job, or other files.
            JobLocked: another process is creating a job there.
            NotPrivate: another user owns the directory or may write to it.
            StorageFailed: the system refused.
            ValueError: `size` is below 1.
        """
        job, lock_fd = cls.create_locked(
            path, command=command, size=size, options=options, hash_seed=hash_seed, python=python, fs=fs
        )
        close_quietly(job.fs, lock_fd)
        return job

    @classmethod
    def create_locked(
        cls,
        path: str | os.PathLike[str],
        *,
        command: Sequence[str],
        size: int,
        options: Mapping[str, Any] | None = None,
        hash_seed: int | None = None,
        python: str | None = None,
        fs: FileSystem | None = None,
    ) -> tuple[JobDirectory, int]:
        """Like `create`; also return the descriptor that holds the job's lock. The caller passes it to `lock`, so that no
        other controller can take the lock in between."""
        from ckpt.store.job.creation import make

        if size < 1:
            raise ValueError(f"a job has at least one rank, not {size}")
        system = FileSystem() if fs is None else fs
        root = os.path.abspath(os.fspath(path))
        job = cls(
            path=root,
            job_id=os.urandom(8).hex(),
            key=os.urandom(authenticated.KEY_BYTES),
            command=list(command),
            size=size,
            hash_seed=_any_hash_seed() if hash_seed is None else hash_seed,
            python=sys.version.split()[0] if python is None else python,
            created=iso_time(time.time_ns(), "seconds"),
            cwd=os.getcwd(),
            options=dict(options or {}),
            fs=system,
        )
        lock_fd = make(
            system,
            root,
            directories=[CONTROL, OUTPUT, JOURNAL, IMAGES, *(image_directory(rank) for rank in range(size))],
            key=(KEY_NAME, job.key_text.encode()),
            job=(JOB_NAME, formats.write(job.key, formats.JOB, job.job_id, job._fields())),
        )
        return job, lock_fd

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, fs: FileSystem | None = None, key: str | None = None
    ) -> JobDirectory:
        """Open an existing job. `key`: its key, as the key's file has it (`key_text`), on a host that cannot read that file;
        None: it is read there.

        Raises:
            JobMissing: the directory does not exist, or holds no job.
            NotPrivate: another user owns, or may write to, the directory or one in it; or may read or write the key.
            Incompatible: a version with another format has written the job.
            KeyUnreadable: the key is not there, or may not be read here.
            RecordDamaged: job.json or the key does not verify.
            StorageFailed: the system refused.
        """
        system = FileSystem() if fs is None else fs
        root = os.path.abspath(os.fspath(path))
        try:
            check_private_directory(root)
        except FileNotFoundError:
            raise JobMissing("no such job directory", path=root, hint=_LIST_HINT) from None
        for name in (CONTROL, IMAGES, JOURNAL, OUTPUT):
            system.check_private(os.path.join(root, name))
        data = _read_job_file(system, root)
        claimed, job_id = authenticated.peek(data)
        if claimed is not None and claimed != authenticated.FORMAT:
            raise Incompatible(
                f"the job has format {claimed}, this version reads format {authenticated.FORMAT}",
                path=root,
                hint="Use the version of the toolkit that started the job.",
            )
        secret = _read_key(root) if key is None else _key_of(key.encode(), "the key that this host was given")
        name = os.path.join(root, JOB_NAME)
        content = formats.read(secret, formats.JOB, job_id, data, name)
        return cls(
            path=root,
            job_id=content["job"],
            key=secret,
            command=content["command"],
            size=content["size"],
            hash_seed=content["hash_seed"],
            python=content["python"],
            created=content["created"],
            cwd=content["cwd"],
            options=content["options"],
            fs=system,
        )

    def _fields(self) -> dict[str, object]:
        return {
            "command": self.command,
            "size": self.size,
            "hash_seed": self.hash_seed,
            "python": self.python,
            "created": self.created,
            "cwd": self.cwd,
            "options": self.options,
            "host": os.uname().nodename,
            "implementation": sys.implementation.name,
        }

    @property
    def key_text(self) -> str:
        """The content of the key's file."""
        return self.key.hex() + "\n"

    @property
    def control_directory(self) -> str:
        return os.path.join(self.path, CONTROL)

    def rank_directory(self, rank: int) -> str:
        """Return the directory of the images of `rank`. Raises ValueError if the job has no such rank."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} of a job of {self.size}")
        return os.path.join(self.path, image_directory(rank))

    def output_path(self, rank: int, stream: str) -> str:
        """Return the file of a rank's standard output or error; `stream` is "out" or "err", else ValueError."""
        if stream not in ("out", "err"):
            raise ValueError(f"stream is 'out' or 'err', not {stream!r}")
        return os.path.join(self.path, OUTPUT, f"rank-{rank}.{stream}")

    def record(self) -> LockRecord:
        """Return the record that the last holder of the lock has written (see `lock.py`). Raises RecordDamaged,
        StorageFailed.
        """
        from ckpt.store.job.lock import read_record

        return read_record(self.path, self.key, self.job_id, self.fs)

    def agent_log_path(self) -> str:
        """Return the agent's log, which the agent keeps locked (`location.open_locked`) while processes of the job live."""
        return os.path.join(self.path, AGENT_LOG)

    def lock(
        self, lock_fd: int | None = None, *, location: Location | None = None, life: Life | None = None
    ) -> LockHandle:
        """Take the controller's lock; `with job.lock() as lock:`. Raises JobLocked at once if another process holds it.

        `lock_fd`: the descriptor that `create_locked` returned; `location`, `life`: see `LockHandle.claim`
        and `record_incarnation`.
        """
        from ckpt.store.job.lines import highest_generation, remove_not_committed
        from ckpt.store.job.lock import take_lock

        floor = highest_generation(self) if lock_fd is None else 0
        handle = take_lock(
            self.path,
            self.key,
            self.job_id,
            self.fs,
            floor=floor,
            lock_fd=lock_fd,
            location=location,
            life=life,
            journal=True,
        )
        if lock_fd is None and handle.journal is not None:
            try:
                remove_not_committed(self)
            except BaseException:
                handle.release()
                raise
        return handle

    def highest_epoch(self) -> int:
        """Return the highest epoch in any file name on disk, of a committed line or an aborted round; 0 if there is none. A
        controller starts above it and those in the event log, so that numbers of aborted rounds are not used again."""
        highest = 0
        for name in self._list(self.control_directory):
            epoch = epoch_of_name(name.removeprefix(TEMPORARY_PREFIX)[: len("epoch-00000000.json")])
            highest = max(highest, epoch or 0)
        for rank in range(self.size):
            for name in self._list(self.rank_directory(rank)):
                highest = max(highest, epoch_of_image(name) or 0)
        return highest

    def highest_incarnation(self) -> int:
        """Return the highest incarnation that left an image file on disk; -1 if there is none."""
        names = (name for rank in range(self.size) for name in self._list(self.rank_directory(rank)))
        return max(map(incarnation_of_image, names), default=-1)

    def _list(self, directory: str) -> list[str]:
        try:
            return self.fs.list_directory(directory)
        except FileNotFoundError:
            return []  # it was removed: the lines that need it say so
        except OSError as error:
            raise StorageFailed("list", directory, error) from error


def read_journal(
    path: str, key: bytes, job_id: str, fs: FileSystem, number: int
) -> tuple[JournalRecord, str] | None:
    """A record of the journal, and the digest of its file; None if there is none. Raises RecordDamaged, Incompatible,
    StorageFailed."""
    name = os.path.join(path, JOURNAL, journal_name(number))
    try:
        data = fs.read_file(name, 1 << 20)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed("read", name, error) from error
    return JournalRecord.decode(key, job_id, data, name, number=number), authenticated.digest(data)


def _any_hash_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") % _HASH_SEED_LIMIT + 1


_LIST_HINT: Final = "Check the path; `ckpt run` starts a job and prints where it is."


def _read_job_file(fs: FileSystem, root: str) -> bytes:
    path = os.path.join(root, JOB_NAME)
    try:
        return fs.read_file(path, 1 << 24)
    except FileNotFoundError:
        raise JobMissing("this directory holds no job", path=root, hint=_LIST_HINT) from None
    except OSError as error:
        raise StorageFailed("read", path, error) from error


def _read_key(root: str) -> bytes:
    path = os.path.join(root, KEY_NAME)
    try:
        fd = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise KeyUnreadable(
            f"the job's key cannot be read ({error.strerror})",
            path=path,
            hint="Without it no image can be trusted.",
        ) from error
    try:
        check_private_file(fd, path)
        text = os.read(fd, 4096)
    except OSError as error:
        raise StorageFailed("read", path, error) from error
    finally:
        with contextlib.suppress(OSError):  # nothing was written through it
            os.close(fd)
    return _key_of(text, path)


def _key_of(text: bytes, path: str) -> bytes:
    """The key whose file has this content. Raises RecordDamaged."""
    digits = text[:-1]
    if len(text) != 2 * authenticated.KEY_BYTES + 1 or text[-1:] != b"\n" or digits.lower() != digits:
        raise RecordDamaged("the job's key is damaged", path=path, hint="Restore it from a backup.")
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError as error:
        raise RecordDamaged(
            "the job's key is damaged", path=path, hint="Restore it from a backup."
        ) from error

"""The job directory: all there is of a job, in one place that only its owner can touch (★).

    JOB/                 0700, ours; refused otherwise
      job.json           identity and options; written last at creation: without it there is no job
      key                32 random bytes as hex, 0600: signs every record of this job (see `records.py`)
      lock               flock of the controller; generation.json: its number (see `lock.py`)
      events.jsonl       the event log (see `eventlog.py`)
      control/           epoch-%08d.json, one per committed line (see `control.py`, `lines.py`)
      images/rank-%05d/  epoch-%08d.i%04d.<random>.json (manifest) and .pack (blocks) of one rank's images
      output/            rank-%d.out, rank-%d.err

Manifest and pack share one directory so that one directory sync makes both durable. All directories are
made, and synced, at creation: an image is never the first to need one, so no image depends on the entry of
its own directory.

`open` answers, in this order: is there a job, is it private, which format, does it verify. Nothing in here
is cached across processes; an open JobDirectory is a handful of values and may be used on both sides of a
fork.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from transport.lean import dataclass, field

from . import records
from .control import epoch_of_name
from .errors import Incompatible, JobExists, JobMissing, RecordDamaged, StorageFailed
from .eventlog import EventLog
from .fsio import TEMPORARY_PREFIX, FileSystem, commit_file, sync_directory
from .lock import LockHandle, take_lock
from .privacy import check_private_directory, check_private_file, runtime_directory

__all__ = ["JobDirectory", "image_directory", "image_stem"]

JOB_NAME: Final = "job.json"
KEY_NAME: Final = "key"
EVENTS_NAME: Final = "events.jsonl"
CONTROL: Final = "control"
IMAGES: Final = "images"
OUTPUT: Final = "output"
_KIND: Final = "job"
_OURS: Final = frozenset({KEY_NAME, CONTROL, IMAGES, OUTPUT})
_HASH_SEED_LIMIT: Final = 4294967295


def image_directory(rank: int) -> str:
    """Directory of one rank's images, relative to the job."""
    return f"{IMAGES}/rank-{rank:05d}"


def image_stem(epoch: int, incarnation: int) -> str:
    """First part of the file names of one image; a random part follows."""
    return f"epoch-{epoch:08d}.i{incarnation:04d}"


def epoch_of_image(name: str) -> int | None:
    """The epoch in an image file's name (temporary ones included), or None when it is none of ours."""
    head = name.removeprefix(TEMPORARY_PREFIX).partition(".")[0]
    digits = head.removeprefix("epoch-")
    return int(digits) if head != digits and digits.isdecimal() and digits.isascii() else None


@dataclass
class JobDirectory:
    """An open job; make one with `create` or `open`.

    Attributes:
        path: absolute path of the directory.
        job_id: 16 hex digits.
        key: 32 bytes; never printed, never sent.
        command: what the ranks run.
        size: number of ranks.
        hash_seed: PYTHONHASHSEED of all ranks, part of every image.
        python: version of the interpreter that started the job, "3.11.7".
        created: ISO 8601.
        cwd: where it was started.
        options: free JSON of the controller.
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
        """Make a new job in `path`, which must not exist, be empty, or be left over from a `create` that was
        killed.

        Raises:
            JobExists: there is a job, or anything else.
            NotPrivate: the directory belongs to, or is writable by, somebody else.
            StorageFailed: the system refused.
        """
        if size < 1:
            raise ValueError(f"a job has at least one rank, not {size}")
        system = FileSystem() if fs is None else fs
        root = os.path.abspath(os.fspath(path))
        job = cls(
            path=root,
            job_id=os.urandom(8).hex(),
            key=os.urandom(records.KEY_BYTES),
            command=list(command),
            size=size,
            hash_seed=_any_hash_seed() if hash_seed is None else hash_seed,
            python=sys.version.split()[0] if python is None else python,
            created=datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
            cwd=os.getcwd(),
            options=dict(options or {}),
            fs=system,
        )
        _make_root(system, root)
        _make_directories(system, root, size)
        commit_file(system, root, KEY_NAME, job.key.hex().encode() + b"\n")
        commit_file(system, root, JOB_NAME, records.encode(job.key, _KIND, job.job_id, job._fields()))
        sync_directory(system, os.path.dirname(root))
        return job

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, fs: FileSystem | None = None) -> JobDirectory:
        """Open an existing job.

        Raises:
            JobMissing: no such directory, or no job in it.
            NotPrivate: the directory, one inside or the key belongs to, or is open to, somebody else.
            Incompatible: written by a version with another format.
            RecordDamaged: job.json or the key does not verify.
        """
        system = FileSystem() if fs is None else fs
        root = os.path.abspath(os.fspath(path))
        try:
            check_private_directory(root)
        except FileNotFoundError:
            raise JobMissing("no such job directory", path=root, hint=_LIST_HINT) from None
        for name in (CONTROL, IMAGES, OUTPUT):
            system.check_private(os.path.join(root, name))
        data = _read_job_file(system, root)
        claimed = records.peek_format(data)
        if isinstance(claimed, int) and claimed != records.FORMAT:
            raise Incompatible(
                f"the job has format {claimed}, this version reads format {records.FORMAT}",
                path=root,
                hint="Use the version of the toolkit that started the job.",
            )
        key = _read_key(root)
        name = os.path.join(root, JOB_NAME)
        job_id = _claimed_job_id(data)
        content = records.decode(key, _KIND, job_id, data, name)
        try:
            return cls(
                path=root,
                job_id=content["job"],
                key=key,
                command=content["command"],
                size=content["size"],
                hash_seed=content["hash_seed"],
                python=content["python"],
                created=content["created"],
                cwd=content["cwd"],
                options=content["options"],
                fs=system,
            )
        except KeyError as error:
            raise RecordDamaged(f"job.json lacks {error}", path=name) from error

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
    def control_directory(self) -> str:
        return os.path.join(self.path, CONTROL)

    def rank_directory(self, rank: int) -> str:
        """Where the images of `rank` are; ValueError when the job has no such rank."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} of a job of {self.size}")
        return os.path.join(self.path, image_directory(rank))

    def output_path(self, rank: int, stream: str) -> str:
        """File of a rank's standard output or error; `stream` is "out" or "err"."""
        if stream not in ("out", "err"):
            raise ValueError(f"stream is 'out' or 'err', not {stream!r}")
        return os.path.join(self.path, OUTPUT, f"rank-{rank}.{stream}")

    def runtime_dir(self, *, base: str | None = None) -> str:
        """Private directory (0700) for sockets, short enough for them; see `privacy.runtime_directory`."""
        return runtime_directory(self.job_id, base=base)

    def lock(self) -> LockHandle:
        """Become the job's controller; `with job.lock() as lock:`. Raises JobLocked at once."""
        from .lines import highest_generation

        return take_lock(self.path, self.key, self.job_id, self.fs, floor=highest_generation(self))

    def highest_epoch(self) -> int:
        """The highest epoch number that left any trace on disk, committed or burnt; 0 if none.

        A controller starts above this and above what the event log says, so that burnt numbers are not used
        again.
        """
        highest = 0
        for name in self._list(self.control_directory):
            epoch = epoch_of_name(name.removeprefix(TEMPORARY_PREFIX)[: len("epoch-00000000.json")])
            highest = max(highest, epoch or 0)
        for rank in range(self.size):
            for name in self._list(self.rank_directory(rank)):
                highest = max(highest, epoch_of_image(name) or 0)
        return highest

    def _list(self, directory: str) -> list[str]:
        try:
            return self.fs.list_directory(directory)
        except OSError as error:
            raise StorageFailed("list", directory, error) from error


def _any_hash_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") % _HASH_SEED_LIMIT + 1


_LIST_HINT: Final = "Check the path; `ckpt run` starts a job and prints where it is."


def _make_root(fs: FileSystem, root: str) -> None:
    try:
        os.makedirs(os.path.dirname(root), exist_ok=True)
        fs.make_directory(root)
        return
    except FileExistsError:
        pass  # judged below
    except OSError as error:
        raise StorageFailed("mkdir", root, error) from error
    check_private_directory(root)
    try:
        found = fs.list_directory(root)
    except OSError as error:
        raise StorageFailed("list", root, error) from error
    if JOB_NAME in found:
        raise JobExists(
            "there is a job already",
            path=root,
            hint="`ckpt restart` goes on with it; or name another directory.",
        )
    strange = sorted(name for name in found if name not in _OURS and not name.startswith(TEMPORARY_PREFIX))
    if strange:
        raise JobExists(f"the directory is not empty ({strange[0]})", path=root, hint="Name another one.")


def _make_directories(fs: FileSystem, root: str, size: int) -> None:
    inner = [CONTROL, OUTPUT, IMAGES, *(image_directory(rank) for rank in range(size))]
    for name in inner:
        try:
            fs.make_directory(os.path.join(root, name))
        except FileExistsError:
            check_private_directory(os.path.join(root, name))
        except OSError as error:
            raise StorageFailed("mkdir", os.path.join(root, name), error) from error
    sync_directory(fs, os.path.join(root, IMAGES))


def _read_job_file(fs: FileSystem, root: str) -> bytes:
    path = os.path.join(root, JOB_NAME)
    try:
        return fs.read_file(path, 1 << 24)
    except FileNotFoundError:
        raise JobMissing("this directory holds no job", path=root, hint=_LIST_HINT) from None
    except OSError as error:
        raise StorageFailed("read", path, error) from error


def _claimed_job_id(data: bytes) -> str:
    """The id that the file itself names: job.json defines it, and the MAC is checked next."""
    marker = b'"job":"'
    start = data.find(marker)
    return data[start + len(marker) :].split(b'"', 1)[0].decode("ascii", "replace") if start >= 0 else ""


def _read_key(root: str) -> bytes:
    path = os.path.join(root, KEY_NAME)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RecordDamaged(
            f"the job's key cannot be read ({error.strerror})",
            path=path,
            hint="Without it no image can be trusted.",
        ) from error
    try:
        check_private_file(fd, path)
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    digits = text[:-1]
    if len(text) != 2 * records.KEY_BYTES + 1 or text[-1:] != b"\n" or digits.lower() != digits:
        raise RecordDamaged("the job's key is damaged", path=path, hint="Restore it from a backup.")
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError as error:
        raise RecordDamaged(
            "the job's key is damaged", path=path, hint="Restore it from a backup."
        ) from error

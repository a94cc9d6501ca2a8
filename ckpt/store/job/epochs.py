"""Which epochs have been committed, by the names of control files and by the journal. (driver)

A line counts by its control file and the journal's record that names it (`lines.py`). A record without the file means that
the file has been lost: then nothing of the line can be used, but it must not look as if nothing had been committed.

Not here: what is in these files.
"""

from __future__ import annotations

import os

from ckpt.store.errors import StorageFailed
from ckpt.store.job.directory import JOURNAL, JobDirectory, read_journal
from ckpt.store.records.control import epoch_of_name
from ckpt.store.records.journal import number_of_name

__all__ = ["committed_epochs", "list_epochs"]


def list_epochs(job: JobDirectory) -> list[int]:
    """Return the epochs that have a control file, damaged ones too, ascending. Raises StorageFailed."""
    try:
        names = job.fs.list_directory(job.control_directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed("list", job.control_directory, error) from error
    return sorted(epoch for name in names if (epoch := epoch_of_name(name)) is not None)


def committed_epochs(job: JobDirectory) -> list[int]:
    """Return the epochs that have a control file, ascending, and the newest one that the journal says was committed, even if
    its file has been lost since. Raises StorageFailed, RecordDamaged."""
    recorded = _last_recorded(job)  # first: meanwhile others commit newer lines, and remove older ones
    epochs = list_epochs(job)
    return [*epochs, recorded] if recorded > max(epochs, default=0) else epochs


def _last_recorded(job: JobDirectory) -> int:
    """The newest committed epoch by the journal; 0: none, or there is no journal."""
    directory = os.path.join(job.path, JOURNAL)
    try:
        names = job.fs.list_directory(directory)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StorageFailed("list", directory, error) from error
    newest = max((number for name in names if (number := number_of_name(name)) is not None), default=0)
    found = read_journal(job.path, job.key, job.job_id, job.fs, newest) if newest else None
    return found[0].epoch if found is not None else 0

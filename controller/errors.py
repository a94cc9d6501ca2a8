"""Exceptions of the job's side, and the exit codes of the `ckpt` command.

    ControllerError                 base: everything this package raises on purpose
    ├── MalformedPacket             a rank, the agent or a client sent data that is no packet of the protocol
    ├── UsageError            (2)   the command line asks for something impossible
    ├── NoSuchJob            (10)   no such job, or no such epoch
    ├── JobBusy              (11)   another controller holds the job
    ├── Unrecoverable        (12)   no line of images that can be read
    ├── NotCompatible        (13)   the image does not fit this program, size or interpreter; says why
    ├── FilesNotPutBack (1, 3, 13)  the program's files are not what they were at the checkpoint; says what to do
    └── LaunchFailed          (1)   processes could not be started
        └── NoHostLeft       (16)   all hosts of the job are lost: start me again

Every class has the exit code with which the command ends. Only the command line (`ckpt.controller.cli`) translates errors
of the store (`ckpt.store`) into these classes.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_NO_SUCH_JOB = 10
EXIT_LOCKED = 11
EXIT_UNRECOVERABLE = 12
EXIT_INCOMPATIBLE = 13
EXIT_RESTARTS_USED_UP = 14
EXIT_REPLICAS_DIFFER = 15
"""`--redundancy`: the replicas of a rank differ, and nobody can tell which is right."""
EXIT_NO_HOST_LEFT = 16
"""All hosts of the job are lost; nothing is, but what was computed since the last checkpoint."""
EXIT_CHECKPOINTED = 75
EXIT_NOT_WRITTEN = 120
"""Standard output could not be written; the same code as Python's."""
EXIT_TIMEOUT = 124
EXIT_UNREAD = 141


class ControllerError(Exception):
    """Base of the tree; `exit_code` is the exit code of the command."""

    exit_code: int = EXIT_FAILURE


class MalformedPacket(ControllerError):
    """The data are no packet of the control protocol (`ckpt.controller.supervision.messages`)."""


class UsageError(ControllerError):
    exit_code = EXIT_USAGE


class NoSuchJob(ControllerError):
    exit_code = EXIT_NO_SUCH_JOB


class JobBusy(ControllerError):
    exit_code = EXIT_LOCKED


class Unrecoverable(ControllerError):
    exit_code = EXIT_UNRECOVERABLE


class NotCompatible(ControllerError):
    exit_code = EXIT_INCOMPATIBLE


class LaunchFailed(ControllerError):
    exit_code = EXIT_FAILURE


class NoHostLeft(LaunchFailed):
    exit_code = EXIT_NO_HOST_LEFT


class FilesNotPutBack(ControllerError):
    """The restart has not begun. Exit code 1: the file system refuses; 3: a log or a copy is damaged; 13: what the files
    were is not known."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code

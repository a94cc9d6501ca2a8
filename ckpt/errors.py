"""The exceptions of the rank's side, drawn as a tree.

::

    CkptError
    ├── NotEnabled          a call needs the runtime and the program was not started under ``ckpt run``
    ├── NotInHandler        a handler of active messages, or a program that holds their lock, made a call that may wait
    ├── Deadlock            a one-rank world waits for a message that nobody can send
    ├── ControlLost         the control channel to the rank's agent is gone
    ├── IncompatibleImage   the image was taken by another Python, ckpt, world size or job; or standard input has changed
    ├── RegistrationError   ``ckpt.register`` and its like were given something they cannot use
    ├── EventError          ``ckpt.log_event`` was given a name or fields that it cannot write
    ├── HookFailed          a function registered with ``ckpt.on_checkpoint`` raised
    ├── ThreadsRunning      threads run that no image can hold: they were not started by ``threading.Thread``
    ├── NoInput             the program reads its standard input, which was given as a pipe or a terminal
    ├── NotReplicable       under --redundancy: replicas cannot all do this, or not alike; nothing has been done
    ├── CannotCapture       this interpreter's frames cannot be captured, and the program is not explicit
    └── LoopError           ``ckpt.loop`` is used in a way that cannot be resumed
        └── StateError      the registered state does not fit the checkpoint

The process image (:mod:`ckpt.image.errors`), the store (:mod:`ckpt.store.errors`) and the communicator
(:mod:`ckpt.mpi.base.errors`) have trees of their own.
"""

from __future__ import annotations

__all__ = [
    "CannotCapture",
    "CkptError",
    "ControlLost",
    "Deadlock",
    "EventError",
    "HookFailed",
    "IncompatibleImage",
    "LoopError",
    "NoInput",
    "NotEnabled",
    "NotInHandler",
    "NotReplicable",
    "RegistrationError",
    "StateError",
    "ThreadsRunning",
]


class CkptError(Exception):
    """Base class of the errors that the rank's runtime raises."""


class NotEnabled(CkptError):
    """The call needs a job and there is none."""


class NotInHandler(CkptError):
    """The call may wait, or begins an operation: not in a handler of active messages, nor while their lock is held."""


class Deadlock(CkptError):
    """The only rank waits for a message that nobody can send."""


class NoInput(CkptError, OSError):
    """Standard input is neither a file nor empty: a restart could not read again what the program had read from it."""


class ControlLost(CkptError):
    """The agent that started this rank no longer answers."""


class IncompatibleImage(CkptError):
    """The image cannot be resumed here; the message says which of the two sides differs and how."""


class RegistrationError(CkptError):
    """A name, object, type or hook given to :func:`ckpt.register` and its like cannot be used."""


class EventError(CkptError):
    """A name or fields given to :func:`ckpt.log_event` cannot be written to the event log."""


class HookFailed(CkptError):
    """A hook of the program raised; the message names both."""


class ThreadsRunning(CkptError):
    """Threads run that no image can hold; the message names them. :mod:`ckpt.capture.threads` says what may be done."""


class NotReplicable(CkptError):
    """Several processes compute this rank (``ckpt run --redundancy``), and cannot all do this, or would not do it alike."""


class CannotCapture(CkptError):
    """No image of the whole program can be taken by this interpreter; the message says why and what else works."""


class LoopError(CkptError):
    """A loop cannot be resumed, or is used where it cannot work; the message names it."""


class StateError(LoopError):
    """Registered state and checkpoint do not fit each other; the message names the variable."""

"""The exceptions of the rank's side, drawn as a tree.

::

    CkptError
    ├── NotEnabled          a call needs the runtime and the program was not started under ``ckpt run``
    ├── Deadlock            a one-rank world waits for a message that nobody can send
    ├── ControlLost         the control channel to the rank's agent is gone
    ├── IncompatibleImage   the image was taken by another Python, ckpt, world size or job
    └── RegistrationError   ``ckpt.register`` was given a name twice or an unusable name

The process image (:mod:`ckpt.image.errors`), the store (:mod:`ckpt.store.errors`) and the communicator
(:mod:`ckpt.mpi.errors`) have trees of their own.
"""

from __future__ import annotations

__all__ = [
    "CkptError",
    "ControlLost",
    "Deadlock",
    "IncompatibleImage",
    "NotEnabled",
    "RegistrationError",
]


class CkptError(Exception):
    """Base of what the rank's runtime raises."""


class NotEnabled(CkptError):
    """The call needs a job and there is none."""


class Deadlock(CkptError):
    """Nothing can ever arrive: the only rank waits for itself."""


class ControlLost(CkptError):
    """The agent that started this rank no longer answers."""


class IncompatibleImage(CkptError):
    """The image cannot be resumed here; the message says which of the two sides differs and how."""


class RegistrationError(CkptError):
    """A name given to :func:`ckpt.register` cannot be used."""

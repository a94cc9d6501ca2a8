"""The exceptions of fault location, drawn as a tree.

::

    DiagnosisError
    ├── BadModel          a file of fault models cannot be used; says file, line and remedy
    ├── BadTopology       the file of the topology cannot be used, or names a host or switch that is not in it
    ├── BadCredentials    the file of the credentials cannot be used, or others can read it
    ├── UnknownError      an error for which there are no candidates
    ├── NoSuchFault       no model has a fault of this name
    └── NoAnswer          a query brought no value; says why. It makes an element unknown and never ends a diagnosis
"""

from __future__ import annotations

__all__ = [
    "BadCredentials",
    "BadModel",
    "BadTopology",
    "DiagnosisError",
    "NoAnswer",
    "NoSuchFault",
    "UnknownError",
]


class DiagnosisError(Exception):
    """Base class of what this package raises on purpose."""


class BadModel(DiagnosisError):
    """A file of fault models. The text is `FILE:LINE: what is wrong; what to do`."""


class BadTopology(DiagnosisError):
    """The file of the topology, or a name that is not in it."""


class BadCredentials(DiagnosisError):
    """The file of the credentials. No text of this class has anything of what is in it."""


class UnknownError(DiagnosisError):
    """The error does not come from a fault of the network, or is not known."""


class NoSuchFault(DiagnosisError):
    """No model has this fault; the text lists near names."""


class NoAnswer(DiagnosisError):
    """A query has no value. The text is for people: what did not answer, and how.

    silent: nothing came back, so a fault on the way may explain it; otherwise somebody said that there is no value.
    """

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent

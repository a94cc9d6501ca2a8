"""From the error of a call to the places at which its fault may be, in order. Pure.

Source: Sakai and Ishikawa, "MPI communication library with cluster monitoring", sections 3.2 and 3.4. An error
cannot say where the fault is; it says which places to look at. For EHOSTUNREACH between hosts 0 and 1 the paper's
order is: interface 0, port 0, switch, port 1, interface 1, host 1.

Names of errors are ours, the same on every kernel (`ERRORS`). They are the kinds of a lost link:

    local          the own device is down                    ENETDOWN
    unreachable    no way to the peer                        ENETUNREACH, EHOSTUNREACH
    silent         no answer to what was sent                ETIMEDOUT
    reset          the peer has reset the connection         ECONNRESET, EPIPE
    refused        the peer refuses a connection             ECONNREFUSED

Kernels mix up unreachable and silent: with the own interface down a write says ETIMEDOUT and a connect
ENETUNREACH, and a host whose cable is out is EHOSTUNREACH after three seconds or ETIMEDOUT. So the candidates of
these two are the same, and the own side is among them.

Not here: which models apply at a place (`graph`), and what of them is faulty (`verdict`).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final, Literal

from ckpt.diagnosis.errors import UnknownError

__all__ = ["ERRORS", "PLACES", "STEPS", "Side", "error_name", "need_diagnosis"]

Side = Literal["here", "between", "there"]
Step = tuple[str, Side]
"""A kind of place, and the end of the way at which it is."""

PLACES: Final = ("interface", "host", "cable", "port", "switch", "process")

_WAY: Final[tuple[Step, ...]] = (
    ("interface", "here"),
    ("host", "here"),
    ("cable", "here"),
    ("port", "here"),
    ("switch", "between"),
    ("port", "between"),
    ("cable", "between"),
    ("port", "there"),
    ("cable", "there"),
    ("interface", "there"),
    ("host", "there"),
    ("process", "there"),
)
_PEER: Final[tuple[Step, ...]] = (("process", "there"), ("host", "there"))

STEPS: Final[Mapping[str, tuple[Step, ...]]] = {
    "local": (("interface", "here"), ("host", "here"), ("cable", "here"), ("port", "here")),
    "unreachable": _WAY,
    "silent": _WAY,
    "reset": _PEER,
    "refused": _PEER,
}
"""The candidates of each error, in the order in which they are reported."""

ERRORS: Final[Mapping[int, str]] = {
    errno.ENETDOWN: "local",
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ETIMEDOUT: "silent",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ECONNREFUSED: "refused",
}


def need_diagnosis(error: int | OSError | None) -> bool:
    """May this error of a call come from a fault of a device, a host or a process? (The paper's `need_detect`.)"""
    number = error.errno if isinstance(error, OSError) else error
    return number in ERRORS


def error_name(error: int | str | OSError) -> str:
    """The name of an error given as its number, as an exception, as `ETIMEDOUT` or as our own name.

    Raises UnknownError, with the errors that are known.
    """
    if isinstance(error, OSError):
        error = error.errno if error.errno is not None else str(error)
    if isinstance(error, str):
        if error in STEPS:
            return error
        number = {errno.errorcode[code]: code for code in ERRORS}.get(error.upper())
    else:
        number = error
    if number is None or number not in ERRORS:
        shown = errno.errorcode.get(error, str(error)) if isinstance(error, int) else error
        known = ", ".join([*(errno.errorcode[code] for code in ERRORS), *STEPS])
        raise UnknownError(f"{shown} says nothing about a place; what can be looked for: {known}")
    return ERRORS[number]

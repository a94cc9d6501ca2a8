"""A restart puts files back: how, and what of it must survive a kill. What has to be undone: :mod:`ckpt.undo.planning`.

:mod:`ckpt.undo.restart.putting_back` does it
:mod:`ckpt.undo.restart.ahead`        names that it can record at once
:mod:`ckpt.undo.restart.places`       reaches names and files without following a symbolic link
:mod:`ckpt.undo.restart.restoring`    all intervals since a line
:mod:`ckpt.undo.restart.provisional`  what is put back, and can be taken back, until every rank has loaded its image
:mod:`ckpt.undo.restart.intervals`    the logs of all ranks in an interval
:mod:`ckpt.undo.restart.checking`     what is looked at before anything is changed
:mod:`ckpt.undo.restart.kept_files`   whether copies and hard links are what was kept
:mod:`ckpt.undo.restart.line_notes`   what the lines say of the logs
:mod:`ckpt.undo.restart.others`       what somebody else has changed since a line
:mod:`ckpt.undo.restart.verifying`    for `ckpt verify`
:mod:`ckpt.undo.restart.state`        what is known of the undo log as a whole
:mod:`ckpt.undo.restart.ending`       what somebody else has changed since the job ended
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from ckpt.undo.restart import restoring as restoring


def __getattr__(name: str) -> ModuleType:
    """Import :mod:`.restoring`, and with it the other modules, on first use: a job that never goes back needs none."""
    if name == "restoring":
        from importlib import import_module

        return import_module(f"{__name__}.restoring")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

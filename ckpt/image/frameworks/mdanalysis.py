"""MDAnalysis: files of trajectories that have been written, and what its parser of selections has been told last.

A file in C (DCD, XTC, TRR) is pickled as its path and mode, and opened again by these. With the mode "w" that empties the
file, also where the object has been closed long ago and is merely still a variable. Such an object comes back over the null
device, closed; one that is being written is refused.

Groups that are updated when the frame changes (``select_atoms(…, updating=True)``) hold selections, and a selection asks
the one parser, a variable of the package, for its settings. The package has compiled modules, so its variables are no part
of images: without a class here a group could not be updated after a restart.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ckpt.image.errors import ObjectRefused
from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["MDAnalysis", "reduce_trajectory"]

_FORMATS = "MDAnalysis.lib.formats"


class MDAnalysis(Library):
    def reducers(self) -> dict[type, Reducer]:
        return {
            **by_name(f"{_FORMATS}.libdcd", {"DCDFile": reduce_trajectory}),
            **by_name(f"{_FORMATS}.libmdaxdr", dict.fromkeys(("XTCFile", "TRRFile"), reduce_trajectory)),
        }

    def note_settings(self) -> Any:
        parser = getattr(sys.modules.get("MDAnalysis.core.selection"), "Parser", None)
        return dict(getattr(parser, "__dict__", {}))

    def apply_settings(self, saved: Any) -> None:
        sys.modules["MDAnalysis.core.selection"].Parser.__dict__.update(saved)


def reduce_trajectory(saver: Any, trajectory: Any) -> Any:
    """The reducer for a file in C: the package's own way, but for one that has been opened to be written."""
    reduced = trajectory.__reduce__()
    cls, (path, mode), state = reduced
    if mode == "r":
        return reduced
    if state[0]:
        raise ObjectRefused(
            trajectory,
            f"a trajectory of MDAnalysis that is being written ({path!r}): what is known of it is in C until it is closed; "
            "write a file for each part, and close it before a checkpoint (an on_checkpoint hook can do both)",
        )
    return make_closed, (cls,)


def make_closed(cls: type[Any]) -> Any:
    """A file that has been written and closed."""
    made = cls(os.devnull, "w")
    made.close()
    return made

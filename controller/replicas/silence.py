"""Planes of which a process tells nothing, while enough others tell something: it may be stopped. Pure.

Every process of a plane that computes tells something at least every half second. While the job starts, those that are there
wait for the others, and tell nothing.

    computes    lost after SILENT_NS of silence
    starts      who is not there yet is lost after START_NS

Only time counts in which enough other planes are well: each of their processes has told something just before, or waits. And
from one look to the next (about once a second) not more than STEP_NS: so neither a controller that gets no processor, or
waits for a disk, nor a machine that sleeps makes anybody silent. What has come meanwhile has been read before the next look.

Not here: planes that answer and do not come on (`stalls`), what follows (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["LOOK_NS", "SILENT_NS", "START_NS", "Silence"]

SILENT_NS: Final = 10_000_000_000
START_NS: Final = 60_000_000_000
LOOK_NS: Final = 1_000_000_000
STEP_NS: Final = 2_000_000_000


class Silence:
    """How long processes have been silent."""

    def __init__(self, now_ns: int) -> None:
        self._looked_ns = now_ns
        self._heard: set[int] = set()
        self._quiet_ns: dict[int, int] = {}
        """Since it has told something."""
        self._silent_ns: dict[int, int] = {}
        """The same, but only while enough others were well."""

    def heard(self, process: int) -> None:
        """It has told something."""
        self._heard.add(process)
        self._silent_ns[process] = 0

    def waits(self, process: int) -> None:
        """It is there, and tells nothing before all are: it begins a while after that."""
        self._heard.add(process)
        self._silent_ns[process] = -SILENT_NS

    def look(
        self, planes: Mapping[int, Collection[int]], enough: int, longest_ns: int, now_ns: int
    ) -> tuple[set[int], set[int]]:
        """The planes that are well, and those that are lost. `planes`: the processes of each that have to tell something;
        `enough`: so many others have to be well."""
        step_ns, self._looked_ns = min(now_ns - self._looked_ns, STEP_NS), now_ns
        for process in (each for processes in planes.values() for each in processes):
            is_heard = process in self._heard
            self._quiet_ns[process] = 0 if is_heard else self._quiet_ns.get(process, 0) + step_ns
        well = {
            plane
            for plane, processes in planes.items()
            if all(self._quiet_ns[process] < 2 * LOOK_NS for process in processes)
        }
        lost = set()
        for plane, processes in planes.items():
            if len(well - {plane}) < max(1, enough):
                continue
            for process in set(processes) - self._heard:
                self._silent_ns[process] = self._silent_ns.get(process, 0) + step_ns
                if self._silent_ns[process] >= longest_ns:
                    lost.add(plane)
        self._heard.clear()
        return well - lost, lost

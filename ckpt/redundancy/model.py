"""The R-speedup of redundant programs, as the paper models it (Wang, Yang, Zhou: Journal of Software 23(4), 2012). Pure.

P processes; one-process time T_S = P·T'_P; communication T = volume / bisection; then (numbers are those of the paper)

    (1)  S    = P / (1 + T/T'_P)
    (2)  S^R  = P / (1 + T/T'_P + T_R/T'_P)              T_R: time of redundancy
    (3)  T'_C = t_o + D/b + h·t_r                        one message of D bits over h hops
    (4)  T_C  = M·(t_o + (2/3)·d·P/(b·bisection) + h·t_r)    classic TMR: M comparisons of all memory, d bits a node
    (5)  T'_G = t_o + d/b + h·t_r                        the repair of one node
    (6)  T_G  = F·T'_G                                   F repairs
    (9)  T_R  = 2·(K+1)·D/b                              STMR: K sends of D bits, and the final result

Classic TMR: T_R = T_C + T_G. On a √P×√P mesh, bisection √P, equation (4) is the paper's, with h = √P/2.

Where the paper contradicts itself
- (2) is written S/(1 + T_R/T'_P) there, too, which is wrong by a cross term unless T = 0. `speedup` is exact.
- Section 4.1 lets D grow like the volume. Then STMR does not follow S, as figure 13 says it does, but levels off or stays
  below (`d_grows`); it follows S with a constant D per process.
- T_R leaves out how the receiving meta process hands the data on to its shadows: a second 2·(K'+1)·D/b (`handing_on`).
- In panel d TMR is S up to a constant factor: both are of order √P.

Units: seconds, bits, bits per second. Not here: what our own layer costs (benchmarks/redundancy.py measures it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LINK_BITS_PER_S", "MEMORY_BITS", "PANELS", "Model", "Row", "limit_of_tmr", "slope"]

LINK_BITS_PER_S = 1.4e9
"""b of BlueGene/L, one direction of a link; with d the only published constants."""

MEMORY_BITS = 4e9
"""d of BlueGene/L: memory of a node."""

Growth = Callable[[float], float]


def _constant(processes: float) -> float:
    return 1.0


PANELS: dict[str, tuple[Growth, Growth]] = {
    "a": (_constant, _constant),
    "b": (math.sqrt, math.sqrt),
    "c": (math.sqrt, _constant),
    "d": (float, math.sqrt),
}
"""Figure 13: how the volume of communication and the bisection bandwidth grow with P. a, b: scalable; c, d: weakly."""


@dataclass(frozen=True)
class Row:
    """R-speedups at P `processes`: of the plain program, classic TMR, STMR with D constant, STMR with D like the volume."""

    processes: float
    plain: float
    tmr: float
    stmr: float
    stmr_d_grows: float


@dataclass(frozen=True)
class Model:
    """T'_P in s, T of one process in s, M comparisons, F repairs, K sends of D bits, t_o and t_r in s.

    `handing_on`: count the way from the receiving meta process to its shadows, which the paper leaves out."""

    work_s: float = 1e4
    communication_s: float = 1.0
    comparisons: int = 1
    repairs: int = 1
    sends: int = 1000
    message_bits: float = 1e6
    overhead_s: float = 1e-5
    hop_s: float = 1e-7
    hops: Growth = _constant
    handing_on: bool = False

    def speedup(self, panel: str, processes: float, redundancy_s: float) -> float:
        """Equation (2); with T_R = 0 equation (1)."""
        volume, bisection = PANELS[panel]
        communication_s = self.communication_s * volume(processes) / bisection(processes)
        return processes / (1 + communication_s / self.work_s + redundancy_s / self.work_s)

    def tmr_s(self, panel: str, processes: float) -> float:
        """T_R of classic TMR: equations (4) to (6)."""
        _, bisection = PANELS[panel]
        way_s = self.overhead_s + self.hops(processes) * self.hop_s
        compare_s = way_s + 2 / 3 * MEMORY_BITS * processes / (LINK_BITS_PER_S * bisection(processes))
        return self.comparisons * compare_s + self.repairs * (way_s + MEMORY_BITS / LINK_BITS_PER_S)

    def stmr_s(self, panel: str, processes: float, *, d_grows: bool = False) -> float:
        """T_R of STMR: equation (9)."""
        bits = self.message_bits * (PANELS[panel][0](processes) if d_grows else 1.0)
        once_s = 2 * (self.sends + 1) * bits / LINK_BITS_PER_S
        return 2 * once_s if self.handing_on else once_s

    def row(self, panel: str, processes: float) -> Row:
        return Row(
            processes,
            self.speedup(panel, processes, 0),
            self.speedup(panel, processes, self.tmr_s(panel, processes)),
            self.speedup(panel, processes, self.stmr_s(panel, processes)),
            self.speedup(panel, processes, self.stmr_s(panel, processes, d_grows=True)),
        )


def limit_of_tmr(model: Model) -> float:
    """What the R-speedup of classic TMR tends to in panels a and c: 3·b·T'_P / (2·d·M)."""
    return 3 * LINK_BITS_PER_S * model.work_s / (2 * MEMORY_BITS * model.comparisons)


def slope(function: Growth, processes: float) -> float:
    """The slope of `function` in a picture with logarithms on both axes, at P `processes`."""
    step = 1.01
    return math.log(function(processes * step) / function(processes / step)) / (2 * math.log(step))

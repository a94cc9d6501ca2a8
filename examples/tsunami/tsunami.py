"""A tsunami off Vancouver Island: where does it go, how high is it, when does it arrive?

Solves the nonlinear shallow-water equations over the real sea floor of the Salish Sea. An earthquake under
the continental slope lifts the sea; the wave runs up the Strait of Juan de Fuca to Victoria and beyond.

    ckpt run -n 4 examples/tsunami/tsunami.py --out result      four ranks, survives the loss of any of them
    python examples/tsunami/tsunami.py --out result             one rank

Every rank has a strip of the map, from south to north, with one row of each neighbour around it. The scheme
is the usual one of tsunami codes: depth in the cell, velocities on its sides; first velocities, then depths;
upwind in the advection and the fluxes, so that no cell ever holds less than no water. Nothing depends on how
many ranks there are: the result is the same to the last bit.

Written to --out: gauges.csv (the water level at each place, as it is computed), result.npz (fields and
series) and result.txt (highest wave and time of arrival at each place).
"""

import argparse
import sys
from hashlib import sha256
from math import sqrt
from pathlib import Path

import numpy as np
import seafloor

import ckpt
from ckpt.mpi import MAX, PROC_NULL, SUM

GRAVITY = 9.81  # m/s²
DRAG = 0.0025  # quadratic bottom friction, dimensionless
DRY = 0.05  # m; no flow through a side with less water than this
COURANT = 0.6
FASTEST = 15.0  # m/s; water does not run faster than this
ARRIVED = 0.05  # m above or below the level at rest: the wave has arrived


class Strip:
    """This rank's rows of the map. Row 0 and row -1 of every field are the neighbours'."""

    def __init__(self, comm, bed, cell, uplift):
        self.comm = comm
        self.cell = cell
        self.first = bed.shape[0] * comm.rank // comm.size
        self.last = bed.shape[0] * (comm.rank + 1) // comm.size
        self.south = comm.rank - 1 if comm.rank > 0 else PROC_NULL
        self.north = comm.rank + 1 if comm.rank < comm.size - 1 else PROC_NULL

        rows = np.clip(np.arange(self.first - 1, self.last + 1), 0, bed.shape[0] - 1)
        self.bed = bed[rows]
        sea = self.bed < 0.0
        self.depth = np.where(sea, np.maximum(uplift[rows] - self.bed, 0.0), 0.0)
        # Velocities: through each cell's west side (and the last one's east side), through its south side.
        self.east = np.zeros((len(rows), bed.shape[1] + 1))
        self.up = np.zeros((len(rows), bed.shape[1]))
        self.rest = np.where(sea, 0.0, self.bed)
        self.highest = self.level() - self.rest
        # The higher ground of the two cells that share a side.
        self.sill_x = np.maximum(self.bed[:, 1:], self.bed[:, :-1])
        self.sill_y = np.maximum(self.bed[1:], self.bed[:-1])

    def level(self):
        """Height of the water's surface; of the ground where there is no water."""
        return self.depth + self.bed

    def exchange(self, field):
        """Fill the neighbours' rows of `field`."""
        self.comm.Sendrecv(field[-2], dest=self.north, recvbuf=field[0], source=self.south)
        self.comm.Sendrecv(field[1], dest=self.south, recvbuf=field[-1], source=self.north)

    def longest_step(self):
        """Seconds that the fastest wave on the whole map needs to cross COURANT cells."""
        mine = np.array([self.depth.max(), np.abs(self.east).max(), np.abs(self.up).max()])
        largest = np.empty_like(mine)
        self.comm.Allreduce(mine, largest, op=MAX)
        deepest, east, up = map(float, largest)
        return COURANT * self.cell / (sqrt(GRAVITY * deepest) + max(east, up))

    def step(self, dt):
        level = self.level()
        east, up = self.accelerate(level, dt)
        self.east[1:-1, 1:-1], self.up[1:-1] = east, up
        self.radiate(level)
        self.exchange(self.east)
        self.exchange(self.up)
        self.move_water(dt)
        self.exchange(self.depth)
        np.maximum(self.highest, self.level() - self.rest, out=self.highest)

    def accelerate(self, level, dt):
        """New velocities of this strip's sides: slope of the surface, advection, friction."""
        u, v = self.east, self.up
        pull = GRAVITY * dt / self.cell
        carry = dt / self.cell

        # The sides between neighbours in a row: own rows, all inner columns.
        water = np.maximum(level[1:-1, 1:], level[1:-1, :-1]) - self.sill_x[1:-1]
        here = u[1:-1, 1:-1]
        across = 0.25 * (v[1:-1, 1:] + v[1:-1, :-1] + v[2:, 1:] + v[2:, :-1])
        along_x = np.where(here > 0.0, here - u[1:-1, :-2], u[1:-1, 2:] - here)
        along_y = np.where(across > 0.0, here - u[:-2, 1:-1], u[2:, 1:-1] - here)
        slope = level[1:-1, 1:] - level[1:-1, :-1]
        pushed = here - pull * slope - carry * (here * along_x + across * along_y)
        east = drag(pushed, here, across, water, dt)

        # The south sides of own cells.
        water = np.maximum(level[1:-1], level[:-2]) - self.sill_y[:-1]
        here = v[1:-1]
        across = 0.25 * (u[1:-1, 1:] + u[1:-1, :-1] + u[:-2, 1:] + u[:-2, :-1])
        along_y = np.where(here > 0.0, here - v[:-2], v[2:] - here)
        west_of, east_of = np.zeros_like(here), np.zeros_like(here)
        west_of[:, 1:] = here[:, :-1]
        east_of[:, :-1] = here[:, 1:]
        along_x = np.where(across > 0.0, here - west_of, east_of - here)
        slope = level[1:-1] - level[:-2]
        pushed = here - pull * slope - carry * (here * along_y + across * along_x)
        return east, drag(pushed, here, across, water, dt)

    def radiate(self, level):
        """Let waves leave the map in the west, the south and the north."""
        self.east[:, 0] = -outward(level[:, 0], self.depth[:, 0])
        if self.south == PROC_NULL:
            self.up[1] = -outward(level[1], self.depth[1])
        if self.north == PROC_NULL:
            self.up[-1] = outward(level[-2], self.depth[-2])

    def move_water(self, dt):
        """What flows through a side comes out of the cell that it leaves."""
        h, u, v = self.depth, self.east, self.up
        flow_x = np.zeros_like(u[1:-1])
        inner = u[1:-1, 1:-1]
        flow_x[:, 1:-1] = inner * np.where(inner > 0.0, h[1:-1, :-1], h[1:-1, 1:])
        flow_x[:, 0] = u[1:-1, 0] * h[1:-1, 0]
        side = v[1:]
        flow_y = side * np.where(side > 0.0, h[:-1], h[1:])
        share = dt / self.cell
        own = h[1:-1] - share * (flow_x[:, 1:] - flow_x[:, :-1]) - share * (flow_y[1:] - flow_y[:-1])
        h[1:-1] = np.maximum(own, 0.0)

    def volume(self):
        """Cubic kilometres of water on the whole map."""
        return self.comm.allreduce(float(self.depth[1:-1].sum()), op=SUM) * self.cell**2 / 1e9

    def readings(self, gauges):
        """[(name, height above rest)] of all gauges, on rank 0; None elsewhere."""
        level = self.level()
        mine = []
        for name, (row, column) in gauges.items():
            if self.first <= row < self.last:
                mine.append((name, float(level[row - self.first + 1, column])))
        everybody = self.comm.gather(mine, root=0)
        return None if everybody is None else [reading for rank in everybody for reading in rank]

    def whole(self, field):
        """A field of the whole map, on rank 0; None elsewhere."""
        strips = self.comm.gather(field[1:-1].copy(), root=0)
        return None if strips is None else np.concatenate(strips)


def drag(new, old, across, water, dt):
    """Slow down by bottom friction; nothing flows through a dry side."""
    friction = DRAG * dt * np.sqrt(old * old + across * across) / np.maximum(water, DRY)
    return np.where(water > DRY, np.clip(new / (1.0 + friction), -FASTEST, FASTEST), 0.0)


def outward(level, depth):
    """Velocity at which a wave of this level leaves through an open border."""
    wet = depth > DRY
    return np.where(wet, level * np.sqrt(GRAVITY / np.where(wet, depth, 1.0)), 0.0)


def earthquake(latitude, longitude, height=4.0):
    """Uplift of the sea floor in m: a ridge along the continental slope, a shallower trough inland of it."""
    north = (latitude[:, None] - 48.45) * seafloor.EARTH_M_PER_DEGREE / 1000.0
    east = (longitude[None, :] + 125.55) * seafloor.EARTH_M_PER_DEGREE / 1000.0 * np.cos(np.radians(48.45))
    strike = np.radians(-35.0)  # the slope runs to the north-west
    along = east * np.sin(strike) + north * np.cos(strike)
    inland = east * np.cos(strike) - north * np.sin(strike)
    ridge = np.exp(-((inland / 14.0) ** 2)) - 0.4 * np.exp(-(((inland - 35.0) / 18.0) ** 2))
    return height * ridge * np.exp(-((along / 55.0) ** 4))


def simulate(comm, out, hours, refine, every):
    bed, latitude, longitude, cell = seafloor.load(refine)
    gauges = seafloor.gauges(bed, latitude, longitude)
    strip = Strip(comm, bed, cell, earthquake(latitude, longitude))
    names = list(gauges)
    series = []
    table = None
    if comm.rank == 0:
        table = sys.stdout if out is None else gauge_file(out)
        print("minutes", *names, sep=",", file=table)
        rows, columns = bed.shape
        print(f"{rows} x {columns} cells of {cell:.0f} m, {comm.size} ranks, {hours:g} hours", flush=True)

    time, steps, samples = 0.0, 0, 0
    while time < hours * 3600.0:
        if time >= samples * every:
            readings = strip.readings(gauges)
            volume = strip.volume()
            if table is not None:
                level = dict(readings)
                row = [level[name] for name in names]
                series.append([time, *row])
                print(f"{time / 60:.2f}", *[f"{value:.4f}" for value in row], sep=",", file=table)
                if samples % 20 == 0:
                    crest = max(names, key=lambda name: level[name])
                    print(
                        f"{time / 60:6.1f} min  step {steps:5d}  {volume:.3f} km3  "
                        f"highest gauge: {crest} {level[crest]:+.2f} m",
                        flush=True,
                    )
            samples += 1
        dt = strip.longest_step()
        strip.step(dt)
        time += dt
        steps += 1

    highest, level = strip.whole(strip.highest), strip.whole(strip.level())
    if comm.rank == 0:
        series = np.array(series)
        fields = {"highest": highest, "level": level, "latitude": latitude, "longitude": longitude}
        report = summary(names, series, highest, gauges, steps)
        if out is None:
            content = b"".join(np.ascontiguousarray(each).tobytes() for each in (series, *fields.values()))
            report += f"sha256 of all fields {sha256(content).hexdigest()}\n"
        else:
            table.close()
            np.savez(out / "result.npz", series=series, **fields)
            (out / "result.txt").write_text(report)
        print(report, end="", flush=True)


def gauge_file(out):
    out.mkdir(parents=True, exist_ok=True)
    return open(out / "gauges.csv", "w")  # open for the whole run


def summary(names, series, highest, gauges, steps):
    lines = [f"{'place':<14} {'highest m':>10} {'lowest m':>10} {'arrival min':>12}"]
    for place, name in enumerate(names, start=1):
        heights = series[:, place]
        arrived = np.flatnonzero(np.abs(heights - heights[0]) > ARRIVED)
        minutes = f"{series[arrived[0], 0] / 60:.1f}" if len(arrived) else "-"
        row, column = gauges[name]
        lines.append(f"{name:<14} {highest[row, column]:10.3f} {heights.min():10.3f} {minutes:>12}")
    lines.append(f"{steps} steps")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--out", type=Path, default=Path("tsunami-result"), help="directory for the result; -: print it")
    option("--hours", type=float, default=3.0, help="time to simulate")
    option("--refine", type=int, default=5, help="cells per point of the data and direction")
    option("--every", type=float, default=30.0, metavar="S", help="simulated seconds between gauge readings")
    options = parser.parse_args()
    out = None if str(options.out) == "-" else options.out
    simulate(ckpt.enable(), out, options.hours, options.refine, options.every)


if __name__ == "__main__":
    main()

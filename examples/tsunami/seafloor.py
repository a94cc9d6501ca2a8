"""The sea floor between the Pacific and Vancouver, and the places whose tide gauges we watch.

The depths are real: a 2.4 km grid of the Salish Sea and the shelf off Vancouver Island (48 to 50 degrees
north, 122 to 126 west) that ships as sample data inside matplotlib's wheel. Only that one file is read;
matplotlib itself is not imported. On so coarse a map the narrow passes between the islands are closed: the
wave reaches Victoria and Port Townsend, and next to nothing of it gets into the Strait of Georgia.
"""

import importlib.util
from pathlib import Path

import numpy as np

EARTH_M_PER_DEGREE = 111_195.0

# Tide gauges and harbours: name, degrees north, degrees east.
PLACES = [
    ("Tofino", 49.15, -125.91),
    ("Bamfield", 48.83, -125.14),
    ("Neah Bay", 48.37, -124.61),
    ("Port Renfrew", 48.55, -124.42),
    ("Port Angeles", 48.12, -123.44),
    ("Victoria", 48.42, -123.37),
    ("Friday Harbor", 48.55, -123.01),
    ("Port Townsend", 48.11, -122.76),
    ("Bellingham", 48.74, -122.50),
    ("Vancouver", 49.29, -123.12),
    ("Nanaimo", 49.16, -123.93),
    ("Powell River", 49.84, -124.53),
]


def data_file():
    """Where the soundings are: inside the installed matplotlib package."""
    package = importlib.util.find_spec("matplotlib")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(
            "the sea-floor data is missing: pip install --no-deps -r examples/tsunami/requirements.txt"
        )
    return Path(package.submodule_search_locations[0]) / "mpl-data/sample_data/topobathy.npz"


def load(refine):
    """(bed, latitude, longitude, cell): height of the ground in m (negative under water), row 0 in the south.

    The data made `refine` times finer by bilinear interpolation; `cell` is the side of a (square) cell in m.
    """
    with np.load(data_file()) as data:
        ground = data["topo"].astype(float)
        latitude, longitude = data["latitude"].astype(float), data["longitude"].astype(float) - 360.0
    cell = EARTH_M_PER_DEGREE * (latitude[-1] - latitude[0]) / (len(latitude) - 1) / refine
    rows = np.arange((len(latitude) - 1) * refine + 1) / refine
    columns = np.arange((len(longitude) - 1) * refine + 1) / refine
    ground = _between(_between(ground, rows).T, columns).T
    return np.ascontiguousarray(ground), _between(latitude, rows), _between(longitude, columns), cell


def _between(values, positions):
    """`values` at fractional positions along the first axis."""
    lower = np.minimum(positions.astype(int), len(values) - 2)
    share = (positions - lower).reshape(-1, *[1] * (values.ndim - 1))
    return values[lower] * (1.0 - share) + values[lower + 1] * share


def gauges(bed, latitude, longitude, depth=5.0):
    """{name: (row, column)}: for each place on the map, the nearest cell under more than `depth` m."""
    found = {}
    for name, north, east in PLACES:
        if not (latitude[0] <= north <= latitude[-1] and longitude[0] <= east <= longitude[-1]):
            continue
        dy = (latitude - north)[:, None]
        dx = ((longitude - east) * np.cos(np.radians(north)))[None, :]
        distance = np.where(bed < -depth, dy * dy + dx * dx, np.inf)
        row, column = np.unravel_index(np.argmin(distance), bed.shape)
        found[name] = (int(row), int(column))
    return found

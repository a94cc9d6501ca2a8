"""Packages for data: tables, files, pictures, maps, databases; see :mod:`tests.libraries.library`."""

from __future__ import annotations

from tests.libraries.library import Library

DATA = (
    # ---- tables and databases
    Library("duckdb", "duckdb", "a connection to a database file", """
import duckdb
c = duckdb.connect("d.duckdb"); c.execute("create table t (x int)"); c.execute("insert into t values (1), (2)")
---
c.execute("insert into t values (3)"); print(c.execute("select sum(x) from t").fetchall())
""", 'ckpt.register_type(duckdb.DuckDBPyConnection, lambda c: "d.duckdb", duckdb.connect)'),
    Library("lmdb", "lmdb", "an environment", """
import lmdb
e = lmdb.open("e", map_size=1 << 20)
with e.begin(write=True) as t: t.put(b"a", b"1")
del t
---
with e.begin(write=True) as t: t.put(b"b", b"2")
with e.begin() as t: print(list(t.cursor()))
"""),
    Library("diskcache", "diskcache", "a cache on disk, a deque", """
import diskcache
c = diskcache.Cache("cache"); c["a"] = [1, 2]; d = diskcache.Deque([1, 2], "deque")
---
c["b"] = c["a"] + [3]; d.append(3); print(sorted(c), c["b"], list(d), c.incr("n"))
"""),
    Library("peewee", "peewee", "models over a database file", """
import peewee as p
db = p.SqliteDatabase("p.db")
class Note(p.Model):
    text = p.CharField()
    class Meta: database = db
db.create_tables([Note]); n = Note.create(text="one"); q = Note.select().where(Note.text != "x").order_by(Note.text)
---
n.text = "two"; n.save(); Note.create(text="three"); print([x.text for x in q], Note.select().count())
"""),
    Library("tinydb", "tinydb", "tables in a JSON file and in memory", """
from tinydb import Query, TinyDB
from tinydb.storages import MemoryStorage
d, m = TinyDB("t.json"), TinyDB(storage=MemoryStorage); d.insert({"a": 1}); m.insert({"a": 2})
---
d.insert({"a": 3}); print(d.search(Query().a > 1), m.all(), len(d))
"""),
    Library("openpyxl", "openpyxl", "a workbook that is being filled", """
import openpyxl
b = openpyxl.Workbook(); s = b.active; s.append([1, 2]); s["A1"].font = openpyxl.styles.Font(bold=True)
s.column_dimensions["A"].width = 30
---
s.append([3, 4]); s.row_dimensions[2].height = 9; b.save("b.xlsx"); r = openpyxl.load_workbook("b.xlsx").active
print([[c.value for c in row] for row in r], r["A1"].font.b, r.column_dimensions["A"].width, r.row_dimensions[2].height)
"""),
    Library("openpyxl (write-only)", "openpyxl", "a workbook whose rows go to a file at once", """
import openpyxl
b = openpyxl.Workbook(write_only=True); s = b.create_sheet(); s.append([1, 2])
---
s.append([3, 4]); b.save("b.xlsx"); print([[c.value for c in row] for row in openpyxl.load_workbook("b.xlsx").active])
"""),
    Library("XlsxWriter", "xlsxwriter", "a workbook that is being filled", """
import xlsxwriter, zipfile
b = xlsxwriter.Workbook("b.xlsx"); s = b.add_worksheet(); f = b.add_format({"bold": True}); s.write(0, 0, "one", f)
---
s.write(1, 0, 2.5); b.close(); z = zipfile.ZipFile("b.xlsx"); print(len(z.namelist()), z.read("xl/worksheets/sheet1.xml")[-200:])
"""),
    Library("fastavro", "fastavro", "a reader, half-way, and a schema", """
import fastavro, io
s = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]})
f = io.BytesIO(); fastavro.writer(f, s, [{"x": k} for k in range(5)]); f.seek(0); r = fastavro.reader(f); next(r)
---
print(list(r), fastavro.validate({"x": 1}, s))
"""),
    Library("ijson", "ijson", "a parser, half-way", """
import ijson.backends.python as ijson, io
it = ijson.items(io.BytesIO(b'{"a": [1, 2, {"b": 3}]}'), "a.item"); next(it)
---
print(list(it))
"""),
    Library("fsspec", "fsspec", "a file system in memory, a file of it that is open", """
import fsspec
m = fsspec.filesystem("memory"); m.pipe("/x", b"one"); g = m.open("/z", "wb"); g.write(b"1")
---
g.write(b"2"); g.close(); print(m.cat("/x"), m.cat("/z"), m.ls("/", detail=False))
"""),
    Library("fsspec (local)", "fsspec", "a local file that is being written", """
import fsspec
f = fsspec.open("y.txt", "w").open(); f.write("a")
---
f.write("b"); f.close(); print(open("y.txt").read())
"""),
    Library("h5netcdf", "h5netcdf", "a file that stays open", """
import h5netcdf
f = h5netcdf.File("d.nc", "w"); f.dimensions = {"x": 3}; v = f.create_variable("v", ("x",), "f8"); v[0] = 1.5; f.flush()
---
v[1] = 2.5; v.attrs["unit"] = "m"; f.flush(); print(f["v"][:], dict(f["v"].attrs), f.dimensions["x"].size)
"""),
    Library("cftime", "cftime", "dates of other calendars", """
import cftime
d = cftime.datetime(2000, 2, 30, calendar="360_day"); r = cftime.num2date([0, 59], "days since 2000-01-01", calendar="noleap")
---
print(d, d.calendar, r, cftime.date2num(r, "hours since 2000-01-01"))
"""),
    Library("Bottleneck", "bottleneck", "moving windows over arrays", """
import bottleneck as bn, numpy as np
a = np.array([1, np.nan, 3, 4.0]); m = bn.move_mean(a, 2, 1)
---
print(bn.nansum(m), bn.move_max(a, 2, 1), bn.rankdata(a))
"""),
    Library("numcodecs", "numcodecs", "codecs", """
import numcodecs, numpy as np
c = numcodecs.Blosc("zstd", 3); d = numcodecs.Delta("i8"); b = c.encode(d.encode(np.arange(100)))
---
print(d.decode(np.frombuffer(c.decode(b), "i8")).sum(), c)
"""),
    Library("lz4", "lz4.frame", "a compressor, between two pieces", """
import lz4.frame
c = lz4.frame.LZ4FrameCompressor(); b = c.begin() + c.compress(b"one" * 9)
---
b += c.compress(b"two" * 9) + c.flush(); print(lz4.frame.decompress(b))
"""),
    Library("lz4 (blocks)", "lz4", "compressed data", """
import lz4.block, lz4.frame
b = lz4.block.compress(b"one" * 9); f = lz4.frame.open("f.lz4", "wb"); f.write(b"1"); f.close()
---
print(lz4.block.decompress(b), lz4.frame.open("f.lz4").read())
"""),
    Library("brotli", "brotli", "a compressor, between two pieces", """
import brotli
c = brotli.Compressor(); b = c.process(b"one" * 9)
---
b += c.process(b"two" * 9) + c.finish(); print(brotli.decompress(b))
"""),
    Library("zstandard (stream)", "zstandard", "a compressor, between two pieces", """
import zstandard
c = zstandard.ZstdCompressor().compressobj(); b = c.compress(b"one" * 9)
---
b += c.compress(b"two" * 9) + c.flush(); print(zstandard.ZstdDecompressor().decompressobj().decompress(b))
"""),
    Library("xxhash", "xxhash", "a sum, between two pieces", """
import xxhash
h = xxhash.xxh64(seed=3); h.update(b"one")
---
h.update(b"two"); print(h.hexdigest())
"""),
    # ---- pictures, sound, figures
    Library("imageio", "imageio", "a film that is being read, pictures", """
import imageio.v3 as iio, numpy as np
iio.imwrite("f.gif", np.arange(3 * 16 * 16, dtype="u1").reshape(3, 16, 16)); it = iio.imiter("f.gif"); a = next(it)
---
print(a.shape, [int(p.sum()) for p in it])
"""),
    Library("scikit-image", "skimage", "labels, regions, a transform", """
import numpy as np
from skimage.measure import label, regionprops
from skimage.transform import AffineTransform
a = np.zeros((16, 16), int); a[2:5, 2:6] = a[9:12, 9:10] = 1; l = label(a); r = regionprops(l)
t = AffineTransform(scale=(2, 1))
---
print(l.max(), [int(x.area) for x in r], [x.centroid for x in r], t([[1, 1]]), r[0].image.sum())
"""),
    Library("PyWavelets", "pywt", "wavelets, packets", """
import numpy as np, pywt
w = pywt.Wavelet("db2"); a = np.arange(16.0); c = pywt.wavedec(a, w, level=2); p = pywt.WaveletPacket(a, "db1")
---
print(np.allclose(pywt.waverec(c, w), a), w.dec_len, p["ad"].data.round(6), w.name)
"""),
    Library("soundfile", "soundfile", "a sound that is written", """
import numpy as np, soundfile as sf
f = sf.SoundFile("s.wav", "w", 8000, 1); f.write(np.ones(10) / 2)
---
f.write(np.zeros(5)); f.close(); print(sf.read("s.wav")[0].sum())
"""),
    Library("soundfile (arrays)", "soundfile", "a sound that has been read", """
import numpy as np, soundfile as sf
sf.write("s.wav", np.ones(10) / 2, 8000); a, rate = sf.read("s.wav")
---
print(a.sum(), rate, sf.info("s.wav").frames)
"""),
    Library("seaborn", "seaborn", "a grid of figures, a theme", """
import matplotlib; matplotlib.use("Agg")
import pandas as pd, seaborn as sns
sns.set_theme(style="whitegrid"); d = pd.DataFrame({"x": [1, 2, 3, 4], "y": [1, 4, 9, 16], "g": list("abab")})
g = sns.FacetGrid(d, col="g"); g.map(sns.lineplot, "x", "y")
---
g.set_titles("{col_name}"); g.savefig("g.png"); print([a.get_title() for a in g.axes.flat], g.axes[0, 0].lines[0].get_ydata())
print(sns.axes_style()["axes.grid"], matplotlib.rcParams["axes.grid"])
"""),
    Library("plotly", "plotly", "a figure", """
import plotly.graph_objects as go
f = go.Figure(go.Scatter(x=[1, 2], y=[3, 4])); f.update_layout(title="t"); t = f.data[0]
---
f.add_bar(x=[1], y=[2]); t.y = [5, 6]; print(f.data[0].y, len(f.data), f.layout.title.text, len(f.to_json()))
"""),
    Library("bokeh", "bokeh", "a figure with its source", """
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure
s = ColumnDataSource({"x": [1, 2], "y": [3, 4]}); f = figure(width=200); l = f.line("x", "y", source=s); seen = []
s.on_change("data", lambda attr, old, new: seen.append(1))
---
s.data = {"x": [1], "y": [5]}; print(seen, l.data_source is s, f.width, f.select_one({"id": s.id}) is s)
"""),
    Library("contourpy", "contourpy", "a generator of contours, in C++", """
import contourpy, numpy as np
x, y = np.meshgrid(np.arange(5.0), np.arange(5.0)); g = contourpy.contour_generator(x, y, x * y)
---
print([l.sum().round(6) for l in g.lines(2.5)])
"""),
    Library("trimesh", "trimesh", "meshes with their caches", """
import trimesh
m = trimesh.creation.box((1, 2, 3)); v = m.volume; m.metadata["a"] = 1
---
m.apply_scale(2); print(v, m.volume, m.is_watertight, m.metadata["a"], m.bounds.tolist())
"""),
    Library("nibabel", "nibabel", "pictures with headers, on disk", """
import nibabel as nib, numpy as np
nib.save(nib.Nifti1Image(np.arange(8.0).reshape(2, 2, 2), np.eye(4)), "a.nii"); i = nib.load("a.nii"); i.header["descrip"] = b"x"
---
print(i.get_fdata().sum(), i.affine.trace(), i.header["descrip"], i.dataobj[1].sum())
"""),
    Library("pydicom", "pydicom", "data sets", """
import pydicom
d = pydicom.Dataset(); d.PatientName = "A^B"; d.Rows = 3; s = pydicom.Dataset(); s.Columns = 2; d.ReferencedImageSequence = [s]
---
d.Rows += 1; print(d.PatientName.family_name, d.Rows, d.ReferencedImageSequence[0].Columns, [e.tag for e in d])
"""),
    # ---- maps
    Library("pyproj", "pyproj", "projections, a transformer", """
import pyproj
c = pyproj.CRS("EPSG:32633"); t = pyproj.Transformer.from_crs("EPSG:4326", c, always_xy=True); g = pyproj.Geod(ellps="WGS84")
---
print([round(x, 3) for x in t.transform(15, 50)], c.name, round(g.line_length([0, 1], [0, 1]), 3), c.axis_info[0].name)
"""),
    Library("geopandas", "geopandas", "a frame of geometries, its index", """
import geopandas as gpd
from shapely.geometry import Point
d = gpd.GeoDataFrame({"a": [1, 2, 3]}, geometry=[Point(k, k) for k in range(3)], crs="EPSG:4326"); i = d.sindex
---
print(i.query(Point(1, 1).buffer(0.1)), d.to_crs(3857).total_bounds.round(2), d.buffer(1).area.sum().round(4), d.crs.to_epsg())
"""),
    Library("rasterio", "rasterio", "a raster that stays open", """
import numpy as np, rasterio
f = rasterio.open("r.tif", "w", driver="GTiff", width=4, height=4, count=1, dtype="uint8"); f.write(np.ones((4, 4), "u1"), 1)
---
f.close(); print(rasterio.open("r.tif").read(1).sum())
"""),
    Library("rasterio (arrays)", "rasterio", "rasters that are opened where they are read; profiles", """
import numpy as np, rasterio
from rasterio.transform import from_origin
t = from_origin(0, 4, 1, 1); p = {"driver": "GTiff", "width": 4, "height": 4, "count": 1, "dtype": "uint8", "transform": t}
with rasterio.open("r.tif", "w", **p) as f: f.write(np.ones((4, 4), "u1"), 1); q = f.profile
del f
---
with rasterio.open("r.tif") as f: print(f.read(1).sum(), f.bounds, q["transform"] * (1, 1))
"""),
)  # fmt: skip

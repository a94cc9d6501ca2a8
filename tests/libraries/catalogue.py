"""Common packages, and for each a small program with the state that people keep of it over an image.

:mod:`tests.libraries.library` says what a program looks like. This module has those for numbers, learning, formats and
programs; the ones beside it have more.
"""

from __future__ import annotations

from tests.libraries.catalogue_data import DATA
from tests.libraries.catalogue_listeners import LISTENERS
from tests.libraries.catalogue_science import SCIENCE
from tests.libraries.catalogue_tools import TOOLS
from tests.libraries.library import Library

LIBRARIES = (
    # ---- numbers and arrays
    Library("numpy", "numpy", "arrays, views, generators", """
import numpy as np
a = np.arange(12.0).reshape(3, 4); view = a[1]; g = np.random.default_rng(3); g.random(); np.random.seed(4)
---
view += 1; print(a.sum(), g.random(), np.random.rand(), view.base is not None)
"""),
    Library("scipy", "scipy", "sparse matrices, KD-trees, splines, integrators, generators of distributions", """
import numpy as np, scipy.sparse as sp, scipy.spatial as ss, scipy.interpolate as si, scipy.integrate as ig, scipy.stats as st
g = st.norm.random_state = np.random.default_rng(1); p = np.ones((3, 2)); k = ss.cKDTree(p); m = sp.random(50, 50, 0.1, random_state=1, format="csr"); t = ss.cKDTree(np.random.default_rng(1).random((50, 3)))
s = si.CubicSpline(np.arange(9.0), np.arange(9.0) ** 2); r = ig.RK45(lambda t, y: -y, 0, [1.0], 2); r.step()
---
r.step(); print(m.sum(), t.query([0.5] * 3), s(2.5), r.t, r.y, st.norm.rvs(), g.random(), np.shares_memory(p, k.data))
"""),
    Library("scipy (splu)", "scipy", "a factorisation in C (SuperLU)", """
import scipy.sparse as sp, scipy.sparse.linalg as sl
lu = sl.splu(sp.eye(9, format="csc") * 2)
---
import numpy; print(lu.solve(numpy.full(9, 2.0)))
"""),
    Library("pandas", "pandas", "frames, indexes, groups, rolling windows, options", """
import pandas as pd
d = pd.DataFrame({"a": [1, 2, 3, 4], "b": list("xyxy")}, index=pd.date_range("2020", periods=4)); g = d.groupby("b")
w = d.a.rolling(2); c = pd.Categorical(list("aba")); pd.set_option("display.precision", 3)
---
print(g.sum(), w.sum(), c, d.loc["2020-01-02"].a, pd.get_option("display.precision"))
"""),
    Library("jax", "jax", "arrays of 64 bits, options, classes that are nodes of trees, devices, compiled functions", """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
class P:
    def __init__(self, a): self.a = a
jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(*c))
p, k, d, f = P(jnp.ones(3) / 3), jax.random.key(0), jax.devices()[0], jax.jit(lambda p: P(p.a * 2))
---
q = jax.tree_util.tree_map(lambda v: v + 1, f(p)); print(q.a.dtype, q.a.tolist(), jax.random.uniform(k), d in p.a.devices())
"""),
    Library("polars", "polars", "frames", """
import polars as pl
d = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"]})
---
print(d.group_by("b", maintain_order=True).agg(pl.col("a").sum()).to_dict(as_series=False))
"""),
    Library("polars (in pieces)", "polars", "frames and series in several pieces, expressions, plans", """
import polars as pl
a = pl.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"], "c": [[1], [2, 3], None], "d": [{"q": n} for n in range(3)]})
d = pl.concat([a, a, a], rechunk=False); s, e, p = d["a"], pl.col("a") * 2, a.lazy().filter(pl.col("a") > 1)
---
print(d.select(e).sum().rows(), d.n_chunks(), s.chunk_lengths(), s.to_list(), p.collect().rows(), d["d"].to_list())
"""),
    Library("polars (SQL)", "polars", "a context of SQL, in Rust", """
import polars as pl
c = pl.SQLContext(f=pl.DataFrame({"a": [1, 2]}))
---
print(c.execute("select sum(a) from f").collect().item())
"""),
    Library("pyarrow", "pyarrow", "tables", """
import pyarrow as pa
t = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
---
print(t.to_pydict(), t.schema)
"""),
    Library("pyarrow (ParquetWriter)", "pyarrow", "a file that is being written by C++", """
import pyarrow as pa, pyarrow.parquet as pq
t = pa.table({"a": [1, 2, 3]}); w = pq.ParquetWriter("t.parquet", t.schema); w.write_table(t)
---
w.write_table(t); w.close(); print(pq.read_table("t.parquet").num_rows)
"""),
    Library("pyarrow (ParquetFile)", "pyarrow", "a file that is being read by C++", """
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"a": [1, 2, 3]}), "t.parquet"); f = pq.ParquetFile("t.parquet")
---
print(f.num_row_groups)
"""),
    Library("xarray", "xarray", "labelled arrays", """
import numpy as np, xarray as xr
d = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("x", "y"), coords={"x": [1, 2]})
---
print(float(d.sel(x=2).sum()), d.mean("y").values)
"""),
    Library("dask.distributed", "distributed.comm.inproc", "an address within the process", """
from distributed.comm import inproc
listener = inproc.InProcListener(inproc.new_address().removeprefix("inproc://"), None)
---
print(listener.listen_address.startswith("inproc://"))
"""),
    Library("dask", "dask", "graphs that are not computed yet", """
import dask, dask.delayed
d = dask.delayed(sum)([dask.delayed(pow)(k, 2) for k in range(5)])
---
print(d.compute(scheduler="synchronous"))
"""),
    Library("numexpr", "numexpr", "compiled expressions", """
import numexpr as ne, numpy as np
a = np.arange(9.0); ne.evaluate("a * 2")
---
print(ne.evaluate("a * 2 + 1").sum())
"""),
    Library("numba", "numba", "compiled functions", """
import numba
@numba.njit
def f(x):
    return x * 2 + 1
f(3)
---
print(f(4), f(2.5))
"""),
    Library("sympy", "sympy", "expressions", """
import sympy as s
x = s.Symbol("x"); e = s.expand((x + 1) ** 3)
---
print(s.factor(e), e.subs(x, 2), s.integrate(e, x))
"""),
    Library("mpmath", "mpmath", "numbers, precision", """
import mpmath
mpmath.mp.dps = 40; a = mpmath.mpf(1) / 3
---
print(a * 3, mpmath.mp.dps, mpmath.pi)
"""),
    Library("gmpy2", "gmpy2", "numbers in C", """
import gmpy2
a = gmpy2.mpz(2) ** 200; q = gmpy2.mpq(1, 3)
---
print(a + 1, q * 2)
"""),
    Library("statsmodels", "statsmodels", "a fitted model", """
import numpy as np, statsmodels.api as sm
x = sm.add_constant(np.arange(9.0)); r = sm.OLS(np.arange(9.0) * 2 + 1, x).fit()
---
print(r.params.round(6), r.predict(x)[:2].round(6))
"""),
    Library("statsmodels (state space)", "statsmodels", "a state space model, to be asked for other parameters", """
import numpy as np, statsmodels.api as sm
model = sm.tsa.SARIMAX(np.arange(20.0) ** 1.1, order=(1, 0, 0)); first = model.loglike([0.5, 1.0])
---
print(round(first, 6), round(model.loglike([0.9, 3.0]), 6), round(model.loglike([0.5, 1.0]), 6))
"""),
    # ---- learning
    Library("scikit-learn", "sklearn", "fitted estimators, pipelines", """
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
X = np.random.default_rng(1).random((60, 3)); y = (X.sum(1) > 1.5).astype(int)
m = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=1)).fit(X, y)
---
print(m.predict(X).sum(), m.score(X, y))
"""),
    Library("torch", "torch", "model, optimizer, scheduler, random numbers", """
import torch
torch.manual_seed(1); m = torch.nn.Linear(3, 1); o = torch.optim.Adam(m.parameters()); x = torch.rand(8, 3)
s = torch.optim.lr_scheduler.StepLR(o, 1)
def step():
    o.zero_grad(); l = (m(x) ** 2).mean(); l.backward(); o.step(); s.step(); return l.item()
step()
---
print(step(), step(), torch.rand(1), s.get_last_lr())
"""),
    Library("torch (DataLoader, no workers)", "torch", "an iterator over batches, half-way", """
import torch
torch.manual_seed(1); it = iter(torch.utils.data.DataLoader(list(range(10)), batch_size=2, shuffle=True)); next(it)
---
print([b.tolist() for b in it])
"""),
    Library("torch (DataLoader, workers)", "torch", "an iterator with two processes, half-way", """
import random, torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, i): return i + random.random() + torch.rand(1).item()
torch.manual_seed(1); it = iter(torch.utils.data.DataLoader(Numbers(), batch_size=2, shuffle=True, num_workers=2)); next(it)
---
print([b.tolist() for b in it])
"""),
    Library("torch (hooks)", "torch", "hooks of modules, tensors and optimizers, settings", """
import torch
seen = []; m = torch.nn.Linear(2, 1); o = torch.optim.SGD(m.parameters(), 0.1)
o.register_step_post_hook(lambda *_: seen.append("step")); m.register_forward_hook(lambda *_: seen.append("forward"))
torch.use_deterministic_algorithms(True); torch.set_default_device("cpu")
---
m.register_forward_hook(lambda *_: seen.append("second")); m(torch.ones(1, 2)).sum().backward(); o.step()
print(seen, torch.are_deterministic_algorithms_enabled(), torch.get_default_device())
"""),
    Library("xgboost", "xgboost", "a booster", """
import numpy as np, xgboost as xgb
X = np.random.default_rng(1).random((50, 3)); d = xgb.DMatrix(X, label=X.sum(1))
b = xgb.train({"seed": 1, "nthread": 1}, d, 3)
del d
---
print(b.predict(xgb.DMatrix(X))[:3])
"""),
    Library("xgboost (training)", "xgboost", "a booster and its data between two steps of a training", """
import numpy as np, xgboost as xgb
X = np.random.default_rng(1).random((500, 9)); d = xgb.DMatrix(X, label=X.sum(1), weight=np.arange(500))
b = xgb.Booster({"seed": 1, "nthread": 2}, [d])
for k in range(4): b.update(d, k)
---
for k in range(4, 9): b.update(d, k)
print(hash(bytes(b.save_raw())), b.predict(d)[:3])
"""),
    Library("xgboost (training, random)", "xgboost", "the same with `subsample`", """
import numpy as np, xgboost as xgb
X = np.random.default_rng(1).random((500, 9)); d = xgb.DMatrix(X, label=X.sum(1))
b = xgb.Booster({"seed": 1, "nthread": 1, "subsample": 0.5}, [d]); b.update(d, 0)
---
b.update(d, 1); print(b.predict(d)[:3])
"""),
    Library("lightgbm (data)", "lightgbm", "a trained booster and its data, with several threads", """
import numpy as np, lightgbm as lgb
X = np.random.default_rng(1).random((500, 9)); d = lgb.Dataset(X, X.sum(1), free_raw_data=False)
b = lgb.train({"verbose": -1, "num_threads": 2}, d, 9)
---
print(b.predict(X)[:3], d.num_data(), lgb.train({"verbose": -1, "num_threads": 1}, d, 2).predict(X)[:3])
"""),
    Library("lightgbm (training)", "lightgbm", "a booster between two steps of a training", """
import numpy as np, lightgbm as lgb
X = np.random.default_rng(1).random((80, 3))
b = lgb.Booster({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, X.sum(1), free_raw_data=False)); b.update()
---
b.update(); print(b.predict(X)[:3])
"""),
    Library("lightgbm", "lightgbm", "a booster", """
import numpy as np, lightgbm as lgb
X = np.random.default_rng(1).random((80, 3)); m = lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(X, X.sum(1))
---
print(m.predict(X)[:3])
"""),
    Library("joblib", "joblib", "results of Parallel (the pool has ended), Memory", """
import joblib
r = joblib.Parallel(n_jobs=1)(joblib.delayed(pow)(k, 2) for k in range(5)); m = joblib.Memory("cache", verbose=0)
f = m.cache(len); f([1, 2])
---
print(r, f([1, 2]), f([1, 2, 3]))
"""),
    Library("gymnasium", "gymnasium", "an environment", """
import gymnasium as gym
from gymnasium.utils import EzPickle
e = gym.make("CartPole-v1"); e.reset(seed=1); e.step(1); k = EzPickle(); k.place = [4]
---
print(e.step(0)[0].round(6), k.place)
"""),
    Library("emcee", "emcee", "a sampler between two steps", """
import emcee, numpy as np
np.random.seed(1); s = emcee.EnsembleSampler(8, 2, lambda x: -0.5 * np.sum(x**2)); st = s.run_mcmc(np.random.randn(8, 2), 3)
---
st = s.run_mcmc(st, 3); print(s.get_chain().sum(), s.iteration)
"""),
    Library("deap", "deap", "populations", """
import random
from deap import base, creator, tools
random.seed(1); creator.create("Fit", base.Fitness, weights=(1.0,)); creator.create("Ind", list, fitness=creator.Fit)
p = [creator.Ind([random.random()]) for _ in range(4)]
---
tools.mutGaussian(p[0], 0, 1, 1); print(p, type(p[0]) is creator.Ind)
"""),
    # ---- files and formats
    Library("h5py", "h5py", "a file that stays open", """
import h5py
f = h5py.File("d.h5", "w"); d = f.create_dataset("x", (4,), "f8"); d[0] = 1.5; f.flush()
---
d[1] = 2.5; f.flush(); print(f["x"][:])
"""),
    Library("netCDF4", "netCDF4", "a file that stays open", """
import netCDF4
f = netCDF4.Dataset("d.nc", "w"); f.createDimension("t", None); v = f.createVariable("v", "f8", ("t",)); v[0] = 1.5; f.sync()
---
v[1] = 2.5; f.sync(); print(v[:])
"""),
    Library("tables (PyTables)", "tables", "a file that stays open, its nodes, a row that is being filled", """
import tables
class R(tables.IsDescription):
    k = tables.Int32Col(); v = tables.Float64Col()
f = tables.open_file("d.h5", "w"); a = f.create_array(f.root, "x", [1.5, 2.5]); t = f.create_table("/", "t", R); row = t.row
row["k"] = 1; row.append(); row["k"] = 2; attributes = a.attrs
---
a[1] = 3.5; row["v"] = 5; row.append(); t.flush(); attributes.unit = "m"; f.flush()
print(a[:], t[-1], f.root.x is a, t.cols.k[0], a.attrs.unit); f.close()
"""),
    Library("tables (indexed)", "tables", "an indexed table that is being filled", """
import tables
f = tables.open_file("i.h5", "w"); t = f.create_table("/", "t", {"k": tables.Int64Col()}); t.append([(0,)]); t.cols.k.create_index()
---
for k in range(1, 30): t.append([(k,)]); t.flush()
print(t.nrows, t._indexedrows, [r["k"] for r in t.where("k > 25")]); f.close()
"""),
    Library("pandas (HDFStore)", "pandas", "a store that stays open and is being filled", """
import pandas as pd, tables
s = pd.HDFStore("h.h5", "w"); s.append("d", pd.DataFrame({"a": range(5)}))
---
for k in range(1, 4): s.append("d", pd.DataFrame({"a": range(5)}, index=range(5 * k, 5 * k + 5)))
print(len(s.select("d", "index > 3")), s.keys()); s.close()
"""),
    Library("zarr", "zarr", "arrays and groups on disk and in memory", """
import zarr
z = zarr.open_array("z.zarr", mode="w", shape=(4,), dtype="f8"); z[0] = 1.5; g = zarr.open_group("g.zarr", mode="w")
x = g.create_group("h").create_array("x", shape=(3,), dtype="i4")
m = zarr.create_array({}, shape=(3,), dtype="i4"); m[0] = 7
---
z[1] = 2.5; x[:] = 3; print(z[:], x[:], list(g), m[:])
"""),
    Library("lxml", "lxml", "documents in C: elements, trees, comments, parts taken out", """
from lxml import etree, html
t = etree.fromstring("<?xml version='1.0'?><!--c--><a xmlns:n='u'><b n:x='1'>text</b>tail<?p i?><d/></a>"); b = t[0]
tree, out, it = t.getroottree(), t[2], t.iter(); t.remove(out); next(it); h = html.fromstring("<p @on='x'>one<br>two</p>")
br = h.find("br"); texts = t.xpath("//b/text()"); at = b.attrib
---
at["y"] = "2"; print(etree.tostring(tree), t[0] is b, b.getparent() is t, tree.getroot() is t, out.getparent(), out.tag)
print([e.tag for e in it][0])
print(html.tostring(h), br.tail, br.getparent() is h, texts, texts[0].getparent() is b, b.sourceline, t.getprevious().text)
"""),
    Library("lxml (objectify)", "lxml", "objects over a document", """
from lxml import objectify
t = objectify.fromstring("<a><b>1</b><c>x</c></a>"); b = t.b
---
print(b + 1, t.c, b.getparent() is t)
"""),
    Library("lxml (parsers)", "lxml", "a parser, between two pieces of its input", """
from lxml import etree
p = etree.XMLParser(); p.feed("<a>")
---
p.feed("</a>"); print(p.close().tag)
"""),
    Library("beautifulsoup4", "bs4", "a tree", """
from bs4 import BeautifulSoup
s = BeautifulSoup("<p>one<b>two</b></p>", "html.parser"); b = s.b
---
print(s.p.text, b.parent.name)
"""),
    Library("PyYAML", "yaml", "data, loaders", """
import yaml
d = yaml.safe_load("a: [1, {b: 2}]")
---
print(yaml.safe_dump(d), d)
"""),
    Library("orjson", "orjson", "data", """
import orjson
d = orjson.loads(b'{"a": [1, 2.5, null]}')
---
print(orjson.dumps(d))
"""),
    Library("msgpack", "msgpack", "data", """
import msgpack
d = msgpack.packb([1, "x", 2.5])
---
print(msgpack.unpackb(d))
"""),
    Library("msgpack (packers)", "msgpack", "a packer in C, an unpacker half-way", """
import msgpack
p = msgpack.Packer(autoreset=False); p.pack(1); u = msgpack.Unpacker(); u.feed(msgpack.packb("a") + b"\\xa3bc"); next(u)
---
p.pack("x"); u.feed(b"d"); print(p.bytes(), list(u))
"""),
    Library("msgspec", "msgspec", "classes of structs, objects, encoders and decoders", """
import msgspec
class Node(msgspec.Struct, rename="camel", tag=True, omit_defaults=True):
    own_name: str
    below: "list[Node]" = []
    def __post_init__(self):
        print("made", self.own_name)
n = Node("a", [Node("b")]); e = msgspec.json.Encoder(order="sorted"); d = msgspec.json.Decoder(Node, strict=False)
---
print(e.encode(n), d.decode(e.encode(n)) == n, msgspec.convert({"type": "Node", "ownName": "c"}, Node))
"""),
    Library("zope.interface", "zope.interface", "interfaces of the program, what classes and objects implement", """
from zope.interface import Interface, alsoProvides, implementer
from zope.interface.interfaces import IInterface
class Own(Interface):
    def method(): "what it does"
@implementer(Own, IInterface)
class A: pass
a = A()
---
print(Own.providedBy(a), IInterface.providedBy(a), list(Own), Own.implementedBy(A))
"""),
    Library("protobuf", "google.protobuf", "messages", """
from google.protobuf import struct_pb2
s = struct_pb2.Struct(); s["a"] = 1.5; s["b"] = "x"
---
print(s["a"], s["b"], sorted(s))
"""),
    Library("pillow", "PIL", "images in memory", """
from PIL import Image, ImageDraw
i = Image.new("RGB", (20, 20), "white"); ImageDraw.Draw(i).line((0, 0, 19, 19), "red")
---
print(i.getpixel((5, 5)), i.size)
"""),
    Library("opencv-python", "cv2", "images are numpy arrays", """
import cv2, numpy as np
i = np.zeros((20, 20, 3), "u1"); cv2.circle(i, (9, 9), 4, (255, 0, 0), -1)
---
print(int(cv2.cvtColor(i, cv2.COLOR_BGR2GRAY).sum()))
"""),
    Library("pillow (files)", "PIL", "images that are opened and not loaded yet", """
from PIL import Image
Image.new("RGB", (20, 20), "red").save("a.png"); i, j = Image.open("a.png"), Image.open(open("a.png", "rb"))
---
print(i.getpixel((1, 1)), j.size, j.getpixel((2, 2)))
"""),
    Library("opencv-python (VideoWriter)", "cv2", "a film that is being written", """
import cv2
w = cv2.VideoWriter("a.avi", cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 64))
---
print(w.isOpened())
"""),
    Library("matplotlib", "matplotlib", "figures (Agg), rcParams", """
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
f, a = plt.subplots(); l, = a.plot([1, 2, 3]); plt.rcParams["lines.linewidth"] = 3
---
l.set_ydata([3, 2, 1]); f.savefig("f.png"); print(l.get_ydata(), plt.rcParams["lines.linewidth"], plt.gcf() is f)
"""),
    Library("sqlalchemy", "sqlalchemy", "a session over a database file, between transactions", """
import sqlalchemy as sa
e = sa.create_engine("sqlite:///d.db"); m = sa.MetaData(); t = sa.Table("t", m, sa.Column("x", sa.Integer)); m.create_all(e)
with e.begin() as c: c.execute(t.insert().values(x=1))
---
with e.begin() as c: print(c.execute(sa.select(t.c.x)).all())
"""),
    Library("sqlalchemy (sessions)", "sqlalchemy", "mapped classes with relations, a session that stays open", """
from sqlalchemy import ForeignKey, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
class Base(DeclarativeBase): pass
class User(Base):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    items: Mapped[list["Item"]] = relationship(back_populates="user", cascade="all, delete-orphan")
class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    user: Mapped[User] = relationship(back_populates="items")
e = create_engine("sqlite:///u.db"); Base.metadata.create_all(e); s = Session(e); q = select(User)
u = User(name="u", items=[Item(value=j * .5) for j in range(5)]); s.add(u); s.commit(); s.scalars(q).all(); s.commit()
z = User(name="pending"); s.add(z)
---
print(u in s, z in s, u.items[2].value, u.items[1].user is u); u.name = "new"; s.commit(); print(s.scalars(q).all()[0].name)
with Session(e) as t: print(t.hash_key > s.hash_key, t.get(User, 1).name)
s.delete(u); s.commit(); print(s.scalar(select(func.count(Item.id))), s.get(User, z.id) is z)
"""),
    Library("sqlalchemy (events)", "sqlalchemy", "listeners for classes, engines and sessions, statements", """
from sqlalchemy import Engine, create_engine, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column
class Base(DeclarativeBase): pass
class User(Base):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
e = create_engine("sqlite:///v.db"); seen = []; Base.metadata.create_all(e); s = Session(e)
event.listen(Engine, "connect", lambda *_: seen.append("connect"))
event.listen(Session, "after_commit", lambda _: seen.append("commit"))
event.listen(e, "before_cursor_execute", lambda *_: seen.append("execute"))
event.listen(User, "before_insert", lambda mapper, c, user: seen.append(user.name))
event.listen(User.name, "set", lambda *_: seen.append("set"))
event.listen(s, "before_flush", lambda *_: seen.append("flush"))
other = aliased(User); q = select(other.name).where(other.id > 0)
---
s.add(User(name="a")); s.commit(); print(seen, s.execute(q).all()); s.close(); e.dispose()
with Session(e) as t: t.add(User(name="b")); t.commit()
event.listen(Session, "after_rollback", lambda _: seen.append("back")); s.execute(q); s.rollback(); print(seen)
"""),
    Library("sqlalchemy (models of a package)", "sqlalchemy", "mapped classes and tables of an installed package", """
import os, sys
os.makedirs("site-packages", exist_ok=True); sys.path.insert(0, os.path.abspath("site-packages"))
open("site-packages/models_of_shop.py", "w").write('''
from sqlalchemy import Column, ForeignKey, Integer, MetaData, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, backref, mapped_column, relationship
class Base(DeclarativeBase): pass
class User(Base):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)
class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("user.id"))
    user: Mapped[User] = relationship(backref=backref("items"))
extra = Table("extra", MetaData(), Column("x", Integer))
def count_of(session, cls=Item, table=extra): return session.query(cls).count(), session.query(table).count()
''')
from models_of_shop import *
from sqlalchemy import create_engine, event, select
class Own(Base):
    __tablename__ = "own"
    id: Mapped[int] = mapped_column(primary_key=True)
e = create_engine("sqlite:///w.db"); Base.metadata.create_all(e); extra.metadata.create_all(e); s = Session(e); seen = []
event.listen(User, "before_insert", lambda *_: seen.append("insert"))
u = User(items=[Item(), Item()]); s.add(u); s.commit(); q = s.query(Item).filter(Item.user_id == 1); s.commit()
---
print(Base.metadata.tables["own"] is Own.__table__, User.__mapper__.local_table is User.__table__, Item.id.parent is Item.__mapper__)
print(q.count(), u in s, len(u.items), u.items[0].user is u, count_of(s)); s.add(User(items=[Item()])); s.commit(); print(seen)
print(s.scalars(select(Item.id).join(Item.user).where(User.id == 2)).all(), str(q))
"""),
    Library("sqlite3", "sqlite3", "a connection to a database file", """
import sqlite3
c = sqlite3.connect("s.db"); c.execute("create table t (x)"); c.execute("insert into t values (1)"); c.commit()
---
print(c.execute("select x from t").fetchall())
"""),
    Library("sqlite3 (cursors)", "sqlite3", "a cursor in the middle of its results", """
import sqlite3
c = sqlite3.connect("s.db"); c.execute("create table t (x, y)"); c.executemany("insert into t values (?, ?)", [(i, "a" * i) for i in range(5)])
c.commit(); k = c.execute("select x, y as z from t order by x"); print(next(k))
---
print(k.description[1][0], k.fetchall(), c.execute("select sum(x) from t").fetchone())
"""),
    Library("sqlite3 (in a transaction)", "sqlite3", "a connection with changes that are not committed", """
import sqlite3
c = sqlite3.connect("s.db"); c.execute("create table t (x)"); c.commit(); c.execute("insert into t values (1)")
---
c.commit(); print(c.execute("select x from t").fetchall())
"""),
    Library("shelve", "shelve", "a shelf over `dbm.dumb`", """
import dbm.dumb, shelve
s = shelve.Shelf(dbm.dumb.open("d", "c"), writeback=True); s["a"] = [1]
---
s["a"].append(2); s["b"] = 3; s.close(); print(sorted(shelve.Shelf(dbm.dumb.open("d", "r")).items()))
"""),
    Library("ctypes", "ctypes", "libraries, functions, callbacks, structures, pointers", """
import ctypes
library = ctypes.CDLL(None); values = (ctypes.c_double * 4)(1, 2, 3, 4)
pointer = ctypes.cast(values, ctypes.POINTER(ctypes.c_double))
library.strlen.argtypes = [ctypes.c_char_p]; call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1)
---
pointer[1] = 9; print(library.strlen(b"abc"), values[1], call(3))
"""),
    Library("ctypes (pointers of C)", "ctypes", "a pointer that a library has given out", """
import ctypes
new = ctypes.CDLL(None).malloc; new.restype = ctypes.POINTER(ctypes.c_int); p = new(16)
---
print(bool(p))
"""),
    Library("os.walk, glob", "os", "loops over directories, half-way", """
import glob, os
for n in "abcd": os.makedirs("top/" + n + "/x", exist_ok=True)
loops = os.walk("top"), os.scandir("top"), glob.iglob("top/*/*"); first = [next(loop) for loop in loops]
---
print([[getattr(x, "path", x) for x in loop] for loop in loops], first[1].is_dir())
"""),
    # ---- programs
    Library("requests", "requests", "a session without open connections", """
import requests
s = requests.Session(); s.headers["X"] = "1"; s.cookies["a"] = "b"
---
print(s.headers["X"], s.cookies["a"])
"""),
    Library("attrs", "attrs", "classes and objects", """
import attrs
@attrs.define
class A:
    x: int
    y: list = attrs.field(factory=list)
a = A(1)
---
a.y.append(2); print(a, attrs.evolve(a, x=3))
"""),
    Library("pydantic", "pydantic", "models", """
import pydantic
class M(pydantic.BaseModel):
    x: int
    y: list[float] = []
m = M(x="1", y=[1])
---
print(m.model_dump(), M.model_validate({"x": 2}))
"""),
    Library("networkx", "networkx", "graphs", """
import networkx as nx
g = nx.gnp_random_graph(20, 0.2, seed=1)
---
print(nx.number_connected_components(g), sorted(nx.degree_centrality(g).items())[:2])
"""),
    Library("igraph", "igraph", "graphs in C, their vertices and edges, a loop over them half-way", """
import igraph
g = igraph.Graph.Ring(6); v, e, s, it = g.vs[1], g.es[2], g.vs.select([3, 4]), iter(g.vs); next(it)
---
v["a"], e["b"], s["c"], next(it)["d"] = 1, 2, [3, 4], 5
print(g.diameter(), g.vcount(), [each.attributes() for each in g.vs], g.es[2].attributes(), v.graph is g)
"""),
    Library("shapely", "shapely", "geometries", """
import shapely
p = shapely.Point(0, 0).buffer(1)
---
print(round(p.area, 6), p.contains(shapely.Point(0.5, 0)))
"""),
    Library("shapely (prepared)", "shapely", "prepared geometries, a tree", """
import shapely
from shapely.prepared import prep
b = shapely.box(0, 0, 2, 2); p = prep(b); t = shapely.STRtree([b, shapely.Point(5, 5)])
---
print(p.contains(shapely.Point(1, 1)), p.context is b, shapely.is_prepared(b), t.query(shapely.box(4, 4, 6, 6)))
"""),
    Library("astropy", "astropy", "quantities, tables, times", """
import astropy.units as u, numpy as np
from astropy.table import Table
from astropy.time import Time
q = 3 * u.km; t = Table({"a": [1, 2]}); d = Time("2020-01-01"); n = np.arange(3.0); v = u.Quantity(n, u.m, copy=False); w = v[1:]
c = t["a"]; row = t[1]; c.info.description = "first"
---
n[1] = 5; w[1] = 7 * u.m; row["a"] = 9
print(q.to(u.m), t["a"].sum(), d.jd, n, v, w, c, t["a"] is c, c.info.description, c.parent_table is t)
"""),
    Library("astropy (settings)", "astropy", "equivalencies and units that are enabled, a default cosmology", """
import astropy.units as u
from astropy import cosmology, modeling
u.set_enabled_equivalencies(u.spectral()); u.add_enabled_units([u.def_unit("shackle", 27 * u.m)])
cosmology.default_cosmology.set("Planck15"); f = modeling.models.Gaussian1D() + modeling.models.Const1D()
---
print((5 * u.um).to(u.THz).round(3), u.Unit("shackle").to(u.m), cosmology.default_cosmology.get().name, f(0.0))
"""),
    Library("ase", "ase", "atoms, calculators", """
from ase.build import molecule
from ase.calculators.lj import LennardJones
a = molecule("N2"); a.calc = LennardJones(); a.get_potential_energy()
---
print(round(a.get_potential_energy(), 6), a.get_chemical_symbols())
"""),
    Library("jinja2", "jinja2", "templates", """
import jinja2
t = jinja2.Environment().from_string("{% for k in r %}{{ k }},{% endfor %}")
---
print(t.render(r=[1, 2]))
"""),
    Library("click", "click", "commands", """
import click
@click.command()
@click.option("--n", default=2)
def f(n): print(n * 2)
---
f(["--n", "4"], standalone_mode=False)
"""),
    Library("rich", "rich", "tables and consoles", """
from rich.console import Console
from rich.table import Table
t = Table("a", "b"); t.add_row("1", "2"); c = Console(width=40, force_terminal=False)
---
c.print(t)
"""),
    Library("tqdm", "tqdm", "a bar, half-way", """
import tqdm, sys
b = tqdm.tqdm(total=10, file=open("bar", "w"), mininterval=0); b.update(3)
---
b.update(4); print(b.n); b.close()
"""),
    Library("loguru", "loguru", "a logger with a file", """
from loguru import logger
logger.remove(); logger.add("l.log", format="{message}"); logger.info("one")
---
logger.info("two"); print(open("l.log").read())
"""),
    Library("filelock", "filelock", "locks are made where they are used: each is of the process that has made it", """
import filelock
with filelock.FileLock("x.lock"): pass
---
with filelock.FileLock("x.lock") as l: print(l.is_locked)
"""),
    Library("psutil", "psutil", "a process object", """
import psutil
n = psutil.cpu_count()
---
print(psutil.cpu_count() == n)
"""),
    Library("jsonschema", "jsonschema", "validators", """
import jsonschema
v = jsonschema.Draft202012Validator({"type": "object", "required": ["a"]})
---
print(v.is_valid({"a": 1}), v.is_valid({}))
"""),
    Library("cryptography", "cryptography", "keys in C", """
from cryptography.fernet import Fernet
f = Fernet(b"0" * 43 + b"="); t = f.encrypt(b"x")
---
print(f.decrypt(t))
"""),
    Library("bitarray", "bitarray", "arrays in C", """
import bitarray
b = bitarray.bitarray("0110")
---
b.append(1); print(b)
"""),
    Library("sortedcontainers", "sortedcontainers", "containers", """
from sortedcontainers import SortedDict
d = SortedDict(b=1, a=2)
---
d["c"] = 3; print(d, d.peekitem(0))
"""),
    Library("Faker", "faker", "a generator with a seed", """
import faker
faker.Faker.seed(3); f = faker.Faker(); f.name()
---
print(f.name(), f.address())
"""),
    Library("cloudpickle", "cloudpickle", "functions it has made", """
import cloudpickle
f = cloudpickle.loads(cloudpickle.dumps(lambda x: x + 1))
---
print(f(2))
"""),
    Library("regex", "regex", "patterns, matches", """
import regex
p = regex.compile(r"(?P<a>\\w)+"); m = p.match("abc")
---
print(m.captures("a"), p.sub("x", "a b"))
"""),
    Library("google-re2", "re2", "patterns, matches", """
import re2
p = re2.compile("(a+)b"); m = p.search("xaab")
---
print(m.group(1), p.sub("c", "aab"))
"""),
    Library("zstandard", "zstandard", "compressors are made where they are used", """
import zstandard
c = zstandard.compress(b"x" * 100)
---
print(zstandard.decompress(c)[:3])
"""),
    Library("freezegun", "freezegun", "a clock that is set, inside of `freeze_time`", """
import datetime, freezegun
w = freezegun.freeze_time("2020-01-01"); c = w.start(); c.tick(60)
---
c.tick(60); print(datetime.datetime.now()); w.stop(); print(datetime.date.today().year > 2020)
"""),
    Library("pyfakefs", "pyfakefs", "a file system in memory, as an object; also inside of its `Patcher`", """
from pyfakefs.fake_filesystem import FakeFilesystem
fs = FakeFilesystem(); fs.create_file("/x", contents="y")
---
print(fs.get_object("/x").contents, fs.exists("/z"))
"""),
    Library("gevent", "gevent", "greenlets that have ended", """
import gevent
g = [gevent.spawn(pow, k, 2) for k in range(5)]; v = sum(x.get() for x in g); del g
---
print(v, gevent.spawn(pow, 2, 2).get())
"""),
    Library("gevent (running)", "gevent", "greenlets that are suspended, `monkey.patch_all`", """
import gevent
def work():
    gevent.sleep(0.1); return 1
g = gevent.spawn(work); gevent.sleep(0)
---
print(g.get())
"""),
    Library("pyzmq", "zmq", "a context without sockets", """
import zmq
v = zmq.zmq_version()
---
print(v == zmq.zmq_version())
"""),
    *DATA,
    *SCIENCE,
    *LISTENERS,
    *TOOLS,
)  # fmt: skip

"""Packages that programs are built of: formats, containers, services, times; see :mod:`tests.libraries.library`."""

from __future__ import annotations

from tests.libraries.library import Library

TOOLS = (
    # ---- containers, functions, retries
    Library("cachetools", "cachetools", "caches, a function with a cache", """
import cachetools
c = cachetools.LRUCache(2); c["a"] = 1; c["b"] = 2; c["a"]; n = []
@cachetools.cached(cachetools.LFUCache(9))
def f(x): n.append(x); return x * 2
f(1); t = cachetools.TTLCache(9, 60, timer=lambda: len(n)); t["x"] = 1
---
c["d"] = 3; f(1); f(2); print(sorted(c), n, dict(t))
"""),
    Library("more-itertools", "more_itertools", "iterators, half-way", """
import more_itertools as m
p = m.peekable(range(5)); next(p); w = m.windowed(range(5), 2); next(w); s = m.seekable(iter("abc")); next(s); c = m.chunked(range(7), 3); next(c)
---
print(p.peek(), list(p), list(w), list(s), list(c)); s.seek(0); print(list(s))
"""),
    Library("toolz", "toolz", "curried functions, pipes", """
import toolz
from toolz import curried
f = toolz.compose(sum, curried.map(lambda x: x * 2)); g = curried.get([0, 1]); m = toolz.memoize(lambda x: x + 1); m(1)
---
print(f([1, 2]), g("abc"), m(1), m(2), toolz.groupby(len, ["a", "bb"]))
"""),
    Library("cytoolz", "cytoolz", "curried functions in C, iterators half-way", """
import cytoolz
from cytoolz import curried
f = cytoolz.compose(sum, curried.map(lambda x: x * 2)); g = curried.get([0, 1])
---
print(f([1, 2]), g("abc"), cytoolz.groupby(len, ["a", "bb"]))
"""),
    Library("cytoolz (iterators)", "cytoolz", "an iterator in C, half-way", """
import cytoolz
it = cytoolz.sliding_window(2, range(5)); next(it); u = cytoolz.unique("abab"); next(u)
---
print(list(it), list(u))
"""),
    Library("pyrsistent", "pyrsistent", "immutable maps and vectors", """
from pyrsistent import m, pmap, pvector, s
v = pvector(range(40)); d = pmap({"a": v})
---
print(d.set("c", 3)["a"][39], v.append(1)[-1], s(1, 2).add(3), d["a"] is v, m(x=1))
"""),
    Library("pyrsistent (evolvers)", "pyrsistent", "a map that is being changed", """
from pyrsistent import pmap
e = pmap({"a": 1}).evolver(); e["b"] = 2
---
e["c"] = 3; print(sorted(e.persistent().items()))
"""),
    Library("immutables", "immutables", "maps in C, a mutation that is open", """
import immutables
m = immutables.Map(a=1, b=2); n = m.set("c", 3)
---
print(sorted(n.items()), len(m), m.update(d=4)["d"], n.delete("a") == immutables.Map(b=2, c=3))
"""),
    Library("intervaltree", "intervaltree", "a tree", """
from intervaltree import IntervalTree
t = IntervalTree.from_tuples([(1, 5, "a"), (3, 9, "b")])
---
t[4:6] = "c"; print(sorted(t[4]), t.overlaps(8), len(t))
"""),
    Library("multidict", "multidict", "dictionaries in C with several values", """
import multidict
d = multidict.CIMultiDict(a=1); d.add("A", 2); p = multidict.CIMultiDictProxy(d); i = multidict.istr("X")
---
d.add("b", 3); print(p.getall("a"), list(p.items()), i, len(p))
"""),
    Library("wrapt", "wrapt", "decorators, proxies", """
import wrapt
n = []
@wrapt.decorator
def count(f, instance, args, kwargs): n.append(f.__name__); return f(*args, **kwargs)
@count
def g(x): return x + 1
g(1)
---
print(g(2), n)
"""),
    Library("wrapt (proxies)", "wrapt", "a proxy of an object", """
import wrapt
class P(wrapt.ObjectProxy):
    def __init__(self, x): super().__init__(x); self._self_n = 3
p = P([1, 2])
---
p.append(3); print(p, len(p), isinstance(p, list), p._self_n, p.__wrapped__)
"""),
    Library("tenacity", "tenacity", "a function that tries again, its statistics; a loop of attempts", """
import tenacity
n = []
@tenacity.retry(stop=tenacity.stop_after_attempt(5), retry=tenacity.retry_if_exception_type(ValueError))
def f():
    n.append(1)
    if len(n) % 3: raise ValueError
    return len(n)
f(); r = iter(tenacity.Retrying(stop=tenacity.stop_after_attempt(3))); a = next(r)
---
print(f(), n, f.statistics["attempt_number"], a.retry_state.attempt_number)
"""),
    Library("hypothesis", "hypothesis", "strategies, a state machine that runs", """
from hypothesis import strategies as st
from hypothesis import find, settings
s = st.lists(st.integers(0, 9), min_size=2).filter(lambda x: sum(x) > 3); t = settings(derandomize=True, database=None)
---
print(sum(find(s, lambda x: len(x) > 2, settings=t)) > 3, t.derandomize)
"""),
    Library("dill", "dill", "functions it has made, what it has changed in pickle", """
import dill
f = dill.loads(dill.dumps(lambda x: x + 1)); c = dill.dumps({"f": f})
---
print(f(2), dill.loads(c)["f"](3), dill.copy(f)(4))
"""),
    Library("pyparsing", "pyparsing", "a grammar with actions", """
import pyparsing as p
n = p.Word(p.nums).set_parse_action(lambda t: int(t[0])); e = p.infix_notation(n, [("*", 2, p.OpAssoc.LEFT), ("+", 2, p.OpAssoc.LEFT)])
r = e.parse_string("1+2*3"); f = p.Forward(); f <<= n | "(" + f + ")"
---
print(r.as_list(), e.parse_string("4*5+6").as_list(), f.parse_string("((7))").as_list())
"""),
    Library("lark", "lark", "a parser, a tree, an interactive parser half-way", """
import lark
g = lark.Lark('start: "a" b* \\n b: "b"', parser="lalr"); t = g.parse("abb"); i = g.parse_interactive("abb"); it = i.iter_parse(); next(it)
---
print(t.pretty(), g.parse("ab"), len(list(it)), sorted(i.accepts()))
"""),
    Library("Pygments", "pygments", "lexers, formatters", """
from pygments import formatters, highlight, lexers
l = lexers.get_lexer_by_name("python"); f = formatters.HtmlFormatter(); t = l.get_tokens("x = 1"); next(t)
---
print([str(v) for _, v in t], highlight("y = 2", l, f))
"""),
    Library("sqlglot", "sqlglot", "trees of statements", """
import sqlglot
e = sqlglot.parse_one("select a, b from t where a > 1"); n = e.find(sqlglot.exp.Column)
---
print(e.where("b < 2").sql("duckdb"), n.parent is not None, n.sql(), e.find(sqlglot.exp.Table).name)
"""),
    # ---- formats
    Library("simplejson", "simplejson", "data, an encoder half-way", """
import decimal, simplejson
d = simplejson.loads('{"a": 1.10}', use_decimal=True); e = simplejson.JSONEncoder(sort_keys=True); it = iter(e.iterencode([1, {"b": 2}])); first = next(it)
---
print(simplejson.dumps(d, use_decimal=True), d["a"] + decimal.Decimal(1), first + "".join(it))
"""),
    Library("ujson", "ujson", "data", """
import ujson
d = ujson.loads('{"a": [1, 2.5, null], "b": "x"}'); d["c"] = d["a"]
---
d["a"].append(3); print(ujson.dumps(d))
"""),
    Library("ruamel.yaml", "ruamel.yaml", "documents with their comments", """
import io
from ruamel.yaml import YAML
y = YAML(); d = y.load("a: 1 # one\\nb: &x [1, 2]\\nc: *x\\n")
---
d["a"] = 2; d["b"].append(3); o = io.StringIO(); y.dump(d, o); print(o.getvalue(), d["b"] is d["c"])
"""),
    Library("toml", "toml", "data", """
import toml
d = toml.loads("a = 1\\n[t]\\nb = [1, 2]\\n"); e = toml.TomlPreserveCommentEncoder()
---
d["t"]["b"].append(3); print(toml.dumps(d), toml.dumps({"x": 1}, e))
"""),
    Library("tomlkit", "tomlkit", "a document with its comments", """
import tomlkit
d = tomlkit.parse("a = 1 # one\\n[t]\\nb = [1, 2]\\n"); t = d["t"]
---
t["b"].append(3); d["a"] = 2; d["c"] = tomlkit.inline_table(); print(tomlkit.dumps(d))
"""),
    Library("tabulate", "tabulate", "tables, settings of the module", """
import tabulate
tabulate.PRESERVE_WHITESPACE = True; rows = [["  a", 1], ["b", 2.5]]
---
print(tabulate.tabulate(rows, headers=["x", "y"], tablefmt="github"), tabulate.PRESERVE_WHITESPACE)
"""),
    Library("marshmallow", "marshmallow", "schemas", """
from marshmallow import Schema, ValidationError, fields, post_load
class S(Schema):
    x = fields.Int(required=True); d = fields.Date()
    @post_load
    def make(self, data, **_): return tuple(sorted(data.items()))
s = S(many=True)
---
print(s.load([{"x": "1", "d": "2020-01-02"}]), S().validate({"x": "a"}))
"""),
    Library("python-dateutil", "dateutil", "rules of dates half-way, time zones", """
import datetime
from dateutil import relativedelta, rrule, tz
r = rrule.rrule(rrule.DAILY, count=5, dtstart=datetime.datetime(2020, 1, 30)); it = iter(r); next(it); z = tz.gettz("Europe/Berlin"); d = datetime.datetime(2020, 7, 1, tzinfo=z)
---
print([x.day for x in it], d.utcoffset(), d + relativedelta.relativedelta(months=1), tz.gettz("Europe/Berlin") == z, r[2])
"""),
    Library("pendulum", "pendulum", "times with zones, intervals, half-way through one", """
import pendulum
d = pendulum.datetime(2020, 3, 29, 1, tz="Europe/Paris"); i = pendulum.interval(d, d.add(days=3)); it = i.range("days"); next(it); t = pendulum.duration(days=8)
---
print(d.add(hours=2), [x.day for x in it], i.in_hours(), t.in_words(), d.timezone_name)
"""),
    Library("arrow", "arrow", "times with zones, a range half-way", """
import arrow
a = arrow.get("2020-03-29T01:00:00").replace(tzinfo="Europe/Paris"); it = arrow.Arrow.range("hour", a, limit=3); next(it)
---
print(a.shift(hours=3), [str(x) for x in it], a.to("utc"), a.humanize(a.shift(days=2)))
"""),
    Library("absl-py", "absl", "flags with their values, holders of flags, validators", """
from absl import flags
FLAGS = flags.FLAGS; N = flags.DEFINE_integer("n", 3, "a number", lower_bound=1); flags.DEFINE_multi_enum("kind", ["a"], ["a", "b"], "kinds")
flags.register_validator("n", lambda n: n < 9, message="too large"); FLAGS(["app", "--n=4", "--kind=b", "rest"])
---
FLAGS.n += 1; print(N.value, FLAGS.kind, FLAGS.is_parsed(), FLAGS.find_module_defining_flag("n"), "--n=5" in FLAGS.flags_into_string())
try: FLAGS.n = 12
except flags.IllegalFlagValueError as failure: print(failure)
"""),
    Library("structlog", "structlog", "a configured logger with bound values", """
import structlog
out = []
structlog.configure(processors=[structlog.processors.add_log_level, lambda l, m, e: out.append(dict(e)) or "x"], logger_factory=structlog.ReturnLoggerFactory())
l = structlog.get_logger().bind(a=1); structlog.contextvars.bind_contextvars(c=2); l.info("one")
---
l.bind(b=2).warning("two"); structlog.get_logger().info("three"); print(out, structlog.contextvars.get_contextvars(), structlog.is_configured())
"""),
    Library("structlog (files)", "structlog", "loggers that write to a file, bound and by a factory", """
import structlog
f = open("s.log", "w+"); structlog.configure(processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.WriteLoggerFactory(f))
l = structlog.get_logger().bind(a=1); l.info("one"); p = structlog.PrintLogger(f); b = structlog.BytesLogger(open("b.log", "wb"))
---
l.info("two"); structlog.get_logger().info("three"); p.info("four"); b.info(b"five"); f.seek(0); print(f.read(), open("b.log").read())
"""),
    Library("prometheus-client", "prometheus_client", "counters of the global registry", """
import prometheus_client as p
c = p.Counter("jobs", "x", ["kind"]); c.labels("a").inc(2); h = p.Histogram("t", "x", buckets=[1, 2]); h.observe(1.5)
g = p.Gauge("g", "x"); g.set_function(lambda: 7)
---
c.labels("a").inc(); c.labels("b").inc(); r = p.REGISTRY
print(r.get_sample_value("jobs_total", {"kind": "a"}), r.get_sample_value("t_bucket", {"le": "2.0"}), r.get_sample_value("g"))
"""),
    # ---- services
    Library("flask", "flask", "an application, its test client, a context that is open", """
import flask
app = flask.Flask("a"); app.secret_key = "k"; hits = []
@app.route("/<int:n>")
def f(n):
    hits.append(n); flask.session["n"] = n; return {"n": n + flask.session.get("m", 0)}
c = app.test_client(); c.get("/1"); x = app.test_request_context("/7"); x.push()
---
print(c.get("/2").json, hits, flask.request.path, flask.url_for("f", n=3)); x.pop()
with c.session_transaction() as s: print(dict(s))
"""),
    Library("fastapi", "fastapi", "an application, its schema", """
import fastapi, pydantic
app = fastapi.FastAPI(title="t"); hits = []
class Item(pydantic.BaseModel):
    x: int
@app.post("/{n}")
def f(n: int, item: Item, q: int = 1): hits.append(n); return item
---
print(sorted(app.openapi()["paths"]), [r.path for r in app.routes][-1], f(1, Item(x=2)), hits)
"""),
    Library("django", "django", "settings, models over a database file, templates", """
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "d.db"}}, TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}])
django.setup()
from django.db import connection, models
from django.template import Template, Context
class Note(models.Model):
    text = models.CharField(max_length=9)
    class Meta: app_label = "a"
with connection.schema_editor() as e: e.create_model(Note)
n = Note.objects.create(text="one"); q = Note.objects.filter(text__startswith="o"); t = Template("{% for x in q %}{{ x.text }},{% endfor %}")
---
n.text = "off"; n.save(); Note.objects.create(text="two"); print([x.text for x in q], t.render(Context({"q": Note.objects.order_by("id")})))
"""),
    Library("typer", "typer", "commands", """
import typer
from typer.testing import CliRunner
app = typer.Typer(); seen = []
@app.command()
def f(n: int = 2, name: str = "x"): seen.append(n); typer.echo(name * n)
@app.command()
def g(): pass
CliRunner().invoke(app, ["f"])
---
print(CliRunner().invoke(app, ["f", "--n", "3"]).output, seen)
"""),
    Library("httpx", "httpx", "a client that has sent requests, over a transport of its own", """
import httpx
n = []
def answer(request): n.append(request.url.path); return httpx.Response(200, json={"n": len(n)}, headers={"set-cookie": "a=b"})
c = httpx.Client(transport=httpx.MockTransport(answer), headers={"X": "1"}, base_url="http://h"); r = c.get("/one")
---
print(c.get("/two").json(), n, r.json(), dict(c.cookies), c.headers["x"])
"""),
    Library("httpx (network)", "httpx", "a client for the network, without open connections", """
import httpx
c = httpx.Client(headers={"X": "1"}, timeout=3)
---
print(c.headers["x"], c.timeout, c.build_request("GET", "http://h/x?y=1").url.params["y"])
"""),
    Library("aiohttp", "aiohttp", "an application, cookies, forms", """
import aiohttp
from aiohttp import web
app = web.Application(); app["k"] = [1]
async def f(request): return web.Response(text="x")
app.router.add_get("/{n}", f, name="f"); d = aiohttp.FormData({"a": "1"}); t = aiohttp.ClientTimeout(total=3)
---
app["k"].append(2); print(app["k"], app.router["f"].url_for(n="3"), t.total, d().size)
"""),
    Library("aiohttp (connections)", "aiohttp", "a parser in C, which each open connection has", """
import asyncio
from aiohttp import base_protocol, http_parser
loop = asyncio.new_event_loop(); p = http_parser.HttpRequestParser(base_protocol.BaseProtocol(loop), loop, 1 << 16)
---
print(p.feed_data(b"GET /x HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")[0][0][0].path)
"""),
    Library("requests (streams)", "urllib3", "pools and retries of urllib3, without connections", """
import urllib3
p = urllib3.PoolManager(4, headers={"X": "1"}); r = urllib3.Retry(5, backoff_factor=1).increment("GET", "/", error=OSError())
---
print(p.headers, r.total, len(r.history), p.connection_from_url("http://h:1/").port)
"""),
    Library("paramiko", "paramiko", "keys, known hosts, a client that is not connected", """
import paramiko
k = paramiko.ECDSAKey.generate(bits=256); h = paramiko.HostKeys(); h.add("host", k.get_name(), k); c = paramiko.SSHClient(); m = paramiko.Message(); m.add_string("x"); m.add_int(3)
---
print(h.check("host", k), k.verify_ssh_sig(b"d", paramiko.Message(k.sign_ssh_data(b"d").asbytes())), m.asbytes(), c.get_transport())
"""),
    Library("redis", "redis", "a client that is not connected, a pipeline", """
import redis
r = redis.Redis(port=1, retry=None); p = r.pipeline(); p.set("a", 1); p.get("a"); s = r.register_script("return 1")
---
p.incr("b"); print(len(p.command_stack), p.command_stack[0][0], r.connection_pool.connection_kwargs["port"], s.sha[:6])
try: r.ping()
except redis.ConnectionError: print("no server")
"""),
    Library("boto3", "boto3", "a session, a client, signed addresses", """
import boto3
s = boto3.Session("key", "secret", region_name="eu-west-1"); c = s.client("s3", endpoint_url="http://h")
c.meta.events.register("provide-client-params.s3.*", lambda params, **_: params.update(Bucket="b"))
---
print(c.meta.region_name, c.can_paginate("list_objects_v2"), c.meta.endpoint_url, s.get_credentials().access_key, len(c.meta.method_to_api_mapping) > 90)
"""),
    # ---- C
    Library("cffi", "cffi", "types, memory of its own", """
import cffi
f = cffi.FFI(); f.cdef("typedef struct { int x; double y; } P; size_t strlen(const char *);"); c = f.dlopen(None); a = f.new("int[4]", [1, 2, 3, 4])
---
a[0] = 7; print(list(a), c.strlen(b"abc"), f.sizeof("P"))
"""),
    Library("cffi (without memory)", "cffi", "declarations, functions of C called where they are used", """
import cffi
def strlen(text):
    f = cffi.FFI(); f.cdef("size_t strlen(const char *);"); return f.dlopen(None).strlen(text)
n = strlen(b"abc")
---
print(n, strlen(b"abcd"))
"""),
    Library("bcrypt", "bcrypt", "hashes", """
import bcrypt
h = bcrypt.hashpw(b"x", b"$2b$04$" + b"a" * 21 + b"u")
---
print(bcrypt.checkpw(b"x", h), h)
"""),
)  # fmt: skip

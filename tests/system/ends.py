"""Ordinary small programs that leave something to do for the interpreter's end, by name. What plain Python makes of them
(output, files, exit code) is what a rank has to make of them.

`hold()` is where a restart may happen (`tests.system.image.test_ends`); at the end of the program, unless it says where.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

MODULE = """
class Loud:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("del", self.name)

kept = Loud("of a module")
log = open("module.txt", "w")
log.write("of a module")
"""
"""The module `mod` that programs import."""

PROGRAMS: dict[str, str] = {
    # files that nobody closes
    "text": 'f = open("x", "w"); f.write("hello")',
    # the same where the library has got functions or objects of the program, which hold its variables
    "own_hooks": """
import ckpt
comm = ckpt.enable(); f = open("x", "w"); f.write("hello")
class Own: pass
ckpt.on_checkpoint(lambda epoch: None); ckpt.on_restart(lambda epoch: None); ckpt.on_status(lambda: "")
ckpt.register_type(Own, lambda own: 1, lambda state: Own())
""",
    "attributes": """
from ckpt import MPI
f = open("x", "w"); f.write("hello"); key = MPI.Comm.Create_keyval(); MPI.COMM_WORLD.Set_attr(key, lambda: f)
""",
    "errors": """
from ckpt import MPI
f = open("x", "w"); f.write("hello"); handler = MPI.Comm.Create_errhandler(lambda comm, code: None)
own = MPI.COMM_SELF.Dup(); own.Set_errhandler(handler); MPI.COMM_WORLD.Set_errhandler(handler)
""",
    "messages": """
import ckpt
from ckpt import MPI
f = open("x", "w"); f.write("hello"); channel = ckpt.ActiveMessages(MPI.COMM_SELF, lambda source, message: None)
""",
    "binary": 'f = open("x", "wb"); f.write(b"hello" * 5000)',
    "append": 'open("x", "w").write("a"); f = open("x", "a"); f.write("b")',
    "update": 'open("x", "w").write("abcdef"); f = open("x", "r+b"); f.seek(2); f.write(b"XY")',
    "raw": 'import io; f = io.BufferedWriter(io.FileIO("x", "w"), 100); f.write(b"raw")',
    "line_buffered": 'f = open("x", "w", buffering=1); f.write("one\\ntwo")',
    "newlines": 'f = open("x", "w", newline="\\r\\n", encoding="utf-16"); f.write("one\\ntwo\\n")',
    "anonymous": 'print("in a file", file=open("x", "w"))',
    "csv": 'import csv; w = csv.writer(open("x", "w")); w.writerow([1, 2]); w.writerow(["a", "b"])',
    "json": 'import json; json.dump({"a": [1]}, open("x", "w"))',
    "pickle": 'import pickle; pickle.dump([1, 2], open("x", "wb"))',
    "config": 'import configparser; c = configparser.ConfigParser(); c["a"] = {"b": "1"}; f = open("x", "w"); c.write(f)',
    "gzip": 'import gzip; f = gzip.GzipFile("x", "wb", mtime=0); f.write(b"gz" * 1000)',
    "bz2": 'import bz2; f = bz2.open("x", "wt"); f.write("bz2" * 1000)',
    "lzma": 'import lzma; f = lzma.open("x", "wb"); f.write(b"xz" * 1000)',
    "zip": 'import zipfile; z = zipfile.ZipFile("x", "w"); z.writestr(zipfile.ZipInfo("member"), "zip" * 100)',
    "tar": """
import io, tarfile
t = tarfile.open("x", "w"); member = tarfile.TarInfo("member"); member.size = 3
t.addfile(member, io.BytesIO(b"tar"))
""",
    "shelve": """
import dbm.dumb, shelve
s = shelve.Shelf(dbm.dumb.open("x", "c"), writeback=True); s["a"] = [1]; s["a"].append(2)
""",
    "sqlite": """
import sqlite3
c = sqlite3.connect("x.db"); c.execute("create table t (a)"); c.execute("insert into t values (1)"); c.commit()
print(c.execute("select * from t").fetchall())
""",
    "mmap": """
import mmap
open("x", "wb").write(b"." * 4096); f = open("x", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:3] = b"abc"
""",
    "numpy": 'import numpy; f = open("x", "wb"); numpy.save(f, numpy.arange(10))',
    "logging": """
import logging, logging.handlers
logging.basicConfig(filename="log", level=logging.INFO, format="%(message)s"); logging.info("one")
memory = logging.handlers.MemoryHandler(100, target=logging.FileHandler("late")); logging.getLogger().addHandler(memory)
logging.info("two")
""",
    "in_class": 'class Log: f = open("x", "w")\nLog.f.write("in a class")',
    "in_closure": """
def make():
    f = open("x", "w")
    return lambda text: f.write(text)
say = make(); say("in a closure")
""",
    "in_cycle": 'f = open("x", "w"); f.write("in a cycle"); ring = [f]; ring.append(ring); del f',
    "in_default": 'def say(text, f=open("x", "w")): f.write(text)\nsay("in a default")',
    "in_local": 'import threading; here = threading.local(); here.f = open("x", "w"); here.f.write("thread local")',
    "in_library": 'import json; json.own = open("x", "w"); json.own.write("in a module of others")',
    "of_module": "import mod; mod.log.write(' and more')",
    "c_stdio": """
import ctypes
c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p
c.fputs(b"by the C library", ctypes.c_void_p(c.fopen(b"x", b"w")))
""",
    # objects that do something when they go
    "globals": 'from mod import Loud\na = Loud("a"); b = Loud("b"); _c = Loud("_c")',
    "cycle": 'from mod import Loud\na = Loud("a"); a.itself = a; b = [Loud("b")]; b.append(b); hold(); del a, b',
    "uncollected": 'import gc; gc.disable()\nfrom mod import Loud\na = Loud("a"); a.itself = a; del a',
    "of_class": 'from mod import Loud\nclass Holder: held = Loud("of a class")\nHolder.itself = Holder',
    "of_type": 'from mod import Loud\nimport fractions\nfractions.Fraction.own = Loud("of another type")',
    "of_builtins": 'from mod import Loud\nimport builtins; builtins.own = Loud("of builtins")',
    "raising": 'class Bad:\n    def __del__(self): raise ValueError("no")\nbad = Bad()',
    "late_file": """
class Late:
    def __del__(self):
        with open("x", "w") as f:
            f.write("late")
late = Late()
""",
    "resurrected": 'kept = []\nclass Back:\n    def __del__(self): kept.append(self); print("back")\na = Back(); del a',
    "generator": """
def go():
    try:
        yield 1
    finally:
        print("closed")
g = go(); next(g)
""",
    "manager": """
import contextlib
@contextlib.contextmanager
def manager():
    try:
        yield
    finally:
        print("left")
m = manager(); m.__enter__()
""",
    "finalize": """
import weakref
class Thing: pass
a, b = Thing(), Thing()
weakref.finalize(a, print, "a is gone"); weakref.finalize(b, print, "never said").atexit = False
""",
    "weak": """
import weakref
class T: pass
a = T(); r = weakref.ref(a, lambda r: print("gone")); d = weakref.WeakValueDictionary(k=a)
""",
    "temporary": """
import tempfile
f = tempfile.NamedTemporaryFile("w", dir="."); f.write("x"); d = tempfile.TemporaryDirectory(dir=".")
open(d.name + "/inside", "w").write("y"); s = tempfile.SpooledTemporaryFile(); s.write(b"z")
""",
    "never_awaited": "async def f(): pass\nc = f()",
    "async_generator": """
import asyncio
async def go():
    try:
        yield 1
    finally:
        print("closed")
async def main():
    global g
    g = go(); print(await g.__anext__())
asyncio.run(main())
""",
    # functions of atexit, threads, children
    "atexit": """
import atexit
f = open("x", "w"); atexit.register(print, "first"); atexit.register(f.write, "second")
@atexit.register
def third(): atexit.register(print, "fourth"); print("third")
""",
    "atexit_raises": """
import atexit, sys
atexit.register(print, "still"); atexit.register(lambda: 1 / 0); atexit.register(lambda: sys.exit(5))
""",
    "atexit_cleared": 'import atexit; f = open("x", "w"); f.write("x"); atexit.register(print, "no"); atexit._clear()',
    "thread": """
import threading
hold()
go = threading.Event()
def late(): go.wait(); f = open("x", "w"); f.write("by a thread"); print("thread")
threading.Thread(target=late).start(); threading._register_atexit(go.set); print("main")
""",
    "daemon": """
import threading
hold()
threading.Thread(target=threading.Event().wait, daemon=True).start(); f = open("x", "w"); f.write("x")
""",
    "timer": """
import threading
hold()
go = threading.Event()
timer = threading.Timer(0.01, lambda: (go.wait(), print("timer"))); timer.start(); print("main"); go.set()
""",
    "pool": """
from concurrent.futures import ThreadPoolExecutor
hold()
pool = ThreadPoolExecutor(1); results = [pool.submit(print, i) for i in range(5)]
""",
    "thread_raises": """
import threading
hold()
def bad(): raise ValueError("in a thread")
t = threading.Thread(target=bad); t.start(); t.join()
""",
    "fork": """
import os, sys
f = open("x", "w"); f.write("both "); hold()
child = os.fork()
if child == 0:
    f.write("child "); sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "fork_raises": """
import os
hold()
child = os.fork()
if child == 0:
    f = open("x", "w"); f.write("child"); raise ValueError("in the child")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "process": """
import multiprocessing
hold()
multiprocessing.get_context("fork").Process(target=print, args=("child",)).start()
""",
    # the standard streams
    "no_newline": 'print("no newline", end=""); import sys; sys.stderr.write("no newline")',
    "bytes": """
import sys
sys.stdout.buffer.write(b"bytes"); sys.stdout.reconfigure(line_buffering=False); print("tail", end="")
""",
    "closed": 'import sys; print("a"); hold(); sys.stdout.close()',
    "both_closed": "import sys; hold(); sys.stderr.close(); sys.stdout.close()",
    "no_stream": "import sys; hold(); sys.stdout = None",
    "to_file": 'import sys; sys.stdout = open("x", "w"); print("in the file")',
    "wrapped": 'import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), errors="replace"); print("\\udce4")',
    "redirected": """
import contextlib
f = open("x", "w"); stack = contextlib.ExitStack(); stack.enter_context(contextlib.redirect_stdout(f)); print("there")
""",
    "hooks": """
import sys
sys.unraisablehook = lambda args: print("unraisable", args.exc_value)
class Bad:
    def __del__(self): raise ValueError("no")
bad = Bad(); del bad
""",
    "exit_none": 'import sys; f = open("x", "w"); f.write("x"); hold(); sys.exit()',
    "exit_false": 'f = open("x", "w"); f.write("x"); hold(); raise SystemExit(False)',
    "quit": 'hold(); quit()\nprint("never")',
}

FAILING: dict[str, tuple[int, str]] = {
    "exit_3": (3, 'import sys; f = open("x", "w"); f.write("x"); hold(); sys.exit(3)'),
    "exit_text": (1, 'import sys; f = open("x", "w"); f.write("x"); hold(); sys.exit("that is why")'),
    "exit_large": (44, "import sys; hold(); sys.exit(300)"),
    "raised": (
        1,
        'f = open("x", "w"); import atexit; atexit.register(f.write, "late"); hold()\ndef g(): raise ValueError("x")\ng()',
    ),
    "hooked": (4, "import sys; hold(); sys.excepthook = lambda *_: sys.exit(4)\n1 / 0"),
    "bad_hook": (1, "import sys; hold(); sys.excepthook = lambda *_: {}[1]\n1 / 0"),
    "unwritable": (120, 'import sys; hold(); sys.stdout = open("/dev/full", "w"); print("x")'),
    "unwritable_3": (120, 'import sys; hold(); sys.stdout = open("/dev/full", "w"); print("x"); sys.exit(3)'),
    "late_exit": (
        5,
        "import os\nclass Late:\n    def __del__(self, leave=os._exit): leave(5)\nlate = Late(); hold()",
    ),
}
"""Exit code, source: those that end with an error."""

NOT_RESTORED = {
    "c_stdio": "the C library's buffer is in no image",
    "uncollected": "garbage is in no image",
    "resurrected": "nor is it known of an object that it was finalized before",
    "async_generator": "it cannot be saved",
    "errors": "nor can an error handler of the program",
}
"""Programs that a restart cannot take up, and why."""


def script(names: Iterable[str]) -> str:
    """All these programs in one: each place runs its own."""
    text = "import holding\nfrom holding import hold\nhere = holding.begin()\n"
    for name in names:
        source = PROGRAMS[name] if name in PROGRAMS else FAILING[name][1]
        text += f"if here == {name!r}:\n{textwrap.indent(source.strip(), '    ')}\n"
        text += "" if "hold()" in source else "    hold()\n"
    return text

"""Packages by which objects tell each other of changes: signals, observers, state machines."""

from __future__ import annotations

from tests.libraries.library import Library

LISTENERS = (
    Library("traits", "traits", "observers of traits, lists and dicts, static and dynamic listeners", """
from traits.api import HasTraits, List, Int, Instance, Dict, Str, observe, Property, cached_property, on_trait_change
class Child(HasTraits):
    v = Int
class A(HasTraits):
    list = List(Int); d = Dict(Str, Int); c = Instance(Child); cs = List(Instance(Child)); n = Int
    total = Property(observe="list.items")
    @cached_property
    def _get_total(self): return sum(self.list)
    @observe("list.items")
    def f(self, e): print("f", type(e).__name__, self.list)
    @observe("c:v")
    def g(self, e): print("g", e.new)
    @observe("cs:items:v")
    def gg(self, e): print("gg", e.new)
    @observe("d.items")
    def h(self, e): print("h", sorted(self.d.items()))
    def _n_changed(self, old, new): print("n", old, new)
    def later(self, e): print("later", e.new)
    @on_trait_change("list[]")
    def old(self): print("old", self.list)
a = A(c=Child(), cs=[Child(), Child()]); a.list = [1]; a.list.append(2)
def plain(e): print("plain", e.new)
a.observe(plain, "n"); a.observe(a.later, "n"); a.c.on_trait_change(lambda v: print("lam", v), "v"); a.d["x"] = 1
print(a.total)
---
a.list.append(3); a.list = [5]; a.list.append(6); print(a.total); a.n = 4; a.c.v = 3; a.cs[1].v = 8; a.cs.append(Child()); a.cs[2].v = 9; a.d["y"] = 2
a.c = Child(); a.c.v = 77; a.observe(plain, "n", remove=True); a.n = 5; a.list += [1]; print(a.total)
"""),
    Library("traitlets", "traitlets", "observers, links, validators", """
from traitlets import HasTraits, Int, List, observe, link, dlink, validate, default, Unicode
class A(HasTraits):
    x = Int(1); y = List(); z = Unicode()
    @observe("x")
    def f(self, c): print("f", c["old"], c["new"])
    @default("z")
    def dz(self): return "dz"
    @validate("x")
    def vx(self, p): return min(p["value"], 100)
a, b, c = A(), A(), A(); ln = link((a, "x"), (b, "x")); dl = dlink((a, "x"), (c, "x"), lambda v: v * 2)
a.observe(lambda ch: print("lam", ch.new), "x"); a.observe(b.f, "y") if False else None
a.x = 3
---
a.x = 5; b.x = 7; print(c.x, a.z); a.x = 500; ln.unlink(); b.x = 1; print(a.x); dl.unlink(); a.x = 9; print(c.x)
"""),
    Library("ipywidgets", "ipywidgets", "widgets that are linked, without a notebook", """
import ipywidgets as w
s = w.IntSlider(value=3); t = w.IntText(); l = w.link((s, "value"), (t, "value")); b = w.Button(); b.on_click(lambda _: print("click")); s.observe(lambda c: print("s", c.new), "value"); box = w.VBox([s, t]); o = w.interactive(lambda x: print("ix", x), x=3)
---
s.value = 9; print(t.value); t.value = 4; print(s.value); b.click(); print(len(box.children)); o.children[0].value = 5
"""),
    Library("param", "param", "watchers, dependencies, reactive expressions", """
import param
class A(param.Parameterized):
    x = param.Integer(1); y = param.List([]); e = param.Event(); sub = param.Parameter()
    @param.depends("x", watch=True)
    def f(self): print("f", self.x)
    @param.depends("sub.x", watch=True)
    def g(self): print("g", self.sub.x)
a = A(sub=A(x=4)); w = a.param.watch(lambda *ev: print("watch", [v.new for v in ev]), ["x", "y"]); b = param.bind(lambda x: x * 2, a.param.x); r = param.rx(a.param.x) + 1
r.rx.watch(lambda v: print("rx", v)); link = A(x=a.x, sub=A()); a.x = 2
---
a.x = 5; a.y = [1]; print(b(), r.rx.value, link.x); a.sub.x = 9; a.sub = A(x=1); a.sub.x = 11; a.param.trigger("e"); a.param.unwatch(w); a.x = 6
"""),
    Library("blinker", "blinker", "signals with methods and functions as receivers, held weakly", """
from blinker import signal, Signal, Namespace
s = signal("a-b"); ns = Namespace(); t = ns.signal("t"); u = Signal()
out = []
def shown(*x): print(sorted(out), *x); out.clear()
class L:
    def on(self, sender, **k): out.append(repr(("L", sender if isinstance(sender, str) else "obj", k)))
class S: pass
l = L(); snd = S()
def plain(sender, **k): out.append(repr(("plain", type(sender).__name__, k)))
s.connect(l.on); s.connect(plain, sender=snd); t.connect(plain, sender="x"); u.connect(l.on, sender=snd)
@u.connect_via("y", weak=True)
def y(sender): out.append("y")
s.send(snd, k=1)
---
s.send(snd, k=2); shown(); s.send("x"); t.send("x"); u.send(snd); u.send("y"); shown(); print(bool(s.receivers), len(s.receivers), len(u.receivers)); s.disconnect(l.on); s.send(snd); shown(); print(signal("a-b") is s)
del l; u.send(snd); shown(); print(len(u.receivers)); del snd
import gc; gc.collect(); print(len(s.receivers), len(u.receivers), sorted(len(x) for x in u._by_sender.values()))
"""),
    Library("PyPubSub", "pubsub", "topics with listeners, held weakly", """
from pubsub import pub
class L:
    def on(self, arg1, arg2=None): print("L", arg1, arg2)
l = L()
def plain(arg1, arg2=None): print("plain", arg1, arg2)
def everything(topic=pub.AUTO_TOPIC, **k): print("all", topic.getName(), k)
pub.subscribe(l.on, "root.a"); pub.subscribe(plain, "root.a"); pub.subscribe(everything, pub.ALL_TOPICS)
pub.sendMessage("root.a", arg1=1)
---
pub.sendMessage("root.a", arg1=2, arg2=3); pub.unsubscribe(l.on, "root.a"); pub.sendMessage("root.a", arg1=4); print(pub.isSubscribed(plain, "root.a")); del plain; pub.sendMessage("root.a", arg1=5)
"""),
    Library("PyDispatcher", "pydispatch", "connections of senders and receivers, held weakly", """
from pydispatch import dispatcher
class L:
    def on(self, sender, **k): print("L", k)
class S: pass
l = L(); s = S()
def plain(**k): print("plain", sorted(k))
dispatcher.connect(l.on, signal="sig", sender=s); dispatcher.connect(plain, signal="sig"); dispatcher.connect(plain, sender=s)
---
print(len(dispatcher.send("sig", sender=s, v=2))); print(len(dispatcher.send("sig", sender="o"))); dispatcher.disconnect(l.on, signal="sig", sender=s); print(len(dispatcher.send("sig", sender=s)))
del plain; print(len(dispatcher.send("sig", sender=s))); del s; print(len(dispatcher.connections), len(dispatcher.senders))
"""),
    Library("pyee", "pyee", "emitters, with listeners for once", """
from pyee import EventEmitter
from pyee.asyncio import AsyncIOEventEmitter
import asyncio
e = EventEmitter(); a = AsyncIOEventEmitter()
class L:
    def on(self, *x): print("L", x)
l = L()
e.on("x", l.on); e.once("x", lambda *v: print("once", v))
@e.on("y")
def y(): print("y")
@a.on("z")
async def z(v): print("z", v)
---
e.emit("x", 1); e.emit("x", 2); e.emit("y"); print(e.event_names() == {"x", "y"}); e.remove_listener("x", l.on); e.emit("x", 3)
async def main():
    a.emit("z", 5); await a.wait_for_complete() if hasattr(a, "wait_for_complete") else await asyncio.sleep(0.01)
asyncio.run(main())
"""),
    Library("eventkit", "eventkit", "events, operators over them", """
import eventkit as ev, asyncio
e = ev.Event("e"); got = []
class L:
    def on(self, *x): got.append(x); print("L", x)
l = L()
e += l.on; e += lambda *x: print("lam", x); f = e.map(lambda x: x * 2).filter(lambda x: x > 2); f += lambda x: print("f", x)
e.emit(1)
---
e.emit(2); e.emit(3); print(len(e), len(f), got); e -= l.on; e.emit(4); del l; print(f.done())
"""),
    Library("reactivex", "reactivex", "subjects and operators half-way", """
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject, BehaviorSubject, ReplaySubject
s = Subject(); b = BehaviorSubject(0); r = ReplaySubject(3)
d = s.pipe(ops.scan(lambda a, x: a + x, 0), ops.buffer_with_count(2)).subscribe(lambda v: print("scan", v)); d2 = b.pipe(ops.distinct_until_changed(), ops.pairwise()).subscribe(lambda v: print("pair", v)); m = rx.zip(s, b).subscribe(lambda v: print("zip", v)); s.subscribe(r)
g = s.pipe(ops.group_by(lambda x: x % 2), ops.flat_map(lambda g: g.pipe(ops.count(), ops.map(lambda c: (g.key, c))))).subscribe(lambda v: print("group", v))
s.on_next(1); b.on_next(2); s.on_next(2)
---
s.on_next(3); b.on_next(3); s.on_next(4); r.subscribe(lambda v: print("replay", v)); d.dispose(); s.on_next(5); s.on_completed()
"""),
    Library("psygnal", "psygnal", "signals with listeners, where psygnal is compiled", """
from psygnal import Signal
class Sender:
    changed = Signal(int)
class Listener:
    def on(self, v): print("heard", v)
s, l = Sender(), Listener(); s.changed.connect(l.on)
---
s.changed.emit(1); print(len(s.changed))
"""),
    Library("transitions", "transitions", "machines with conditions, callbacks, states within states", """
from transitions import Machine
from transitions.extensions import HierarchicalMachine, LockedMachine
class M:
    def on_enter_b(self): print("enter b")
    def cond(self): return True
m = M(); x = Machine(m, states=["a", "b", "c"], transitions=[["go", "a", "b"], dict(trigger="go", source="b", dest="c", conditions="cond", after=lambda: print("after"))], initial="a", queued=True)
h = HierarchicalMachine(states=["s", {"name": "t", "children": ["u", "v"], "initial": "u"}], initial="s"); h.add_transition("n", "s", "t"); h.add_transition("n", "t_u", "t_v"); lk = LockedMachine(states=["p", "q"], initial="p", ordered_transitions=True); h.n()
---
m.go(); print(m.state); m.go(); print(m.state, m.is_c()); h.n(); print(h.state, h.is_t_v()); lk.next_state(); print(lk.state)
"""),
    Library("python-statemachine", "statemachine", "a machine with listeners, between two events", """
from statemachine import StateMachine, State
class T(StateMachine):
    a = State(initial=True); b = State(); c = State(final=True)
    go = a.to(b) | b.to(c, cond="ok")
    ok = True
    def on_enter_b(self): print("b")
    def before_go(self, event, source): print(event, source.id)
class Obs:
    def after_go(self, source): print("obs", source.id)
t = T(); o = Obs(); t.add_listener(o) if hasattr(t, "add_listener") else t.add_observer(o)
---
t.go(); t.send("go"); print(t.current_state.id, t.current_state.final)
"""),
)  # fmt: skip

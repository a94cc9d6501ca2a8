"""What a program has changed in installed packages is part of its image."""

from __future__ import annotations

import datetime
import json
import math
import sys
import types
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from ckpt.image.modules import package_changes
from ckpt.image.modules.package_baseline import PackageBaseline
from ckpt.image.modules.plain_values import leave_out_unsavable
from ckpt.image.modules.references import References
from tests.unit.ckpt.image.support import LIBRARY_START, after_restart, image_failure

pytestmark = pytest.mark.turns(2)


def test_variables_set_added_and_removed(tmp_path: Path) -> None:
    library = "level = 1\nold = 'x'\ndef get():\n    return level, extra\n"
    program = """
        import lib
        lib.level, lib.extra = 7, [lib.get]
        del lib.old
        driver_tick()
        print(lib.get() == (7, [lib.get]), hasattr(lib, "old"))
    """
    assert after_restart(tmp_path, library, program) == "True False\n"


def test_names_that_only_begin_as_those_of_python_do(tmp_path: Path) -> None:
    """Silently as after an import: what absl keeps of its flags."""
    library = """
        class Values:
            def __init__(self):
                self.__dict__["__flags"] = {}

        values = Values()
        __cache = []
        def add(name):
            values.__dict__["__flags"][name] = len(name)
            globals()["__cache"].append(name)
            globals()["__last"] = name
        def all_of_them():
            return vars(values), globals()["__cache"], globals().get("__last")
    """
    program = """
        import lib
        lib.add("steps")
        driver_tick()
        print(*lib.all_of_them())
    """
    assert after_restart(tmp_path, library, program) == "{'__flags': {'steps': 5}} ['steps'] steps\n"


def test_a_time_that_the_library_has_noted_at_its_import_stays(tmp_path: Path) -> None:
    """It was that of the import in the new process: so what the library told of the time since its start was wrong, and a
    copy of a replica differed from the others."""
    library = """
        import datetime, time
        began, counter, begun_ms = time.time(), time.perf_counter_ns(), int(time.time() * 1000)
        class Clock:
            started = time.monotonic()
            def __init__(self):
                self.date = datetime.datetime.now()
        clock = Clock()
    """
    program = """
        import lib
        def times():
            return lib.began, lib.counter, lib.begun_ms, lib.Clock.started, lib.clock.date
        before = times()
        driver_tick()
        print(times() == before)
    """
    assert after_restart(tmp_path, library, program) == "True\n"


def test_a_function_of_the_library_that_another_one_has_replaced(tmp_path: Path) -> None:
    library = "def slow():\n    return 'slow'\ndef fast():\n    return 'fast'\n"
    program = """
        import lib
        lib.slow = lib.fast
        driver_tick()
        print(lib.slow(), lib.slow is lib.fast)
    """
    assert after_restart(tmp_path, library, program) == "fast True\n"


def test_a_weak_table_of_a_class_does_not_cost_the_settings_of_the_package(tmp_path: Path) -> None:
    """dask keeps its expressions in such tables: with them ``dask.config.set`` was lost."""
    library = """
        import weakref
        config = {"scheduler": None}
        class Kept:
            @classmethod
            def of(cls, name):
                if not hasattr(cls, "known"):
                    cls.known, cls.sizes = weakref.WeakValueDictionary(), weakref.WeakKeyDictionary()
                    cls.all = weakref.WeakSet()
                made = cls.known[name] = cls()
                cls.sizes[made] = 3
                cls.all.add(made)
                return made
    """
    program = """
        import lib
        kept = lib.Kept.of("a")
        lib.Kept.of("b")
        lib.config["scheduler"] = "threads"
        driver_tick()
        print(lib.config, lib.Kept.known["a"] is kept, lib.Kept.sizes[kept], kept in lib.Kept.all)
    """
    assert after_restart(tmp_path, library, program) == "{'scheduler': 'threads'} True 3 True\n"


def test_what_weak_containers_hold_since_the_import(tmp_path: Path) -> None:
    """anyio keeps the state of each task in one: with an empty one its scopes raised errors after a restart."""
    library = """
        import weakref
        states, by_name, members = weakref.WeakKeyDictionary(), weakref.WeakValueDictionary(), weakref.WeakSet()
        class Kept:
            pass
        initial = Kept()
        given = weakref.WeakSet([initial])
    """
    program = """
        import lib
        own = states = lib.states
        kept, gone = lib.Kept(), lib.Kept()
        for each in (kept, gone):
            lib.states[each], lib.by_name[str(len(lib.by_name))] = ["state"], each
            lib.members.add(each)
        del gone, each
        driver_tick()
        print(lib.states[kept], lib.by_name["0"] is kept, kept in lib.members, own is lib.states)
        print(len(lib.states), len(lib.by_name), len(lib.members), lib.initial in lib.given)
        del kept
        print(len(lib.states), len(lib.by_name), len(lib.members))
    """
    assert after_restart(tmp_path, library, program) == "['state'] True True True\n1 1 1 True\n0 0 0\n"


def test_a_weak_container_that_cannot_be_kept_does_not_cost_the_settings_of_the_package(
    tmp_path: Path,
) -> None:
    library = """
        import weakref
        level, states, all = 1, weakref.WeakKeyDictionary(), weakref.WeakSet()
    """
    program = """
        import lib
        class Own: pass
        def use():
            own = Own()
            lib.level = 7
            lib.states[own] = (n for n in "abc")  # is in the middle of something, or may be
            lib.all.add(own)
            driver_tick()
            print(lib.level, own in lib.all)
        use()
    """
    assert after_restart(tmp_path, library, program) == "7 True\n"


def test_what_weak_containers_of_a_package_with_compiled_modules_hold(tmp_path: Path) -> None:
    """Attributes of yt's objects are in such tables. After a restart they were gone without a word."""
    library = """
        import sys, types, weakref
        fast = sys.modules["lib._fast"] = types.ModuleType("lib._fast")
        fast.__file__ = "/somewhere/_fast.so"
        class Attribute:
            def __init__(self):
                self.values = weakref.WeakKeyDictionary()
            def __get__(self, instance, owner):
                return self.values.get(instance)
            def __set__(self, instance, value):
                self.values[instance] = value
        class Thing:
            edge, other = Attribute(), Attribute()
    """
    program = """
        import lib
        thing, second = lib.Thing(), lib.Thing()
        thing.edge, second.edge, second.other = [1, 2], thing, (n for n in "abc")
        values = vars(lib.Thing)["edge"].values
        driver_tick()
        print(thing.edge, second.edge is thing, values is vars(lib.Thing)["edge"].values)
    """
    assert after_restart(tmp_path, library, program) == "[1, 2] True True\n"


def test_attributes_of_functions_are_kept(tmp_path: Path) -> None:
    """mpi4py.futures keeps its lock in one; many packages keep counters and caches so."""
    library = """
        def count():
            count.calls += 1
            return count.calls
        count.calls, count.seen = 0, {"a": 1}
        def plain():
            return getattr(plain, "level", 0)
        def gone(): pass
        gone.mark = 1
    """
    program = """
        import lib
        lib.count(); lib.count()
        lib.count.seen["b"] = 2
        lib.plain.level = 5
        del lib.gone.mark
        driver_tick()
        print(lib.count(), lib.count.seen, lib.plain(), hasattr(lib.gone, "mark"))
    """
    assert after_restart(tmp_path, library, program) == "3 {'a': 1, 'b': 2} 5 False\n"


def test_a_lock_in_an_attribute_of_a_function_that_runs(tmp_path: Path) -> None:
    library = """
        import threading
        def serialized(function):
            with serialized.lock:
                return function()
        serialized.lock = None
        def start(): serialized.lock = threading.RLock()
        def run(function):
            serialized(function)
            return serialized(lambda: "again")
    """
    program = """
        import lib
        lib.start()
        print(lib.run(driver_tick))
    """
    assert after_restart(tmp_path, library, program) == "again\n"


@pytest.mark.parametrize("is_bound", [True, False])
def test_an_object_that_is_pickled_by_the_name_of_a_variable_that_holds_it_since_later(
    tmp_path: Path, is_bound: bool
) -> None:
    """The variable was looked up before it was put back: the program got None in the place of the object."""
    library = """
        shared = None
        class Pool:
            def __init__(self): self.count = 0
            def __reduce__(self): return "shared"
        def bind(pool):
            global shared
            shared = pool
    """
    program = f"""
        import lib
        pool = lib.Pool()
        if {is_bound}: lib.bind(pool)
        pool.count = 3
        driver_tick()
        print(pool.count, lib.shared is pool)
    """
    assert after_restart(tmp_path, library, program) == f"3 {is_bound}\n"


def test_an_object_of_the_program_that_a_package_holds_of_which_nothing_is_kept(tmp_path: Path) -> None:
    """It was taken for what the variable of the package holds after the import: the program got None in its place."""
    library = """
        current = None
        class Thing: pass
        def numbers():
            yield 1
            yield 2
        def bind(thing):
            global current
            current = thing
    """
    program = """
        import lib
        thing = lib.Thing()
        thing.level, thing.numbers = 5, lib.numbers()
        next(thing.numbers)
        lib.bind(thing)
        driver_tick()
        print(thing.level, next(thing.numbers))
    """
    assert after_restart(tmp_path, library, program) == "5 2\n"


def test_a_settings_object_keeps_its_identity(tmp_path: Path) -> None:
    library = """
        class Lazy:
            _wrapped = None
            def __getattribute__(self, name):
                if name == "__class__" or name == "__dict__":
                    raise RuntimeError("set up too early")
                return object.__getattribute__(self, name)
        settings = Lazy()
        mine = settings
    """
    program = """
        import lib
        options = {"debug": True}
        lib.settings._wrapped = options
        driver_tick()
        options["seen"] = 1
        print(lib.settings._wrapped, lib.settings is lib.mine, lib.settings._wrapped is options)
    """
    assert after_restart(tmp_path, library, program) == "{'debug': True, 'seen': 1} True True\n"


def test_registries_of_every_kind_are_filled_in_place(tmp_path: Path) -> None:
    library = """
        from collections import OrderedDict, defaultdict, deque
        class Table(dict):
            def __setitem__(self, key, value):
                raise RuntimeError("not by this way")
        a, b, c, d, e, f = {}, [], {"x"}, OrderedDict(p=1, q=2), defaultdict(list), deque(maxlen=2)
        t = Table()
        every = [a, b, c, d, e, f, t]
    """
    program = """
        import lib
        mine = lib.a
        lib.a["k"] = lib.b
        lib.b.append(mine)
        lib.c |= {"y", "z"}
        order = list(lib.c)
        lib.d.move_to_end("p")
        lib.e["n"].append(1)
        lib.f.extend([1, 2, 3])
        dict.__setitem__(lib.t, "in", 1)
        driver_tick()
        print(lib.a["k"] is lib.b, lib.b[0] is mine is lib.a, list(lib.c) == order, list(lib.d))
        print(dict(lib.e), list(lib.f), lib.f.maxlen, lib.t, lib.every[2] is lib.c)
    """
    expected = "True True True ['q', 'p']\n{'n': [1]} [2, 3] 2 {'in': 1} True\n"
    assert after_restart(tmp_path, library, program) == expected


def test_class_attributes_and_tables_of_classes(tmp_path: Path) -> None:
    library = "class Maker:\n    seed = None\n    known = {}\n    def make(self):\n        return self.seed, self.known\n"
    program = """
        import lib
        class Mine: pass
        lib.Maker.seed = 5
        lib.Maker.known["mine"] = Mine
        driver_tick()
        print(lib.Maker().make() == (5, {"mine": Mine}))
    """
    assert after_restart(tmp_path, library, program) == "True\n"


def test_a_generator_of_random_numbers(tmp_path: Path) -> None:
    library = "import random as r\nrandom = r.Random()\nclass Box:\n    def __init__(self):\n        self.random = random\n"
    program = """
        import lib
        box = lib.Box()
        lib.random.seed(3)
        expected = [lib.random.random() for _ in range(2)][1]
        lib.random.seed(3)
        lib.random.random()
        driver_tick()
        print(lib.random.random() == expected, box.random is lib.random)
    """
    assert after_restart(tmp_path, library, program) == "True True\n"


def test_an_object_that_has_a_name_and_is_found_in_another_way_first(tmp_path: Path) -> None:
    """As mpmath has it: the context is an attribute of a class in a module that is imported before it has its name."""
    library = """
        from lib.parts import Number, Context
        mp = Context()
        Number.context = mp
        Number.context.odd = bytearray(b"a")
    """
    parts = "class Number: pass\nclass Context:\n    precision = 53\n"
    program = """
        import lib
        def work(context):
            driver_tick()
            return context is lib.mp is lib.Number.context, lib.mp.precision, lib.mp.odd
        lib.mp.precision = 7
        print(work(lib.mp))
    """
    expected = "(True, 7, bytearray(b'a'))\n"
    assert after_restart(tmp_path, library, program, parts=parts) == expected


def test_a_context_that_holds_its_own_classes(tmp_path: Path) -> None:
    """As mpmath has it: a list that a class made at run time shares with the context."""
    library = """
        class Number:
            pass
        class Context:
            def __init__(self):
                self.precision = [53]
                self.number = type("number", (Number,), {"data": self.precision})
                self.number.context = self
        mp = Context()
    """
    program = """
        import lib
        lib.mp.precision[0] = 136
        one = lib.mp.number()
        driver_tick()
        print(one.data, one.data is lib.mp.precision, type(one) is lib.mp.number, one.context is lib.mp)
    """
    assert after_restart(tmp_path, library, program) == "[136] True True True\n"


def test_modules_imported_later_are_there_before_the_state(tmp_path: Path) -> None:
    library = "table = {}\n"
    plugin = "from lib import table\ntable['plugin'] = table.get('plugin', 0) + 1\n"
    program = """
        import lib
        import lib.plugin
        lib.table["more"] = 1
        driver_tick()
        import lib.plugin
        print(lib.table)
    """
    assert after_restart(tmp_path, library, program, plugin=plugin) == "{'plugin': 1, 'more': 1}\n"


def logged(tmp_path: Path, name: str) -> list[object]:
    """What the lines of the driver's log say under that name."""
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if line.get(name)]


def test_a_package_of_which_something_cannot_be_saved_starts_anew_as_a_whole(tmp_path: Path) -> None:
    """That it is set up would be worse to know than nothing, without what was set up."""
    library = """
        import bz2
        is_set_up, packer = False, None
        def set_up():
            global is_set_up, packer
            is_set_up, packer = True, bz2.BZ2Decompressor()
        def use():
            if not is_set_up:
                set_up()
            return type(packer).__name__
    """
    program = """
        import lib
        lib.use()
        driver_tick()
        print(lib.use())
    """
    assert after_restart(tmp_path, library, program) == "BZ2Decompressor\n"
    ((left_out,),) = logged(tmp_path, "left_out")
    assert (left_out["kind"], left_out["package"], left_out["variables"]) == (
        "unsaved",
        "lib",
        ["lib.packer"],
    )
    assert "decompressor" in left_out["reason"]


def test_a_variable_that_a_running_function_works_with_is_not_left_out(tmp_path: Path) -> None:
    place = tmp_path / "site-packages" / "lib"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(
        "import bz2\npacker = None\ndef work(tick):\n    global packer\n"
        "    packer = bz2.BZ2Decompressor()\n    tick()\n    packer = 1\n"
    )
    assert "lib.packer" in image_failure(tmp_path, LIBRARY_START + "import lib\nlib.work(driver_tick)\n")


def test_a_package_at_work_that_cannot_be_saved_burns_no_round(tmp_path: Path) -> None:
    """The running function has nothing to do with the variable."""
    library = """
        import bz2
        packer = None
        def begin():
            global packer
            packer = bz2.BZ2Decompressor()
        def work(tick):
            begin()
            tick()
            return "done"
    """
    program = """
        import lib
        print(lib.work(driver_tick))
    """
    assert after_restart(tmp_path, library, program) == "done\n"


def test_what_cannot_be_loaded_costs_no_restart(tmp_path: Path) -> None:
    """The package's own way to make its object again fails in the new process."""
    library = """
        import os
        level, handle = 1, None
        class Handle:
            def __init__(self, process):
                if process != os.getpid():
                    raise OSError("no handle of another process")
            def __reduce__(self):
                return Handle, (os.getpid(),)
    """
    program = """
        import lib
        driver_tick() if lib.level == 2 else None
        lib.level, lib.handle = 2, lib.Handle(__import__("os").getpid())
        driver_tick()
        lib.level = lib.level if driver_tick() == "going on" else None
        print("went on")
    """
    assert after_restart(tmp_path, library, program) == "went on\n"
    (left_out,) = logged(tmp_path, "left_out")
    assert left_out[0]["package"] == "lib" and "another process" in left_out[0]["reason"]


def test_slots_threads_and_namespaces(tmp_path: Path) -> None:
    library = """
        import threading, types
        class Slotted:
            __slots__ = ("level", "gone")
            def __init__(self):
                self.level, self.gone = 1, 2
            def __setattr__(self, name, value):
                object.__setattr__(self, name, value)
        slotted, local, space = Slotted(), threading.local(), types.SimpleNamespace(a=1)
        def get():
            return slotted.level, hasattr(slotted, "gone"), local.user, space.a
    """
    program = """
        import lib
        lib.slotted.level, lib.local.user, lib.space.a = 5, "me", 6
        del lib.slotted.gone
        driver_tick()
        print(lib.get())
    """
    assert after_restart(tmp_path, library, program) == "(5, False, 'me', 6)\n"


def test_settings_within_settings(tmp_path: Path) -> None:
    library = "config = {'log': {'level': 1, 'to': [{'x': 1}]}, 3: []}\nlog = config['log']\n"
    program = """
        import lib
        lib.config["log"]["level"] = 2
        lib.config["log"]["to"][0]["x"] = 3
        lib.config[3].append("y")
        driver_tick()
        print(lib.config, lib.config["log"] is lib.log)
    """
    expected = "{'log': {'level': 2, 'to': [{'x': 3}]}, 3: ['y']} True\n"
    assert after_restart(tmp_path, library, program) == expected


def test_counters_go_on(tmp_path: Path) -> None:
    library = """
        from itertools import count
        numbers, by_two, new_id = count(), count(10, 2), count(5).__next__
        class Node:
            ids = count(100)
            def __init__(self):
                self.id = next(self.ids)
    """
    program = """
        import lib
        for _ in range(3):
            next(lib.numbers), next(lib.by_two), lib.new_id(), lib.Node()
        mine = lib.numbers
        driver_tick()
        print(next(lib.numbers), next(lib.by_two), lib.new_id(), lib.Node().id, next(mine))
    """
    assert after_restart(tmp_path, library, program) == "3 16 8 103 4\n"


def test_a_method_of_a_class_of_the_library_that_the_program_has_replaced(tmp_path: Path) -> None:
    library = (
        "class Box:\n    def __init__(self):\n        self.x = 1\n    def get(self):\n        return 1\n"
    )
    program = """
        import lib
        first = lib.Box.__init__
        def init(self):
            first(self)
            self.x += 1
        lib.Box.__init__, lib.Box.get = init, lambda self: 2
        driver_tick()
        print(lib.Box().x, lib.Box().get())
    """
    assert after_restart(tmp_path, library, program) == "2 2\n"


def test_what_runs_and_is_reached_by_a_class_is_one_object(tmp_path: Path) -> None:
    """A trampoline of reactivex: its running method went on with a copy, and the package's own one stayed busy for ever."""
    library = """
        import threading
        class Queue:
            def __init__(self):
                self.items = []
        class Trampoline:
            def __init__(self):
                self.is_idle, self.queue = True, Queue()
            def run(self, work):
                self.queue.items.append(work)
                if not self.is_idle:
                    return
                self.is_idle = False
                while self.queue.items:
                    self.queue.items.pop(0)()
                self.is_idle = True
        class Local(threading.local):
            def __init__(self):
                self.trampoline = Trampoline()
        class Scheduler:
            local = Local()
        def run(work):
            Scheduler.local.trampoline.run(work)
    """
    program = """
        import lib
        def work():
            driver_tick()
            lib.run(lambda: print("inner"))
            print("outer")
        lib.run(work)
        lib.run(lambda: print("later"))
    """
    assert after_restart(tmp_path, library, program) == "outer\ninner\nlater\n"


def test_a_table_by_addresses_of_a_named_module(tmp_path: Path) -> None:
    library = "seen = {}\ndef see(obj):\n    return seen.setdefault(id(obj), len(seen))\n"
    program = """
        from ckpt.image.interface.registry import libraries
        from ckpt.libraries import Library
        class Named(Library):
            id_tables = ("lib",)
        libraries.extend([("lib", "__main__:Named")])
        import lib
        objects = [object() for _ in range(3)]
        for obj in objects:
            lib.see(obj)
        driver_tick()
        print([lib.see(obj) for obj in reversed(objects)])
    """
    assert after_restart(tmp_path, library, program) == "[2, 1, 0]\n"


def test_a_table_by_addresses_starts_empty(tmp_path: Path) -> None:
    library = "seen = {}\ndef see(obj):\n    return seen.setdefault(id(obj), len(seen))\n"
    program = """
        import lib
        objects = [object() for _ in range(3)]
        for obj in objects:
            lib.see(obj)
        driver_tick()
        print([lib.see(obj) for obj in objects])
    """
    assert after_restart(tmp_path, library, program) == "[0, 1, 2]\n"
    ((left_out,),) = logged(tmp_path, "left_out")
    assert (left_out["kind"], left_out["variables"]) == ("addresses", ["lib.seen"])


def test_what_the_program_holds_keeps_what_is_too_deep_to_be_noted(tmp_path: Path) -> None:
    library = "class Box:\n    table = {'data': bytearray(b'a')}\n    other = {}\n"
    program = """
        import lib
        mine, other = lib.Box.table, lib.Box.other
        mine["data"] += b"b"
        driver_tick()
        print(mine["data"], other is lib.Box.other)
    """
    assert after_restart(tmp_path, library, program) == "bytearray(b'ab') True\n"


def test_an_object_of_the_library_that_another_module_of_it_has_added(tmp_path: Path) -> None:
    """The program imports the plugin, which imports the library: in the new process the library may come alone."""
    library = "class Registry: pass\nregistry = Registry()\n"
    program = """
        import lib.plugin
        table = lib.registry.table
        del lib
        driver_tick()
        import lib.plugin
        print(table is lib.registry.table)
    """
    plugin = "from lib import registry\nregistry.table = {}\n"
    assert after_restart(tmp_path, library, program, plugin=plugin) == "True\n"


def test_nothing_of_the_import_is_seen(tmp_path: Path) -> None:
    """Loader, traceback and warnings are those of a plain import."""
    library = "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n"
    program = """
        import importlib.machinery, traceback, warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import lib
        try:
            import lib.broken
        except ZeroDivisionError as error:
            files = [entry.filename.rpartition("/")[2] for entry in traceback.extract_tb(error.__traceback__)]
        driver_tick()
        print(type(lib.__loader__) is importlib.machinery.SourceFileLoader, lib.__spec__.loader is lib.__loader__)
        print([warning.filename.rpartition("/")[2] for warning in seen], files)
    """
    expected = "True True\n['program.py'] ['program.py', 'broken.py']\n"
    assert after_restart(tmp_path, library, program, broken="1 / 0\n") == expected


# ---------------------------------------------------------------------- looking


def noted(**attributes: object) -> tuple[types.ModuleType, PackageBaseline]:
    module = types.ModuleType("a_noted_library")
    module.__dict__.update(attributes)
    notes = PackageBaseline()
    notes.begin_import()
    notes.end_import(module)
    return module, notes


def looked_at(module: types.ModuleType, notes: PackageBaseline) -> package_changes.Changed:
    sys.modules[module.__name__] = module
    try:
        references = References()
        references.refresh()
        return package_changes.find_changes(notes, references)
    finally:
        del sys.modules[module.__name__]


def changes(module: types.ModuleType, notes: PackageBaseline) -> list[str]:
    found = [change for part in looked_at(module, notes).changes.values() for change in part]
    return [f"{change.part} {change.where}".replace("a_noted_library.", "") for change in found]


class Loud:
    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]


def test_nothing_changed_is_nothing_saved() -> None:
    module, notes = noted(a=[Loud()], b={1: Loud()}, c={"x", "y"}, d=OrderedDict(p=Loud()), e=deque([Loud()]))
    assert changes(module, notes) == []
    module.a[0] = Loud()
    module.b[1] = Loud()
    module.c.remove("x")
    module.d.clear()
    module.e.append(1)
    assert changes(module, notes) == [f"content {name}" for name in "abcde"]


def test_constants_are_not_taken_for_times_of_the_import() -> None:
    dates = [datetime.datetime(2020, 1, 1), datetime.datetime.min, datetime.datetime.max]
    values = [1.5, 86_400.0, math.inf, math.nan, 10**9, 2**31, 2**63, -3, True, "text", *dates]
    module, notes = noted(**{f"name_{index}": value for index, value in enumerate(values)})
    assert changes(module, notes) == []


def test_an_object_that_has_left_its_place_is_no_longer_noted() -> None:
    module, notes = noted(table={})
    module.table["x"] = 1
    module.table = {}
    assert changes(module, notes) == ["module table"]


def test_a_failed_import_leaves_no_note() -> None:
    notes = PackageBaseline()
    notes.begin_import()
    notes.end_import(None)
    assert not notes.modules and not notes.objects


@pytest.fixture
def with_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = types.ModuleType("a_noted_library._fast")
    compiled.__file__ = "/somewhere/_fast.so"
    monkeypatch.setitem(sys.modules, "a_noted_library._fast", compiled)
    monkeypatch.setattr(package_changes, "_kept_packages", set())


@pytest.mark.usefixtures("with_compiled_module")
def test_packages_with_compiled_modules_are_left_alone_and_all_that_has_changed_is_named() -> None:
    module, notes = noted(level=1, table={}, handle=None, same=[], states=WeakKeyDictionary())
    module.level = 2
    module.table["a"] = Loud()
    module.handle = Loud()
    module.states[Loud] = 1
    found = looked_at(module, notes)
    assert [change.where for change in found.changes.pop("a_noted_library")] == ["a_noted_library.states"]
    assert found.changes == {} and [*found.ids] == [id(module.states)]
    (left_out,) = found.left_out
    assert (left_out["kind"], left_out["package"]) == ("changed", "a_noted_library")
    assert left_out["variables"] == [f"a_noted_library.{name}" for name in ("level", "handle", "table")]
    assert left_out["reason"].startswith("changed, not kept")
    package_changes.keep("a_noted_library")
    assert looked_at(module, notes).left_out == []
    assert changes(module, notes) == ["module level", "module handle", "content table", "weak states"]


@pytest.mark.usefixtures("with_compiled_module")
def test_a_table_that_is_too_large_to_be_compared_is_named_when_it_grows() -> None:
    del sys.modules["a_noted_library._fast"]
    module, notes = noted(
        table=dict.fromkeys(range(20_000)), members=set(range(20_000)), log=list(range(20_000))
    )
    assert looked_at(module, notes).left_out == []
    module.table["a"] = 1
    module.log.pop()
    found = looked_at(module, notes)
    assert found.changes == {}
    named = [(row["kind"], row["variables"]) for row in found.left_out]
    assert named == [("changed", ["a_noted_library.table"]), ("changed", ["a_noted_library.log"])]
    assert not found.is_whole(module.table)
    package_changes.keep("a_noted_library")
    assert changes(module, notes) == ["content table", "content log"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "standard library"),
        ("a.b", "top-level"),
        (None, "top-level"),
        ("ckpt", "in another way"),
        ("numpy", "in another way"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        package_changes.keep(name)


def test_packages_that_cannot_be_saved_are_found_among_many() -> None:
    found = package_changes.Changed(rebound={("p4.m", "b"), ("p5.m", "b")})
    found.changes = {
        f"p{n}": [package_changes.Change((f"p{n}.m",), "module", ({key: n}, [])) for key in "ab"]
        for n in range(9)
    }

    def attempt(part: list[package_changes.Change]) -> Exception | None:
        return TypeError("no") if any(change.where == "p4.m.b" for change in part) else None

    leave_out_unsavable(found, attempt, ())
    assert list(found.changes) == [f"p{n}" for n in range(9) if n != 4]
    assert found.rebound == {("p4.m", "b"), ("p5.m", "b")}
    assert found.left_out == [{"kind": "unsaved", "package": "p4", "variables": ["p4.m.b"], "reason": "no"}]


def test_noting_that_fails_does_not_harm_the_import() -> None:
    class Odd(type):
        __module__ = property(lambda cls: 1 / 0)

    module, notes = noted(a=1)
    module.__dict__["__name__"] = ["not", "a", "name"]
    notes.begin_import()
    notes.end_import(module)
    assert list(notes.modules) == ["a_noted_library"]
    assert changes(*noted(odd=Odd("Odd", (), {})())) == []


def test_what_belongs_to_others_is_not_taken_for_the_librarys() -> None:
    """pygments.lexers holds a module; many hold sys.modules, or their own globals()."""
    module, notes = noted(modules=sys.modules, filters=sys.warnoptions, json=types.ModuleType("other"))
    module.__dict__["space"] = module.__dict__
    found = looked_at(module, notes)
    assert id(sys.modules) not in found.ids and id(module.__dict__) not in found.ids
    assert [change.where for part in found.changes.values() for change in part] == ["a_noted_library.space"]


def test_a_file_in_the_state_of_a_library_is_written_once(tmp_path: Path) -> None:
    """Whether it can be saved is tried first: what it has buffered must not get into the file by that."""
    program = f"""
        import lib
        from ckpt.image.modules import package_changes
        package_changes.keep("lib")  # a file is no setting
        lib.log = open({str(tmp_path / "log")!r}, "w")
        lib.log.write("once")
        lib.level = 3
        driver_tick()
        lib.log = None
        print(lib.level, repr(open({str(tmp_path / "log")!r}).read().replace("once", "", 1)))
    """
    assert after_restart(tmp_path, "log = None\nlevel = 1\n", program) == "3 ''\n"


def test_what_a_class_holds_stays_one_with_what_its_running_instances_hold(tmp_path: Path) -> None:
    """sympy asks `assumptions is cls.default_assumptions`, and writes to them if they are not."""
    library = """
        class Rules:
            def __init__(self):
                self.parts = [(Part(),)]  # what tuples hold is not noted
        class Part:
            pass
        RULES = Rules()
        class Facts(dict):
            def __init__(self, rules):
                self.rules = rules
        class Number:
            default = Facts(RULES)
            def __init__(self, n):
                self.n, self.facts = n, self.default
            def __getnewargs__(self):
                return (self.n,)
            def call(self, function):
                return function(), self.facts is Number.default, self.facts.rules is RULES
    """
    program = """
        from lib import Number
        print(Number(1).call(driver_tick), flush=True)
    """
    assert after_restart(tmp_path, library, program) == "('going on', True, True)\n"


def test_attributes_of_a_class_in_a_class_are_noted() -> None:
    """pyfakefs keeps its paths' file system there."""

    class Outer:
        class Inner:
            level = 1

    Outer.__module__ = Outer.Inner.__module__ = "a_noted_library"
    Outer.__qualname__, Outer.Inner.__qualname__ = "Outer", "Outer.Inner"
    module, notes = noted(Outer=Outer)
    assert changes(module, notes) == []
    Outer.Inner.level = 2
    assert changes(module, notes) == ["class Outer.Inner.level"]

"""Objects of installed packages that take themselves apart: whole where that would lose what others hold of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.ckpt.image.support import LIBRARY_START, after_restart, image_failure

NOTES = """
    from pathlib import Path

    def note():
        if "\\0resume\\0" in Path("/proc/self/cmdline").read_text():
            Path("made-again").touch()

"""


def was_made_again(tmp_path: Path) -> bool:
    """Was the object put together anew by its authors' way in the resumed process?"""
    return (tmp_path / "made-again").exists()


TREE = f"""{NOTES}
    class Node:
        def __init__(self, name):
            note()
            self.name, self.parts, self.above = name, [], None
            self.known_hash = 2**60 + 7

        def add(self, node):
            self.parts.append(node)
            node.above = self
            return node

        def rows(self):
            return [self.name, *[part.rows() for part in self.parts]]

        def __reduce__(self):
            return made_of, (self.rows(),)

    def made_of(rows):
        node = Node(rows[0])
        for row in rows[1]:
            node.add(made_of(row))
        return node
"""


def test_a_tree_that_becomes_a_list_of_rows_keeps_its_nodes(tmp_path: Path) -> None:
    # sqlglot's expressions do that: a node that a function worked on had no parent any more after a restart.
    program = """
        import lib
        top = lib.Node("top")
        part = top.add(lib.Node("part"))
        leaf = part.add(lib.Node("leaf"))
        results = {id(leaf): [leaf, "of the leaf"]}
        driver_tick()
        print(leaf.above is part, part.above is top, top.parts[0].parts[0] is leaf, results[id(leaf)][1])
    """
    assert after_restart(tmp_path, TREE, program) == "True True True of the leaf\n"
    assert not was_made_again(tmp_path)


def test_what_hands_on_its_parts_is_put_together_by_its_authors(tmp_path: Path) -> None:
    library = f"""{NOTES}
    class Graph:
        def __init__(self, store):
            note()
            self.store, self.cache = store, {{}}

        def __reduce__(self):
            return Graph, (self.store,)
    """
    program = """
        import lib
        graph = lib.Graph([1, 2])
        store = graph.store
        driver_tick()
        print(graph.store is store)
    """
    assert after_restart(tmp_path, library, program) == "True\n"
    assert was_made_again(tmp_path)


def test_one_of_a_kind_comes_from_where_it_is_kept(tmp_path: Path) -> None:
    library = """
        class Colour:
            known = {}
            def __init__(self, name):
                self.name, self.uses = name, ["made"]

            def __reduce__(self):
                return named, (self.name,)

        def named(name):
            if name not in Colour.known:
                Colour.known[name] = Colour(name)
            return Colour.known[name]
    """
    program = """
        import lib
        red = lib.named("red")
        driver_tick()
        print(lib.named("red") is red, red.uses)
    """
    assert after_restart(tmp_path, library, program) == "True ['made']\n"


def test_a_class_whose_new_hands_its_arguments_on(tmp_path: Path) -> None:
    """tornado's servers and loops: a restart called their ``initialize``, without arguments or a second time."""
    library = """
        made = []
        class Configurable:
            by_name = {}
            def __new__(cls, *args, **kwargs):
                made.append(cls.__name__)
                self = object.__new__(cls)
                self.initialize(*args, **kwargs)
                return self
        class Server(Configurable):
            def initialize(self, handler): self.handler = handler
        class Loop(Configurable):
            def initialize(self, name="main"):
                if name in self.by_name: raise RuntimeError(f"{name} is there")
                self.name, self.by_name[name] = name, self
        class Only:
            _only = None
            def __new__(cls, *args, **kwargs):
                if cls._only is None:
                    cls._only = object.__new__(cls)
                return cls._only
        class OnlyByName:
            all = {}
            def __new__(cls, *args):
                return cls.all.setdefault(args, object.__new__(cls))
    """
    program = """
        import lib
        server, loop, only, named = lib.Server("handler"), lib.Loop(), lib.Only(1), lib.OnlyByName("x")
        only.value = 3
        driver_tick()
        print(server.handler, loop.name, lib.Loop.by_name["main"] is loop, lib.made)
        print(lib.Only() is only, only.value, lib.OnlyByName("x") is named)
    """
    expected = "handler main True ['Server', 'Loop']\nTrue 3 True\n"
    assert after_restart(tmp_path, library, program) == expected


def test_what_cannot_be_saved_raw_is_put_together_by_its_authors(tmp_path: Path) -> None:
    library = """
        import socket

        class Connection:
            def __init__(self):
                self.pair = socket.socketpair()

            def close(self):
                for each in self.pair:
                    each.close()

        class Client:
            def __init__(self, name):
                self.name, self.connection = name, Connection()

            def __reduce__(self):
                return Client, (self.name,)
    """
    program = """
        import lib
        clients = [lib.Client("one"), lib.Client("two")]
        driver_tick()
        print([client.name for client in clients], clients[0].connection.pair[0].fileno() > 2)
        for client in clients:
            client.connection.close()
    """
    assert after_restart(tmp_path, library, program) == "['one', 'two'] True\n"


def test_what_holds_an_address_in_a_c_library_is_put_together_by_its_authors(tmp_path: Path) -> None:
    library = f"""{NOTES}
    class Model:
        def __init__(self, layers):
            note()
            self.layers, self.handle = list(layers), 0x7F0012345678

        def __reduce__(self):
            return Model, (tuple(self.layers),)
    """
    program = """
        import lib
        model = lib.Model("abc")
        driver_tick()
        print(model.layers)
    """
    assert after_restart(tmp_path, library, program) == "['a', 'b', 'c']\n"
    assert was_made_again(tmp_path)


UNFINISHED = """
    class Term:
        def __new__(cls, tick, *parts):
            term = object.__new__(cls)
            tick()
            term.parts = (tick, *parts)
            return term

        def __getnewargs__(self):
            return self.parts

    class Rows(Term):
        def __reduce__(self):
            return Rows, self.parts

    class Row(list):
        def __new__(cls, tick, *parts):
            row = list.__new__(cls)
            tick()
            row.parts = (tick, *parts)
            return row

        def __init__(self, *parts):
            pass

        def __getnewargs__(self):
            return self.parts
"""


@pytest.mark.parametrize("kind", ["Term", "Rows", "Row"])
def test_an_object_that_is_being_made_is_saved_as_far_as_it_is(tmp_path: Path, kind: str) -> None:
    # sympy's products are made so: the round was burnt, 'Mul' object has no attribute '_args'.
    program = f"""
        import lib
        made = lib.{kind}(driver_tick, 1, 2)
        print(type(made).__name__, made.parts[1:])
    """
    assert after_restart(tmp_path, UNFINISHED, program) == f"{kind} (1, 2)\n"


def test_a_state_that_pickle_cannot_load(tmp_path: Path) -> None:
    # nibabel's reports compare by a __getstate__ that gives a tuple: the restart failed.
    library = """
        class Report:
            def __init__(self, level, text):
                self.level, self.text = level, text

            def __getstate__(self):
                return self.level, self.text
    """
    program = """
        import lib
        report = lib.Report(3, "x")
        driver_tick()
        print(report.level, report.text)
    """
    assert after_restart(tmp_path, library, program) == "3 x\n"


def test_a_class_without_a_hash(tmp_path: Path) -> None:
    # Pyomo's marker Set.End: no image could be taken of a program that imports pyomo.environ.
    library = """
        class Unhashable(type):
            def __hash__(cls):
                raise ValueError

        class End(metaclass=Unhashable):
            pass
    """
    program = """
        import lib
        driver_tick()
        print(lib.End.__name__)
    """
    assert after_restart(tmp_path, library, program) == "End\n"


def test_a_class_that_follows_a_protocol(tmp_path: Path) -> None:
    """Those of janus do: "Instance and class checks can only be used with @runtime_checkable protocols"."""
    library = """
        import abc, typing
        T = typing.TypeVar("T")
        class Queue(typing.Protocol[T]):
            def get(self) -> T: ...
        class Own(Queue[T]):
            def __init__(self, value): self.value = value
            def get(self): return self.value
        class Strict(abc.ABCMeta):
            def __subclasscheck__(cls, other): raise TypeError("ask nobody")
        class Base(metaclass=Strict):
            __slots__ = ("of_base",)
        class Other(Base):
            def __init__(self): self.of_base, self.own = 1, 2
    """
    program = """
        import lib
        own, other = lib.Own(3), lib.Other()
        driver_tick()
        print(own.get(), other.of_base, other.own)
    """
    assert after_restart(tmp_path, library, program) == "3 1 2\n"


def test_a_class_over_a_container_in_c_keeps_its_attributes(tmp_path: Path) -> None:
    """The ``__reduce__`` of ``defaultdict`` and its like calls the class, and knows nothing of attributes: a workbook of
    openpyxl lost the sizes of its rows, or could not be loaded."""
    library = f"""{NOTES}
    from collections import OrderedDict, defaultdict, deque

    class Rows(defaultdict):
        def __init__(self, sheet, made=None):
            note()
            super().__init__(made)
            self.sheet = sheet

    class Latest(deque):
        def __init__(self, sheet):
            note()
            super().__init__(maxlen=2)
            self.sheet = sheet

    class Order(OrderedDict):
        def __init__(self, sheet):
            note()
            super().__init__()
            self.sheet = sheet
    """
    program = """
        import lib
        sheet = []
        made, plain, latest, order = lib.Rows(sheet, list), lib.Rows(sheet), lib.Latest(sheet), lib.Order(sheet)
        made[1].append(2); plain[3] = 4; latest.extend("abc"); order["z"] = order["a"] = 5
        driver_tick()
        made[6].append(7); latest.append("d")
        print(dict(made), dict(plain), list(latest), list(order))
        print([each.sheet is sheet for each in (made, plain, latest, order)])
    """
    expected = "{1: [2], 6: [7]} {3: 4} ['c', 'd'] ['z', 'a']\n[True, True, True, True]\n"
    assert after_restart(tmp_path, library, program) == expected
    assert not was_made_again(tmp_path)


def test_an_object_whose_context_manager_is_entered_is_the_one_that_it_counts(tmp_path: Path) -> None:
    """xarray counts the files that are in use by keys of which it makes new ones; while a file was opened, a restart ended
    with KeyError."""
    library = f"""{NOTES}
    from contextlib import contextmanager

    in_use = {{}}

    class Key:
        pass

    class Manager:
        def __init__(self, path):
            note()
            self.path, self.key = path, Key()

        def __getstate__(self):
            return self.path

        def __setstate__(self, path):
            self.__init__(path)

        @contextmanager
        def acquired(self):
            in_use[self.key] = 1
            try:
                yield self.path
            finally:
                del in_use[self.key]
    """
    program = """
        import lib
        manager = lib.Manager("a.nc")
        with manager.acquired() as path:
            driver_tick()
            print(path, len(lib.in_use))
        print(len(lib.in_use))
    """
    assert after_restart(tmp_path, library, program) == "a.nc 1\n0\n"
    assert not was_made_again(tmp_path)


def test_a_class_whose_constructor_hashes_its_keys_was_empty_if_a_key_refers_to_it(tmp_path: Path) -> None:
    # as pyrsistent's maps, of which a node of a graph is a key and has one as an attribute
    library = """
        class Table:
            def __init__(self, pairs):
                self._rows = [*dict(pairs).items()]

            def __reduce__(self):
                return Table, (dict(self._rows),)
    """
    program = """
        import lib

        class Node:
            def __init__(self, name):
                self.name, self.near = name, None

            def __hash__(self):
                return hash(self.name)

            def __eq__(self, other):
                return self.name == other.name

        node = Node("a")
        node.near = lib.Table({node: 1, Node("b"): 2})
        driver_tick()
        print([(key.name, number) for key, number in node.near._rows], node.near._rows[0][0] is node)
    """
    assert after_restart(tmp_path, library, program) == "[('a', 1), ('b', 2)] True\n"


def test_what_a_getstate_copies_or_leaves_out_is_kept(tmp_path: Path) -> None:
    # as the callbacks of matplotlib, the columns of astropy's tables, an environment of gymnasium with EzPickle
    library = """
        class Series:
            def __init__(self, values):
                self.values, self.listeners, self.step = values, [], 0

            def __getstate__(self):
                return {"values": self.values.copy()}

            def __setstate__(self, state):
                self.__init__(**state)
    """
    program = """
        import lib
        values, heard = [1, 2], []
        series = lib.Series(values)
        series.listeners.append(heard.append)
        series.step = 4
        driver_tick()
        values.append(3)
        series.listeners[0](series.step)
        print(series.values, heard)
    """
    assert after_restart(tmp_path, library, program) == "[1, 2, 3] [4]\n"


def test_what_a_getstate_leaves_out_is_kept_beside_what_is_in_c(tmp_path: Path) -> None:
    """The attribute was gone after a restart (graphs of pytensor, which leave out their times and bound functions)."""
    library = """
        import datetime, functools

        class Graph:
            def __init__(self):
                self.begun, self.times = datetime.datetime(2000, 1, 1), {"first": 1}
                self.replace = functools.partial(self.times.update, second=2)

            def __getstate__(self):
                return {"begun": self.begun}

            def __setstate__(self, state):
                self.__dict__.update(state)
    """
    program = """
        import lib
        graph = lib.Graph()
        driver_tick()
        graph.replace()
        print(graph.begun.year, graph.times)
    """
    assert after_restart(tmp_path, library, program) == "2000 {'first': 1, 'second': 2}\n"


def test_a_class_with_a_getstate_and_a_finalizer_is_made_by_its_own_way(tmp_path: Path) -> None:
    # as xarray's managers of files, which count how many have a file open
    library = f"""{NOTES}
    class Counted:
        def __init__(self, path):
            note()
            self.path, self.parts = path, [[]]

        def __getstate__(self):
            return self.path

        def __setstate__(self, path):
            self.__init__(path)

        def __del__(self):
            pass
    """
    program = """
        import lib
        counted = lib.Counted("a.nc")
        driver_tick()
        print(counted.path)
    """
    assert after_restart(tmp_path, library, program) == "a.nc\n"
    assert was_made_again(tmp_path)


def test_a_name_in_a_register_that_does_not_have_it(tmp_path: Path) -> None:
    """As datasets of yt, which are registered on request only: no restart could go on from the checkpoint."""
    library = """
        known = {}

        class Dataset:
            def __init__(self, name):
                self.name, self.open = name, object()

            def __reduce__(self):
                return find, (self.name,)

        def find(name):
            return known[name]
    """
    program = """
        import lib
        one, other = lib.Dataset("one"), lib.Dataset("other")
        lib.known["other"] = other
        driver_tick()
        print(one.name, other.name, lib.known["other"] is other, type(one) is lib.Dataset)
    """
    assert after_restart(tmp_path, library, program) == "one other True True\n"


def test_a_name_that_is_not_known_of_what_cannot_be_saved_raw_is_refused(tmp_path: Path) -> None:
    source = LIBRARY_START + "import lib\ndataset = lib.Dataset('one')\ndriver_tick()\n"
    library = tmp_path / "site-packages" / "lib"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "import ssl\n"
        "class Dataset:\n"
        "    def __init__(self, name):\n        self.name, self.file = name, ssl.MemoryBIO()\n"
        "    def __reduce__(self):\n        return find, (self.name,)\n"
        "def find(name):\n    raise KeyError(name)\n"
    )
    failure = image_failure(tmp_path, source)
    assert failure.startswith("Unpicklable: module __main__ variable 'dataset'.file: "), (
        "what is in the way is named"
    )


def test_a_reduce_that_leaves_out_what_others_hold_beside_a_weak_proxy(tmp_path: Path) -> None:
    library = """
        import weakref

        class Grid:
            def __init__(self, owner):
                self.owner, self.parts = weakref.proxy(owner), []

            def __reduce__(self):
                return made_of, (len(self.parts),)

        class Owner:
            def __init__(self):
                self.grid = Grid(self)

        def made_of(count):
            return Grid(Owner())
    """
    program = """
        import lib
        owner = lib.Owner()
        grid, parts = owner.grid, owner.grid.parts
        parts.append(1)
        driver_tick()
        parts.append(2)
        print(owner.grid is grid, grid.parts, grid.owner == owner, grid.owner.grid is grid)
    """
    assert after_restart(tmp_path, library, program) == "True [1, 2] True True\n"


def test_files_of_io_in_python(tmp_path: Path) -> None:
    """They refuse to be pickled, and a program with a server of cheroot, whose connections are such files, had no image."""
    library = """
        import _pyio
        class Counted(_pyio.BufferedReader):
            read_bytes = 0
            def read(self, *args):
                found = super().read(*args)
                self.read_bytes += len(found)
                return found
    """
    program = """
        import _pyio, os, lib
        with open("data", "wb") as file:
            file.write(bytes(range(100)))
        data, text = lib.Counted(_pyio.FileIO("data")), _pyio.open("text", "w")
        data.read(10), text.write("before ")
        driver_tick()
        text.write("after")
        text.close()
        print(list(data.read(3)), data.read_bytes, open("text").read())
    """
    assert after_restart(tmp_path, library, program) == "[10, 11, 12] 13 before after\n"


DISCLAIMED = """
    class Job:
        def __init__(self, function, number=0, log=None):
            self.function, self.number, self.log, self.runs = function, number, log, [0]

        def __getstate__(self):
            raise ValueError("this job cannot be serialized")

    class Closed(Job):
        def __del__(self):
            pass
"""


def test_an_object_whose_class_says_that_it_cannot_be_saved(tmp_path: Path) -> None:
    """No checkpoint was made of a program with a job of apscheduler that has a lambda."""
    program = """
        import lib
        jobs = [lib.Job(lambda: len(jobs), log=jobs_log) for jobs_log in ([], [])]
        driver_tick()
        jobs[0].runs.append(jobs[1].function())
        print(jobs[0].runs, jobs[0].log is jobs[1].log)
    """
    assert after_restart(tmp_path, DISCLAIMED, program) == "[0, 2] False\n"


@pytest.mark.parametrize("made", ["lib.Closed(len)", "lib.Job(len, number=id(lib))"])
def test_an_object_that_says_so_and_may_stand_for_something_outside(made: str, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "lib.py"
    library.parent.mkdir()
    library.write_text(textwrap.dedent(DISCLAIMED))
    source = f"{LIBRARY_START}import lib\njob = {made}\ndriver_tick()\n"
    assert "this job cannot be serialized" in image_failure(tmp_path, source)


def test_an_object_whose_reduce_makes_one_of_another_class_stays_what_it_is(tmp_path: Path) -> None:
    """A loop over a lazy list of celery failed after a restart: it was a list, and `__iter__` was in the middle of it."""
    library = """
        class Lazy(list):
            def __init__(self, source):
                self.source, self.taken = source, []

            def __reduce__(self):
                return list, (self.taken,)

            def __iter__(self):
                at = 0
                while True:
                    if at == len(self.taken):
                        try:
                            self.taken.append(next(self.source))
                        except StopIteration:
                            return
                    yield self.taken[at]
                    at += 1
    """
    program = """
        import lib
        lazy, other = lib.Lazy(n * n for n in range(4)), lib.Lazy(iter("ab"))
        for number in lazy:
            if number == 1:
                driver_tick()
        print(type(lazy).__name__, lazy.taken, list(lazy), list(other))
    """
    assert after_restart(tmp_path, library, program) == "Lazy [0, 1, 4, 9] [0, 1, 4, 9] ['a', 'b']\n"


def test_a_proxy_of_a_package_stays_a_proxy(tmp_path: Path) -> None:
    """Those of celery were made what they stand for, and made that of other objects while an image was written."""
    library = """
        class Proxy:
            __slots__ = ("made", "source", "__dict__")

            def __init__(self, source):
                object.__setattr__(self, "source", source)

            def found(self):
                source = object.__getattribute__(self, "source")
                if not hasattr(type(self).made, "__get__") or not self.is_made():
                    object.__setattr__(self, "made", source())
                return object.__getattribute__(self, "made")

            def is_made(self):
                try:
                    return bool(object.__getattribute__(self, "made"))
                except AttributeError:
                    return False

            __dict__ = property(lambda self: vars(self.found()))
            __class__ = property(lambda self: type(self.found()))

            def __reduce__(self):
                return self.found().__reduce__()

        class Task:
            def __init__(self, name):
                self.name = name
    """
    program = """
        import lib
        made = []
        proxy = lib.Proxy(lambda: made.append(1) or lib.Task("t"))
        driver_tick()
        print(made, object.__getattribute__(proxy, "is_made")(), vars(proxy), made)
    """
    assert after_restart(tmp_path, library, program) == "[1] False {'name': 't'} [1]\n"


def test_an_object_with_a_lock_that_its_reduce_leaves_out_is_kept_whole(tmp_path: Path) -> None:
    """An app of celery came back without the tasks that had been registered."""
    library = """
        import threading

        class App:
            def __init__(self, name):
                self.name, self.lock, self.local, self.tasks = name, threading.Lock(), threading.local(), {}

            def __reduce__(self):
                return App, (self.name,)
    """
    program = """
        import lib
        app, tasks = lib.App('name'), []
        app.tasks["t"] = tasks
        driver_tick()
        print(app.tasks, app.tasks["t"] is tasks)
    """
    assert after_restart(tmp_path, library, program) == "{'t': []} True\n"

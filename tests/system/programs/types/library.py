"""Objects of the standard library."""

import xml.etree.ElementTree
import sys
import itertools
import copyreg
import argparse
import array
import ast
import base64
import bisect
import builtins
import calendar
import cmath
import codecs
import collections
import configparser
import copy
import csv
import dataclasses
import datetime
import decimal
import difflib
import email.message
import enum
import fractions
import graphlib
import hashlib
import heapq
import hmac
import html.parser
import inspect
import io
import ipaddress
import json
import logging
import math
import numbers
import optparse
import pathlib
import pickle
import pprint
import random
import re
import reprlib
import sched
import secrets
import shlex
import signal
import sqlite3
import statistics
import string
import struct
import tempfile
import textwrap
import time
import tokenize
import traceback
import typing
import unittest
import unittest.mock
import uuid
import warnings
import xml.dom.minidom
import xml.parsers.expat
import xml.sax
import xml.etree.ElementTree as ET
import zoneinfo

from cases import case, main


@case
def collections_of_all_kinds():
    Point = collections.namedtuple("Point", "x y", defaults=[0])
    deque, ordered = collections.deque([1, 2, 3], maxlen=4), collections.OrderedDict(a=1, b=2)
    default, counter, chain = (
        collections.defaultdict(list),
        collections.Counter("hello"),
        collections.ChainMap({}, {"x": 1}),
    )
    user, ulist, ustr = collections.UserDict(a=1), collections.UserList([1]), collections.UserString("s")
    n = 0
    while True:
        n += 1
        deque.append(n)
        ordered.move_to_end("a" if n % 2 else "b")
        default["k"].append(n)
        counter.update(a=n)
        chain["x"] = chain["x"] + 1
        user[n] = n
        ulist.append(n)
        yield (
            Point(n),
            Point(1)._replace(y=n),
            deque,
            ordered,
            default,
            counter.most_common(2),
            chain,
            user,
            ulist,
            ustr * n,
        )


@case
def digests_under_way():
    names = ("md5", "sha1", "sha256", "sha384", "sha512", "sha3_256")
    running, twin = [hashlib.new(name) for name in names], hashlib.sha256(b"begun")
    open_ended, closed = hashlib.shake_128(b"x" * 500), twin.copy()
    running += [
        hashlib.blake2b(b"begun", digest_size=20, key=b"key"),
        hashlib.blake2s(b"x" * 100, last_node=True),
    ]
    running += [hmac.new(b"key", b"begun", name) for name in ("md5", "sha512", "sha3_256", hashlib.blake2b)]
    n = 0
    while True:
        n += 1
        for each in (*running, twin, open_ended):
            each.update(b"some bytes" * n)
        yield (
            [each.hexdigest() for each in running],
            twin.hexdigest(),
            open_ended.hexdigest(9),
            closed.hexdigest(),
        )


@case
def enums():
    class Color(enum.Enum):
        RED = 1
        BLUE = enum.auto()

        def shout(self):
            return self.name + "!"

        @classmethod
        def _missing_(cls, value):
            return cls.RED

    class Flag(enum.IntFlag):
        A = 1
        B = 2
        AB = 3

    class Keep(enum.Flag, boundary=enum.KEEP):
        X = 1
        Y = 4

    class Text(enum.StrEnum):
        ONE = enum.auto()

    made = enum.Enum("Made", "P Q")
    combined = Flag.A | Flag.B
    table = {Color.RED: 1, Text.ONE: 2}
    while True:
        yield (
            Color(1),
            Color(99) is Color.RED,
            Color.BLUE.shout(),
            combined is Flag.AB,
            ~Flag.A,
            Keep(9),
            Text.ONE == "one",
            made["P"],
            table[Color.RED],
            list(Color),
            Flag.A in combined,
            re.compile("x", re.I | re.M).flags,
            signal.SIGINT,
        )


@case
def data_classes():
    @dataclasses.dataclass(order=True, slots=True)
    class Slotted:
        x: int
        y: list = dataclasses.field(default_factory=list, compare=False)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "b"

    @dataclasses.dataclass
    class Init:
        a: int
        total: int = dataclasses.field(init=False)
        kind: typing.ClassVar[str] = "kind"
        extra: dataclasses.InitVar[int] = 5

        def __post_init__(self, extra):
            self.total = self.a + extra

    slotted, frozen, init = Slotted(1), Frozen(2), Init(3)
    table = {frozen: 1}
    n = 0
    while True:
        n += 1
        slotted.y.append(n)
        init.total += 1
        try:
            frozen.a = 5
        except dataclasses.FrozenInstanceError as error:
            refused = str(error)
        yield (
            slotted,
            slotted < Slotted(2),
            frozen,
            table[Frozen(2)],
            init,
            refused,
            dataclasses.asdict(init),
            [f.name for f in dataclasses.fields(Slotted)],
            dataclasses.replace(frozen, a=9),
            Init(n),
        )


@case
def numbers_of_all_kinds():
    local = decimal.Context(prec=5, rounding=decimal.ROUND_UP)
    value, fraction = decimal.Decimal("1.1"), fractions.Fraction(1, 3)
    special = [decimal.Decimal("NaN"), decimal.Decimal("-Infinity"), float("inf"), -0.0, 1e-320, 2**200, 3j]
    decimal.getcontext().traps[decimal.Inexact] = False
    while True:
        value *= decimal.Decimal("1.5")
        fraction += fractions.Fraction(1, 7)
        yield (
            value,
            fraction,
            special,
            local.divide(1, 3),
            local.flags[decimal.Inexact],
            statistics.NormalDist(1, 2) + 1,
            math.tau,
            cmath.sqrt(-1),
        )


@case
def decimal_context_manager():
    with decimal.localcontext() as context:
        context.prec = 4
        while True:
            context.prec += 1
            yield decimal.Decimal(1) / 3, decimal.getcontext().prec, decimal.getcontext() is context


@case
def random_generators():
    random.seed(5)
    own, system = random.Random(6), random.SystemRandom()
    own.gauss(0, 1)
    method, bits = own.random, random.getrandbits
    while True:
        yield (
            random.random(),
            own.gauss(0, 1),
            method(),
            bits(7),
            own.choice("abcdef"),
            random.shuffle.__self__ is random._inst,
            0 <= system.random() < 1,
        )


@case
def times_and_zones():
    zone, fixed = zoneinfo.ZoneInfo("UTC"), datetime.timezone(datetime.timedelta(hours=2), "two")
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, zone)
    clock, day = datetime.time(1, 2, tzinfo=fixed, fold=1), datetime.date(2020, 2, 29)

    class Stamp(datetime.datetime):
        label = "stamp"

    class Zone(datetime.tzinfo):
        def utcoffset(self, when):
            return datetime.timedelta(minutes=7)

        def dst(self, when):
            return None

        def tzname(self, when):
            return "seven"

    stamp = Stamp(2021, 1, 1, tzinfo=Zone())
    stamp.note = "attribute"
    parsed = time.gmtime(0)
    while True:
        moment += datetime.timedelta(days=1, seconds=1)
        yield (
            moment,
            moment.tzinfo is zone,
            clock,
            day,
            stamp.year,
            stamp.note,
            stamp.tzname(),
            parsed.tm_year,
            calendar.TextCalendar(6).firstweekday,
            type(stamp).label,
        )


@case
def paths_and_addresses():
    path, pure = pathlib.Path("/tmp/x.txt"), pathlib.PureWindowsPath("C:/a/b")
    network, ident = ipaddress.ip_network("10.0.0.0/30"), uuid.UUID(int=5)
    hosts = network.hosts()
    globbed = {path: 1}
    while True:
        yield (
            path.suffix,
            pure.parts,
            network.num_addresses,
            ident,
            globbed[pathlib.Path("/tmp/x.txt")],
            path / "y",
            next(hosts, None),
        )


@case
def arrays_and_structs():
    numbers_, floats = array.array("i", [1, 2, 3]), array.array("d", [0.5])
    packed, unpack = struct.Struct("<iH"), struct.iter_unpack("<H", bytes(range(20)))
    view, iterator, buffer = memoryview(numbers_), iter(numbers_), bytearray(b"abc")

    class Own(array.array):
        pass

    own = Own("b", [5])
    own.note = "n"
    while True:
        view[0] += 1
        buffer += b"d"
        own.append(1)
        yield (
            numbers_,
            floats,
            packed.pack(1, 2),
            packed.format,
            next(unpack),
            next(iterator, None),
            bytes(buffer),
            own.tolist(),
            own.note,
            type(own).__name__,
        )


@case
def regular_expressions():
    pattern, flags = re.compile(r"(?P<w>\w)(\d)?"), re.compile(b"x", re.S)
    match, empty = pattern.search("..a1b2"), re.match("", "")
    ahead = re.search(r"(?<=a)b(?=c)", "xxabc")
    found = pattern.finditer("a1b2c3d4e5f6")
    scanner = re.Scanner([(r"\d+", lambda s, t: int(t)), (r"\w+", lambda s, t: t)])
    step = scanner.scanner.scanner("12ab34cd56").search  # what `scan` has in its variables
    piece = scanner.scanner.match("ab1")
    template = string.Template("$a and ${b}")
    while True:
        yield (
            (last := step()) and last.group(),
            (piece.group(), piece.lastindex),
            match.groupdict(),
            match.span(2),
            match.expand(r"\1-"),
            empty.span(),
            ahead.span(),
            next(found).group(),
            flags.flags,
            pattern is match.re,
            scanner.scan("12ab"),
            template.substitute(a=1, b=2),
            match["w"],
        )


@case
def io_in_memory():
    text, data = io.StringIO("a\nb\nc\nd\ne\nf\n"), io.BytesIO(b"x\ny\nz\n1\n2\n3\n")
    text.readline()
    newline = io.StringIO(newline="\r\n")
    wrapped = io.TextIOWrapper(io.BytesIO(), "utf-16", newline="")
    wrapped.write("écrit")
    reader = io.BufferedReader(io.BytesIO(bytes(100)), 16)
    writer = io.BufferedWriter(io.BytesIO())
    random_access = io.BufferedRandom(io.BytesIO(b"0123456789"))
    text_reader = io.TextIOWrapper(io.BytesIO("é1\né2\né3\né4\né5\n".encode()), "utf-8")
    lines = iter(text_reader)

    class Raw(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            buffer[:1] = b"r"
            return 1

    class Log(io.StringIO):
        def write(self, s):
            return super().write(s.upper())

    raw, log, buffered = Raw(), Log(), io.BufferedReader(Raw(), 4)
    with data.getbuffer() as view:
        view[0] = 65
    while True:
        newline.write("n\n")
        writer.write(b"w")
        wrapped.write("+")
        log.write("l")
        random_access.write(b"R")
        yield (
            text.readline(),
            data.readline(),
            newline.getvalue(),
            reader.read(3),
            random_access.tell(),
            random_access.raw.getvalue() if random_access.flush() is None else 0,
            next(lines),
            raw.read(1),
            log.getvalue(),
            buffered.read(1),
            text.tell(),
            wrapped.encoding,
        )


@case
def codecs_of_all_kinds():
    decoder, encoder = codecs.getincrementaldecoder("utf-8")(), codecs.getincrementalencoder("utf-16")()
    decoder.decode(b"\xc3")
    encoder.encode("x")
    reader = codecs.getreader("latin-1")(io.BytesIO(bytes(range(65, 90))))
    info = codecs.lookup("ascii")
    while True:
        yield (
            decoder.decode(b"\xa9\xc3"),
            encoder.encode("y"),
            reader.read(1),
            info.name,
            info is codecs.lookup("ascii") or info.name,
        )


@case
def csv_readers_and_writers():
    target = io.StringIO()
    csv.register_dialect("own", delimiter="|", quoting=csv.QUOTE_ALL)
    reader = csv.DictReader(io.StringIO("a,b\n1,2\n3,4\n5,6\n7,8\n9,0\n"))
    next(reader)
    writer, table = csv.writer(target, "own"), csv.DictWriter(target, ["x", "y"], dialect="excel-tab")
    lists = csv.reader(["1;2", "3;4", "5;6", "7;8", "9;0"], delimiter=";")
    n = 0
    while True:
        n += 1
        writer.writerow([n, "a"])
        table.writerow({"x": n, "y": 2})
        yield next(reader), reader.line_num, target.getvalue(), next(lists), "own" in csv.list_dialects()


@case
def picklers_that_stay():
    """The latest one of shelve is in a variable while the entry is written; others are kept from object to object."""
    written, shared = io.BytesIO(), ["shared"]
    picklers = [
        pickle.Pickler(written, 4),
        pickle.Pickler(written, 2, fix_imports=False),
        pickle.Pickler(written, 0),
    ]
    stored = io.BytesIO()
    for number in range(99):
        pickle.dump([number, shared], stored)
    stored.seek(0)
    unpickler = pickle.Unpickler(stored, encoding="latin-1")
    latest = []
    while True:
        begin = written.tell()
        for pickler in picklers:
            pickler.dump([shared, "again", latest])
        latest = [len(latest)]
        yield unpickler.load(), written.getvalue()[begin:], stored.tell()


@case
def json_and_pickle():
    decoder, encoder = json.JSONDecoder(object_pairs_hook=list), json.JSONEncoder(sort_keys=True, indent=1)
    default = json.JSONDecoder()
    iterated = encoder.iterencode({"a": [1, 2, 3, 4, 5], "b": {"c": 1}})
    while True:
        yield (
            decoder.decode('{"a": [1]}'),
            default.decode('{"a": 1.5}'),
            encoder.encode({"b": 1, "a": 2}),
            next(iterated),
        )


@case
def xml_trees():
    root = ET.fromstring("<a x='1'><b>t</b><c/>tail</a>")
    tree = ET.ElementTree(root)
    found = root.iter()
    dom = xml.dom.minidom.parseString("<r><s/></r>")
    n = 0
    while True:
        n += 1
        ET.SubElement(root, "d", n=str(n))
        dom.documentElement.appendChild(dom.createElement(f"n{n}"))
        yield (
            next(found).tag if n > 3 else found.__next__().tag,
            ET.tostring(root),
            tree.getroot() is root,
            dom.toxml(),
            root[0].text,
            len(list(root.iter("d"))),
        )


@case
def parsers_and_formatters():
    parser = argparse.ArgumentParser(prog="p")
    parser.add_argument("--n", type=int, default=1)
    sub = parser.add_subparsers().add_parser("sub")
    sub.set_defaults(func=len)
    config = configparser.ConfigParser()
    config.read_string("[a]\nx=1\ny=%(x)s2\n")
    options = parser.parse_args(["--n", "3"])
    old = optparse.OptionParser()
    old.add_option("-v", action="store_true")
    words = shlex.shlex("a 'b c' d e f g h", posix=True)

    class Links(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags = []

        def handle_starttag(self, tag, attrs):
            self.tags.append(tag)

    links = Links()
    links.feed("<a><b")
    formatter, wrapper, printer = (
        string.Formatter(),
        textwrap.TextWrapper(width=5),
        pprint.PrettyPrinter(width=10),
    )
    diff = difflib.SequenceMatcher(None, "abcd", "bcde")
    tokens = tokenize.generate_tokens(io.StringIO("a = 1\nb = 2\nc = 3\n").readline)
    while True:
        config["a"]["z"] = "3"
        links.feed("><i")
        yield (
            parser.parse_args(["--n", "5"]),
            options,
            parser.parse_args(["sub"]).func is len,
            config["a"]["y"],
            words.get_token(),
            links.tags,
            formatter.format("{}", 1),
            wrapper.wrap("aa bb cc"),
            printer.pformat([1] * 9),
            diff.ratio(),
            old.parse_args(["-v"])[0].v,
            next(tokens).string,
        )


@case
def heaps_and_graphs():
    heap = [5, 3, 8]
    heapq.heapify(heap)
    graph = graphlib.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"a"}})
    graph.prepare()
    merged = heapq.merge([1, 4, 7, 10], [2, 5, 8], key=lambda x: x)
    schedule = sched.scheduler(lambda: 0, lambda d: None)
    log = []
    for n in range(5):
        schedule.enter(n, 1, log.append, (n,))
    while True:
        ready = sorted(graph.get_ready())
        graph.done(*ready)
        heapq.heappush(heap, 4)
        yield ready, heapq.heappop(heap), next(merged), bisect.bisect([1, 2, 3], 2), len(schedule.queue), log


@case
def typing_objects():
    T = typing.TypeVar("T", bound=int)
    P = typing.ParamSpec("P")
    New = typing.NewType("New", int)

    class Box(typing.Generic[T]):
        item: T

        def __init__(self, item):
            self.item = item

    class Speaks(typing.Protocol):
        def speak(self) -> str: ...

    class Movie(typing.TypedDict, total=False):
        name: str

    class Row(typing.NamedTuple):
        a: int
        b: str = "b"

    @typing.runtime_checkable
    class Sized(typing.Protocol):
        def __len__(self): ...

    @typing.overload
    def f(x: int) -> int: ...
    def f(x):
        return x

    kinds = [
        list[int],
        dict[str, T],
        typing.Optional[int],
        typing.Union[int, str],
        typing.Callable[[int], str],
        typing.Callable[P, int],
        typing.Literal["a", 1],
        int | None,
        typing.Annotated[int, "x"],
        Box[int],
        typing.Any,
        typing.ForwardRef("X"),
        tuple[int, ...],
        type[int],
        typing.Self,
    ]
    box = Box[int](5)
    while True:
        yield (
            kinds,
            New(3),
            box.item,
            box.__orig_class__ == Box[int],
            Movie(name="m"),
            Row(1),
            isinstance([], Sized),
            typing.get_type_hints(Row),
            Movie.__optional_keys__,
            T.__bound__,
            Box.__parameters__ == (T,),
            Box[str].__args__,
            kinds[1][int],
            f(1),
            typing.get_type_hints(Box),
        )


@case
def syntax_and_inspection():
    tree = ast.parse("a + b")
    signature = inspect.signature(lambda a, b=2, *c, d, **e: None)
    bound = signature.bind(1, d=4)
    summary = traceback.extract_stack()[-1:]
    text = traceback.TracebackException(ValueError, ValueError("v"), None)
    while True:
        bound.arguments["b"] = 7
        yield (
            ast.dump(tree),
            str(signature),
            bound.args,
            bound.kwargs,
            summary[0].name,
            list(text.format()),
            inspect.getsource(case)[:9],
            eval(compile(ast.Expression(tree.body[0].value), "x", "eval"), {"a": 1, "b": 2}),
        )


@case
def mocks():
    mock = unittest.mock.MagicMock(name="m")
    mock.method.return_value = 3
    mock(1, a=2)
    plain = unittest.mock.Mock(side_effect=[1, 2, 3, 4, 5, 6])
    n = 0
    while True:
        n += 1
        mock.method(n)
        yield (
            mock.method(5),
            mock.call_args,
            mock.method.call_count,
            plain(),
            unittest.mock.call(1) == mock.method.call_args_list[0],
        )


@case
def warnings_and_catching():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while True:
            warnings.warn("w")
            yield len(caught), [str(c.message) for c in caught]


@case
def loggers():
    stream = io.StringIO()
    logger, child = logging.getLogger("types.loggers"), logging.getLogger("types.loggers.child")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    class Only(logging.Filter):
        def filter(self, record):
            return "no" not in record.msg

    handler.addFilter(Only())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    adapter = logging.LoggerAdapter(child, {"a": 1})
    logging.addLevelName(25, "NOTICE")
    record = logging.makeLogRecord({"msg": "kept", "levelname": "X"})
    while True:
        child.info("yes")
        child.info("no")
        logger.log(25, "notice")
        adapter.warning("adapted")
        yield (
            stream.getvalue(),
            child.parent is logger,
            record.getMessage(),
            logging.getLogger("types.loggers") is logger,
            handler in logger.handlers,
        )


@case
def logging_own_class_and_level():
    class Own(logging.Logger):
        def own(self):
            return "own"

    logging.setLoggerClass(Own)
    own = logging.getLogger("types.own")
    logging.setLoggerClass(logging.Logger)
    own.extra = 1
    while True:
        own.extra += 1
        yield (
            own.own(),
            own.extra,
            logging.getLogger("types.own") is own,
            type(own) is Own,
            own.manager is logging.root.manager,
        )


@case
def unit_tests():
    class Test(unittest.TestCase):
        def test(self):
            self.assertEqual(1, 1)

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Test)
    result = unittest.TestResult()
    while True:
        unittest.TestSuite([Test("test")]).run(result)
        yield result.testsRun, result.wasSuccessful(), suite.countTestCases()


@case
def text_and_bytes():
    table = str.maketrans("ab", "xy")
    message = email.message.EmailMessage()
    message["Subject"] = "s"
    message.set_content("body")
    short = reprlib.Repr()
    short.maxlist = 2
    lone = "\ud800 and é and \U0001f600"
    while True:
        yield (
            "abc".translate(table),
            message.as_string(),
            short.repr([1, 2, 3]),
            lone.encode("utf-8", "surrogatepass"),
            base64.b64encode(b"x"),
            copy.deepcopy([1]),
        )


@case
def sqlite_values():
    row = sqlite3.Binary(b"x")
    error = sqlite3.OperationalError("no")
    while True:
        yield bytes(row), repr(error), sqlite3.Row.__name__


@case
def signals_and_timers():
    log = []
    signal.signal(signal.SIGUSR2, lambda number, frame: log.append(number))
    while True:
        signal.raise_signal(signal.SIGUSR2)
        yield len(log), signal.getsignal(signal.SIGTERM)


@case
def registries():
    import collections.abc
    import copyreg
    import locale

    class Pickled:
        def __init__(self, v):
            self.v = v

    def reduce(obj):
        return Pickled, (obj.v + 1,)

    copyreg.pickle(Pickled, reduce)
    kept = Pickled(5)

    class Virtual:
        pass

    collections.abc.Mapping.register(Virtual)
    numbers.Real.register(Pickled)
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    decimal.DefaultContext.prec = 40
    csv.field_size_limit(99)
    while True:
        yield (
            isinstance(Virtual(), collections.abc.Mapping),
            isinstance(kept, numbers.Number),
            locale.setlocale(locale.LC_NUMERIC),
            decimal.DefaultContext.prec,
            csv.field_size_limit(),
            kept.v,
            copyreg.dispatch_table[Pickled] is reduce,
            numbers.Number in type(5).__mro__,
        )


@case
def what_is_registered_with_the_standard_library():
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

    xml.etree.ElementTree.register_namespace("ours", "http://ours")
    sqlite3.register_adapter(Point, lambda point: f"{point.x};{point.y}")
    sqlite3.register_converter("point", lambda data: [int(part) for part in data.split(b";")])
    copyreg.pickle(type(sys.implementation), lambda each: (str, ("replaced",)))
    database = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
    database.execute("create table t (p point)")
    for number in itertools.count():
        database.execute("insert into t values (?)", (Point(number, 2),))
        database.commit()
        yield (
            xml.etree.ElementTree.tostring(xml.etree.ElementTree.Element("{http://ours}a")),
            database.execute("select p from t").fetchall(),
            pickle.loads(pickle.dumps(sys.implementation)),
        )


class CountingTarget:
    def __init__(self):
        self.seen = []

    def start(self, tag, attributes):
        self.seen.append((tag, attributes))

    def data(self, text):
        self.seen.append(text)

    def close(self):
        return len(self.seen)


@case
def xml_parsers_in_the_middle():
    """Each of them has got a part of a tag, of a text and of a character."""
    text = "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e 'of an entity'>]><r xmlns:p='urn:p'>"
    text += "".join(f"<p:a n='{n}'>\xe4&e;<b/><!-- {n} --></p:a>\n" for n in range(99))
    pieces = [text.encode()[at : at + 61] for at in range(0, len(text), 61)]
    target, events = CountingTarget(), ET.XMLPullParser(["start", "end", "start-ns"])
    parsers = [
        ET.XMLParser(target=target),
        ET.XMLParser(),
        ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)),
    ]
    latin = ET.XMLParser(encoding="latin-1")
    latin.feed(b"<r>\xe4\xc3\xa4")
    iterated = ET.iterparse(io.BytesIO(text.encode() * 9 + b"</r>"), ["start", "end"])
    expat = xml.parsers.expat.ParserCreate(namespace_separator="}")
    told = []
    expat.StartElementHandler = lambda *found: told.append((*found, expat.CurrentLineNumber))
    expat.CharacterDataHandler = told.append
    reader = xml.sax.make_parser()
    reader.setContentHandler(xml.sax.handler.ContentHandler())
    reader.getContentHandler().startElement = lambda name, attributes: told.append((name, dict(attributes)))
    ended = ET.XMLParser()
    ended.feed("<a>1</a>")
    root = ended.close()
    for number, piece in enumerate(pieces):
        for parser in (*parsers, events, reader):
            parser.feed(piece)
        expat.Parse(piece)
        latin.feed(b"\xe4\xc3\xa4<b/>")
        heads = [(event, found.tag) for event, found in itertools.islice(iterated, 3)]
        elements = [(event, getattr(found, "tag", found)) for event, found in events.read_events()]
        whole = []
        if number == 3:
            for parser in parsers:
                parser.feed(b"".join(pieces[number + 1 :]) + b"</r>")
            latin.feed(b"</r>")
            whole = [parser.close() for parser in (*parsers, latin)]
            whole = [ET.tostring(each) if ET.iselement(each) else each for each in whole]
        yield heads, elements, target.seen[-3:], told[-4:], expat.CurrentByteIndex, root.text, whole


if __name__ == "__main__":
    main()

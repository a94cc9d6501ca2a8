"""The lines that random programs consist of.

    $i $l $f    an expression for a number or a list; a function of one number that returns one
    $v          a new variable of the function, a number; the same within one template
    $w          a new name for something else
    $e          Trouble or Worse
    $b $o $p    a line for a block: any statements; the same inside of a loop; without what belongs to the function or loop

What objects they use is in `ordinary`.
"""

MODULES = """
import asyncio, bisect, collections, concurrent.futures, contextlib, contextvars, copy, csv, decimal, fractions, functools
import heapq, io, itertools, json, operator, pickle, queue, re, struct, threading, types
from tests.sweep.random_programs.ordinary import *
"""

NUMBERS = r"""
($i + $i)
($i * $i % 97)
($i if $i % 2 else $i)
($i and $i or $i)
sum($l)
len($l)
$f($i)
$f($i)
max($l, key=$f, default=1)
min($l, key=lambda q: num($f(q)), default=2)
functools.reduce(lambda p, q: num(p + $f(q)), $l, 3)
num(Thing($i) + Thing($i))
Thing($i)($i)
(Thing($i) @ $i)
divmod(Thing($i), 2)[0]
abs(Thing($i))
Thing($i).half
Thing($i).slow
Thing($i).something
int($i in Thing($i))
len({Thing($i), Thing($i), Thing($i)})
{Thing($i): 4}.get(Thing($i), $i)
sorted([Thing($i), Thing($i), Thing($i)])[0].value
int(Thing($i) < Thing($i) < Thing($i))
Default()[$i]
cached($i % 12)
shown($l)
Thing.of($i).value
len(format(Thing($i), ">x") + f"{Thing(5)!r:>9}")
len(re.sub("[0-9]", lambda m: str(num($f(int(m[0])))), str($i)))
int(any($f(q) % 3 == 0 for q in $l))
int(all($f(q) for q in $l))
next((q for q in $l if $f(q) % 2), $i)
(lambda *a, k=$i, **m: sum(a) + k + len(m))(*$l, z=$i)
copy.deepcopy(Thing($i)).value
pickle.loads(pickle.dumps(Thing($i))).value
num(json.loads(json.dumps({"a": $i, "b": $l}), object_hook=lambda p: $f(len(p))))
bisect.bisect(sorted($l), $i)
bisect.bisect_left([Thing($i), Thing($i)], Thing($i))
Named($i, $i).b
Point($i, $i).more[0]
int(Point($i) < Point($i))
len([q for q in $l if q % 2 for w in range(2) if $f(w)])
functools.partial($f, $i)()
int(fractions.Fraction($i, 7) * 7)
int(decimal.Decimal($i) * 2)
VAR.get()
contextvars.copy_context().run($f, $i)
struct.unpack("<i", struct.pack("<i", $i))[0]
list(map($f, $l))[-1:].count(3)
operator.index(Thing($i))
heapq.nsmallest(2, $l + [1], key=$f)[0]
collections.Counter($l).total()
len(",".join(str($f(q)) for q in $l))
""".strip().splitlines()

LISTS = r"""
[$i, $i]
[$f(q) for q in $l]
sorted($l, key=$f)
list(map($f, $l))
list(filter($f, $l))
list({q: $i for q in $l}.values())
sorted({q % 7 for q in $l})
$l[::-1]
($l + $l)[:5]
list(itertools.accumulate($l, lambda p, q: num(p + $f(q))))
[p for p, _ in itertools.groupby($l, key=$f)]
list(delegated(2))
list(Slotted($i, $i))
list(Thing($i))
[*$l, $i, *$l][:6]
list(itertools.takewhile(lambda q: $f(q) % 5, $l))
list(itertools.islice(Counted(5), 1, 4))
list(heapq.merge(sorted($l), sorted($l), key=tick))
list(itertools.starmap(lambda p, q: tick(p + q), zip($l, $l)))
[num($f(q)) for q in ($f(w) for w in $l)]
sorted($l, key=functools.cmp_to_key(lambda p, q: tick(p) - tick(q)))
[t.value for t in sorted(map(Thing, $l))]
[q for q in itertools.chain.from_iterable([$l, Counted(2)])]
""".strip().splitlines()

LOOPS = r"""
for $v in $l:
for $v in range(4):
for $v, _ in enumerate($l):
for $v, _ in zip($l, Counted(4)):
for $v in map($f, $l):
for $v in filter($f, $l):
for $v in reversed($l):
for _, $v in {q: $f(q) for q in $l}.items():
for _, $v in itertools.product($l[:2], $l[:2]):
for $v in counted(4):
for $v in delegated(2):
for $v in ($f(q) for q in $l):
for $v in Counted(3):
for $v in Thing($i):
for $v in Slotted($i, $i):
for $v in iter(Counted(5).__next__, 4):
for $v in map(len, re.split("1", str($i))):
for $v in (int(m[0]) for m in re.finditer("[0-9]", str($i))):
for $v in map(len, io.StringIO("a\nbb\n")):
for _, $v in (map(int, row) for row in csv.reader(["1,2", "3,4"])):
for $v in itertools.accumulate($l, lambda p, q: num(p + $f(q))):
for $v in itertools.islice(itertools.count($i), 3):
for $v in heapq.merge(sorted($l), sorted($l)):
for $v in itertools.chain($l, Counted(2), $l):
for $v in collections.deque($l, 3):
for ($v,) in struct.iter_unpack("<h", b"abcdef"):
for $v in memoryview(b"xyz"):
for $v, _ in itertools.zip_longest($l, $l, fillvalue=1):
for $v, _ in itertools.pairwise($l + [3]):
for $v in itertools.tee(Counted(3))[1]:
for $v in itertools.compress($l, itertools.cycle([1, 0])):
for $v in itertools.dropwhile($f, $l):
for $v in itertools.filterfalse($f, $l):
for $v in itertools.starmap(lambda p, q: tick(p + q), zip($l, $l)):
for $v, _ in itertools.permutations($l[:3], 2):
for $v, _ in itertools.groupby($l, key=$f):
for $v in collections.ChainMap({1: $i}, {2: 3}).values():
for $v in types.MappingProxyType({1: $i}).values():
for $v in (colour.value for colour in Colour):
for $v in itertools.repeat($i, 3):
while num($i) % 7:
""".strip().splitlines()

CONTEXTS = r"""
managed($i)
Thing($i)
contextlib.suppress(Trouble)
contextlib.closing(io.StringIO())
contextlib.nullcontext(3)
managed($i), Thing($i)
threading.Lock()
threading.RLock()
contextlib.redirect_stderr(io.StringIO())
decimal.localcontext(decimal.Context(prec=5))
contextlib.ExitStack()
""".strip().splitlines()

KEPT = r"""
counted(6)
delegated(3)
map($f, $l)
(tick(q) for q in $l)
iter(Counted(5))
itertools.accumulate($l)
filter($f, $l)
iter($l)
zip($l, Counted(3))
enumerate($l)
reversed($l)
itertools.chain($l, Counted(3))
itertools.tee(Counted(4))[0]
(len(list(group)) for _, group in itertools.groupby($l))
""".strip().splitlines()

SIMPLE = (
    "$v = num($i)",
    "$v = num($i)",
    "$v += $i; $v = num($v)",
    "note('$v', $i, $i)",
    "note('$v', $i)",
    "$v, *_ = $l + [1]",
    "$v = num($f(*($l + [2])[:1]))",
    "kept().append($k)",
    "note(further($i))",
    "if ($v := num($i)) % 2: note($v)",
    "$w = Thing($i); $w.value = num($i); $w.extra = $l; $v = num($w.value + $w.extra.count(1))",
    "$w = VAR.set(num($i)); $v = num($f(VAR.get())); VAR.reset($w)",
    "if num($i) % 3 == 0: raise $e($i, 'x')",
    "for _ in itertools.islice(iter(lambda: num($f($i)) % 4, 0), 3): note(_)",
)
IN_LOOPS = ("if num($i) % 5 == 0: break", "if num($i) % 5 == 0: continue")
IN_GENERATORS = ("$v = num((yield num($i)) or 0)", "yield from ($f(q) for q in $l)")
IN_COROUTINES = (
    "$v = await asyncio.sleep(0, 4)",
    "$v = num(await asyncio.wait_for(asyncio.sleep(0, $i), 60))",
    "note(await asyncio.gather(asyncio.sleep(0, 1), gathered($i), gathered(2), return_exceptions=True))",
    "async for $v in counted_later($i):\n    $o",
    "async for $v in Handled(3):\n    $o",
    "async with Handled(1) as $v:\n    $b",
    "async with asyncio.timeout(600):\n    $b",
)

COMPOUND = (
    "if $i % 2:\n    $b\nelif $i % 3:\n    $b\nelse:\n    $b",
    "try:\n    $b\n    if $i % 2: raise $e($i)\nexcept Worse as $w:\n    note(type($w.__context__), $w.args)\n    $b",
    "try:\n    $b\nexcept Trouble as $w:\n    $b\n    raise $e($i) from $w\nelse:\n    $b\nfinally:\n    note($i)\n    $p",
    "try:\n    $b\n    raise $e($i)\nexcept (Trouble, KeyError) as $w:\n    note($w.code)\n    $b\nfinally:\n    $p",
    "try:\n    $p\n    raise ExceptionGroup('g', [Trouble($i), Worse(1), KeyError(2)])\nexcept* Worse as $w:\n"
    "    note(len($w.exceptions))\n    $p\nexcept* Exception as $w:\n    note(len($w.exceptions), tick(1))",
    "with $c:\n    $b",
    "with $c:\n    $b",
    "with contextlib.ExitStack() as $w:\n    $w.callback(note, 'exit', $i)\n    $w.enter_context(managed($i))\n    $b",
    "match ($i, $l, Point($i, $i)):\n    case (0 | 1, [], _):\n        $b\n"
    "    case ($v, [_, *_], Point(x=5)) if tick($v) % 2:\n        $b\n    case [int($v), *_]:\n        $b",
    "$w = counted(4)\nnote(next($w), $w.send($i), $w.send(None))\ntry: $w.throw($e($i))\n"
    "except Trouble as error: note(error.code)\n$w.close()",
    "with open('file-$w', 'w+') as $w:\n    for _ in $l: print(num(_), file=$w)\n    $w.seek(0)\n"
    "    for line in $w: note(line, num($f(int(line))))",
    "$v = num($i)\nclass $w(Thing):\n    field = $v\n    def __init__(self, value, *, more=1):\n"
    "        super().__init__(value)\n        self.more = more\n    @property\n"
    "    def both(self): return tick(self.more + self.field) + super().half\n"
    "note($w($i, more=$i).both, $w(3) + 4)",
)
WITH_FUNCTIONS = (
    "def $w(p=1, *q, k=2):\n    nonlocal $v\n    $v = num($v + p)\n    $F\n    return num($v + k)\n"
    "note($w($i), list(map($w, $l)), $v)",
    "@decorated\ndef $w(p=1, *q, k=2):\n    $F\n    return num(p + k)\nnote($w($i), sorted($l, key=$w))",
    "def $w(p=1):\n    $H\n    yield num(p)\ntry: note(list($w($i))[:4])\nexcept Trouble as error: note(error.code)",
    "def $w(p=1):\n    try:\n        $H\n        yield num(p)\n    except Trouble as error: note(error.code)\n"
    "kept().append($w($i))\nnote(further(-1))",
)
AT_THE_OUTSIDE = (
    "$w = [threaded($f, $i) for _ in range(2)]\n$b\nfor thread, lines in $w:\n    thread.join()\n    note(lines)",
    "with concurrent.futures.ThreadPoolExecutor(2) as $w:\n"
    "    note(list($w.map(quiet($f), $l)), $w.submit(quiet($f), $i).result())",
    "$w = queue.Queue(maxsize=1)\nthread = threading.Thread(target=lambda: [$w.put(tick(i)) for i in range(4)])\n"
    "thread.start()\nnote([$w.get() for _ in range(4)])\nthread.join()",
)
"""Statements that start threads."""

FUNCTIONS = {
    "function": """
def $w_(a=1, *rest, key=3):
    if burn(): return num(a)
    $B
    return num(a + key)
def $w(a=1, *rest, key=3):
    try: return $w_(a, *rest, key=key)
    except Trouble as error: return num(error.code)
""",
    "generator": """
def $w_(a=1, *rest, key=3):
    if burn(): return
    $G
    yield num(a)
def $w(a=1, *rest, key=3):
    total = 0
    try:
        for x in $w_(a, *rest, key=key):
            total = num(total + num(x))
            if burn(): break
    except Trouble as error: total += error.code
    return num(total)
""",
    "coroutine": """
async def $w_(a=1, *rest, key=3):
    if burn(): return 1
    $A
    return num(a + key)
def $w(a=1, *rest, key=3):
    if running(): return num(a)
    try: return num(asyncio.run($w_(a, *rest, key=key)))
    except Trouble as error: return num(error.code)
""",
}
"""$B, $G, $A: the body of a function, generator, coroutine; $F, $H: of a small function
or generator."""

MAIN = """
def main():
    note("begun")
    $B
    $B
try: main()
except Trouble as error: note(error.code)
for each in kept():
    try: note(list(itertools.islice(each, 5)))
    except (Trouble, ValueError) as error: note(error.args)
"""

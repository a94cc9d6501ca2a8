"""State outside of variables: random numbers, files, environment, contexts, locks, standard streams."""

import contextvars
import decimal
import functools
import io
import os
import random
import re
import sys
import tempfile
import threading
import csv

driver_start()
directory = sys.argv[1]
path = os.path.join(directory, "written.txt")
lines = os.path.join(directory, "lines.txt")
with open(lines, "w") as out:
    for i in range(400):
        out.write(f"line {i} {'é' * (i % 5)}\n")
os.environ["STATE_TEST"] = "set"
os.chdir(directory)
var = contextvars.ContextVar("var", default=1)
var.set(5)
decimal.getcontext().prec = 11
lock, rlock = threading.Lock(), threading.RLock()
rlock.acquire()
rlock.acquire()
lock.acquire()
local = threading.local()
local.x = 3
log = open(path, "w")
appended = open("appended.txt", "a")
temp = tempfile.TemporaryFile("w+")
named = tempfile.NamedTemporaryFile("w+b", dir=directory)
writer = csv.writer(log)
raw = open(lines, "rb")
random.seed(3)
own = random.Random(4)
old = sys.stdout
captured = io.StringIO()


@functools.lru_cache(maxsize=4)
def cached(a, *, b=2):
    print("computed", a, b)
    return a * b


total = 0
words = re.compile(r"\w+")
with open(lines) as source:
    for number, line in enumerate(source):
        writer.writerow([number, line.strip(), random.random()])
        temp.write(f"{number};")
        named.write(b"%d," % number)
        if number % 7 == 0:
            appended.write(line)
        for match in re.finditer(r"\d+|é", line):
            total += len(match.group()) + match.start()
        total += int(own.random() * 100) + cached(number % 5, b=1) + cached(number % 3)
        total += len(raw.read(3)) + len(words.findall(line))
        if number % 50 == 0:
            sys.stdout = captured
            print("captured", number)
            sys.stdout = old
            print(
                number,
                total,
                raw.tell(),
                log.closed,
                var.get(),
                decimal.Decimal(1) / 3,
                os.environ["STATE_TEST"],
            )
            print(lock.locked(), local.x)
for row in csv.reader(open(lines), delimiter=" "):
    total += len(row[1])
rlock.release()
rlock.release()
temp.seek(0)
named.seek(0)
for f in (log, appended):
    f.close()
print(
    total,
    len(temp.read()),
    named.read()[-20:],
    os.getcwd() == os.path.realpath(directory),
    cached.cache_info().currsize,
)
print(open(path).read()[-300:], open("appended.txt").read()[-50:], repr(captured.getvalue()[-30:]))

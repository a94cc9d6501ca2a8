"""Threads with connections of their own to one database, and one connection that all of them use."""

import os
import sqlite3
import sys
import tempfile
import threading

ROUNDS = 40 * int(sys.argv[1])
PATH = os.path.join(tempfile.mkdtemp(), "shared.db")
local = threading.local()
lock = threading.Lock()
counts: dict[int, int] = {}


def own() -> sqlite3.Connection:
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(PATH, timeout=60)
        local.connection.execute("PRAGMA synchronous = OFF")
    return local.connection


def work(name: int) -> None:
    cursor = own().cursor()
    for number in range(ROUNDS):
        with own():
            cursor.execute("INSERT INTO own VALUES (?, ?)", (name, number))
        with lock, shared:
            shared.execute("INSERT INTO shared VALUES (?, ?)", (name, sum(i * i for i in range(2_000))))
        counts[name] = cursor.execute("SELECT count(*) FROM own WHERE name = ?", (name,)).fetchone()[0]
        assert counts[name] == number + 1
    own().close()


own().execute("CREATE TABLE own (name, number)")
shared = sqlite3.connect(":memory:", check_same_thread=False)
shared.execute("CREATE TABLE shared (name, number)")
threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
for thread in threads:
    thread.start()
for number in range(ROUNDS):
    with lock, shared:
        shared.execute("INSERT INTO shared VALUES (-1, ?)", (number,))
    sum(i * i for i in range(4_000))
    if number % 20 == 0:
        print(number, flush=True)
for thread in threads:
    thread.join()
print(sorted(counts.items()), own().execute("SELECT count(*), sum(number) FROM own").fetchone())
print(shared.execute("SELECT count(*), sum(number) FROM shared").fetchone())


def use() -> None:
    try:
        main.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        print("refused")


main = own()
refused = threading.Thread(target=use)
refused.start()
refused.join()
main.close()
os.unlink(PATH)
os.rmdir(os.path.dirname(PATH))

"""threading.local, plain and with __init__, context variables, names and identifiers of threads."""

import contextvars
import sys
import threading


class Account(threading.local):
    def __init__(self, start):
        self.start = start
        self.entries = []


plain, account = threading.local(), Account(100)
depth = contextvars.ContextVar("depth", default=-1)
answers, lock = {}, threading.Lock()


def run(n):
    plain.total = n
    depth.set(n * 10)
    for step in range(500 * int(sys.argv[1])):
        value = 0
        for i in range(1000):
            value = (value + i * step) % 911
        plain.total += value
        account.entries.append(value)
        assert depth.get() == n * 10 and threading.current_thread().name == f"own {n}"
        assert threading.get_ident() == threading.current_thread().ident
        assert threading.current_thread() in threading.enumerate()
    with lock:
        answers[n] = plain.total, account.start, sum(account.entries), len(account.entries), depth.get()


def run_within(n, expected):
    assert depth.get() == expected
    run(n)


threads = [threading.Thread(target=run, args=(n,), name=f"own {n}", daemon=n == 2) for n in range(4)]
plain.total = account.more = "main"
depth.set(7)
within = contextvars.copy_context()
threads.append(threading.Thread(target=within.run, args=(run_within, 4, 7), name="own 4"))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(answers.items()))
print(
    plain.total,
    account.more,
    account.start,
    account.entries,
    depth.get(),
    within[depth],
    [t.daemon for t in threads],
)

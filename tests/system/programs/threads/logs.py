"""A logging queue with its listener; threads log exceptions that they handle; generators run in threads."""

import io
import logging
import logging.handlers
import queue
import sys
import threading

text = io.StringIO()
records: "queue.SimpleQueue[logging.LogRecord]" = queue.SimpleQueue()
handler = logging.StreamHandler(text)
handler.setFormatter(logging.Formatter("%(threadName)s %(message)s"))
listener = logging.handlers.QueueListener(records, handler)
log = logging.getLogger("work")
log.setLevel(logging.INFO)
log.addHandler(logging.handlers.QueueHandler(records))
log.propagate = False


def numbers(n):
    try:
        for i in range(300 * int(sys.argv[1])):
            value = 0
            for j in range(2000):
                value = (value + i * j) % 101
            yield value + n
    finally:
        log.info("closed %d", n)


def run(n):
    for value in numbers(n):
        try:
            if value % 10 == 0:
                raise KeyError(value)
            log.info("value %d", value)
        except KeyError as error:
            sum(range(3000))
            log.info("key %s", error)


listener.start()
threads = [threading.Thread(target=run, args=(n,), name=f"log {n}") for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
listener.stop()
lines = text.getvalue().splitlines()
for n in range(3):
    own = [line for line in lines if line.startswith(f"log {n} ")]
    print(len(own), own[:3], own[-1])
print(len(lines))

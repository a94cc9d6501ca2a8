"""Two threads that take turns by a condition, a third one by events; the main thread only waits for their ends."""

import sys
import threading

ROUNDS = 3000 * int(sys.argv[1])
condition, turn, log = threading.Condition(), 0, []


def player(number):
    global turn
    for n in range(ROUNDS):
        with condition:
            while turn != number:
                condition.wait()
            log.append((number, n, sum(i * n for i in range(200))))
            turn = 1 - number
            condition.notify_all()


ping, pong = threading.Event(), threading.Event()


def echo():
    for n in range(ROUNDS):
        ping.wait()
        ping.clear()
        log_of_echo.append(sum(range(n % 100)))
        pong.set()


log_of_echo = []


def caller():
    for _ in range(ROUNDS):
        ping.set()
        pong.wait()
        pong.clear()


threads = [threading.Thread(target=player, args=(n,), name=f"player {n}") for n in (0, 1)]
threads += [threading.Thread(target=echo), threading.Thread(target=caller)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(log), log == sorted(log, key=lambda row: (row[1], row[0])), sum(row[2] for row in log))
print(len(log_of_echo), sum(log_of_echo), [thread.is_alive() for thread in threads])

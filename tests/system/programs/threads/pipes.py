"""Six threads in a ring hand a number on, through pipes and pairs of sockets; each waits in its read most of the time."""

import hashlib
import os
import socket
import sys
import threading

SIZE, LAST, END = 6, 3000 * int(sys.argv[1]), 2**32 - 1
ends = []
for _ in range(SIZE - 2):
    reading, writing = os.pipe()
    ends.append((lambda n, fd=reading: os.read(fd, n), lambda data, fd=writing: os.write(fd, data)))
for _ in range(2):
    left, right = socket.socketpair()
    ends.append((left.recv, right.send))
seen, counts, over = [hashlib.sha1() for _ in range(SIZE)], [0] * SIZE, threading.Event()


def hand_on(place):
    get, put, rest = ends[place][0], ends[(place + 1) % SIZE][1], b""
    while True:
        rest += get(4)
        while len(rest) >= 4:
            number, rest = int.from_bytes(rest[:4], "big"), rest[4:]
            if number == END:
                return
            seen[place].update(b"%d," % number)
            counts[place] += 1
            if number == LAST:
                over.set()
            else:
                put((number + 1).to_bytes(4, "big"))


threads = [threading.Thread(target=hand_on, args=(place,)) for place in range(SIZE)]
for thread in threads:
    thread.start()
ends[0][1]((0).to_bytes(4, "big"))
over.wait()
for _, put in ends:
    put(END.to_bytes(4, "big"))
for thread in threads:
    thread.join()
print([each.hexdigest() for each in seen], counts)

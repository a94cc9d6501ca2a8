"""Threads that mostly read and write files, so that they are inside of C code whenever another thread has the interpreter."""

import hashlib
import os
import sys
import tempfile
import threading

directory = tempfile.mkdtemp()
answers, lock = {}, threading.Lock()


def run(n):
    path, digest = os.path.join(directory, f"{n}"), hashlib.sha256()
    for step in range(400 * int(sys.argv[1])):
        with open(path, "w") as file:
            file.write(f"{n} {step}\n" * 20)
        with open(path) as file:
            digest.update(file.read().encode())
    with lock:
        answers[n] = digest.hexdigest()


threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(answers.items()))
for n in answers:
    os.remove(os.path.join(directory, f"{n}"))
os.rmdir(directory)

"""Writes files: python files.py WHAT COUNT OUT. Prints into OUT when it began, the ns that it took, and those of a core."""

import contextlib
import os
import shutil
import sys
import tempfile
import time


def create(count: int) -> None:
    """Small files, a thousand in a directory."""
    for number in range(count):
        directory = f"{number // 1000}"
        if number % 1000 == 0:
            os.mkdir(directory)
        with open(f"{directory}/{number}", "w") as file:
            file.write("small")


def create_there(count: int) -> None:
    """Small files, a thousand in a directory that is there when the job starts."""
    for number in range(count):
        with open(f"../there/{number // 1000}/{number}", "w") as file:
            file.write("small")


def remove(count: int) -> None:
    """Such files are made, and removed with their directories."""
    create(count)
    for directory in os.listdir():
        shutil.rmtree(directory)


def append(count: int) -> None:
    """Lines to ten logs that stay open; each line is written at once."""
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(open(f"log-{number}", "a", buffering=1)) for number in range(10)]
        for number in range(count):
            logs[number % 10].write("a line\n")


def append_anew(count: int) -> None:
    """Lines to ten logs; the log is opened for each line."""
    for number in range(count):
        with open(f"log-{number % 10}", "a") as file:
            file.write("a line\n")


def replace(count: int) -> None:
    """One file, written under another name and renamed."""
    for number in range(count):
        with open("state.tmp", "w") as file:
            file.write(str(number))
        os.replace("state.tmp", "state")


if __name__ == "__main__":
    what, count, out = sys.argv[1], int(sys.argv[2]), os.path.abspath(sys.argv[3])
    with tempfile.TemporaryDirectory(dir=os.path.dirname(out)) as directory:
        os.chdir(directory)
        began_ns, used_ns = time.monotonic_ns(), time.process_time_ns()
        globals()[what](count)
        took_ns, used_ns = time.monotonic_ns() - began_ns, time.process_time_ns() - used_ns
        os.chdir("/")
    with open(out, "w") as file:
        file.write(f"{began_ns} {took_ns} {used_ns}")

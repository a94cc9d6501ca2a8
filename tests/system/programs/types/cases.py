"""What the programs beside this one have in common: cases, each a generator that is stopped and resumed again and again.

A case makes objects, then yields again and again what they do; every round is printed. Between the rounds the program calls
``driver_tick()``, where an image may be taken. ``python program.py DIR [CASE…]``: only those cases; without: all.
"""

import sys

ROUNDS = 4
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def main():
    chosen = sys.argv[2:] or list(CASES)
    driver_start()
    running = {name: CASES[name]() for name in chosen}
    for number in range(ROUNDS):
        for name in chosen:
            print(number, name, next(running[name]), flush=True)
        driver_tick()
    for name in chosen:
        running[name].close()
    print("end")

"""Backtracking with generators, coroutines by hand, deep recursion, exceptions: puzzles in plain Python."""

import sys


def queens(n, row=0, placed=()):
    if row == n:
        yield placed
        return
    for column in range(n):
        if all(column != c and abs(column - c) != row - r for r, c in enumerate(placed)):
            yield from queens(n, row + 1, (*placed, column))


def averager():
    total = count = 0
    average = None
    while True:
        try:
            value = yield average
        except ZeroDivisionError:
            total = count = 0
            continue
        total, count = total + value, count + 1
        average = total / count


def knapsack(items, room):
    best = {0: (0, ())}
    for name, size, value in items:
        for used, (worth, names) in sorted(best.items(), reverse=True):
            if used + size <= room and best.get(used + size, (-1,))[0] < worth + value:
                best[used + size] = (worth + value, (*names, name))
    return max(best.values())


def ackermann(m, n):
    return n + 1 if m == 0 else ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def collatz(n):
    while n != 1:
        yield n
        n = n // 2 if n % 2 == 0 else 3 * n + 1


def parse(tokens):
    def expression(limit):
        left = -expression(9) if tokens[0] == "-" and tokens.pop(0) else int(tokens.pop(0))
        while tokens and (strength := "+-*/".find(tokens[0]) // 2) >= limit:
            operator = tokens.pop(0)
            right = expression(strength + 1)
            left = {"+": left + right, "-": left - right, "*": left * right}[operator]
        return left

    return expression(0)


sys.setrecursionlimit(5000)
for number, solution in enumerate(queens(7)):
    if number % 8 == 0:
        print(number, solution)
coroutine = averager()
next(coroutine)
for i in range(2000):
    if i % 300 == 299:
        coroutine.throw(ZeroDivisionError)
    else:
        coroutine.send(i)
print(coroutine.send(5))
coroutine.close()
print(knapsack([(f"i{i}", 3 + i * 7 % 13, 5 + i * 11 % 17) for i in range(22)], 60))
print(ackermann(2, 60), max((sum(1 for _ in collatz(n)), n) for n in range(1, 400)))
print(sum(parse(f"{i} + 3 * - {i} - 2 * 4 * {i}".split()) for i in range(500)))
failures = []
for i in range(300):
    try:
        try:
            [1, 2][i % 5]
        except IndexError as error:
            raise ValueError(i) from error
        else:
            1 // (i % 2)
        finally:
            i += 1
    except* ValueError as group:
        failures.extend(e.args[0] for e in group.exceptions)
    except* ZeroDivisionError as group:
        failures.append(len(group.exceptions))
print(len(failures), sum(failures))

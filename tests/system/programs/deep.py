"""Deep recursion, deep data, and shared state between them."""

import sys

sys.setrecursionlimit(30000)
driver_start()


class Node:
    def __init__(self, next_node):
        self.next = next_node


def down(n, trail):
    trail.append(n)
    total = n if n == 0 else 1 + down(n - 1, trail)
    return total + (trail.pop() >= 0)


chain = None
for _ in range(30000):
    chain = Node(chain)
nested = []
for _ in range(5000):
    nested = [nested]
for depth in (10, 900, 8000):
    print(depth, down(depth, []))
length, node = 0, chain
while node is not None:
    length, node = length + 1, node.next
print(length)
while chain is not None:
    chain = chain.next

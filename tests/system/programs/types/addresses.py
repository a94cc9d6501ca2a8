"""Tables by ``id()``, and numbers that only look like addresses."""

import copy
import weakref

from cases import case, main


class Node:
    def __init__(self, name):
        self.name = name
        self.parts = []


def tree():
    leaf = Node("leaf")
    top = Node("top")
    for name in "abc":
        part = Node(name)
        part.parts = [leaf, Node(name * 2)]
        top.parts.append(part)
    return top


def everything(node):
    yield node
    for part in node.parts:
        yield from everything(part)


@case
def results_by_node():
    top = tree()
    results, n = {id(node): (node, node.name) for node in everything(top)}, 0
    while True:
        n += 1
        more = Node(f"more{n}")
        top.parts.append(more)
        results[id(more)] = more, more.name
        yield len(results), [results[id(node)][1] for node in everything(top)]


@case
def the_memo_of_deepcopy():
    top, memo = tree(), {}
    copied = copy.deepcopy(top, memo)
    while True:
        yield [copy.deepcopy(node, memo) is other for node, other in zip(everything(top), everything(copied))]


@case
def objects_by_address():
    top = tree()
    table, weak = {id(node): node for node in everything(top)}, weakref.WeakValueDictionary()
    weak.update(table)
    while True:
        parts = list(everything(top))
        yield [table[id(node)] is weak[id(node)] is node for node in parts], len(weak)


@case
def a_registry_of_weak_references():
    alive, n = [Node(name) for name in "abcd"], 0
    registry = {id(node): weakref.ref(node) for node in alive}
    while True:
        n += 1
        if n == 3:
            gone = id(alive.pop())
            assert registry.pop(gone)() is None
        yield [registry[id(node)]().name for node in alive], len(registry)


@case
def containers_functions_and_classes():
    things = [[1], {2: 3}, {4}, bytearray(b"5"), Node, tree, Node("n"), None, len, (6, [7])]
    table, n = {id(thing): [thing, number] for number, thing in enumerate(things)}, 0
    while True:
        n += 1
        yield [table[id(thing)][1] for thing in things]


@case
def numbers_that_are_none():
    numbers = [2**46, 2**40 + 8, 0x7FFF00001230, *(n * 7919 * 2**33 for n in range(1, 9))]
    while True:
        yield numbers


if __name__ == "__main__":
    main()

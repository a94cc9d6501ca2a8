"""Persistent vectors, maps and records; attrs classes."""

import attr
from pyrsistent import PClass, field, freeze, m, pmap, pset, pvector, thaw, v


class Point(PClass):
    x = field(type=int)
    y = field(type=int, initial=0)


@attr.s(auto_attribs=True, frozen=True, slots=True, order=True)
class Item:
    name: str
    weight: int = attr.ib(default=1, validator=attr.validators.instance_of(int))
    tags: tuple = attr.ib(factory=tuple, converter=tuple)


vector, table = v(), m()
versions = []
for i in range(900):
    vector = vector.append(i * i)
    table = table.set(i % 50, vector)
    if i % 150 == 0:
        versions.append((vector, table))
print(len(vector), vector[700], [len(old) for old, _ in versions], sum(len(x) for x in table.values()))
evolver = vector.evolver()
for i in range(0, 900, 3):
    evolver[i] = -i
print(sum(evolver.persistent()), sum(vector))
nested = freeze({"a": [1, {"b": 2}], "c": {3, 4}})
print(
    thaw(nested.transform(["a", 1, "b"], lambda x: x + 40))["a"], nested["a"][1]["b"], sorted(pset("hello"))
)
print(Point(x=1).set(y=5).x, pvector([1, 2]) < pvector([1, 3]), pmap({"k": 1}).update({"k": 2}))
items = [Item(f"n{i % 7}", i % 5, [i, i + 1]) for i in range(300)]
print(sorted(items)[0], max(items), len(set(items)), attr.evolve(items[0], weight=9))

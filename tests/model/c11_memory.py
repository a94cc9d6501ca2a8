"""The memory model of C11, as a machine of which every step can be taken in every order.

That of Kang et al., A Promising Semantics for Relaxed-Memory Concurrency (POPL 2017), without promises. Each place
keeps all that was ever stored there; each thread has a view, the oldest store of every place that it may still read.
A load may return any store from there on: so stores arrive late and in another order than they were made, as on ARM.
A release store takes its thread's view along, an acquire load takes that over; a fence that is sequentially
consistent joins the thread's view with that of all such fences. An exchange reads the last store, and carries on what
that one took along. What the machine lacks is a load that takes place after a later store of its thread.

A thread is a frozen object with the attributes `view`, `acquirable` and `released`; a state has `stores`, and
`fences` if there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

View = tuple[int, ...]
"""For each place the number of its oldest store that may still be read."""
Stores = tuple[tuple[tuple[Any, View], ...], ...]
"""For each place what was stored, in order, with the view that each store takes along."""


def changed(value: Any, **changes: object) -> Any:
    """A copy of a frozen object with other attributes."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    made.__dict__.update(changes)
    return made


def _joined(one: View, other: View) -> View:
    return tuple(map(max, one, other))


class Memory:
    """`places`: names, each with its first value (0 where there is none)."""

    def __init__(self, places: tuple[str, ...], first: dict[str, Any] | None = None) -> None:
        self._numbers = {place: number for number, place in enumerate(places)}
        self.start: View = (0,) * len(places)
        self.stores: Stores = tuple((((first or {}).get(place, 0), self.start),) for place in places)

    def last(self, state: Any, place: str) -> Any:
        """What was stored last."""
        return state.stores[self._numbers[place]][-1][0]

    def count(self, state: Any, place: str) -> int:
        """So many stores there were."""
        return len(state.stores[self._numbers[place]]) - 1

    def loads(self, state: Any, thread: Any, place: str, *, acquire: bool) -> Iterator[tuple[Any, Any]]:
        """Every value that this load may return, with the thread after it."""
        number = self._numbers[place]
        stores = state.stores[number]
        for at in range(thread.view[number], len(stores)):
            value, carried = stores[at]
            yield value, self._after_load(thread, number, at, carried, acquire)

    def _after_load(self, thread: Any, number: int, at: int, carried: View, acquire: bool) -> Any:
        view = self._moved(thread.view, number, at)
        acquirable = _joined(thread.acquirable, carried)
        if acquire:
            view = _joined(view, carried)
        return changed(thread, view=view, acquirable=_joined(acquirable, view))

    def store(self, state: Any, thread: Any, place: str, value: Any, *, release: bool) -> tuple[Any, Any]:
        return self._stored(state, thread, place, value, release, self.start)

    def exchange(
        self, state: Any, thread: Any, place: str, value: Any, *, acquire: bool, release: bool
    ) -> tuple[Any, Any]:
        """Put a value in the place of the last one (`last`)."""
        number = self._numbers[place]
        stores = state.stores[number]
        carried = stores[-1][1]
        thread = self._after_load(thread, number, len(stores) - 1, carried, acquire)
        return self._stored(state, thread, place, value, release, carried)

    def _stored(
        self, state: Any, thread: Any, place: str, value: Any, release: bool, continued: View
    ) -> tuple[Any, Any]:
        number = self._numbers[place]
        at = len(state.stores[number])
        view = self._moved(thread.view, number, at)
        carried = _joined(continued, view if release else self._moved(thread.released, number, at))
        stores = list(state.stores)
        stores[number] = (*stores[number], (value, carried))
        return changed(state, stores=tuple(stores)), changed(thread, view=view)

    def fence(self, state: Any, thread: Any) -> tuple[Any, Any]:
        """One that is sequentially consistent."""
        view = _joined(_joined(thread.view, thread.acquirable), state.fences)
        after = changed(state, fences=view)
        return after, changed(thread, view=view, released=view, acquirable=view)

    @staticmethod
    def _moved(view: View, number: int, at: int) -> View:
        return (*view[:number], at, *view[number + 1 :])

"""Graphs of gradients of torch: tells whether a graph can still be used.

The nodes of a graph are objects of C++ that no image can hold. ``backward()`` frees what the nodes have saved, and nobody
can use the graph again: from then on its results are mere values.

Nothing here imports torch or calls code of the program.
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_used_up", "seems_alive"]

_MOST_NODES = 1000
"""After so many nodes that have saved nothing, a graph counts as alive."""
_saving: dict[type, tuple[str, ...]] = {}  # class of nodes → names of what they may have saved


def is_used_up(node: Any) -> bool:
    """Has ``backward()`` freed what a node of this graph has saved? Then a second one would fail."""
    return any(_saved_by(each) is False for each in _nodes(node))


def seems_alive(node: Any) -> bool:
    """Quick: the first node that has saved a tensor decides. A graph of which ``backward()`` has freed a part only may count
    as alive."""
    for count, each in enumerate(_nodes(node)):
        state = _saved_by(each)
        if state is not None or count > _MOST_NODES:
            return state is not False
    return True


def _saved_by(node: Any) -> bool | None:
    """True: the node has saved a tensor; False: it has been freed; None: it never saved one."""
    names = _saving.get(type(node))
    if names is None:
        # What a node has saved and may free: it has a raw form. Others (sizes, a tensor of lengths) stay.
        names = _saving[type(node)] = tuple(name[4:] for name in dir(node) if name.startswith("_raw_saved_"))
    saved = None
    for name in names:
        try:
            if getattr(node, name, None) is not None:
                saved = True
        except RuntimeError:  # "… after they have already been freed"
            return False
    if hasattr(type(node), "saved_tensors"):  # of a torch.autograd.Function of the program
        try:
            saved = bool(node.saved_tensors) or None
        except RuntimeError:
            return False
    return saved


def _nodes(node: Any) -> Any:
    """All nodes of the graph, the given one first."""
    waiting, seen = [node], {id(node)}
    kept_alive = [node]  # so that no id is used twice
    while waiting:
        current = waiting.pop()
        yield current
        for previous, _ in current.next_functions:
            if previous is not None and id(previous) not in seen:
                seen.add(id(previous))
                kept_alive.append(previous)
                waiting.append(previous)

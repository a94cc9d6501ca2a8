"""igraph: vertices and edges of graphs, and sequences of them.

They are small objects in C, made anew for each access, that refer to the graph: a loop ``for v in graph.vs`` holds one. A
restart asks the graph for the same number again. A sequence of all vertices or edges grows with the graph, as before.
"""

from __future__ import annotations

from typing import Any

from ckpt.image.interface.library import Library, Reducer, by_name

__all__ = ["Igraph", "find_part", "find_parts"]


class Igraph(Library):
    def reducers(self) -> dict[type, Reducer]:
        sequences = {"VertexSeq": reduce_vertices, "EdgeSeq": reduce_edges}
        return {
            **by_name("igraph", {"Vertex": reduce_vertex, "Edge": reduce_edge}),
            **by_name("igraph.seq", sequences),
        }


def reduce_vertex(saver: Any, vertex: Any) -> Any:
    return find_part, (vertex.graph, "vs", vertex.index)


def reduce_edge(saver: Any, edge: Any) -> Any:
    return find_part, (edge.graph, "es", edge.index)


def reduce_vertices(saver: Any, vertices: Any) -> Any:
    return _reduce_sequence(vertices, "vs")


def reduce_edges(saver: Any, edges: Any) -> Any:
    return _reduce_sequence(edges, "es")


def _reduce_sequence(sequence: Any, name: str) -> Any:
    graph, indices = sequence.graph, sequence.indices
    return find_parts, (graph, name, None if indices == getattr(graph, name).indices else indices)


# ---------------------------------------------------------------------- called while loading


def find_part(graph: Any, name: str, index: int) -> Any:
    return getattr(graph, name)[index]


def find_parts(graph: Any, name: str, indices: list[int] | None) -> Any:
    every = getattr(graph, name)
    return every if indices is None else every.select(indices)

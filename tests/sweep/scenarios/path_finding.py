"""Searches on grids and graphs: pathfinding, simpleai, networkx."""

import random

import networkx
from pathfinding.core.grid import Grid
from pathfinding.finder.a_star import AStarFinder
from pathfinding.finder.dijkstra import DijkstraFinder
from simpleai.search import SearchProblem, astar, hill_climbing_random_restarts

random.seed(8)
cells = [[0 if random.random() < 0.25 else random.randrange(1, 5) for _ in range(25)] for _ in range(25)]
cells[0][0] = cells[24][24] = 1
for finder in (AStarFinder(), DijkstraFinder()):
    grid = Grid(matrix=cells)
    path, runs = finder.find_path(grid.node(0, 0), grid.node(24, 24), grid)
    print(type(finder).__name__, len(path), runs, [(n.x, n.y) for n in path][-3:])


class Eight(SearchProblem):
    goal = "12345678."

    def actions(self, state):
        at = state.index(".")
        return [
            at + d for d in (-3, -1, 1, 3) if 0 <= at + d < 9 and (d in (-3, 3) or at // 3 == (at + d) // 3)
        ]

    def result(self, state, action):
        cells, at = list(state), state.index(".")
        cells[at], cells[action] = cells[action], cells[at]
        return "".join(cells)

    def is_goal(self, state):
        return state == self.goal

    def heuristic(self, state):
        return sum(
            abs(i // 3 - int(c) // 3) + abs(i % 3 - int(c) % 3)
            for i, c in enumerate(state)
            if c != "."
            for c in [str(int(c) - 1)]
        )


print(len(astar(Eight("123.46758"), graph_search=True).path()))
graph = networkx.gnm_random_graph(40, 90, seed=3)
print(
    networkx.average_clustering(graph),
    sorted(networkx.betweenness_centrality(graph).items(), key=lambda p: -p[1])[0],
)
print(
    [sorted(c) for c in networkx.community.greedy_modularity_communities(graph)][0][:6],
    networkx.diameter(networkx.path_graph(9)),
)

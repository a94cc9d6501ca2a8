"""State machines, automata and trees: transitions, automata-lib, treelib."""

import logging
import random

from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from transitions import Machine
from treelib import Tree

logging.getLogger("transitions").setLevel(logging.ERROR)


class Matter:
    def __init__(self):
        self.path = []

    def note(self, event):
        self.path.append(event.transition.source[0] + event.transition.dest[0])


matter, rng = Matter(), random.Random(2)
Machine(
    matter,
    states=["solid", "liquid", "gas", "plasma"],
    transitions=[
        {"trigger": "melt", "source": "solid", "dest": "liquid"},
        {"trigger": "boil", "source": "liquid", "dest": "gas"},
        {"trigger": "cool", "source": ["gas", "plasma", "liquid"], "dest": "solid"},
        {"trigger": "ionize", "source": "gas", "dest": "plasma"},
    ],
    initial="solid",
    send_event=True,
    after_state_change="note",
    ignore_invalid_triggers=True,
)
for _ in range(1500):
    getattr(matter, rng.choice(["melt", "boil", "cool", "ionize"]))()
print(matter.state, len(matter.path), "".join(matter.path)[-40:])
dfa = DFA.from_nfa(NFA.from_regex("(a|b)*abb(a?b)*"), minify=True)
print(
    len(dfa.states), sum(dfa.accepts_input("".join(rng.choice("ab") for _ in range(12))) for _ in range(200))
)
tree = Tree()
tree.create_node("root", 0)
for i in range(1, 60):
    tree.create_node(f"n{i}", i, parent=(i - 1) // 3)
print(
    tree.depth(),
    [node.tag for node in tree.leaves()][:5],
    [tree[n].tag for n in tree.expand_tree(mode=Tree.WIDTH)][-4:],
)

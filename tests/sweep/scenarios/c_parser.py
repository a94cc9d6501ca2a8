"""C source parsed to a tree and written again, with pycparser (and PLY below it)."""

from pycparser import c_ast, c_generator, c_parser

SOURCE = """
typedef unsigned int word;
struct node { struct node *next; word values[8]; int (*visit)(struct node *, void *); };
static word hash(const char *text, word seed) {
    word h = seed; int i;
    for (i = 0; text[i]; i++) { h ^= (word)text[i]; h *= 16777619u; if (h & 1) continue; else h += i << 2; }
    switch (h % 3) { case 0: return h; case 1: h--; break; default: do { h++; } while (h < 5); }
    return sizeof(struct node) + (h ? h : ~h);
}
"""


class Count(c_ast.NodeVisitor):
    def __init__(self):
        self.kinds = {}

    def generic_visit(self, node):
        name = type(node).__name__
        self.kinds[name] = self.kinds.get(name, 0) + 1
        super().generic_visit(node)


parser = c_parser.CParser()
for turn in range(40):
    tree = parser.parse(
        SOURCE * (turn + 1) if turn < 1 else SOURCE.replace("hash", f"hash{turn}"), f"file{turn}.c"
    )
    count = Count()
    count.visit(tree)
    text = c_generator.CGenerator().visit(tree)
    print(turn, sum(count.kinds.values()), len(text), sorted(count.kinds.items())[:4])

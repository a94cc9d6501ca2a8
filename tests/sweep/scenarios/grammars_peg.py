"""A PEG grammar with Parsimonious, and bits with bitstring."""

from bitstring import BitArray
from parsimonious.grammar import Grammar
from parsimonious.nodes import NodeVisitor

grammar = Grammar(r"""
    lines = (pair nl)*
    pair = key ws "=" ws value
    key = ~"[a-z]+"i
    value = list / number / word
    list = "[" (value ","? ws)* "]"
    number = ~"[0-9]+"
    word = ~"[a-z]+"i
    ws = ~" *"
    nl = ~"\n+"
""")


class Reader(NodeVisitor):
    def visit_number(self, node, children):
        return int(node.text)

    def visit_pair(self, node, children):
        return (node.text.split("=")[0].strip(), children[4])

    def generic_visit(self, node, children):
        return children or node.text


for size in (3, 9, 27):
    text = "".join(f"key{'abc'[i % 3]} = [{i}, [x, {i * i}], y]\n" for i in range(size))
    print(size, str(Reader().visit(grammar.parse(text)))[-70:])
bits = BitArray()
for i in range(200):
    bits.append(f"uint:9={i * 2}")
bits.rol(5)
print(bits.hex[:30], [bits[i : i + 9].uint for i in range(0, 45, 9)], bits.count(1))

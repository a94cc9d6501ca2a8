"""A calculator, parsed by LALR parsers of Lark with both of its lexers."""

import random

from lark import Lark, Transformer, v_args

CALC = r"""
    ?start: sum
    ?sum: product | sum "+" product -> add | sum "-" product -> sub
    ?product: atom | product "*" atom -> mul
    ?atom: NUMBER -> number | "-" atom -> neg | "(" sum ")"
    NUMBER: /\d+/
    %ignore " "
"""


@v_args(inline=True)
class Evaluate(Transformer):
    from operator import add, mul, neg, sub

    number = int


def expression(depth):
    if depth == 0:
        return str(random.randrange(100))
    return f"({expression(depth - 1)} {random.choice('+-*')} {expression(depth - 1)})"


random.seed(5)
for kind in ("contextual", "basic"):
    parser = Lark(CALC, parser="lalr", lexer=kind)
    for turn in range(8):
        text = expression(4)
        value = Evaluate().transform(parser.parse(text))
        print(kind, turn, value, value == eval(text))

"""JavaScript tokenised and parsed with esprima."""

import esprima

SOURCE = """
'use strict';
const f = (a, b = 2, ...rest) => { for (const x of rest) yield_(x); return `t${a + b}`; };
class Point extends Base { constructor(x) { super(); this.x = x ** 2; } get y() { return /re+/g.test(this.x) ? 1 : null; } static z() {} }
label: for (let i = 0, n = 10; i < n; i++) { if (i % 2) continue label; else switch (i) { case 1: break; default: delete o[i]; } }
try { throw new Error({ a: [1, , 3], 'b': 0x1F, [c]: () => {} }); } catch (e) { console.log(e && e.message || void 0); } finally { }
"""
count = 0


def visit(node, meta):
    global count
    count += 1
    return node


for turn in range(5):
    tree = esprima.parseScript(SOURCE.replace("yield_", "y%d" % turn), {"loc": True}, visit)
    tokens = esprima.tokenize(SOURCE)
    print(turn, len(tree.body), count, len(tokens), tree.body[-1].type)

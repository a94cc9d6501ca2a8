"""Text in the standard library: re, string templates, textwrap, difflib, csv, json, html, tokenize, ast."""

import ast
import csv
import difflib
import html
import io
import json
import re
import string
import textwrap
import tokenize
import zlib

WORDS = (
    "the quick brown fox jumps over the lazy dog while seven wizards boxed my five dozen liquor jugs".split()
)
text = " ".join(WORDS[(i * i) % len(WORDS)] for i in range(600))
pattern = re.compile(r"(?P<first>\b[a-z]{3}\b)\s+(?P<second>\w+)")
found = [match.span("second") for match in pattern.finditer(text)]
print(len(found), found[-1], pattern.sub(lambda m: m["second"].upper(), text)[-50:])
scanner = re.Scanner([(r"\w+", lambda s, t: len(t)), (r"\s+", None)])
print(sum(scanner.scan(text)[0]))
wrapped = textwrap.wrap(text, width=50)
print(len(wrapped), wrapped[7], textwrap.shorten(text, 40), len(textwrap.dedent(textwrap.indent(text, "  "))))
template = string.Template("${a} and $b cost $$ $c")
for i in range(50):
    line = template.substitute(a=i, b=i * i, c=f"{i / 3:.2f}")
print(line, string.Formatter().format("{0:>{width}}|{x!r}", "a", width=5, x="y"))
left, right = wrapped[:25], [line.replace("fox", "cat") for line in wrapped[5:30]]
for line in difflib.unified_diff(left, right, lineterm="", n=1):
    print(line[:30], end="/")
print(difflib.SequenceMatcher(None, left[0], right[0]).ratio(), difflib.get_close_matches("foxes", WORDS))
buffer = io.StringIO()
writer = csv.DictWriter(buffer, ["n", "text", "x"], quoting=csv.QUOTE_MINIMAL)
writer.writeheader()
for i, line in enumerate(wrapped):
    writer.writerow({"n": i, "text": line + ('"' if i % 2 else ","), "x": i / 7})
rows = list(csv.DictReader(io.StringIO(buffer.getvalue())))
print(len(rows), rows[3])


class Encoder(json.JSONEncoder):
    def default(self, value):
        return sorted(value)


data = {"rows": rows, "set": {3, 1, 2}, "nested": [{"k": [None, True, 1e300]}] * 3}
for indent in (None, 2):
    encoded = Encoder(indent=indent, sort_keys=True).encode(data)
    decoded = json.loads(encoded, object_pairs_hook=lambda pairs: dict(reversed(pairs)), parse_float=str)
    print(len(encoded), list(decoded), zlib.crc32(json.dumps(decoded).encode()))
print(len(html.escape(encoded)), html.unescape(html.escape(encoded)) == encoded)
source = (
    "def f(a, *b, c=1, **d):\n    '''doc'''\n    return [x for x in b if x] + [lambda y: (yield y)]\n" * 20
)
tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
print(len(tokens), tokens[11].string)


class Rename(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.copy_location(ast.Name(id=node.id * 2, ctx=node.ctx), node)


for turn in range(4):
    tree = Rename().visit(ast.parse(source))
    print(len(ast.dump(tree)), sum(1 for _ in ast.walk(tree)), ast.unparse(tree)[-30:].strip())

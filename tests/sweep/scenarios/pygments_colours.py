"""Sources in several languages highlighted by Pygments."""

import hashlib

from pygments import highlight
from pygments.formatters import HtmlFormatter, LatexFormatter
from pygments.lexers import get_lexer_by_name

SOURCES = {
    "python": "class A(B):\n    def f(self, x: int = 3) -> str:\n        return f'{x!r:>{4}}' + r'\\d'  # note\n"
    * 12,
    "c": "#include <x.h>\nstatic int f(char *p) { /* c */ return p[0] == '\\n' ? 0x1f : 1.5e3; }\n" * 12,
    "html": "<!DOCTYPE html><p class='a'>text &amp; <script>var x = 1;</script><style>p { color: red }</style></p>\n"
    * 12,
    "json": '{"a": [1, 2.5, null, true], "b": {"c": "text\\u0041"}}\n' * 12,
    "bash": "for f in *.txt; do echo \"$f ${f%%.*}\" | grep -v '^#' > /dev/null; done\n" * 12,
}
for name, source in SOURCES.items():
    for formatter in (HtmlFormatter(linenos=True), LatexFormatter()):
        text = highlight(source, get_lexer_by_name(name), formatter)
        print(name, formatter.name, len(text), hashlib.sha1(text.encode()).hexdigest()[:12])

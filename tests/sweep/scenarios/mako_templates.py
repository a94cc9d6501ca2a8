"""Templates compiled to Python modules and rendered with Mako."""

from mako.lookup import TemplateLookup
from mako.template import Template

lookup = TemplateLookup()
lookup.put_string(
    "base.html", "<%def name='row(cells)'>\n% for c in cells:\n${c | h}|\n% endfor\n</%def>[${self.body()}]"
)
lookup.put_string(
    "page.html",
    "<%inherit file='base.html'/>\n<%! import math %>\n% for n in range(count):\n  ${parent.row([n, n * n, '<b>'])} ${math.gcd(n, 12)}\n% endfor\n",
)
for count in range(1, 30, 4):
    text = lookup.get_template("page.html").render(count=count)
    print(count, len(text), sum(map(ord, text)))
    print(Template("x" * (count % 3) + "${' '.join(str(i) for i in range(%d))}" % count).render())

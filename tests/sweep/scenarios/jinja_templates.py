"""Templates with inheritance, macros, loops and filters, compiled and rendered with Jinja."""

from jinja2 import DictLoader, Environment

env = Environment(
    loader=DictLoader(
        {
            "base": "<h1>{% block title %}{% endblock %}</h1>{% block body %}{% endblock %}",
            "macros": "{% macro cell(x, w=3) %}<td>{{ ('%0' ~ w ~ 'd')|format(x) }}</td>{% endmacro %}",
            "table": "{% extends 'base' %}{% from 'macros' import cell %}{% block title %}{{ name|upper }}{% endblock %}"
            "{% block body %}{% for row in rows if row %}<tr class={{ loop.cycle('odd', 'even') }}>"
            "{% for x in row %}{{ cell(x, w=4) }}{% endfor %}</tr>\n{% else %}none{% endfor %}"
            "{{ rows|map('sum')|list|sort(reverse=true)|join(', ') }}{% endblock %}",
        }
    ),
    trim_blocks=True,
    autoescape=True,
)
env.filters["twice"] = lambda value: value * 2
for size in range(1, 60, 5):
    rows = [[i * j % 97 for j in range(size)] for i in range(size)]
    text = env.get_template("table").render(rows=rows, name="<t%d>" % size)
    print(size, len(text), sum(map(ord, text)), text[:40].replace("\n", " "))
print(
    env.from_string("{% for k, v in d.items() %}{{ k }}={{ v|twice }} {% endfor %}").render(
        d={"a": 1, "b": "x"}
    )
)
